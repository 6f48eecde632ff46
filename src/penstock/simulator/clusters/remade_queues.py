"""A queue that is deleted and made again: its messages are its own, and receipts of the earlier one settle nothing of it.

Calls name a queue, but every message and every receipt names the topic that it is of.
"""

from collections.abc import Sequence

from penstock.broker.queues.calls import Draft, Lent, Order, QueueRefusal, Verb
from penstock.peers.client import Client
from penstock.queues.ids import read_handle, read_id
from penstock.simulator.clusters.remaking import Remaking
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan
from penstock.vocabulary import TopicId

_MESSAGES_MAX = 6
_ROUNDS_MAX = 3
_TAKEN_MAX = 10
_LEASE_MS = 1_500
_OLD_RECEIPTS_MAX = 50


class RemadeQueues(Remaking):
    RULE = "a queue made again gives what it was sent"

    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        super().__init__(plan, stage, env)
        assert stage.desk is not None
        self._desk = stage.desk
        self._sent: dict[str, bytes] = {}  # By id, what was acknowledged.
        self._taken: dict[str, None] = {}  # Ids of those that came to somebody who was then done with them.
        self._receipts: list[str] = []  # Of earlier queues.

    async def use(self, client: Client, topic_id: TopicId) -> None:
        for _ in range(self.env.rng.randint(1, _ROUNDS_MAX)):
            if self.stage.is_over:
                return
            await self._send()
            if self.env.rng.random() < 0.7:
                lent = await self._take(0.2)
                self._receipts = [*self._receipts, *(each.handle for each in lent)][-_OLD_RECEIPTS_MAX:]
                await self._try_old_receipts(topic_id)
                await self._finish(lent[: self.env.rng.randint(0, len(lent))])
            await self.stage.breathe(self.env, self.plan.options["pause"])

    async def _send(self) -> None:
        operation = self.stage.operations.begin("send to a queue made again", self.env.now())
        bodies = []
        for _ in range(self.env.rng.randint(1, _MESSAGES_MAX)):
            self.number += 1
            bodies.append(b"%d" % self.number)
        drafts = [Draft(body) for body in bodies]
        results = await self._desk.ask(self.env, lambda queues: queues.send(self.topic.name, drafts))
        for body, result in zip(bodies, results, strict=True):
            if not isinstance(result, QueueRefusal):
                self._sent[result.id] = body
        self.stage.operations.complete(operation, self.env.now())
        self.stage.provoke()

    async def _take(self, wait_s: float) -> list[Lent]:
        operation = self.stage.operations.begin("take from a queue made again", self.env.now())
        lent = await self._desk.ask(
            self.env, lambda queues: queues.take(self.topic.name, _TAKEN_MAX, lease_ms=_LEASE_MS, wait_s=wait_s, who=self.plan.name)
        )
        for each in lent:
            body = self._sent.get(each.id, each.body)
            if body != each.body:
                self.find("a topic made again is new", f"message {each.id} was sent as {body!r}, and came as {each.body!r}")
        self.stage.operations.complete(operation, self.env.now())
        return lent

    async def _finish(self, lent: Sequence[Lent]) -> None:
        self._taken |= dict.fromkeys(each.id for each in lent)
        await self._say_done([each.handle for each in lent])

    async def _say_done(self, handles: Sequence[str]) -> None:
        if handles:
            orders = [Order(handle, Verb.DONE) for handle in handles]
            await self._desk.ask(self.env, lambda queues: queues.settle(self.topic.name, orders))

    async def _try_old_receipts(self, topic_id: TopicId) -> None:
        """They settle nothing: what somebody has now comes again, if he does not settle it."""
        old = [each for each in self._receipts if (handle := read_handle(each)) is not None and not topic_id.startswith(handle.topic)]
        if old and self.env.rng.random() < 0.7:
            await self._say_done(old)

    # Judging.

    async def faults(self, client: Client, topic_id: TopicId) -> list[str]:
        """What was sent and acknowledged, and has not come to anybody, comes."""
        if self._missing(topic_id):
            lent = await self._take(0.3)
            await self._finish(lent)
        return [f"message {each} ({self._sent[each]!r}) came to nobody" for each in self._missing(topic_id)[:1]]

    def _missing(self, topic_id: TopicId) -> list[str]:
        return [each for each in self._sent if each not in self._taken and _is_of(each, topic_id)]


def _is_of(message_id: str, topic_id: TopicId) -> bool:
    found = read_id(message_id)
    return found is not None and found.is_of(topic_id)
