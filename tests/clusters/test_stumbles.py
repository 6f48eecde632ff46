"""Something that nobody foresaw befalls the task of one partition: it is told, and the partition does not stay behind."""

from typing import Any

import pytest
from clusters.scene import BOTH, TOPIC, Scene
from clusters.test_leftovers import decide

from penstock.broker import housekeeping
from penstock.cluster.commands import Reassignment, ReassignPartitions
from penstock.errors import DiskFailed
from penstock.partition.leader import TimePassed
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


def test_a_look_at_followers_that_fails_is_not_the_last(monkeypatch: pytest.MonkeyPatch):
    """Without it a follower that is gone stays in the in-sync set, and producers wait for it for ever."""
    with Scene() as cluster:
        cluster.create(min_insync_replicas=2)
        cluster.produce(b"a")
        away = cluster.followers()[0]
        stumbling = Stumbling(TimePassed, RuntimeError("nobody foresaw it"))
        monkeypatch.setattr(housekeeping, "TimePassed", stumbling)
        cluster.until(lambda: not stumbling.times)
        cluster.cut(away)
        cluster.produce(b"b")
        assert away not in cluster.in_sync()
        assert sum("nobody foresaw it" in line for line in cluster.reports.lines) == 2
        cluster.reports.failures.clear()
        cluster.check()


def test_a_follower_that_stands_still_holds_producers_up_for_five_seconds_at_most() -> None:
    """Processes show the same, without a bound of time (system/test_cluster_life.py)."""
    with Scene(replica_lag_ms=1_000) as cluster:
        cluster.create()
        cluster.produce(b"before")
        slow = next(node for node in cluster.followers() if node != cluster.controller())
        cluster.pause(slow)
        cluster.produce(b"meanwhile", within=5.0)
        assert slow not in cluster.in_sync()
        cluster.produce(b"at once", within=1.0)
        cluster.resume(slow)
        cluster.until(lambda: slow in cluster.in_sync())
        cluster.check()
