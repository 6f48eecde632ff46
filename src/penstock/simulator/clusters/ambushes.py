"""Trouble that lies in wait for a moment: right after an append, just before an answer leaves, in the middle of a truncation.

Such moments last microseconds, and a fault that falls at random meets them once in thousands of seeds. An ambush is laid by standing beside
a function of the product: it runs as ever, and the host that ran it may be struck in the same instant.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import wraps
from random import Random
from typing import Any

from penstock.broker.in_sync_changes import InSyncChanges
from penstock.broker.node import Node
from penstock.broker.quorum import Quorum
from penstock.cluster.image import ClusterImage
from penstock.consensus.state import State
from penstock.log.log import Log
from penstock.partition.partition import Partition
from penstock.simulator.clusters.faults import BLOWS
from penstock.simulator.clusters.members import Cluster
from penstock.simulator.faults import Field
from penstock.simulator.process import CURRENT

MOMENTS: dict[str, tuple[tuple[Any, str], ...]] = {
    "after an append": ((Node, "appended"),),
    "before an answer": ((Node, "carry_out"),),
    "in a truncation": ((Log, "truncate_to"), (Log, "start_over")),
    "when it begins to lead": ((Partition, "lead"),),
    "when it begins to follow": ((Partition, "follow"),),
    "when it writes a checkpoint": ((Log, "write_checkpoint"),),
    "when it learns of a decision": ((ClusterImage, "replay"),),
    "when it votes": ((State, "vote_for"),),
    "when it begins to decide": ((Quorum, "_elected"),),
    "when it takes a snapshot": ((Quorum, "_take_snapshot"), (Quorum, "_install")),
    "when it asks for another set": ((InSyncChanges, "propose"),),
}
# They come often.
_USUAL = {"after an append": 0.01, "before an answer": 0.01, "when it writes a checkpoint": 0.02, "when it learns of a decision": 0.01}
_RARE = 0.15
_WAITS_SECONDS = (0.0, 0.0, 0.000_1, 0.002)


def draw_ambushes(rng: Random) -> dict[str, float]:
    """Which moments are watched in this run, and how often they are struck."""
    if rng.random() < 0.4:
        return {}
    return {name: _USUAL.get(name, _RARE) * rng.choice((0.3, 1.0, 3.0)) for name in MOMENTS if rng.random() < 0.4}


class Ambushes:
    def __init__(self, cluster: Cluster, field: Field, chances: Mapping[str, float]) -> None:
        self.struck: Counter[str] = Counter()
        self.intervals: list[tuple[float, float]] = []  # From each blow to the end of what it did.
        self._cluster = cluster
        self._field = field
        self.chances = chances
        self._rng = Random(f"{cluster.world.seed}/ambushes")

    def patches(self) -> list[tuple[Any, str, Any]]:
        """What stands beside the product's functions while the run lasts."""
        return [(owner, name, self._beside(getattr(owner, name), moment)) for moment in self.chances for owner, name in MOMENTS[moment]]

    def _beside(self, original: Callable[..., Any], moment: str) -> Callable[..., Any]:
        @wraps(original)
        def watched(*arguments: Any, **options: Any) -> Any:
            result = original(*arguments, **options)  # A coroutine, where it is one: then the moment is its beginning.
            self._came(moment)
            return result

        return watched

    def _came(self, moment: str) -> None:
        if self._field.is_calm or self._rng.random() >= self.chances[moment]:
            return
        process = CURRENT.get(None)
        if process is None or process.name not in self._cluster.processes:
            return
        host, blow = process.name, BLOWS[self._rng.choice(list(BLOWS))]
        seconds = self._rng.choice((0.1, 0.5, 2.0))
        self.struck[moment] += 1
        now = self._cluster.world.now()
        self.intervals.append((now, now + seconds))
        self._field.strike_later(self._rng.choice(_WAITS_SECONDS), lambda: blow(self._field, host, seconds))
