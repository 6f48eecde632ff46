"""The reckoning of a cluster: every partition is written to once more and read back whole through a client, and the disks are compared.

What clients were promised is judged by the diary's rules; here the finals are taken for them. Beside that: topics are those that were
promised, every partition takes a record that all in-sync replicas have, and all replicas hold what the leader serves.
"""

import asyncio

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure, Refused
from penstock.peers.fetching import FetchLimits
from penstock.peers.offsets import EARLIEST, LATEST
from penstock.simulator.clusters.stage import ACKS_ALL, ClusterStage
from penstock.simulator.diary import Outcome, Read
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import TopicPlan
from penstock.simulator.workloads.fetching import take_records
from penstock.simulator.workloads.notebook import TopicLife
from penstock.simulator.workloads.values import make_record
from penstock.vocabulary import TopicId, TopicPartition
from penstock.wire.batches import encode_batch

READER = "reckoning"
_STEPS_MAX = 5_000
_READ_AGAIN = 5
_TOLD_WITHIN_SECONDS, _ASKED_AGAIN_SECONDS = 10.0, 0.05


class ClusterReckoning:
    def __init__(self, stage: ClusterStage, env: SimEnv) -> None:
        self._stage = stage
        self._notebook = stage.notebook
        self._diary = stage.notebook.diary
        self._env = env
        self._number = 0

    async def run(self) -> None:
        async with self._stage.client(self._env, READER) as client:
            cluster = await client.metadata()
            there = {TopicId(topic.topic_id): topic.name for topic in cluster.topics if topic.error_code == ErrorCode.NONE}
            self._check_topics(there)
            for topic_id, name in there.items():
                life = self._notebook.lives.get(topic_id)
                if life is not None:
                    for index in range(life.plan.partitions):
                        await self._settle(client, life, TopicPartition(name, index))

    def _check_topics(self, there: dict[TopicId, str]) -> None:
        for topic_id, life in self._notebook.lives.items():
            where = TopicPartition(life.label, 0)
            if topic_id not in there and life.deletion is None:
                self._notebook.find("a topic that was made is there", where, "at the end it is not, and nobody deleted it")
            if topic_id in there and life.deletion is Outcome.ACKNOWLEDGED:
                self._notebook.find("a deleted topic is gone", where, "at the end it is back")
        for topic_id, name in there.items():
            if topic_id not in self._notebook.lives and name in self._stage.topics:
                self._notebook.find("a topic keeps its id", TopicPartition(name, 0), f"at the end it has the id {topic_id.hex()}")

    async def _settle(self, client: Client, life: TopicLife, asked: TopicPartition) -> None:
        where = TopicPartition(life.label, asked.partition)
        try:
            await self._write_once_more(client, life.plan, asked, where)
            await self._read(client, life.plan, asked, where)
        except PeerFailure as failure:
            self._notebook.find("in the calm everything works", where, failure.problem)

    async def _write_once_more(self, client: Client, plan: TopicPlan, asked: TopicPartition, where: TopicPartition) -> None:
        self._number += 1
        record = make_record(READER, self._number, self._env.wall_ms(), size=40, key=b"k")
        attempt = self._diary.attempt(where, READER, record.value or b"", self._env.now(), is_idempotent=False, key=record.key)
        produced = await client.produce(asked.topic, asked.partition, encode_batch([record]), acks=ACKS_ALL)
        attempt.acknowledged(produced.base_offset, self._env.now())

    # Reading.

    async def _read(self, client: Client, plan: TopicPlan, asked: TopicPartition, where: TopicPartition) -> None:
        """Reads the partition to its end; again from its new start, if retention has moved that meanwhile."""
        start = await self._offset(client, asked, EARLIEST)
        for _ in range(_READ_AGAIN):
            await self._read_from(client, plan, asked, where, start)
            before, start = start, await self._offset(client, asked, EARLIEST)
            if start == before:
                break
        if start and not plan.forgets:
            self._notebook.find("nothing is forgotten unasked", where, f"at the end the log begins at {start}")

    async def _offset(self, client: Client, asked: TopicPartition, which: int) -> int:
        return (await client.list_offsets({asked: which}))[asked].offset

    async def _read_from(self, client: Client, plan: TopicPlan, asked: TopicPartition, where: TopicPartition, start: int) -> None:
        began = self._env.now()
        end = await self._offset(client, asked, LATEST)
        self._diary.watermark(where, end, began=began, ended=self._env.now())
        first_move, offset = len(self._diary.moves), start
        self._diary.seek(where, READER, start)
        for _ in range(_STEPS_MAX):
            if offset >= end:
                break
            try:
                row = await client.fetch(asked.topic, asked.partition, offset, limits=FetchLimits(wait_ms=0))
            except Refused as refusal:
                if refusal.code == ErrorCode.OFFSET_OUT_OF_RANGE and plan.forgets:
                    return  # It is read again from where it begins now.
                raise
            following = take_records(self._notebook, where, plan, READER, row.records, offset=offset, now=self._env.now())
            if following == offset and self._env.now() - began < _TOLD_WITHIN_SECONDS:
                await asyncio.sleep(_ASKED_AGAIN_SECONDS)  # Another may lead since, and know the watermark only when its followers ask.
                continue
            if following == offset:
                self._notebook.find("what is whole is served", where, f"at the end a fetch at {offset} of {end} brought nothing")
                break
            offset = following
        seen = [move for move in self._diary.moves[first_move:] if isinstance(move, Read) and move.offset < end]
        records = [(move.offset, move.value) for move in seen]
        self._diary.final(where, start_offset=start, end_offset=end, records=records, now=self._env.now())
