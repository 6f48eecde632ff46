"""Something that nobody foresaw befalls the task of one partition: it is told, and the partition does not stay behind."""

from typing import Any

import pytest
from clusters.scene import BOTH, TOPIC, Scene
from clusters.test_leftovers import decide

from penstock.cluster.commands import Reassignment, ReassignPartitions
from penstock.errors import DiskFailed
from penstock.vocabulary import NodeId


class Stumbling:
    """Fails the first times that it is called."""

    def __init__(self, right: Any, failure: Exception, times: int = 2) -> None:
        self._right = right
        self._failure = failure
        self.times = times

    def __call__(self, *args: Any, **named: Any) -> Any:
        if self.times:
            self.times -= 1
            raise self._failure
        return self._right(*args, **named)


@pytest.mark.parametrize("failure", [RuntimeError("nobody foresaw it"), DiskFailed("no such thing today")])
def test_a_replica_that_cannot_be_opened_is_tried_again(failure: Exception, monkeypatch: pytest.MonkeyPatch):
    with Scene((BOTH, BOTH, BOTH, "broker")) as cluster:
        cluster.create(min_insync_replicas=2)
        cluster.produce(b"a")
        state = cluster.cluster.state(TOPIC, 0)
        assert state is not None
        spare = next(NodeId(node) for node in (1, 2, 3, 4) if node not in state.replicas)
        disk = cluster.world.hosts[cluster.host(spare)].disk
        stumbling = Stumbling(disk.mkdir, failure)
        monkeypatch.setattr(disk, "mkdir", stumbling)
        decide(cluster, ReassignPartitions((Reassignment(TOPIC, 0, (*state.replicas[:2], spare)),)))
        cluster.until(lambda: spare in cluster.in_sync())
        assert not stumbling.times
        assert sum(str(failure) in line for line in cluster.reports.lines) >= 2
        cluster.reports.failures.clear()
        cluster.check()
