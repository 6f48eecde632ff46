"""The broker killed between the steps of the sink's protocol: what it acknowledged is still there when it is back."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs spark: pyspark is not installed")

from pipeline.sink.small_spark import Killed, Query, all_values, batches_of
from ports import free_port

from penstock.pipeline.sink.steps import Step
from penstock.testing.brokers import Broker, BrokerFailed

TOPIC = "orders"


class Fragile:
    """A node on one directory and one port, that is killed and started again."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._port = directory, free_port()
        self.node = self._started()
        self.node.create_topic(TOPIC, partitions=2)

    def kill(self) -> None:
        os.kill(self.node.pid, signal.SIGKILL)
        self.close()
        self.node = self._started()

    def close(self) -> None:
        try:
            self.node.stop()
        except BrokerFailed:
            return  # It did not end by itself: that was the point.

    def _started(self) -> Broker:
        return Broker({"kafka": f"127.0.0.1:{self._port}"}, self._directory).start()


@pytest.fixture
def fragile(tmp_path: Path) -> Iterator[Fragile]:
    made = Fragile(tmp_path / "node")
    yield made
    made.close()


def test_rows_count_once_though_the_broker_is_killed_between_all_steps(fragile: Fragile, tmp_path: Path) -> None:
    writing, batches = Query(fragile.node.bootstrap, TOPIC, tmp_path / "checkpoint"), batches_of(3)
    reports = [writing.task(0, "run", index, rows) for index, rows in enumerate(batches[0])]
    fragile.kill()
    assert writing.values(TOPIC) == []
    writing.commit(reports)
    fragile.kill()
    assert writing.values(TOPIC) == all_values(batches[:1])
    with pytest.raises(Killed):
        writing.start([[], *batches[1:]], exit_at=Step.COMMITTED, in_batch=1)
    fragile.kill()
    writing.start([[], *batches[1:]])
    assert writing.values(TOPIC) == all_values(batches)
    assert writing.held_back(TOPIC) == 0
