"""A client that deletes the oldest records of a topic (DeleteRecords), while others write and read and leaders change.

Once it was told that records are deleted they never come back, whoever leads, and no replica that was in sync all the while has them still.
What is at or above the offset that anybody asked for stays.
"""

from collections.abc import Iterator

from penstock.errors import ErrorCode
from penstock.partition.partition import Partition
from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure
from penstock.peers.offsets import EARLIEST, LATEST
from penstock.simulator.clusters.data_watch import DELETED_STAYS
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan, TopicPlan
from penstock.simulator.workloads.line import LineLost
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey

ON_EVERY_REPLICA = "a deletion is on every in-sync replica"
NOT_MORE = "only what was asked for is deleted"

_VERSION = 2
_HIGH_WATERMARK = -1
_TO_THE_END = 0.1
_TIMEOUT_MS = 1_500
_ASKED_SECONDS = 3.0
_MAY_BE = (
    ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_OUT_OF_RANGE,  # A new leader's watermark lags behind.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE,
)  # fmt: skip


class RecordDeleting:
    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        self._plan = plan
        self._topic: TopicPlan = stage.topics[plan.topic]
        self._stage = stage
        self._env = env
        self._asked: dict[TopicPartition, float] = {}  # The highest offset that was asked for.

    async def run(self) -> None:
        async with self._stage.client(self._env, self._plan.name) as client:
            while not self._stage.is_over:
                try:
                    await self._delete(client, self._env.rng.choice(self._stage.partitions(self._topic.name)))
                except (PeerFailure, LineLost):
                    await self._stage.breathe(self._env, 0.1)
                await self._stage.breathe(self._env, self._plan.options["pause"])
        self._stage.last_checks.append(self._check)

    async def _delete(self, client: Client, where: TopicPartition) -> None:
        start = (await client.list_offsets({where: EARLIEST}, deadline_s=_ASKED_SECONDS))[where].offset
        end = (await client.list_offsets({where: LATEST}, deadline_s=_ASKED_SECONDS))[where].offset
        if not 0 <= start < end:
            return
        rng, stage = self._env.rng, self._stage
        offset = _HIGH_WATERMARK if rng.random() < _TO_THE_END else rng.randint(start, min(end, start + rng.choice((1, 5, 40))))
        line = await stage.line_to_leader(client, self._plan.name, where)
        try:
            self._asked[where] = max(self._asked.get(where, 0), float("inf") if offset == _HIGH_WATERMARK else offset)
            operation = stage.operations.begin("delete records", self._env.now())
            before = dict(stage.data.copies_in_sync(where))
            row = {"partition_index": where.partition, "offset": offset}
            body = {"topics": [{"name": where.topic, "partitions": [row]}], "timeout_ms": _TIMEOUT_MS}
            answer = (await line.ask(ApiKey.DELETE_RECORDS, _VERSION, body)).topics[0].partitions[0]
        finally:
            line.close()
        code = ErrorCode(int(answer.error_code))
        if code is ErrorCode.NONE:
            stage.operations.complete(operation, self._env.now())
            self._acknowledged(where, offset, int(answer.low_watermark), before)
        elif code not in _MAY_BE:
            stage.notebook.find("in the calm everything works", where, f"{self._plan.name}: {code.name} for records below {offset}")

    def _acknowledged(self, where: TopicPartition, offset: int, start: int, before: dict[str, Partition]) -> None:
        stage = self._stage
        if start < offset:
            stage.notebook.find(DELETED_STAYS, where, f"{offset} was asked for, and the log begins at {start}")
        stage.data.deleted(where, start)
        for host, partition in stage.data.copies_in_sync(where):
            if before.get(host) is partition and partition.log.start_offset < start:
                story = f"{start} was acknowledged, and {host} begins at {partition.log.start_offset}"
                stage.notebook.find(ON_EVERY_REPLICA, where, story)
        stage.provoke()

    def _check(self) -> Iterator[tuple[str, TopicPartition, str]]:
        """When everything has been read back."""
        for where in self._stage.partitions(self._topic.name):
            final = self._stage.notebook.diary.finals.get(where)
            if final is None:
                continue
            if final.start_offset < self._stage.data.told_start(where):
                yield DELETED_STAYS, where, f"at the end the log begins at {final.start_offset}, and was told to begin later"
            if final.start_offset > self._asked.get(where, 0):
                yield NOT_MORE, where, f"at the end the log begins at {final.start_offset}, and nobody asked for so much"
