"""The idempotent producer by hand, before a cluster: one partition, five batches in flight, the leader looked up anew whenever it says no.

What it holds nodes to is what it holds a single one to, across every change of leader: the next sequence is always taken, a batch that was
acknowledged and is sent again is answered with its old offset, a gap is refused.
"""

from typing import Any

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan
from penstock.simulator.workloads.line import Line, LineLost
from penstock.simulator.workloads.pipelining import Batch, Flow, Pipelining
from penstock.vocabulary import TopicPartition

# Another may lead, or too few replicas are there: nothing was stored, or nobody knows.
ELSEWHERE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT,
)  # fmt: skip


class ClusterPipelining(Pipelining):
    _stage: ClusterStage

    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        super().__init__(plan, stage, env)
        self._where = TopicPartition(plan.topic, plan.options["partition"])
        self._client: Client | None = None

    async def run(self) -> None:
        async with self._stage.client(self._env, self._plan.name) as client:
            self._client = client
            await super().run()

    async def _connected(self) -> Line:
        assert self._client is not None
        if self._line is None or not self._line.is_open:
            self._line = await self._stage.line_to_leader(self._client, self._plan.name, self._where)
        return self._line

    async def _begin_life(self, line: Line) -> None:
        await super()._begin_life(line)
        self._flows = [flow for flow in self._flows if flow.where == self._where]

    def _take(self, flow: Flow, batch: Batch, row: Any, is_held_up: set[TopicPartition]) -> None:
        code = ErrorCode(int(row.error_code))
        if code in ELSEWHERE:
            batch.may_be_stored = True
            is_held_up.add(flow.where)
            self._hang_up()
        elif code is ErrorCode.NONE and int(row.base_offset) < 0:
            flow.unanswered.remove(batch)  # Stored, so long ago that nobody knows where.
        elif code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            flow.unanswered.remove(batch)
        else:
            super()._take(flow, batch, row, is_held_up)

    async def _try_something(self, line: Line, flow: Flow) -> None:
        if line.is_open:
            await super()._try_something(line, flow)

    def _is_later(self, code: ErrorCode) -> bool:
        if code in ELSEWHERE:
            self._hang_up()
            return True
        return super()._is_later(code)

    def _hang_up(self) -> None:
        """The rest of what is under way fails, and stays unknown."""
        if self._line is not None:
            self._line.close()
            raise LineLost("another node may lead")
