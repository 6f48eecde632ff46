"""Several who want to write the same batch: twins of a task, attempts that outlive their batch, runs that outlive their driver."""

import pytest

pytest.importorskip("pyspark", reason="needs spark: pyspark is not installed")

from pipeline.sink.conftest import MakeQuery
from pipeline.sink.small_spark import Killed, Query, all_values, batches_of, rows_of
from waiting import PATIENCE_S

from penstock.peers.client import Client
from penstock.peers.transaction_admin import Wanted, list_transactions
from penstock.pipeline.sink.failures import SinkFailure, TakenOver, WrongCheckpoint
from penstock.pipeline.sink.steps import Step


def ids_of(writing: Query) -> list[str]:
    async def listed(client: Client) -> list[str]:
        rows = await list_transactions(client.router, Wanted(), client.router.deadline(PATIENCE_S))
        return [row.transactional_id for row in rows if f".{writing.sink}" in row.transactional_id]

    return list(writing.call(listed))


@pytest.mark.invariant("sink.one-attempt-counts")
@pytest.mark.parametrize("winner", [0, 1])
def test_of_two_attempts_at_a_task_only_the_winner_counts(query: MakeQuery, topic: str, winner: int) -> None:
    """Speculation: both twins stage all rows, Spark lets one commit, and nobody tells the other."""
    writing, rows = query(), rows_of(0, 0)
    twins = [writing.task(0, "run", 0, rows, attempt=attempt) for attempt in (0, 1)]
    writing.commit([twins[winner]])
    assert writing.values(topic) == all_values([[rows]])
    assert writing.held_back(topic) == 0, "readers wait for the twin that lost"


@pytest.mark.invariant("sink.one-attempt-counts")
def test_an_attempt_that_comes_after_its_batch_is_sent_away(query: MakeQuery, topic: str) -> None:
    writing, rows = query(), rows_of(0, 0)
    writing.commit([writing.task(0, "run", 0, rows)])
    with pytest.raises(TakenOver, match="too late"):
        writing.task(0, "run", 0, rows, attempt=1)
    assert writing.values(topic) == all_values([[rows]])


@pytest.mark.invariant("sink.last-run-commits")
def test_the_next_run_takes_over_from_one_that_still_lives(query: MakeQuery, topic: str) -> None:
    """The old driver is cut off, not dead: neither its tasks nor its commit may count, whenever they arrive."""
    writing, rows = query(), rows_of(0, 0)
    old = writing.task(0, "old run", 0, rows)
    new = writing.task(0, "new run", 0, rows)
    with pytest.raises(TakenOver, match="a later one writes now"):
        writing.task(0, "old run", 1, rows_of(0, 1))
    with pytest.raises(SinkFailure, match="not open any more"):
        writing.commit([old])
    writing.abort([old])
    writing.commit([new])
    assert writing.values(topic) == all_values([[rows]])


@pytest.mark.invariant("sink.last-run-commits")
def test_a_commit_of_a_run_that_is_over_is_refused_by_the_leader_of_the_ledger(query: MakeQuery, topic: str) -> None:
    """Its transactions are open, so that only the ledger can tell: the new run has written under a higher epoch."""
    writing = query()
    old = writing.task(0, "old run", 0, rows_of(0, 0))
    new = writing.task(0, "new run", 1, rows_of(0, 1))
    with pytest.raises(TakenOver, match="new run has taken the sink over"):
        writing.commit([old])
    writing.commit([new])
    assert writing.values(topic) == all_values([[rows_of(0, 1)]])


@pytest.mark.invariant("sink.lost-transaction-fails")
def test_a_transaction_whose_id_was_taken_fails_the_batch_before_it_counts(query: MakeQuery, topic: str) -> None:
    """Spark tries a stage again and counts attempts from 0: the first attempt is fenced, and may be the one that Spark chose."""
    writing, batches = query(), batches_of(1)
    reports = [writing.task(0, "run", index, rows) for index, rows in enumerate(batches[0])]
    writing.task(0, "run", 1, batches[0][1])
    with pytest.raises(SinkFailure, match="nothing of this batch was committed"):
        writing.commit(reports)
    writing.abort(reports)
    assert writing.values(topic) == []
    assert writing.held_back(topic) == 0
    writing.start(batches)
    assert writing.values(topic) == all_values(batches)


@pytest.mark.invariant("sink.state-bounded")
def test_ids_are_used_again_from_batch_to_batch_and_from_run_to_run(query: MakeQuery, topic: str) -> None:
    writing, batches = query(), batches_of(6)
    writing.start(batches[:3])
    used = ids_of(writing)
    assert len(used) == 1 + 2 * 2, "the ledger's, and two slots for each of two tasks"
    writing.start(batches)
    assert ids_of(writing) == used
    assert writing.values(topic) == all_values(batches)


def test_a_checkpoint_that_was_put_back_is_refused(query: MakeQuery, topic: str) -> None:
    writing, batches = query(), batches_of(3)
    writing.start(batches)
    for number in (1, 2):
        (writing.checkpoint / f"commit-{number}").unlink()
    with pytest.raises(WrongCheckpoint, match="has committed batch 2, and batch 1 is to be written"):
        writing.start(batches)
    assert writing.values(topic) == all_values(batches)


def test_orphans_of_a_run_that_had_more_tasks_are_released_by_the_next(query: MakeQuery, topic: str) -> None:
    writing = query()
    for index in range(3):
        writing.task(0, "dead run", index, rows_of(0, index), attempt=index)
    assert writing.held_back(topic) > 0
    writing.start([[rows_of(0, 0)]])
    assert writing.values(topic) == all_values([[rows_of(0, 0)]])
    assert writing.held_back(topic) == 0


@pytest.mark.invariant("sink.pinned-recognises-batches")
@pytest.mark.parametrize("policy", ["fail", "skip", "append"])
def test_a_pinned_sink_knows_what_it_wrote_when_the_checkpoint_is_gone(query: MakeQuery, topic: str, policy: str) -> None:
    """The query is killed after the commit point, and its checkpoint deleted: a new one finishes what it had committed."""
    batches = batches_of(3)
    with pytest.raises(Killed):
        query("first", sinkId=f"pinned-{topic}").start(batches[:2], exit_at=Step.COMMITTED, in_batch=1)
    second = query("second", sinkId=f"pinned-{topic}", onNewCheckpoint=policy)
    if policy == "fail":
        with pytest.raises(WrongCheckpoint, match="onNewCheckpoint"):
            second.start(batches)
        assert second.values(topic) == all_values(batches[:2])
    elif policy == "skip":
        second.start(batches)
        assert second.values(topic) == all_values(batches)
    else:
        second.start([batches[2]])
        second.start([batches[2], *batches_of(5)[4:]])
        assert second.values(topic) == all_values([*batches, *batches_of(5)[4:]])
    assert second.held_back(topic) == 0


@pytest.mark.invariant("sink.pinned-recognises-batches")
def test_batches_that_are_cut_in_another_way_are_not_taken_for_the_same(query: MakeQuery, topic: str) -> None:
    query("first", sinkId=f"pinned-{topic}").start(batches_of(1))
    with pytest.raises(WrongCheckpoint, match="has 8 rows"):
        query("second", sinkId=f"pinned-{topic}", onNewCheckpoint="skip").start(batches_of(1, count=4))
