"""A topic of a cluster that is made, filled, deleted and made again under the same name.

Requests name the topic by its id, so that nothing can go astray by itself. A node may learn late of a topic that was made or deleted; what
must hold is that a topic made again is another one and empty, that nothing sent to the old id ever lands in the new one, and that what was
acknowledged stands, also after every node was down at once.
"""

import asyncio

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure, Refused
from penstock.peers.topics import TopicView
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.diary import Outcome
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan, TopicPlan
from penstock.simulator.workloads.line import Line, LineLost
from penstock.simulator.workloads.notebook import TopicLife
from penstock.simulator.workloads.values import make_record
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import encode_batch

_PRODUCE_BY_ID, _DELETE_BY_ID = 13, 6
_STEPS_PER_LIFE_MAX = 8


class ClusterChurning:
    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        self._plan = plan
        self._topic: TopicPlan = plan.options["plan"]
        self._stage = stage
        self._notebook = stage.notebook
        self._env = env
        self._number = 0

    async def run(self) -> None:
        operations = self._stage.operations
        async with self._stage.client(self._env, self._plan.name) as client:
            while not self._stage.is_over:
                try:
                    operation = operations.begin("topic made again", self._env.now())
                    life = await self._make(client)
                    await self._use(client, life)
                    if await self._delete(life):
                        operations.complete(operation, self._env.now())
                except (PeerFailure, LineLost):
                    await self._stage.breathe(self._env, 0.2)

    async def _make(self, client: Client) -> TopicLife:
        """The topic as it is now, made anew if it is not there."""
        view = await self._create(client)
        life = self._notebook.made(view.topic_id, self._topic)
        self._stage.provoke()
        if life.deletion is Outcome.ACKNOWLEDGED:  # A node that lags behind may still describe it.
            raise LineLost("it is being deleted")
        return life

    async def _create(self, client: Client) -> TopicView:
        try:
            return await client.create_topic(
                self._topic.name, partitions=self._topic.partitions, replication_factor=self._topic.replication_factor,
                config=self._topic.config, deadline_s=10.0,
            )  # fmt: skip
        except Refused as refusal:
            if refusal.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return await client.describe(self._topic.name, deadline_s=5.0)

    async def _use(self, client: Client, life: TopicLife) -> None:
        for _ in range(self._env.rng.randint(1, _STEPS_PER_LIFE_MAX)):
            if self._stage.is_over:
                return
            where = TopicPartition(self._topic.name, self._env.rng.randrange(self._topic.partitions))
            line = await self._stage.line_to_leader(client, self._plan.name, where)
            try:
                await self._produce(line, life, where.partition)
            finally:
                line.close()
            await self._stage.breathe(self._env, self._plan.options["pause"])

    async def _produce(self, line: Line, life: TopicLife, partition: int) -> None:
        """One record to the topic with this id, whatever its name means by now."""
        env, where = self._env, TopicPartition(life.label, partition)
        self._number += 1
        record = make_record(self._plan.name, self._number, env.wall_ms(), size=60)
        attempt = self._notebook.diary.attempt(where, self._plan.name, record.value or b"", env.now(), is_idempotent=False)
        topic = {"topic_id": life.topic_id, "partition_data": [{"index": partition, "records": bytes(encode_batch([record]))}]}
        answer = await line.ask(ApiKey.PRODUCE, _PRODUCE_BY_ID, {"acks": -1, "timeout_ms": 1_500, "topic_data": [topic]})
        row = answer.responses[0].partition_responses[0]
        if row.error_code == ErrorCode.NONE:
            attempt.acknowledged(int(row.base_offset), env.now())
        elif row.error_code in (ErrorCode.INVALID_TIMESTAMP, ErrorCode.NOT_ENOUGH_REPLICAS):
            attempt.failed(env.now())

    async def _delete(self, life: TopicLife) -> bool:
        """By its id: a deletion by name that is late would take the next topic of that name. Returns whether it is known to be deleted."""
        if self._env.rng.random() < 0.2:
            return False  # It lives on, and is met again.
        life.deletion = Outcome.UNKNOWN
        line = await self._stage.line_to_anybody(self._env, self._plan.name)
        body = {"topics": [{"name": None, "topic_id": life.topic_id}], "timeout_ms": 1_500}
        row = (await line.ask(ApiKey.DELETE_TOPICS, _DELETE_BY_ID, body)).responses[0]
        line.close()
        # A node that has lost the controller's answer asks again, and hears that there is no such topic any more.
        if row.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
            return False
        life.deletion = Outcome.ACKNOWLEDGED
        self._stage.provoke()
        await asyncio.sleep(0.02)
        return True
