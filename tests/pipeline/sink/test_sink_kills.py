"""The sink's protocol cut off between every two of its steps, by processes that really end, and what the next start makes of it."""

import pytest

pytest.importorskip("pyspark", reason="needs spark: pyspark is not installed")

from pipeline.sink.conftest import MakeQuery
from pipeline.sink.small_spark import Killed, all_values, batches_of

from penstock.pipeline.sink.steps import Step

pytestmark = pytest.mark.invariant("sink.row-counts-once")

BEFORE_THE_COMMIT = [Step.RUN_TAKEN, Step.NAMED, Step.HALF_STAGED, Step.STAGED, Step.CHECKED]
AFTER_THE_COMMIT = [Step.COMMITTED, Step.HALF_ENDED, Step.ENDED]


@pytest.mark.invariant("sink.commit-point")
@pytest.mark.parametrize("step", BEFORE_THE_COMMIT + AFTER_THE_COMMIT, ids=lambda step: step.value)
def test_every_row_counts_once_wherever_the_query_is_killed(query: MakeQuery, topic: str, step: Step) -> None:
    batches = batches_of(3)
    writing = query()
    killed_in = 0 if step is Step.RUN_TAKEN else 1
    with pytest.raises(Killed):
        writing.start(batches, exit_at=step, in_batch=killed_in)
    if step in BEFORE_THE_COMMIT:
        assert writing.values(topic) == all_values(batches[:killed_in]), "rows of a batch that was not committed are seen"
    query().start(batches)
    assert writing.values(topic) == all_values(batches)
    assert writing.held_back(topic) == 0, "a transaction was left open"


@pytest.mark.parametrize("step", [Step.HALF_RECOVERED, Step.RUN_TAKEN], ids=lambda step: step.value)
def test_a_recovery_that_is_killed_is_done_by_the_next(query: MakeQuery, topic: str, step: Step) -> None:
    batches = batches_of(2)
    writing = query()
    with pytest.raises(Killed):
        writing.start(batches, exit_at=Step.COMMITTED, in_batch=1)
    assert writing.values(topic) == all_values(batches[:1])
    with pytest.raises(Killed):
        writing.start(batches, exit_at=step, in_batch=1)
    writing.start(batches)
    assert writing.values(topic) == all_values(batches)
    assert writing.held_back(topic) == 0


def test_rows_of_a_committed_batch_are_there_before_spark_has_replayed_it(query: MakeQuery, topic: str) -> None:
    """The first task of the next run ends what was committed, whatever that task is about."""
    batches = batches_of(2)
    writing = query()
    with pytest.raises(Killed):
        writing.start(batches, exit_at=Step.COMMITTED, in_batch=1)
    report = writing.task(1, "the next run", 0, batches[1][0])
    assert report.is_skipped and report.winner is None
    assert writing.values(topic) == all_values(batches)


@pytest.mark.invariant("sink.one-attempt-counts")
def test_a_task_that_dies_half_way_is_tried_again_and_what_it_left_is_released(query: MakeQuery, topic: str) -> None:
    writing, tasks = query(), batches_of(1)[0]
    first = writing.task(0, "run", 0, tasks[0])
    with pytest.raises(Killed):
        writing.task(0, "run", 1, tasks[1], exit_at=Step.HALF_STAGED)
    second = writing.task(0, "run", 1, tasks[1], attempt=1)
    writing.commit([first, second])
    assert writing.values(topic) == all_values([tasks])
    assert writing.held_back(topic) == 0, "readers wait for the attempt that died"


def test_an_abort_that_is_killed_leaves_a_batch_that_can_be_written_again(query: MakeQuery, topic: str) -> None:
    writing, batches = query(), batches_of(1)
    reports = [writing.task(0, "run", index, rows) for index, rows in enumerate(batches[0])]
    with pytest.raises(Killed):
        writing.abort(reports, exit_at=Step.ABORTING)
    assert writing.values(topic) == []
    writing.start(batches)
    assert writing.values(topic) == all_values(batches)


@pytest.mark.invariant("sink.commit-point")
def test_an_abort_after_the_commit_point_aborts_nothing(query: MakeQuery, topic: str) -> None:
    """Spark calls abort when commit has failed, also when it failed after the record was stored."""
    writing, batches = query(), batches_of(1)
    reports = [writing.task(0, "run", index, rows) for index, rows in enumerate(batches[0])]
    with pytest.raises(Killed):
        writing.commit(reports, exit_at=Step.COMMITTED)
    writing.abort(reports)
    writing.start(batches)
    assert writing.values(topic) == all_values(batches)
    assert writing.held_back(topic) == 0
