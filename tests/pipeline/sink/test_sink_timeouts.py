"""Transactions that run out of time: before the commit point it costs a batch, after it rows, and nobody is left in the dark."""

from collections.abc import Callable
from contextlib import suppress

import pytest

pytest.importorskip("pyspark", reason="needs spark: pyspark is not installed")

from pipeline.sink.conftest import MakeQuery
from pipeline.sink.small_spark import Killed, Query, all_values, batches_of, rows_of
from waiting import NEVER_MS, PATIENCE_S

from penstock.peers.appending import ProducerIdentity
from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure
from penstock.peers.transaction_admin import describe_transaction, fence
from penstock.peers.transaction_calls import TransactionCalls
from penstock.pipeline.sink.failures import RowsLost, SinkFailure
from penstock.pipeline.sink.steps import Step
from penstock.vocabulary import NO_PRODUCER, ProducerId

pytestmark = pytest.mark.invariant("sink.lost-transaction-fails")

# Rows must be staged within the time-out, and the time-out must come: a machine that is too slow for the first tries the next one.
TIMEOUTS_MS = (1_000, 10_000, 100_000)


def left_open(query: MakeQuery, topic: str, stage: Callable[[Query], None]) -> Query:
    """Stages rows under a time-out that has not come yet, and returns the query whose transactions are open."""
    for timeout_ms in TIMEOUTS_MS:
        writing = query(f"checkpoint-{timeout_ms}", transactionTimeoutMs=timeout_ms)
        with suppress(*([] if timeout_ms == TIMEOUTS_MS[-1] else [SinkFailure, PeerFailure])):
            stage(writing)
            if writing.held_back(topic) > 0:
                return writing
    raise AssertionError("nothing of what was staged holds readers back")


async def run_out(client: Client, name: str) -> None:
    """What the coordinator does when a transaction has run out of time, now: it is aborted, and its producer fenced."""
    await fence(client.router, name, client.router.deadline(PATIENCE_S))


async def end_first(client: Client, name: str) -> None:
    """As far as a driver may get before it is killed."""
    found = await describe_transaction(client.router, name, client.router.deadline(PATIENCE_S))
    identity = ProducerIdentity(ProducerId(found.producer_id), found.producer_epoch)
    await TransactionCalls(client, name, deadline_s=PATIENCE_S).end(identity, is_commit=True, is_v2=False)


@pytest.mark.invariant("sink.orphans-time-out")
def test_orphans_hold_readers_back_no_longer_than_their_time_out(query: MakeQuery, topic: str) -> None:
    def killed_when_staged(writing: Query) -> None:
        with pytest.raises(Killed):
            writing.start(batches_of(1), exit_at=Step.STAGED, in_batch=0)

    writing = left_open(query, topic, killed_when_staged)
    writing.until_released(topic)
    assert writing.values(topic) == []


def test_a_batch_that_took_too_long_is_not_committed_and_comes_again(query: MakeQuery, topic: str) -> None:
    batches, reports = batches_of(1), []

    def staged(writing: Query) -> None:
        reports[:] = [writing.task(0, "run", index, rows) for index, rows in enumerate(batches[0])]

    writing = left_open(query, topic, staged)
    writing.until_released(topic)
    with pytest.raises(SinkFailure, match="nothing of this batch was committed"):
        writing.commit(reports)
    writing.abort(reports)
    query().start(batches)
    assert writing.values(topic) == all_values(batches)


def test_a_batch_with_hardly_any_time_left_is_not_begun_to_be_committed(query: MakeQuery, topic: str) -> None:
    writing = query(transactionTimeoutMs=60_000)
    report = writing.task(0, "run", 0, rows_of(0, 0))

    def late(client: Client) -> None:
        from penstock.pipeline.sink.ending import check_open, described

        async def ask() -> None:
            assert report.winner is not None
            seen = await described(client, [report.winner.transactional_id])
            started_ms = seen[report.winner.transactional_id].started_ms or 0
            check_open([report.winner], seen, started_ms + 53_000)
            with pytest.raises(SinkFailure, match=r"open for 55000 ms of the 60000 ms(.|\n)*the clocks of the driver and the brokers"):
                check_open([report.winner], seen, started_ms + 55_000)

        return ask()  # type: ignore[return-value]

    writing.call(late)


def test_rows_that_are_lost_after_the_commit_fail_the_query_and_every_start_of_it(query: MakeQuery, topic: str) -> None:
    writing, batches = query(), batches_of(3)
    with pytest.raises(Killed):
        writing.start(batches, exit_at=Step.COMMITTED, in_batch=1)
    writing.call(lambda client: end_first(client, f"penstock-sink.{writing.sink}.1.0.0"))
    writing.call(lambda client: run_out(client, f"penstock-sink.{writing.sink}.1.1.0"))
    writing.until_released(topic)
    seen = writing.values(topic)
    lost = sorted(set(all_values(batches[:2])) - set(seen))
    assert len(lost) == 3, "one of two transactions was ended"
    for _ in range(2):
        with pytest.raises(RowsLost, match=r"batch 1 .* 1 of its 2 transactions were aborted") as told:
            writing.start(batches)
        assert "lostBatch=rewrite" in str(told.value) and "lostBatch=skip" in str(told.value)
    assert writing.values(topic) == seen, "something was written after all"
    query(lostBatch="skip").start(batches)
    assert sorted([*writing.values(topic), *lost]) == all_values(batches)


def test_a_lost_batch_is_written_again_where_that_is_asked_for(query: MakeQuery, topic: str) -> None:
    writing, batches = query(), batches_of(2)
    with pytest.raises(Killed):
        writing.start(batches, exit_at=Step.COMMITTED, in_batch=1)
    for task in range(2):
        writing.call(lambda client, task=task: run_out(client, f"penstock-sink.{writing.sink}.1.{task}.0"))
    query(lostBatch="rewrite").start(batches)
    assert writing.values(topic) == all_values(batches), "no transaction was ended, so nothing comes twice"


def test_an_id_that_was_used_since_raises_no_false_alarm(query: MakeQuery, topic: str) -> None:
    """All ends were made, Spark did not hear of it, and somebody has used an id meanwhile: its coordinator cannot tell any more."""
    writing, batches = query(), batches_of(2)
    with pytest.raises(Killed):
        writing.start(batches, exit_at=Step.ENDED, in_batch=1)

    async def use(client: Client) -> None:
        name = f"penstock-sink.{writing.sink}.1.0.0"
        await TransactionCalls(client, name, deadline_s=PATIENCE_S).init(ProducerIdentity(NO_PRODUCER, -1), timeout_ms=NEVER_MS)

    writing.call(use)
    writing.start(batches)
    assert writing.values(topic) == all_values(batches)


def test_a_time_out_that_the_brokers_do_not_allow_is_refused_in_words(query: MakeQuery) -> None:
    with pytest.raises(SinkFailure, match="lower transactionTimeoutMs"):
        query(transactionTimeoutMs=2_000_000_000).start(batches_of(1))
