"""Whoever takes messages of a queue and says what becomes of them: every call, and what was told, goes into the diary."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.broker.queues.calls import Lent, Order, QueueRefusal, Verb
from penstock.queues.ids import read_handle
from penstock.simulator.env import SimEnv
from penstock.simulator.places import Place
from penstock.simulator.queue_diary import DeliveryTold, SettleTold
from penstock.simulator.workloads.queue_desk import Desk, Unanswered
from penstock.simulator.workloads.stage import Stage

_AT_ONCE = 0.3  # How many takes wait for nothing.
_TRIES = 3  # Of a take whose answer got lost, by those who ask again for the same.


@dataclass(frozen=True, slots=True)
class Held:
    told: DeliveryTold
    handle: str


class Hand:
    def __init__(
        self, stage: Stage, env: SimEnv, queue: str, name: str, *, lease_ms: int, count: int, asks_again: bool = False, who: str = ""
    ) -> None:  # fmt: skip
        assert stage.desk is not None
        self._desk: Desk = stage.desk
        self._diary = stage.notebook.diary.queues
        self._env = env
        self._queue = queue
        self._name = name
        self._lease_ms = lease_ms
        self._count = count
        self._who = who or name  # As the node knows it.
        self._asks_again = asks_again  # With an attempt id, as the Python client does.

    async def take(self, wait_s: float) -> list[Held]:
        asked, number = self._env.now(), self._diary.take_begins()
        waited = 0.0 if self._env.rng.random() < _AT_ONCE else wait_s
        lent = await self._lent(waited, f"{self._name}.{number}" if self._asks_again else "")
        if self._env.now() - asked >= self._lease_ms / 1_000:
            self._diary.take_unheard(self._queue)  # Some of it may have been over before it was told, and is lent to nobody.
        held = [self._note(each, number, asked) for each in lent]
        self._diary.deliveries += [each.told for each in held]
        return held

    async def _lent(self, waited: float, attempt_id: str) -> list[Lent]:
        for _ in range(_TRIES if attempt_id else 1):
            try:
                return await self._desk.ask(
                    self._env,
                    lambda queues: queues.take(
                        self._queue, self._count, lease_ms=self._lease_ms, wait_s=waited, who=self._who, attempt_id=attempt_id
                    ),
                    patience_s=waited + 8.0,
                )
            except (QueueRefusal, Unanswered):
                self._diary.take_unheard(self._queue)
        return []

    def _note(self, lent: Lent, take: int, asked: float) -> Held:
        handle = read_handle(lent.handle)
        assert handle is not None
        told = DeliveryTold(
            place=Place(self._queue, lent.partition, lent.offset),
            lease=handle.lease,
            id=lent.id,
            body=lent.body,
            attempt=lent.attempt,
            decided_ms=lent.deadline_ms - self._lease_ms,
            deadline_ms=lent.deadline_ms,
            taker=self._name,
            take=take,
            asked=asked,
            at=self._env.now(),
            headers={name: content for name, content in lent.headers if content is not None},
        )
        return Held(told, lent.handle)

    async def settle(self, held: Sequence[Held], verb: Verb, delay_ms: int | None = None) -> bool:
        """Whether there was an answer."""
        told = [SettleTold(verb, delay_ms, self._env.now()) for _ in held]
        for one, each in zip(held, told, strict=True):
            one.told.settled.append(each)
        orders = [Order(one.handle, verb, delay_ms, "as it happens", self._name) for one in held]
        try:
            verdicts = await self._desk.ask(self._env, lambda queues: queues.settle(self._queue, orders), patience_s=20.0)
        except (QueueRefusal, Unanswered):
            return False
        for each, verdict in zip(told, verdicts, strict=True):
            if verdict.refusal is None:
                each.outcome, each.when_ms, each.ended = verdict.outcome, verdict.deadline_ms, self._env.now()
        return True
