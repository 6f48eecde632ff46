"""A member of a consumer group before a cluster: it looks for the group's coordinator, and for another one when that says no.

What it holds the group to is what a single node is held to, also when the coordinator's node dies: one owner in a generation, and what was
acknowledged as committed is never taken back.
"""

from typing import Any

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.connection import Address
from penstock.peers.failures import PeerFailure
from penstock.peers.fetching import FetchLimits
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan
from penstock.simulator.workloads.fetching import take_records
from penstock.simulator.workloads.joining import PATIENCE_SECONDS, Joining
from penstock.simulator.workloads.line import Line, LineLost
from penstock.wire.api_keys import ApiKey

# The coordinator may be another node by now, or not be ready yet.
MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_READ_SECONDS = 0.5


class ClusterJoining(Joining):
    _stage: ClusterStage

    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        super().__init__(plan, stage, env)
        self._client: Client | None = None

    async def run(self) -> None:
        async with self._stage.client(self._env, self._plan.name) as client:
            self._client = client
            await super().run()

    async def _connect(self) -> Line:
        asked = await self._stage.line_to_anybody(self._env, self._plan.name)
        try:
            found = (await self._find_coordinator(asked)).coordinators[0]
        finally:
            asked.close()
        if found.error_code != ErrorCode.NONE:
            raise LineLost(f"no coordinator: {ErrorCode(int(found.error_code)).name}")
        address = Address(found.host, int(found.port))
        return await CoordinatorLine.open(self._stage.notebook, self._plan.name, timeout_seconds=PATIENCE_SECONDS, address=address)

    async def _read(self, line: Line) -> None:
        assert self._client is not None
        limits = FetchLimits(wait_ms=0, bytes_max=self._env.rng.choice((1, 2_000)))
        for where, offset in list(self._next.items()):
            try:
                row = await self._client.fetch(where.topic, where.partition, offset, limits=limits, deadline_s=_READ_SECONDS)
            except PeerFailure:
                continue
            self._next[where] = take_records(
                self._stage.notebook, where, self._topic, self._plan.name, row.records, offset=offset, now=self._env.now()
            )


class CoordinatorLine(Line):
    """Ends itself when the other side says that it does not coordinate: whoever waits looks for the one that does."""

    async def ask(self, api: ApiKey, version: int, body: dict[str, Any]) -> Any:
        answer = await super().ask(api, version, body)
        rows = [row for topic in getattr(answer, "topics", ()) for row in topic.partitions]
        codes = [int(getattr(one, "error_code", ErrorCode.NONE)) for one in (answer, *rows)]
        if any(code in MOVED for code in codes):
            self.close()
            raise LineLost("another node coordinates")
        return answer
