"""Senders, workers and keepers of queues, and what each writes into the diary.

A worker finishes, fails, extends, dozes past its lease and then settles all the same, or is never heard of again. A keeper pauses, resumes,
purges, changes the delay of a FIFO queue, sends dead letters back and, now and then, rewinds. When the play is over senders and keepers
stop, and workers go on for a little while; what is left is the reckoning's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from penstock.broker.queues.calls import Code, Draft, QueueRefusal, Redrive, Sent, Verb
from penstock.broker.queues.facade import Queues
from penstock.queues.headers import PRIORITY_DEFAULT
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan
from penstock.simulator.places import Place
from penstock.simulator.queue_diary import Decree, SendTold, wall_ms
from penstock.simulator.workloads.queue_desk import Desk, Unanswered
from penstock.simulator.workloads.queue_hand import Hand, Held
from penstock.simulator.workloads.stage import Stage

DEEDS = ("done", "fail", "extend", "doze", "vanish", "reject")
CERTAIN = (Code.INVALID, Code.FULL, Code.TOO_LARGE)
_WAITED_SECONDS = 2.0
_REWINDS_MAX = 3  # Of one keeper: each gives workers everything again.
_REWOUND_MS = (1_000, 5_000)
_DELAYS_MS = (0, 0, 100, 1_500)
_ALL_OF_IT = 0.5  # How many rewinds are to the beginning.
_PARTED = 0.3  # How often a worker is done with some of its messages all the same.
_SENT_AGAIN = 0.5  # How often a sender that got no answer sends the same message with the same id once more.


class _Client:
    def __init__(self, plan: ClientPlan, stage: Stage, env: SimEnv) -> None:
        assert stage.desk is not None
        self._name = plan.name
        self._queue = plan.topic
        self._options = plan.options
        self._stage = stage
        self._env = env
        self._desk: Desk = stage.desk
        self._told = stage.notebook.diary.queues


class Sending(_Client):
    async def run(self) -> None:
        number = 0
        while not self._stage.is_over:
            told = [self._draw(number + at) for at in range(self._env.rng.randint(1, self._options["burst"]))]
            number += len(told)
            await self._send(told)
            await self._stage.breathe(self._env, self._options["pause"])

    def _draw(self, number: int) -> SendTold:
        rng, options = self._env.rng, self._options
        delay_ms = rng.choice(options["delays_ms"])
        at = rng.randrange(number + 5)
        group = f"g{at % options['groups']}" if options["groups"] else ""  # One id is always of one group, and so in one partition.
        dedup = f"{options['ids']}-{at}" if options["ids"] and rng.random() < 0.6 else ""
        if options["is_fifo"] and not dedup:
            dedup = f"{self._name}.{number}"
        return SendTold(
            self._queue, self._name, f"{self._queue}/{self._name}.{number}".encode(), group, dedup, rng.choice(options["priorities"]),
            wall_ms(self._env.now()) + delay_ms if delay_ms else 0, self._env.now(),
        )  # fmt: skip

    async def _send(self, told: Sequence[SendTold]) -> None:
        drafts = [_draft(each, wall_ms(each.began)) for each in told]
        self._told.sends += told
        try:
            results = await self._desk.ask(self._env, lambda queues: queues.send(self._queue, drafts), patience_s=20.0)
        except (QueueRefusal, Unanswered):
            await self._send_again(told)
            return
        for each, result in zip(told, results, strict=True):
            self._heard(each, result)
        self._stage.provoke()

    def _heard(self, told: SendTold, result: Sent | QueueRefusal) -> None:
        if isinstance(result, QueueRefusal):
            if result.code in CERTAIN:
                told.failed(self._env.now())
            return
        place = Place(self._queue, result.partition, result.offset)
        told.acknowledged(place, result.id, self._env.now(), is_duplicate=result.is_duplicate)

    async def _send_again(self, told: Sequence[SendTold]) -> None:
        """Those with an id: whether the first try has come or not, there is one message."""
        again = [
            SendTold(each.queue, each.sender, each.body + b"'", each.group, each.dedup, each.priority, each.deliver_at_ms, self._env.now())
            for each in told
            if each.dedup
        ]
        if again and not self._stage.is_over and self._env.rng.random() < _SENT_AGAIN:
            await self._send(again)


def _draft(told: SendTold, now_ms: int) -> Draft:
    delay_ms = told.deliver_at_ms - now_ms if told.deliver_at_ms else None
    priority = None if told.priority == PRIORITY_DEFAULT else told.priority
    return Draft(told.body, priority=priority, group=told.group, dedup=told.dedup, delay_ms=delay_ms)


class Working(_Client):
    async def run(self) -> None:
        lease_ms, count = self._options["lease_ms"], self._options["count"]
        asks_again = self._options["asks_again"]
        who = self._options.get("who", self._name)
        hand = Hand(self._stage, self._env, self._queue, self._name, who=who, lease_ms=lease_ms, count=count, asks_again=asks_again)
        while not self._stage.is_over:
            if held := await hand.take(_WAITED_SECONDS):
                await self._work(hand, held)
            else:
                await self._stage.breathe(self._env, self._options["pause"])

    async def _work(self, hand: Hand, held: list[Held]) -> None:
        rng, lease_s = self._env.rng, self._options["lease_ms"] / 1_000
        await asyncio.sleep(rng.random() * rng.choice((0.02, 0.5 * lease_s)))
        deed = rng.choices(DEEDS, self._options["deeds"])[0]
        if deed == "vanish":
            return
        if deed == "extend":
            longer_ms = rng.choice((0, 200, int(2_000 * lease_s)))
            await hand.settle(held, Verb.RETURN if longer_ms == 0 and rng.random() < 0.5 else Verb.EXTEND, longer_ms)
            await asyncio.sleep(rng.random() * lease_s)
        if deed == "doze":
            await asyncio.sleep(rng.random() * 3 * lease_s)
        verb = {"fail": Verb.RELEASE, "reject": Verb.REJECT, "doze": rng.choice((Verb.DONE, Verb.RELEASE))}.get(deed, Verb.DONE)
        parted = rng.randrange(len(held) + 1) if rng.random() < _PARTED else len(held)
        delay_ms = rng.choice((None, None, 0, 300)) if verb is Verb.RELEASE else None
        if parted and await hand.settle(held[:parted], verb, delay_ms):
            self._stage.provoke()
        if held[parted:]:
            await hand.settle(held[parted:], Verb.DONE)


class Decreeing(_Client):
    async def run(self) -> None:
        while not self._stage.is_over:
            await self._stage.breathe(self._env, self._options["pause"])
            kind = self._env.rng.choice(self._options["kinds"])
            if kind in ("rewind", "delay", "redrive"):
                await {"rewind": self._rewind, "delay": self._delay, "redrive": self._redrive}[kind]()
                continue
            await self._decree(kind)
            if kind == "pause":
                await self._stage.breathe(self._env, 0.5)
                while not await self._decree("resume") and not self._stage.is_over:
                    await self._stage.breathe(self._env, 0.2)

    async def _rewind(self) -> None:
        if len(self._told.of_kind("rewind", self._queue)) < _REWINDS_MAX:
            is_all = self._env.rng.random() < _ALL_OF_IT
            await self._decree("rewind", to_ms=0 if is_all else wall_ms(self._env.now()) - self._env.rng.choice(_REWOUND_MS))

    async def _delay(self) -> None:
        settings = {"queue.delay.ms": str(self._env.rng.choice(_DELAYS_MS))}
        await self._tell(Decree(self._queue, "delay", self._env.now()), lambda queues: queues.configure(self._queue, settings))

    async def _redrive(self) -> None:
        """One that is refused because another one runs was none; it is told all the same, for nobody could tell it from one of several."""
        wish = Redrive(count_max=self._env.rng.choice((0, 0, 3)), per_second_max=self._env.rng.choice((0, 0, 5)))
        await self._tell(Decree(self._queue, "redrive", self._env.now()), lambda queues: queues.redrive(self._queue, wish))

    async def _decree(self, kind: str, **how: int) -> bool:
        return await self._tell(Decree(self._queue, kind, self._env.now(), **how), lambda queues: getattr(queues, kind)(self._queue, **how))

    async def _tell(self, told: Decree, work: Callable[[Queues], Awaitable[object]]) -> bool:
        self._told.decrees.append(told)
        try:
            await self._desk.ask(self._env, work, patience_s=20.0)
        except (QueueRefusal, Unanswered):
            return False  # Some partitions may have heard.
        told.ended = self._env.now()
        return True
