"""Taking messages of a queue wherever they are: at its one leader, or at all leaders of its partitions, first come, first served.

A queue with one partition is asked where that is led, and waits there in line with everybody else. Of one with several, those that this
node leads are looked at first, then the others; when there is nothing, all are waited at together. The first that has something ends
the wait; what others lend at the same moment, beyond what was asked for, goes back at once. Whoever asks again with the same attempt id is
served by the partitions that have served it before.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.broker.queues import taking
from penstock.broker.queues.asking import LOOKED_FOR_SECONDS, Place, Question, not_readable
from penstock.broker.queues.calls import Lent, Order, QueueRefusal, Verb
from penstock.broker.queues.lines import Wish
from penstock.broker.queues.packing import unpack_lent
from penstock.broker.queues.refusals import NotHere
from penstock.cluster.image import Topic
from penstock.errors import DiskFailed
from penstock.links.queue_calls import QueueAnswer
from penstock.vocabulary import TopicId

if TYPE_CHECKING:
    from penstock.broker.node import Node
    from penstock.broker.queues.facade import Queues


class Polling:
    def __init__(self, queues: "Queues", node: "Node") -> None:
        self._queues = queues
        self._node = node
        self._turn = 0  # Goes round the partitions.

    async def take(self, topic: Topic, wish: Wish, wait_s: float) -> list[Lent]:
        if len(topic.partitions) == 1:
            return await self._take_at(Place(topic.topic_id, 0), wish, wait_s)
        if wish.attempt_id and (before := await self._lent_before(topic, wish)):
            return before
        self._turn += 1
        mine, others = self._places(topic, self._turn % len(topic.partitions))
        lent = await self._look_round(mine, others, wish)
        if lent or wait_s <= 0:
            return lent
        waits: list[Awaitable[list[Lent]]] = [self._take_at(place, wish, wait_s) for place in others]
        if mine:
            waits.append(self._take_here(mine, wish, wait_s))
        return await self._first_with_any(topic, waits, wish)

    async def _lent_before(self, topic: Topic, wish: Wish) -> list[Lent]:
        """What the same attempt was given and still has, by whichever partition: another one would give it other messages. What this node
        leads it knows by a look; other nodes are asked where it may be that there is something. Who does not answer is passed over."""
        mine, others = self._places(topic, 0)
        here = [(place, self._queues.asking.here(place)) for place in mine]
        asked = [place for place, queue in here if queue is not None and queue.state.knows_attempt(wish.group, wish.attempt_id)]
        if wish.is_again is not False:
            asked += [*others, *(place for place, queue in here if queue is None)]
        if not asked:
            return []
        again = replace(wish, only_again=True)
        looked_for_s = LOOKED_FOR_SECONDS if wish.is_again else 0.0  # Who does not know it waits for nobody who is away.
        taking = [self._take_at(place, again, 0.0, looked_for_s=looked_for_s) for place in asked]
        answers = await asyncio.gather(*taking, return_exceptions=True)
        lent = [each for answer in answers if not isinstance(answer, BaseException) for each in answer]
        self._give_back_later(topic.topic_id, lent[wish.count :], wish.group)
        return lent[: wish.count]

    def _places(self, topic: Topic, start: int) -> tuple[list[Place], list[Place]]:
        """Those that this node leads, and the others, both from another start each time."""
        mine, others = list[Place](), list[Place]()
        for index in range(start, start + len(topic.partitions)):
            place = Place(topic.topic_id, index % len(topic.partitions))
            is_mine = self._queues.asking.leader_of(place) == self._node.settings.node_id
            (mine if is_mine else others).append(place)
        return mine, others

    async def _look_round(self, mine: Sequence[Place], others: Sequence[Place], wish: Wish) -> list[Lent]:
        """Without waiting, and without looking long for a leader that is not there: the others may have something."""
        lent = await self._take_here(mine, wish, 0.0) if mine else []
        for place in others:
            if lent:
                break
            with suppress(QueueRefusal):
                lent = await self._take_at(place, wish, 0.0, looked_for_s=0.0)
        return lent

    async def _take_at(self, place: Place, wish: Wish, wait_s: float, *, looked_for_s: float = LOOKED_FOR_SECONDS) -> list[Lent]:
        ends = self._node.env.now() + wait_s
        if (here := self._queues.asking.here(place)) is not None:
            try:
                return await taking.take((here,), wish, wait_s)
            except NotHere:
                pass  # It has gone elsewhere: we go after it, for as long as is left.
            except DiskFailed as failure:
                raise not_readable(failure) from None

        def left_s() -> float:
            return max(0.0, ends - self._node.env.now())

        def read(answer: QueueAnswer) -> list[Lent]:
            if wish.held is not None:
                wish.held.add(sum(len(blob or b"") for blob in answer.blobs))
            return unpack_lent(answer.fields["lent"], answer.blobs)

        def give_back(answer: QueueAnswer) -> None:
            if not answer.code:
                self._give_back_later(place.topic_id, unpack_lent(answer.fields["lent"], answer.blobs), wish.group)

        fields = {
            "group": wish.group, "count": wish.count, "lease_ms": wish.lease_ms, "who": wish.who, "attempt_id": wish.attempt_id.decode(),
            **({"only_again": True} if wish.only_again else {}),
        }  # fmt: skip
        question = Question("take", fields, read, left_s=left_s, is_repeatable=wish.only_again, unheard=give_back)
        asking = self._queues.asking
        return await asking.ask(place, lambda here: taking.take([here], wish, left_s()), question, looked_for_s=looked_for_s)

    async def _take_here(self, places: Sequence[Place], wish: Wish, wait_s: float) -> list[Lent]:
        here = [queue for place in places if (queue := self._queues.asking.here(place)) is not None]
        if not here:
            return await self._take_at(places[0], wish, wait_s)  # It is being loaded, or just has gone elsewhere.
        try:
            return await taking.take(here, wish, wait_s)
        except NotHere:
            return []
        except DiskFailed as failure:
            raise not_readable(failure) from None

    async def _first_with_any(self, topic: Topic, waits: Sequence[Awaitable[list[Lent]]], wish: Wish) -> list[Lent]:
        """What came first, with what came at the same time. The others are called off."""
        news, tasks = asyncio.Event(), [asyncio.ensure_future(each) for each in waits]
        for task in tasks:
            task.add_done_callback(lambda _: news.set())
        lent, wanted = list[Lent](), 0
        try:
            while not any(map(_has_any, tasks)) and not all(task.done() for task in tasks):
                news.clear()
                await news.wait()
            wanted = wish.count
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            lent = [message for task in tasks if _has_any(task) for message in task.result()]
            self._give_back_later(topic.topic_id, lent[wanted:], wish.group)  # All of it, where nobody waits for it any more.
        return lent[:wanted]

    def _give_back_later(self, topic_id: TopicId, lent: Sequence[Lent], group: str) -> None:
        topic = self._node.image.topics_by_id.get(topic_id)
        if lent and topic is not None:
            orders = [Order(each.handle, Verb.UNDO) for each in lent]  # Anything else would count, and might bury what nobody has seen.
            self._node.spawn(_forget_result(self._queues.settle(topic.name, orders, group=group)))


def _has_any(task: "asyncio.Future[list[Lent]]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None and bool(task.result())


async def _forget_result(awaitable: Awaitable[Any]) -> None:
    with suppress(QueueRefusal):
        await awaitable
