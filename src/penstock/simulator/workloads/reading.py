"""Readers as `peers/` has them: following a topic as it grows, or from its start again and again, with fetch sessions or without; of all
records, or only of those that are committed.

Each life of a reader has a name of its own in the diary: within one life nothing may be skipped or seen twice.
"""

import asyncio

from penstock.peers.client import Client
from penstock.peers.failures import OffsetLost, PeerFailure
from penstock.peers.fetching import FetchLimits
from penstock.peers.positions import FROM_EARLIEST, FROM_LATEST, ReadRecord
from penstock.peers.reader import Reader, ReaderSettings
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan, TopicPlan
from penstock.simulator.workloads.stage import Stage
from penstock.vocabulary import TopicPartition
from penstock.wire.batches import Record

_PATIENCE_SECONDS = 10.0


class Reading:
    def __init__(self, plan: ClientPlan, stage: Stage, env: SimEnv) -> None:
        self._plan = plan
        self._topic: TopicPlan = stage.topics[plan.topic]
        self._stage = stage
        self._env = env
        self._lives = 0
        self._is_following = plan.kind == "follow"
        self._is_committed_only = bool(plan.options.get("is_committed_only"))

    async def run(self) -> None:
        async with self._stage.client(self._env, self._plan.name) as client:
            while not self._stage.is_over:
                self._lives += 1
                try:
                    await self._live(client)
                except OffsetLost as lost:
                    self._lost(lost)
                except PeerFailure:
                    pass  # The node was away for too long, or refuses what is damaged: another life.
                await self._stage.breathe(self._env, 0.2 + self._plan.options["pause"])

    async def _live(self, client: Client) -> None:
        start = self._env.rng.choice((FROM_EARLIEST, FROM_EARLIEST, FROM_LATEST)) if self._is_following else FROM_EARLIEST
        settings = ReaderSettings(
            is_following=self._is_following,
            uses_sessions=self._plan.options["uses_sessions"],
            fetch=FetchLimits(wait_ms=self._env.rng.choice((0, 50, 500)), is_committed_only=self._is_committed_only),
            partition_bytes_max=self._env.rng.choice((1, 500, 1 << 20)),
            patience_s=_PATIENCE_SECONDS,
        )
        async with Reader(client, dict.fromkeys(self._stage.partitions(self._topic.name), start), settings) as reader:
            while not self._stage.is_over:
                try:
                    async with asyncio.timeout(1.0):
                        records = await reader.read()
                except TimeoutError:
                    continue  # A reader that follows may wait for ever: look at the bell now and then.
                if not records and not self._is_following:
                    return
                for record in records:
                    self._see(record)

    def _see(self, record: ReadRecord) -> None:
        seen = Record(record.key, record.value, record.headers, record.timestamp_ms, record.offset)
        where, reader = TopicPartition(record.topic, record.partition), f"{self._plan.name}.{self._lives}"
        self._stage.notebook.saw(where, self._topic, reader, seen, self._env.now())
        if self._is_committed_only:
            self._stage.notebook.diary.transactions.read(where, reader, record.offset, record.value or b"", self._env.now())

    def _lost(self, lost: OffsetLost) -> None:
        if self._stage.notebook.keeps_everything(lost.partition, self._topic):
            self._stage.notebook.find("what was there stays there", lost.partition, f"{self._plan.name}: {lost.problem}")
