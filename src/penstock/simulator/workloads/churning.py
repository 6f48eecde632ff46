"""A topic that is made, filled, read, deleted and made again under the same name.

Held against the node: a topic made again is empty and has another id; what is sent to the old id never lands in the new topic; a deletion
or creation that was acknowledged stands, also after a crash. Requests name the topic by its id, so that nothing can go astray by itself.
"""

import asyncio

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure, Refused, UnknownTopic
from penstock.simulator.diary import Outcome
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan, TopicPlan
from penstock.simulator.workloads.fetching import fetch_body, rows_of, take_records
from penstock.simulator.workloads.line import Line, LineLost
from penstock.simulator.workloads.notebook import TopicLife
from penstock.simulator.workloads.stage import Stage
from penstock.simulator.workloads.values import make_record
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import encode_batch

_PRODUCE_BY_ID, _FETCH_BY_ID, _DELETE_BY_ID = 13, 13, 6
_STEPS_PER_LIFE_MAX = 12


class Churning:
    def __init__(self, plan: ClientPlan, stage: Stage, env: SimEnv) -> None:
        self._plan = plan
        self._topic: TopicPlan = plan.options["plan"]
        self._stage = stage
        self._notebook = stage.notebook
        self._env = env
        self._number = 0
        self._read_to: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        async with self._stage.client(self._env, self._plan.name) as client:
            while not self._stage.is_over:
                try:
                    life = await self._make(client)
                    await self._use(life)
                    await self._delete(client, life)
                except PeerFailure:
                    await self._stage.breathe(self._env, 0.2)

    async def _make(self, client: Client) -> TopicLife:
        """The topic as it is now, made anew if it is not there."""
        try:
            view = await client.create_topic(self._topic.name, partitions=self._topic.partitions, config=self._topic.config)
        except Refused as refusal:
            if refusal.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            view = await client.describe(self._topic.name)
        life = self._notebook.made(view.topic_id, self._topic)
        self._stage.provoke()
        if life.deletion is Outcome.ACKNOWLEDGED:
            self._notebook.find("a topic made again is another", TopicPartition(life.label, 0), "it has the id of one that was deleted")
        return life

    async def _use(self, life: TopicLife) -> None:
        try:
            line = await Line.open(self._notebook, self._plan.name)
        except LineLost:
            return
        try:
            for _ in range(self._env.rng.randint(1, _STEPS_PER_LIFE_MAX)):
                if self._stage.is_over:
                    break
                partition = self._env.rng.randrange(self._topic.partitions)
                await self._produce(line, life, partition)
                if self._env.rng.random() < 0.3:
                    await self._fetch(line, life, partition)
                await self._stage.breathe(self._env, self._plan.options["pause"])
        except LineLost:
            pass
        line.close()

    async def _produce(self, line: Line, life: TopicLife, partition: int) -> int:
        """One record to the topic with this id, whatever its name means by now. Returns the error code."""
        env, where = self._env, TopicPartition(life.label, partition)
        self._number += 1
        record = make_record(self._plan.name, self._number, env.wall_ms(), size=60)
        attempt = self._notebook.diary.attempt(where, self._plan.name, record.value or b"", env.now(), is_idempotent=False)
        topic = {"topic_id": life.topic_id, "partition_data": [{"index": partition, "records": bytes(encode_batch([record]))}]}
        answer = await line.ask(ApiKey.PRODUCE, _PRODUCE_BY_ID, {"acks": -1, "timeout_ms": 1_500, "topic_data": [topic]})
        row = answer.responses[0].partition_responses[0]
        if row.error_code == ErrorCode.NONE:
            attempt.acknowledged(int(row.base_offset), env.now())
        elif row.error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            if life.deletion is None:
                self._notebook.find("a topic that was made is there", where, f"a produce got {ErrorCode(int(row.error_code)).name}")
        elif row.error_code == ErrorCode.INVALID_TIMESTAMP:
            attempt.failed(env.now())
        return int(row.error_code)

    async def _fetch(self, line: Line, life: TopicLife, partition: int) -> None:
        where = TopicPartition(life.label, partition)
        offset = self._read_to.get(where, 0)
        body = fetch_body("", life.topic_id, {partition: offset})
        for row in rows_of(await line.ask(ApiKey.FETCH, _FETCH_BY_ID, body)):
            if row.error_code == ErrorCode.NONE:
                self._read_to[where] = take_records(
                    self._notebook, where, self._topic, self._plan.name, row.records or b"", offset=offset, now=self._env.now()
                )
            elif row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and not self._notebook.keeps_everything(where, self._topic):
                self._read_to[where] = max(0, int(row.log_start_offset))
                self._notebook.diary.seek(where, self._plan.name, self._read_to[where])

    async def _delete(self, client: Client, life: TopicLife) -> None:
        """By its id: a deletion by name that is late would take the next topic of that name."""
        if self._env.rng.random() < 0.2:
            return  # It lives on, and is met again.
        was_asked, life.deletion = life.deletion is not None, Outcome.UNKNOWN
        try:
            line = await Line.open(self._notebook, self._plan.name)
            body = {"topics": [{"name": None, "topic_id": life.topic_id}], "timeout_ms": 1_500}
            row = (await line.ask(ApiKey.DELETE_TOPICS, _DELETE_BY_ID, body)).responses[0]
            line.close()
        except LineLost:
            return
        if row.error_code == ErrorCode.UNKNOWN_TOPIC_ID and not was_asked:
            self._notebook.find("a topic that was made is there", TopicPartition(life.label, 0), "it cannot be deleted: nobody knows it")
        if row.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
            life.deletion = Outcome.ACKNOWLEDGED
            self._stage.provoke()
            await self._check_that_it_is_gone(client, life)

    async def _check_that_it_is_gone(self, client: Client, life: TopicLife) -> None:
        where = TopicPartition(life.label, 0)
        try:
            view = await client.describe(self._topic.name)
        except UnknownTopic:
            view = None
        if view is not None and view.topic_id == life.topic_id:
            self._notebook.find("a deleted topic is gone", where, "it is described after its deletion was acknowledged")
        try:
            line = await Line.open(self._notebook, self._plan.name)
            if await self._produce(line, life, 0) == ErrorCode.NONE:
                self._notebook.find("a deleted topic is gone", where, "it takes records after its deletion was acknowledged")
            line.close()
        except LineLost:
            await asyncio.sleep(0.05)
