"""A compacted topic of a cluster: few keys, written over and over and deleted, by one idempotent producer at a time.

Replicas compact each by itself, so their files differ; the last word on each key must be the same, whoever leads.
"""

import asyncio

from penstock.peers.batching import Delivered
from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure
from penstock.peers.partitioner import partition_of_key
from penstock.peers.producer import Producer, ProducerSettings
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.diary import Attempt
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan, TopicPlan
from penstock.simulator.workloads.values import draw_size, identity_of, make_record, make_tombstone
from penstock.vocabulary import TopicPartition
from penstock.wire.batches import Record

_TOMBSTONE = 0.2
RECORDS_MAX = 600  # Then it goes slowly: a story needs no more.


class ClusterKeeping:
    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        self._plan = plan
        self._options = plan.options
        self._topic: TopicPlan = stage.topics[plan.topic]
        self._stage = stage
        self._env = env
        self._number = 0
        self._lives = 0

    async def run(self) -> None:
        async with self._stage.client(self._env, self._plan.name) as client:
            while not self._stage.is_over:
                await self._live(client)

    async def _live(self, client: Client) -> None:
        self._lives += 1
        settings = ProducerSettings(codec=self._options["codec"], linger_s=0.0, delivery_s=10.0)
        try:
            async with Producer(client, settings) as producer:
                while not self._stage.is_over and producer.failure is None:
                    await self._write(producer)
                    await self._stage.breathe(self._env, self._options["pause"] if self._number < RECORDS_MAX else 0.5)
        except PeerFailure:
            await self._stage.breathe(self._env, 0.2)

    async def _write(self, producer: Producer) -> None:
        record = self._record()
        where = TopicPartition(self._topic.name, partition_of_key(record.key or b"", self._topic.partitions))
        attempt = self._stage.notebook.diary.attempt(
            where, f"{self._plan.name}.{self._lives}", identity_of(record), self._env.now(),
            key=record.key, is_tombstone=record.value is None,
        )  # fmt: skip
        try:
            sent = await producer.send(
                where.topic, record.value, key=record.key, partition=where.partition,
                headers=record.headers, timestamp_ms=record.timestamp_ms,
            )  # fmt: skip
        except PeerFailure:
            attempt.failed(self._env.now())  # It was never queued.
            raise
        await self._settle(attempt, sent)

    async def _settle(self, attempt: Attempt, sent: "asyncio.Future[Delivered]") -> None:
        try:
            delivered = await sent
        except PeerFailure as failure:
            if not failure.may_have_happened:
                attempt.failed(self._env.now())
            raise
        if delivered.offset >= 0:
            attempt.acknowledged(delivered.offset, self._env.now())
            self._stage.provoke()

    def _record(self) -> Record:
        env = self._env
        self._number += 1
        key = b"k%d" % env.rng.randrange(self._options["keys"])
        if env.rng.random() < _TOMBSTONE:
            return make_tombstone(self._plan.name, self._number, env.wall_ms(), key)
        return make_record(self._plan.name, self._number, env.wall_ms(), size=draw_size(env.rng, self._options["size"]), key=key)
