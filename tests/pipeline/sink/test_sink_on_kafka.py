"""The sink's protocol before Apache Kafka: killed between every two steps, rivalled, and out of time, with the same code as before a node.

One broker for all of them: a JVM takes seconds to start.
"""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

pytest.importorskip("pyspark", reason="needs spark: pyspark is not installed")

from apache_kafka import apache_kafka
from pipeline.sink.small_spark import Killed, Query, all_values, batches_of, rows_of
from waiting import PATIENCE_S

from penstock.peers.client import Client
from penstock.peers.transaction_admin import fence
from penstock.pipeline.sink.failures import RowsLost, SinkFailure, TakenOver
from penstock.pipeline.sink.steps import Step

pytestmark = [
    pytest.mark.needs("java"),
    pytest.mark.paired,
    pytest.mark.invariant("sink.row-counts-once", "sink.last-run-commits", "sink.lost-transaction-fails"),
]

STAYS = pytest.mark.slow(stays="tests/pipeline/sink/test_sink_on_kafka.py::test_every_row_counts_once_wherever_the_query_is_killed")
MORE_KILLS = [Step.NAMED, Step.HALF_STAGED, Step.STAGED, Step.CHECKED, Step.HALF_ENDED, Step.ENDED]
KILLS = [Step.COMMITTED, *(pytest.param(step, marks=STAYS) for step in MORE_KILLS)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")  # It ends before the better compiler pays.
        with apache_kafka(tmp_path_factory.mktemp("kafka")) as bootstrap:
            yield bootstrap


@pytest.fixture
def writing(kafka: str, tmp_path: Path) -> Query:
    made = Query(kafka, f"sink-{uuid4().hex[:12]}", tmp_path / "checkpoint")
    made.call(lambda client: client.create_topic(made.options.topic or "", partitions=2))
    return made


def seen(writing: Query) -> list[str]:
    return writing.values(writing.options.topic or "")


@pytest.mark.parametrize("step", KILLS, ids=lambda step: step.value)
def test_every_row_counts_once_wherever_the_query_is_killed(writing: Query, step: Step) -> None:
    batches = batches_of(3)
    with pytest.raises(Killed):
        writing.start(batches, exit_at=step, in_batch=1)
    writing.start(batches)
    assert seen(writing) == all_values(batches)
    assert writing.held_back(writing.options.topic or "") == 0


def test_rivals_are_refused_by_kafka_too(writing: Query) -> None:
    """By the leader of the ledger, where epochs decide, and by the coordinator, where the id was taken."""
    old = writing.task(0, "old run", 0, rows_of(0, 0))
    new = writing.task(0, "new run", 1, rows_of(0, 1))
    with pytest.raises(TakenOver, match="new run has taken the sink over"):
        writing.commit([old])
    writing.commit([new])
    late = writing.task(1, "new run", 0, rows_of(1, 0))
    writing.task(1, "new run", 0, rows_of(1, 0))
    with pytest.raises(SinkFailure, match="not open any more"):
        writing.commit([late])
    assert seen(writing) == all_values([[rows_of(0, 1)]])


def test_rows_that_are_lost_after_the_commit_fail_the_query(writing: Query) -> None:
    batches = batches_of(2)
    with pytest.raises(Killed):
        writing.start(batches, exit_at=Step.COMMITTED, in_batch=1)

    async def run_out(client: Client) -> None:
        await fence(client.router, f"penstock-sink.{writing.sink}.1.0.0", client.router.deadline(PATIENCE_S))

    writing.call(run_out)
    with pytest.raises(RowsLost, match="1 of its 2 transactions were aborted"):
        writing.start(batches)
    assert seen(writing) == all_values([batches[0], [batches[1][1]]]), "the other was ended before the alarm"
