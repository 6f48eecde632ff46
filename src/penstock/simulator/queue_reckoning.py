"""The reckoning of queues: when all trouble is over, every queue can be emptied, and what is left is written down.

Whatever was lent to workers who are gone lapses, what is delayed comes due, dead letters arrive. Where clocks were set, that may be an hour
from now: there, what is left at the end is looked at instead.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from penstock.broker.queues.calls import Counts, Peeked, QueueRefusal, Verb
from penstock.broker.queues.facade import Queues
from penstock.broker.queues.redrive_notes import ENDED
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan, TopicPlan
from penstock.simulator.places import Place
from penstock.simulator.queue_diary import Left, QueueTerms
from penstock.simulator.workloads.queue_desk import Unanswered
from penstock.simulator.workloads.queue_hand import Hand
from penstock.simulator.workloads.sharing import ShareReckoning, begin_group
from penstock.simulator.workloads.stage import Stage
from penstock.vocabulary import TopicPartition

T = TypeVar("T")

WORKER = "queue reckoning"
_EMPTY_WITHIN_SECONDS = 90.0  # After the last message that was given...
_EMPTY_AT_LAST_SECONDS = 900.0  # ...and in all: disks may be slow, and queues that lend few at a time.
_SOME_SECONDS = 10.0  # Where clocks were set.
_LEASE_MS, _COUNT = 5_000, 50
_TRIES = 20
_GROUP_TRIES = 60  # A try of which nobody knows what became of it holds up others for twenty seconds.


async def make_queues(stage: Stage, env: SimEnv, plans: Sequence[TopicPlan]) -> None:
    """Before the play: in peace."""
    for plan in plans:
        config = plan.config
        stage.notebook.diary.queues.terms[plan.name] = QueueTerms(
            plan.name,
            is_fifo=config.get("queue.fifo") == "true",
            deliveries_max=int(config.get("queue.deliveries.max", 0)),
            dead_letter=config.get("queue.dead.letter", ""),
            has_priorities=config.get("queue.fair") != "true",
        )
        settings, replicas = dict(config), plan.replication_factor
        await insist(stage, env, partial(Queues.create, queue=plan.name, settings=settings, partitions=plan.partitions, replicas=replicas))


async def make_groups(stage: Stage, env: SimEnv, clients: Sequence[ClientPlan]) -> None:
    for queue in dict.fromkeys(client.topic for client in clients if client.kind == "share"):
        for _ in range(_GROUP_TRIES):
            try:
                await begin_group(stage, env, queue)
                break
            except (QueueRefusal, Unanswered):
                await asyncio.sleep(0.5)


async def insist(stage: Stage, env: SimEnv, work: Callable[[Queues], Awaitable[T]]) -> T:
    """In the calm every call works, sooner or later. Raises what the last try raised."""
    assert stage.desk is not None
    for _ in range(_TRIES - 1):
        try:
            return await stage.desk.ask(env, work)
        except (QueueRefusal, Unanswered):
            await asyncio.sleep(0.5)
    return await stage.desk.ask(env, work)


class QueueReckoning:
    def __init__(self, stage: Stage, env: SimEnv, *, clocks_are_right: bool) -> None:
        self._stage = stage
        self._env = env
        self._told = stage.notebook.diary.queues
        self._clocks_are_right = clocks_are_right

    async def run(self, clients: Sequence[ClientPlan] = ()) -> None:
        names = sorted(self._told.terms, key=lambda name: not self._told.terms[name].dead_letter)  # What comes from others is last.
        try:
            if self._stage.desk is not None:
                self._stage.desk.lost = 0.0
            for name in names:
                await insist(self._stage, self._env, partial(Queues.resume, queue=name))
            for name in dict.fromkeys(decree.queue for decree in self._told.decrees if decree.kind == "redrive"):
                await self._until_redriven(name)
            for name in names:
                await self._empty(name)
            self._told.left = [left for name in names for left in await self._left(name)]
        except (QueueRefusal, Unanswered) as failure:
            self._find("(all)", f"in the calm a call does not work: {failure}")
        for plan in {client.topic: client for client in clients if client.kind == "share"}.values():
            await ShareReckoning(plan, self._stage, self._env).empty()
            if self._clocks_are_right and not self._told.shares.emptied[plan.topic]:
                self._find(plan.topic, "a share group has records left that nobody is given")

    async def _until_redriven(self, name: str) -> None:
        """What is sent back is there before its queue is emptied."""
        until = self._env.now() + _EMPTY_WITHIN_SECONDS
        while self._env.now() < until:
            tasks = await insist(self._stage, self._env, partial(Queues.tasks, queue=name))
            if all(task.status in ENDED for task in tasks):
                return
            await asyncio.sleep(0.5)
        self._find(name, f"after {_EMPTY_WITHIN_SECONDS:g} s of calm dead letters are still being sent back")

    async def _empty(self, name: str) -> None:
        hand = Hand(self._stage, self._env, name, WORKER, lease_ms=_LEASE_MS, count=_COUNT)
        until = self._env.now() + (_EMPTY_WITHIN_SECONDS if self._clocks_are_right else _SOME_SECONDS)
        at_last = self._env.now() + _EMPTY_AT_LAST_SECONDS
        counts = Counts()
        while self._env.now() < until:
            if held := await hand.take(1.0):
                await hand.settle(held, Verb.DONE)
                if self._clocks_are_right:
                    until = min(self._env.now() + _EMPTY_WITHIN_SECONDS, at_last)
                continue
            counts = await insist(self._stage, self._env, partial(Queues.counts, queue=name))
            if not counts.ready + counts.leased + counts.delayed + counts.burying:
                return
        if self._clocks_are_right:
            self._find(name, f"after {_EMPTY_WITHIN_SECONDS:g} s of calm there is still {counts}")

    async def _left(self, name: str) -> list[Left]:
        found, after = list[Peeked](), None
        while True:
            page = await insist(self._stage, self._env, partial(Queues.peek, queue=name, count=100, after=after))
            found += page
            if len(page) < 100:
                return [Left(Place(name, each.partition, each.offset), each.id, str(each.state)) for each in found]
            after = (page[-1].partition, page[-1].offset)

    def _find(self, queue: str, story: str) -> None:
        self._stage.notebook.find("in the calm queues are emptied", TopicPartition(queue, 0), story)
