"""What all have in common who use a topic that is deleted and made again under the same name, again and again.

Whatever is asked names the topic by its id where the protocol can, so nothing goes astray by itself. A node may learn late of a topic that
was made or deleted. What was acknowledged for one topic never shows in the next one of its name, and what was acknowledged for the last one
is there when all trouble is over. Each kind of user says what that means for it (`use` and `faults`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from penstock.broker.groups import CONSUMER_OFFSETS
from penstock.broker.queues.calls import QueueRefusal
from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.connection import Address
from penstock.peers.failures import PeerFailure, Refused
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan, TopicPlan
from penstock.simulator.workloads.line import Line, LineLost
from penstock.simulator.workloads.queue_desk import Unanswered
from penstock.vocabulary import TopicId, TopicPartition
from penstock.wire.api_keys import ApiKey

_DELETE_BY_ID, _FIND, _PRODUCE_BY_ID = 6, 4, 13
_LIVES_ON = 0.2  # How many topics are not deleted, and met again.
_SETTLED_WITHIN_SECONDS = 60.0  # Of calm.
_LOOKS_SECONDS, _LOOKS_AGAIN_SECONDS = 0.2, 1.0
_TRIES = 6
GROUP_KEY, TRANSACTION_KEY = 0, 1

LOST = (PeerFailure, LineLost, QueueRefusal, Unanswered)  # Somebody was not reached, or would not.


class Again(LineLost):
    """A refusal that passes."""


class Remaking(ABC):
    RULE: str  # What is broken where something is wrong in the end.
    COORDINATED_BY = CONSUMER_OFFSETS  # Whose leaders should hear late of a topic that is made.

    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        self.plan = plan
        self.topic: TopicPlan = plan.options["plan"]
        self.stage = stage
        self.env = env
        self.number = 0
        self._deleted: dict[TopicId, None] = {}  # By an answer.

    @abstractmethod
    async def use(self, client: Client, topic_id: TopicId) -> None:
        """Raises one of LOST."""

    @abstractmethod
    async def faults(self, client: Client, topic_id: TopicId) -> list[str]:
        """What is wrong with the topic as it is now, in sentences; it may pass. Raises one of LOST."""

    async def run(self) -> None:
        operations = self.stage.operations
        async with self.stage.client(self.env, self.plan.name) as client:
            while not self.stage.is_over:
                await self.stage.breathe(self.env, 2 * self.plan.options["pause"])
                operation = operations.begin(f"topic made again under a {self.plan.kind.split()[-1]}", self.env.now())
                try:
                    topic_id = await self.make(client)
                    await self.use(client, topic_id)
                    if self.env.rng.random() >= _LIVES_ON and await self._is_right(client, topic_id) and await self._delete(topic_id):
                        operations.complete(operation, self.env.now())
                except LOST:
                    await self.stage.breathe(self.env, 0.2)
            await self._settle(client)

    async def _is_right(self, client: Client, topic_id: TopicId) -> bool:
        """A topic with which something is wrong for now is not deleted before that is known to pass."""
        while not self.stage.is_over:
            with suppress(*LOST):
                if not await self.faults(client, topic_id):
                    return True
            await self.stage.breathe(self.env, _LOOKS_SECONDS)
        return False

    async def _settle(self, client: Client) -> None:
        """In the calm: whatever is wrong passes soon, or never."""
        until, told = self.env.now() + _SETTLED_WITHIN_SECONDS, ["nobody could say how it is"]
        while self.env.now() < until:
            try:
                told = await self.faults(client, await self.make(client))
                if not told:
                    return
            except LOST as failure:
                told = [f"it cannot be looked at: {failure}"]
            await asyncio.sleep(_LOOKS_AGAIN_SECONDS)
        self.find(self.RULE, f"after {_SETTLED_WITHIN_SECONDS:g} s of calm: {told[0]}")

    def find(self, rule: str, story: str) -> None:
        self.stage.notebook.find(rule, TopicPartition(self.topic.name, 0), story)

    # The topic.

    async def make(self, client: Client) -> TopicId:
        """The topic as it is now, made anew if it is not there."""
        self.stage.delay_metadata(self.COORDINATED_BY)
        topic_id = await self._created(client)
        if topic_id in self._deleted:  # A node that lags behind may still describe it.
            raise Again("it is deleted")
        return topic_id

    async def _created(self, client: Client) -> TopicId:
        try:
            view = await client.create_topic(
                self.topic.name, partitions=self.topic.partitions, replication_factor=self.topic.replication_factor,
                config=self.topic.config, deadline_s=10.0,
            )  # fmt: skip
        except Refused as refusal:
            if refusal.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            view = await client.describe(self.topic.name, deadline_s=5.0)
        self.stage.provoke()
        return TopicId(view.topic_id)

    async def _delete(self, topic_id: TopicId) -> bool:
        line = await self.stage.line_to_anybody(self.env, self.plan.name)
        body = {"topics": [{"name": None, "topic_id": topic_id}], "timeout_ms": 1_500}
        code = (await closing(line, ApiKey.DELETE_TOPICS, _DELETE_BY_ID, body)).responses[0].error_code
        if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
            return False
        self._deleted[topic_id] = None
        self.stage.provoke()
        return True

    # Asking.

    def partitions(self) -> Iterator[int]:
        yield from range(self.topic.partitions)

    async def coordinator(self, key: str, kind: int, *, timeout_seconds: float = 3.0) -> Line:
        line = await self.stage.line_to_anybody(self.env, self.plan.name)
        found = (await closing(line, ApiKey.FIND_COORDINATOR, _FIND, {"key_type": kind, "coordinator_keys": [key]})).coordinators[0]
        if found.error_code:
            raise Again(f"no coordinator: {found.error_code}")
        address = Address(found.host, int(found.port))
        return await Line.open(self.stage.notebook, self.plan.name, timeout_seconds=timeout_seconds, address=address)

    async def ask_leader(self, client: Client, partition: int, api: ApiKey, version: int, body: dict[str, Any]) -> Any:
        line = await self.stage.line_to_leader(client, self.plan.name, TopicPartition(self.topic.name, partition))
        return await closing(line, api, version, body)

    async def produce(self, client: Client, topic_id: TopicId, partition: int, records: bytes, transactional_id: str | None = None) -> None:
        """Until it is acknowledged. A batch that is sent again must bear a sequence."""
        rows = [{"topic_id": topic_id, "partition_data": [{"index": partition, "records": records}]}]
        body = {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 1_500, "topic_data": rows}
        code = ErrorCode.NONE
        for _ in range(_TRIES):
            answer = await self.ask_leader(client, partition, ApiKey.PRODUCE, _PRODUCE_BY_ID, body)
            code = ErrorCode(int(answer.responses[0].partition_responses[0].error_code))
            if code is ErrorCode.NONE:
                return
            await self.stage.breathe(self.env, 0.1)
        raise Again(f"a produce got {code.name}")


async def closing(line: Line, api: ApiKey, version: int, body: dict[str, Any]) -> Any:
    try:
        return await line.ask(api, version, body)
    finally:
        line.close()
