"""Queues by their names, wherever their partitions are led: what every door of a node calls.

Any node answers: it finds the leaders in its image, asks them over links where they are others, and looks for them again when one has
changed (asking.py). Every method raises `QueueRefusal` (calls.py). A method that takes several messages answers for each of them, in order.
A queue's own settings and life are in directory.py, moving dead letters back in redriving.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock.broker.memory import HeldReply
from penstock.broker.queues import looking, ordering, sending
from penstock.broker.queues.answering import Answering
from penstock.broker.queues.asking import Asking, Place, Question
from penstock.broker.queues.burying import Burying
from penstock.broker.queues.calls import (
    COUNT_MAX,
    PEEKED_BYTES_MAX,
    QUEUE_GROUP,
    WAIT_SECONDS_MAX,
    Code,
    Counts,
    Draft,
    Lent,
    Order,
    Outcome,
    Peeked,
    QueueRefusal,
    QueueView,
    Redrive,
    RedriveTask,
    Sent,
    State,
    Verb,
    Verdict,
    added_up,
    size_of_peeked,
)
from penstock.broker.queues.confirming import Confirming
from penstock.broker.queues.deletions import Deletions
from penstock.broker.queues.directory import Directory
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.queues.lines import Wish
from penstock.broker.queues.packing import (
    pack_drafts,
    pack_orders,
    unpack_counts,
    unpack_peeked,
    unpack_sent,
    unpack_verdicts,
)
from penstock.broker.queues.polling import Polling
from penstock.broker.queues.redriving import Redriving
from penstock.broker.queues.refusals import NotHere
from penstock.cluster.image import Topic
from penstock.links.queue_calls import QueueAnswer
from penstock.queues.dedup import DRAWN
from penstock.queues.headers import ID
from penstock.queues.ids import Handle, read_handle, read_handles, read_id
from penstock.settings import TopicConfig
from penstock.wire.murmur2 import partition_of_key

if TYPE_CHECKING:
    from penstock.broker.node import Node

T = TypeVar("T")

FOUND_AMONG_MAX = 10_000  # Messages that are looked through for an id that was brought along from another queue.
PEEKED_AT_ONCE = 100


class Queues:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self.asking = Asking(node)
        self.answering = Answering(node)
        self.burying = Burying(node)
        self.confirming = Confirming(node)
        self.redriving = Redriving(self, node)
        self.deletions = Deletions(node.env)
        self._directory = Directory(node)
        self._polling = Polling(self, node)
        self._turn = 0  # Goes round the partitions.

    # Queues

    def names(self) -> list[str]:
        """Of all queues, in order: topics with `queue.enabled`."""
        return self._directory.names()

    def describe(self, queue: str) -> QueueView:
        return self._directory.describe(queue)

    def config_of(self, queue: str) -> TopicConfig:
        """The settings that hold for it, defaults among them."""
        return self._directory.config_of(self._directory.find(queue))

    async def create(self, queue: str, settings: Mapping[str, str], *, partitions: int = 1, replicas: int | None = None) -> bool:
        """Makes the queue; `queue.enabled` need not be among the settings. True: it is new. False: it is there with these settings.
        Raises EXISTS_WITH_OTHER_SETTINGS where one of the given settings differs from what holds."""
        return await self._directory.create(queue, settings, partitions=partitions, replicas=replicas)

    async def configure(
        self, queue: str, settings: Mapping[str, str | None], *, expected: Mapping[str, str | None] | None = None
    ) -> None:  # fmt: skip
        """Sets some of the topic's settings; None puts one back to its default. The others stay. Raises CHANGED, and sets nothing, where
        one of those that are expected is not so (any more); this node knows the others' change then."""
        await self._directory.configure(queue, settings, expected or {})

    async def delete(self, queue: str) -> None:
        """With all that is in it."""
        await self._directory.delete(queue)

    # Sending

    async def send(self, queue: str, drafts: Sequence[Draft]) -> list[Sent | QueueRefusal]:
        """Answers when all that were taken are durable. One of them may be refused (FULL, TOO_LARGE, INVALID) and the others sent."""
        _check_count(len(drafts))
        topic = self._directory.find(queue)
        if len(topic.partitions) == 1:
            return await self._send(topic, 0, drafts)
        chosen: dict[int, list[int]] = {}
        plain = self._next_partition(topic)
        for at, draft in enumerate(drafts):
            chosen.setdefault(self._partition_of(topic, draft, plain), []).append(at)
        if len(chosen) == 1:
            return await self._send(topic, next(iter(chosen)), drafts)
        parts = {index: [drafts[at] for at in places] for index, places in chosen.items()}
        sent = await _all(self._send_or_refuse(topic, index, part) for index, part in parts.items())
        results: dict[int, Sent | QueueRefusal] = {}
        for places, part_sent in zip(chosen.values(), sent, strict=True):
            results.update(zip(places, part_sent, strict=True))
        return [results[at] for at in range(len(drafts))]

    async def _send_or_refuse(self, topic: Topic, index: int, drafts: Sequence[Draft]) -> list[Sent | QueueRefusal]:
        try:
            return await self._send(topic, index, drafts)
        except QueueRefusal as refusal:  # Others may be sent all the same.
            return [refusal] * len(drafts)

    async def _send(self, topic: Topic, index: int, drafts: Sequence[Draft]) -> list[Sent | QueueRefusal]:
        place = Place(topic.topic_id, index)
        if (here := self.asking.here(place)) is not None:
            with suppress(NotHere):
                return await sending.send(here, drafts)
        rows, blobs = pack_drafts(drafts)
        question = Question("send", {"drafts": rows}, lambda answer: unpack_sent(answer.fields["sent"]), blobs, is_repeatable=False)
        return await self.asking.ask(place, lambda here: sending.send(here, drafts), question)

    async def send_to(self, place: Place, drafts: Sequence[Draft]) -> list[Sent | QueueRefusal]:
        """Messages that are moved to one partition and no other. Trying again does no harm, and is left to who moves them: a refusal means
        that they are not there only where no try before it may be on its way still."""
        rows, blobs = pack_drafts(drafts)
        question = Question("send", {"drafts": rows}, lambda answer: unpack_sent(answer.fields["sent"]), blobs, is_repeatable=False)
        return await self.asking.ask(place, lambda here: sending.send(here, drafts), question)

    def topic_of(self, queue: str) -> Topic:
        return self._directory.find(queue)

    def _partition_of(self, topic: Topic, draft: Draft, plain: int) -> int:
        """By its deduplication id, where that counts in the whole queue and says more than that this draft is sent again: partitions know
        their own ids only. Else by the group, so that its order holds; else by the key, as every Kafka client has it; else by an id that
        was drawn for it, so that it is found if it is sent again; else where it is this call's turn."""
        count = len(topic.partitions)
        if count == 1:
            return 0
        config = self._directory.config_of(topic)
        dedup = sending.dedup_of(config, draft)
        if dedup and not dedup.startswith(DRAWN) and not (draft.group and (config.queue_fifo or config.queue_dedup_scope == "group")):
            return partition_of_key(dedup, count)
        if draft.group:
            return partition_of_key(draft.group.encode(), count)
        if draft.key is not None:
            return partition_of_key(draft.key, count)
        return partition_of_key(dedup, count) if dedup else plain

    def _next_partition(self, topic: Topic) -> int:
        """Round the partitions that this node leads, or all of them where it leads none."""
        led = self._led_here(topic) or [index for index, state in enumerate(topic.partitions) if state.leader >= 0] or [0]
        self._turn += 1
        return led[self._turn % len(led)]

    def _led_here(self, topic: Topic) -> list[int]:
        me = self._node.settings.node_id
        return [index for index, state in enumerate(topic.partitions) if state.leader == me]

    # Taking

    async def take(
        self, queue: str, count: int, *, lease_ms: int | None = None, wait_s: float = 0.0, who: str = "", attempt_id: str = "",
        is_again: bool | None = None, group: str = QUEUE_GROUP, held: HeldReply | None = None,
    ) -> list[Lent]:  # fmt: skip
        """Up to `count` messages under leases that are durable, fewer where they are large. Waits until there is at least one, or `wait_s`
        have passed. Whoever gives `held` lets go of it when the answer is sent. `is_again`: whether somebody has asked by this
        attempt id before, if the caller knows.
        Cancelling the call takes nothing away: what was being lent to nobody is given back. IN_FLIGHT_LIMIT: as many are lent as may
        be, and nothing can be; FIFO queues give nothing then, and say nothing."""
        _check_count(count)
        if not 0 <= wait_s <= WAIT_SECONDS_MAX:
            raise QueueRefusal(Code.INVALID, f"one can wait for up to {WAIT_SECONDS_MAX:g} s, not {wait_s:g}")
        if lease_ms is not None and lease_ms < 0:
            raise QueueRefusal(Code.INVALID, "a lease is not negative")
        topic, wish = self._directory.find(queue), Wish(group, count, lease_ms, who, attempt_id.encode(), held, is_again)
        return await self._polling.take(topic, wish, wait_s)

    # Settling

    async def settle(self, queue: str, orders: Sequence[Order], *, group: str = QUEUE_GROUP) -> list[Verdict]:
        _check_count(len(orders))
        topic = self._directory.find(queue)
        if (finished := await self._finish(topic, orders, group)) is not None:
            return finished
        verdicts: dict[int, Verdict] = {}
        chosen: dict[int, list[tuple[int, Handle]]] = {}
        for at, order in enumerate(orders):
            handle = read_handle(order.handle)
            if handle is None or not handle.is_of(topic.topic_id, group) or handle.partition >= len(topic.partitions):
                verdicts[at] = Verdict(Outcome.UNKNOWN, refusal=QueueRefusal(Code.INVALID_HANDLE, "this is no receipt handle of the queue"))
            else:
                chosen.setdefault(handle.partition, []).append((at, handle))
        for index, part in chosen.items():
            settled = await self._settle(Place(topic.topic_id, index), group, [(handle, orders[at]) for at, handle in part])
            verdicts.update(zip((at for at, _ in part), settled, strict=True))
        return [verdicts[at] for at in range(len(orders))]

    async def _finish(self, topic: Topic, orders: Sequence[Order], group: str) -> list[Verdict] | None:
        """What nearly all are: messages of one partition, led here, that are done. None: it is not so, and nothing was done."""
        if any([order[1] is not Verb.DONE for order in orders]):
            return None
        found = read_handles([order[0] for order in orders], topic.topic_id, group)
        if found is None or (here := self.asking.here(Place(topic.topic_id, found[0]))) is None:
            return None
        try:
            return await here.finish(group, found[1])
        except NotHere:
            return None
        except QueueRefusal as refusal:
            return [Verdict(Outcome.UNKNOWN, refusal=refusal)] * len(orders)

    async def _settle(self, place: Place, group: str, part: list[tuple[Handle, Order]]) -> list[Verdict]:
        if (here := self.asking.here(place)) is not None:
            with suppress(NotHere):
                return await self._or_refused(here.settle(group, part), len(part))
        fields = {
            "group": group, "orders": pack_orders(order for _, order in part),
            "places": [(handle.offset, handle.lease) for handle, _ in part],
        }  # fmt: skip
        question = Question("settle", fields, lambda answer: unpack_verdicts(answer.fields["verdicts"]))
        return await self._or_refused(self.asking.ask(place, lambda here: here.settle(group, part), question), len(part))

    async def _or_refused(self, settling: Awaitable[list[Verdict]], count: int) -> list[Verdict]:
        """Those of other partitions may be settled all the same."""
        try:
            return await settling
        except QueueRefusal as refusal:
            return [Verdict(Outcome.UNKNOWN, refusal=refusal)] * count

    # Looking

    async def peek(
        self, queue: str, *, states: Sequence[State] = (), count: int = 10, after: tuple[int, int] | None = None,
        held: HeldReply | None = None,
    ) -> list[Peeked]:  # fmt: skip
        """Messages in the order of the log, partition by partition, from behind `after` (partition, offset) on. No states: all that are
        not finished. Where they are large, or room for replies is scarce, it gives fewer; none means that there are no more."""
        _check_count(count)
        topic, peeked, size = self._directory.find(queue), list[Peeked](), 0
        bytes_max = min(PEEKED_BYTES_MAX, self._node.reply_room.fair_share())
        first_partition, first = (0, 0) if after is None else (after[0], after[1] + 1)
        for index in range(first_partition, len(topic.partitions)):
            page = await self._peek(Place(topic.topic_id, index), states, first, count - len(peeked))
            first = 0
            peeked += page
            page_bytes = sum(map(size_of_peeked, page))
            size += page_bytes
            if held is not None:
                held.add(page_bytes)
            if len(peeked) >= count or size >= bytes_max:
                break
        return peeked

    async def _peek(self, place: Place, states: Sequence[State], first: int, count: int) -> list[Peeked]:
        fields = {"group": QUEUE_GROUP, "states": [str(each) for each in states], "first": first, "count": count}
        question = Question("peek", fields, lambda answer: unpack_peeked(answer.fields["peeked"], answer.blobs))
        return await self.asking.ask(place, lambda here: looking.peek(here, QUEUE_GROUP, states, first, count), question)

    async def find(self, queue: str, message_id: str) -> Peeked | None:
        """By the id that `send` gave. None: it was never here. A message that was moved here, or came back from the dead letters, is found
        while it is not finished."""
        topic, place = self._directory.find(queue), read_id(message_id)
        if place is None:
            raise QueueRefusal(Code.INVALID, "this is no id of a message")
        if not place.is_of(topic.topic_id):
            return (await self._find_moved(queue, [message_id])).get(message_id)
        if place.partition >= len(topic.partitions):
            return None
        fields = {"group": QUEUE_GROUP, "offset": place.offset}
        question = Question("find", fields, lambda answer: next(iter(unpack_peeked(answer.fields["peeked"], answer.blobs)), None))
        where = Place(topic.topic_id, place.partition)
        found = await self.asking.ask(where, lambda here: looking.find(here, QUEUE_GROUP, place.offset), question)
        may_be_back = found is not None and found.state is State.FINISHED and self._may_be_back(queue)
        return (await self._find_moved(queue, [message_id])).get(message_id, found) if may_be_back else found

    def _may_be_back(self, queue: str) -> bool:
        """Whether what is finished here may have come back from the dead letters, with the id that it had."""
        return "queue.dead.letter" in self.describe(queue).settings

    async def _find_moved(self, queue: str, ids: Iterable[str]) -> dict[str, Peeked]:
        """Unfinished messages that have brought along these ids, by id. Looks through so many at most, once for all of them."""
        wanted, found, after = dict.fromkeys(ids), dict[str, Peeked](), None
        for _ in range(0, FOUND_AMONG_MAX, PEEKED_AT_ONCE):
            page = await self.peek(queue, count=PEEKED_AT_ONCE, after=after)
            found |= {each.id: each for each in page if each.id in wanted and dict(each.headers).get(ID) == each.id.encode()}
            if not page or len(found) == len(wanted):
                break
            after = (page[-1].partition, page[-1].offset)
        return found

    async def counts(self, queue: str, *, group: str = QUEUE_GROUP) -> Counts:
        question = Question("counts", {"group": group}, lambda answer: unpack_counts(answer.fields["counts"]))
        return added_up(await self._everywhere(self._directory.find(queue), lambda here: looking.counts(here, group), question))

    async def counts_by_partition(self, queue: str) -> list[Counts | None]:
        """None of partitions whose leader cannot be asked at once."""
        question = Question("counts", {"group": QUEUE_GROUP}, lambda answer: unpack_counts(answer.fields["counts"]))

        async def of(place: Place) -> Counts | None:
            try:
                return await self.asking.ask(place, lambda here: looking.counts(here, QUEUE_GROUP), question, looked_for_s=0.0)
            except QueueRefusal:
                return None

        topic = self._directory.find(queue)
        return await _all(of(Place(topic.topic_id, index)) for index in range(len(topic.partitions)))

    # Ordering

    async def cancel(self, queue: str, ids: Sequence[str]) -> list[Verdict]:
        """Finishes messages that nobody holds: OK; GONE when it was finished, LOST when somebody holds it, UNKNOWN for what is no id. A
        message that was moved here, or came back from the dead letters, is meant by the id that it has kept."""
        _check_count(len(ids))
        topic, verdicts = self._directory.find(queue), dict[int, Verdict]()
        chosen: dict[int, list[tuple[int, int]]] = {}
        for at, message_id in enumerate(ids):
            place = read_id(message_id)
            if place is None or not place.is_of(topic.topic_id) or place.partition >= len(topic.partitions):
                verdicts[at] = Verdict(Outcome.UNKNOWN)
            else:
                chosen.setdefault(place.partition, []).append((at, place.offset))
        verdicts |= await self._cancel_chosen(topic, chosen)
        verdicts |= await self._cancel_moved(
            queue, topic, {at: ids[at] for at, verdict in verdicts.items() if _may_be_moved(verdict, ids[at])}
        )
        return [verdicts[at] for at in range(len(ids))]

    async def _cancel_chosen(self, topic: Topic, chosen: Mapping[int, list[tuple[int, int]]]) -> dict[int, Verdict]:
        """By partition, which of those asked for, and its offset."""
        verdicts: dict[int, Verdict] = {}
        for index, part in chosen.items():
            cancelled = await self.cancel_at(Place(topic.topic_id, index), [offset for _, offset in part])
            verdicts.update(zip((at for at, _ in part), cancelled, strict=True))
        return verdicts

    async def _cancel_moved(self, queue: str, topic: Topic, ids: Mapping[int, str]) -> dict[int, Verdict]:
        """Those that are not where their ids say, and live on here under them."""
        own = [at for at, each in ids.items() if (place := read_id(each)) is not None and place.is_of(topic.topic_id)]
        looked_for = {at: each for at, each in ids.items() if at not in own or self._may_be_back(queue)}
        found = await self._find_moved(queue, looked_for.values()) if looked_for else {}
        chosen: dict[int, list[tuple[int, int]]] = {}
        for at, each in looked_for.items():
            if (there := found.get(each)) is not None:
                chosen.setdefault(there.partition, []).append((at, there.offset))
        return await self._cancel_chosen(topic, chosen)

    async def cancel_at(self, place: Place, offsets: Sequence[int]) -> list[Verdict]:
        fields = {"group": QUEUE_GROUP, "offsets": list(offsets)}
        question = Question("cancel", fields, lambda answer: unpack_verdicts(answer.fields["verdicts"]))
        return await self.asking.ask(place, lambda here: ordering.cancel(here, QUEUE_GROUP, offsets), question)

    async def purge(self, queue: str, *, pause_ms: int = 0) -> None:
        """Finishes everything that was sent before. Raises BUSY where that was done before, within so long a time: the first partition
        tells, and is purged last, so that a purge that failed can be tried again at once."""
        topic = self._directory.find(queue)
        first, *others = [Place(topic.topic_id, index) for index in range(len(topic.partitions))]
        if pause_ms and others:
            await self._purge(first, pause_ms, is_trial=True)
        await _all(self._purge(place, 0) for place in others)
        await self._purge(first, pause_ms)

    async def _purge(self, place: Place, pause_ms: int, *, is_trial: bool = False) -> int:
        question = Question("purge", {"group": QUEUE_GROUP, "pause_ms": pause_ms, "is_trial": is_trial}, _count)
        return await self.asking.ask(place, lambda here: ordering.purge(here, QUEUE_GROUP, pause_ms, is_trial=is_trial), question)

    async def pause(self, queue: str) -> None:
        """Nothing is lent any more. What is lent may be settled; sends go on."""
        await self._pause(queue, is_over=False)

    async def resume(self, queue: str) -> None:
        await self._pause(queue, is_over=True)

    async def _pause(self, queue: str, *, is_over: bool) -> None:
        question = Question("pause", {"group": QUEUE_GROUP, "is_over": is_over}, _count)
        order = partial(ordering.pause, group=QUEUE_GROUP, is_over=is_over)
        await self._everywhere(self._directory.find(queue), order, question)

    async def rewind(self, queue: str, *, to_ms: int) -> int:
        """Everything that was sent at that time or later is ready again, finished or not, apart from what is lent now. Only of queues
        that keep what is done. Returns how many messages there are from there on, about."""
        topic = self._directory.find(queue)
        self._directory.check_keeps(topic)
        question = Question("rewind", {"group": QUEUE_GROUP, "to_ms": to_ms}, _count)
        return sum(await self._everywhere(topic, lambda here: ordering.rewind(here, QUEUE_GROUP, to_ms), question))

    async def rewind_to(self, queue: str, partition: int, offset: int) -> int:
        """The same from an offset of one partition on; the others stay as they are."""
        topic = self._directory.find(queue)
        self._directory.check_keeps(topic)
        if not 0 <= partition < len(topic.partitions):
            raise QueueRefusal(Code.INVALID, f"the queue {queue!r} has the partitions 0 to {len(topic.partitions) - 1}, not {partition}")
        question = Question("rewind", {"group": QUEUE_GROUP, "offset": offset}, _count)
        return await self.asking.ask(
            Place(topic.topic_id, partition), lambda here: ordering.rewind_to(here, QUEUE_GROUP, offset), question
        )  # fmt: skip

    async def rewind_to_id(self, queue: str, message_id: str) -> int:
        """The same from a message on, in its partition."""
        found = await self.find(queue, message_id)
        if found is None:
            raise QueueRefusal(Code.INVALID, f"the message {message_id} was never in the queue {queue!r}")
        return await self.rewind_to(queue, found.partition, found.offset)

    # Dead letters

    async def redrive(self, queue: str, wish: Redrive) -> RedriveTask:
        """Begins to send dead letters back; it goes on whatever becomes of this node. A dry run has ended when this returns. BUSY while
        another one of this queue runs."""
        return await self.redriving.begin(self._directory.find(queue), wish)

    async def tasks(self, queue: str) -> list[RedriveTask]:
        """The latest first: the one that runs and the last few that ended."""
        return await self.redriving.of(self._directory.find(queue))

    async def cancel_task(self, handle: str) -> RedriveTask:
        """What was moved stays moved."""
        return await self.redriving.cancel(handle)

    # Everywhere

    async def _everywhere(self, topic: Topic, here: Callable[[QueuePartition], Awaitable[T]], there: Question) -> list[T]:
        places = [Place(topic.topic_id, index) for index in range(len(topic.partitions))]
        return await _all(self.asking.ask(place, here, there) for place in places)


def _count(answer: QueueAnswer) -> int:
    return int(answer.fields["count"])


def _check_count(count: int) -> None:
    if not 1 <= count <= COUNT_MAX:
        raise QueueRefusal(Code.INVALID, f"one call is about 1 to {COUNT_MAX} messages, not {count}")


def _may_be_moved(verdict: Verdict, message_id: str) -> bool:
    """Nothing unfinished is where the id says."""
    return verdict.outcome in (Outcome.GONE, Outcome.UNKNOWN) and read_id(message_id) is not None


async def _all(waits: Iterable[Awaitable[T]]) -> list[T]:
    return list(await asyncio.gather(*waits))
