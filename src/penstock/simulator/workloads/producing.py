"""Producers as `peers/` has them: batches by time and size, by key or by turns, idempotent or not, with every kind of acknowledgement."""

import asyncio

from penstock.peers.batching import Delivered
from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure
from penstock.peers.partitioner import partition_of_key
from penstock.peers.producer import Producer, ProducerSettings
from penstock.simulator.diary import Attempt
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan, TopicPlan
from penstock.simulator.workloads.stage import Stage
from penstock.simulator.workloads.values import draw_size, make_record
from penstock.vocabulary import TopicPartition

RECORDS_MAX = 500  # From then on one at a time: a story needs no more, and readers read them all again and again.


class Producing:
    def __init__(self, plan: ClientPlan, stage: Stage, env: SimEnv) -> None:
        self._options = plan.options
        self._plan = plan
        self._stage = stage
        self._env = env
        self._number = 0
        self._lives = 0
        self._settings = ProducerSettings(
            acks=plan.options["acks"],
            is_idempotent=plan.options["is_idempotent"],
            codec=plan.options["codec"],
            linger_s=plan.options["linger"],
            batch_bytes_max=plan.options["batch_bytes"],
            buffer_bytes_max=1 << 20,
            delivery_s=20.0,
        )

    @property
    def _topic(self) -> TopicPlan:
        """As it is now: it may grow."""
        return self._stage.topics[self._plan.topic]

    async def run(self) -> None:
        async with self._stage.client(self._env, self._plan.name) as client:
            while not self._stage.is_over:
                await self._live(client)

    async def _live(self, client: Client) -> None:
        """Until the producer breaks, or the play is over."""
        self._lives += 1
        name = f"{self._plan.name}.{self._lives}"
        async with Producer(client, self._settings) as producer:
            try:
                while not self._stage.is_over and producer.failure is None:
                    for _ in range(self._options["burst"] if self._number < RECORDS_MAX else 1):
                        await self._send(producer, name)
                    await self._stage.breathe(self._env, self._options["pause"])
            except PeerFailure:
                await self._stage.breathe(self._env, 0.2)  # Sending was refused at once: what was attempted is noted.

    async def _send(self, producer: Producer, name: str) -> None:
        env = self._env
        self._number += 1
        key = b"k%d" % env.rng.randrange(self._options["keys"]) if self._options["keys"] else None
        size = draw_size(env.rng, self._options["size"])
        record = make_record(self._plan.name, self._number, env.wall_ms(), size=size, key=key)
        count = self._topic.partitions
        partition = partition_of_key(key, count) if key is not None else self._number % count
        where = TopicPartition(self._topic.name, partition)
        attempt = self._stage.notebook.diary.attempt(
            where, name, record.value or b"", env.now(), is_idempotent=self._settings.is_idempotent
        )
        try:
            future = await producer.send(
                where.topic,
                record.value,
                key=key,
                partition=None if key else partition,
                headers=record.headers,
                timestamp_ms=record.timestamp_ms,
            )
        except PeerFailure:
            attempt.failed(env.now())  # It was never queued.
            raise
        future.add_done_callback(lambda done: self._settled(attempt, done))

    def _settled(self, attempt: Attempt, done: "asyncio.Future[Delivered]") -> None:
        now = self._env.now()
        failure = None if done.cancelled() else done.exception()
        if done.cancelled():
            return
        if failure is None:
            self._acknowledged(attempt, done.result(), now)
        elif isinstance(failure, PeerFailure) and not failure.may_have_happened:
            attempt.failed(now)

    def _acknowledged(self, attempt: Attempt, delivered: Delivered, now: float) -> None:
        if delivered.partition != attempt.partition.partition:
            self._stage.notebook.find("a key keeps to its partition", attempt.partition, f"{attempt.value!r} went to {delivered.partition}")
        if delivered.offset >= 0 and self._stage.is_promise(self._settings.acks):
            attempt.acknowledged(delivered.offset, now)
            self._stage.provoke()
