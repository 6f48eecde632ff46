"""A node whose metadata lag: what is committed in the metadata log is not replayed there for a while, while its links and clients go on.

The node votes, replicates, leads and answers as ever, from what it knew before. What it does not know yet is not gone: every place that
reads the image as if it were today's shows itself here.
"""

import asyncio
from collections.abc import Sequence
from functools import wraps
from random import Random
from typing import Any

from penstock.broker.quorum_replaying import Replayer
from penstock.consensus.nouns import Entry
from penstock.simulator.clusters.members import Cluster
from penstock.simulator.clusters.menu import Lag
from penstock.simulator.faults import Field
from penstock.simulator.process import CURRENT

_PROVOKED = 0.8  # How many tender moments are answered with a lag.
_PROVOKED_SECONDS = (0.3, 2.0)
_SPARES_THE_CONTROLLER = 0.8  # While it lags nothing is decided: other trouble than the one that is wanted here.


class Lagging:
    def __init__(self, cluster: Cluster, field: Field, lags: Sequence[Lag]) -> None:
        self.intervals: list[tuple[float, float]] = []  # From the beginning to the end of each lag.
        self._cluster = cluster
        self._field = field
        self._lags = lags
        self._until: dict[str, float] = {}  # By host.
        self._rng = Random(f"{cluster.world.seed}/lagging")

    def patches(self) -> list[tuple[Any, str, Any]]:
        """What stands before the product's function while the run lasts; nothing in a run without lags."""
        if not self._lags:
            return []
        replay = Replayer._replay

        @wraps(replay)
        async def replay_late(replayer: Replayer, entry: Entry) -> None:
            process = CURRENT.get(None)
            if process is not None and (left_s := self._left_s(process.name)) > 0.0:
                await asyncio.sleep(left_s)
            await replay(replayer, entry)

        return [(Replayer, "_replay", replay_late)]

    def unleash(self) -> None:
        for lag in self._lags:
            self._cluster.world.at(lag.at, lambda lag=lag: self._begin(lag))  # type: ignore[misc]

    def provoke(self, topic: str) -> None:
        """A workload says that it would hurt now if whoever leads this topic learned late."""
        now = self._cluster.world.now()
        if not self._lags or self._field.is_calm or any(until > now for until in self._until.values()):
            return
        led = [state.leader for name, _, state in self._cluster.states() if name == topic and state.leader >= 0]
        if led and self._rng.random() < _PROVOKED:
            self._lag(self._cluster.host_of(self._rng.choice(led)), self._rng.uniform(*_PROVOKED_SECONDS))

    def _left_s(self, host: str) -> float:
        return max(0.0, self._until.get(host, 0.0) - self._cluster.world.now())

    def _begin(self, lag: Lag) -> None:
        if self._field.is_calm:
            return
        decides = self._cluster.controller()
        spares = self._rng.random() < _SPARES_THE_CONTROLLER
        hosts = [host for host in self._cluster.brokers if not spares or host != decides]
        if hosts:
            self._lag(self._rng.choice(hosts), lag.seconds)

    def _lag(self, host: str, seconds: float) -> None:
        world = self._cluster.world
        self._until[host] = world.now() + seconds
        self.intervals.append((world.now(), world.now() + seconds))
        world.trace.note(world.now(), 0, "fault metadata lag")
