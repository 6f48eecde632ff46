"""A queue's partition on the node that leads it: the data log, the ledger over its companion, and whoever waits for messages.

Taking: the ledger decides, the lease is durable, then the bodies are read. Whoever finds nothing stands in line, and is served when
something is learned or settled, or comes due. A taker that is gone when its messages come gives them back.
Every decision is the ledger's; what leaves here is durable (broker/coordinator.py sees to both).
Not here: loading (ledgers.py), sending (sending.py), looking without taking (looking.py), dead letters (burying.py).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.broker.askers import Asker, Nobody
from penstock.broker.coordinator import Coordinator
from penstock.broker.memory import HeldReply
from penstock.broker.queues.bodies import Bodies, Message, bytes_of
from penstock.broker.queues.bucket_files import BucketFiles
from penstock.broker.queues.calls import LENT_BYTES_MAX, Code, Lent, Order, Outcome, QueueRefusal, Verb, Verdict
from penstock.broker.queues.durable import Durable
from penstock.broker.queues.exchanges import Exchanges
from penstock.broker.queues.following import Following
from penstock.broker.queues.lines import LINE_LENGTH_MAX, Line, Served, Waiter
from penstock.broker.queues.refusals import NotHere, checked, not_available, refusal_of
from penstock.broker.queues.rounds import Rounds
from penstock.broker.queues.stored_batches import StoredBatches
from penstock.errors import ErrorCode, Refusal
from penstock.partition.partition import Partition
from penstock.queues import commands
from penstock.queues.commands import Command, Settle, Settlement, Take, Trimmed
from penstock.queues.headers import ID
from penstock.queues.ids import Handle, message_id, message_ids, receipt_handles
from penstock.queues.policy import Policy
from penstock.queues.records import Record
from penstock.queues.replies import Code as ReplyCode
from penstock.queues.replies import Delivery, Fault, Settled, Taken
from penstock.queues.state import LedgerState

if TYPE_CHECKING:
    from penstock.broker.node import Node

LedgerCoordinator = Coordinator[LedgerState, Command, Record]

TIMER_SECONDS_MIN = 0.001

_VERBS = {
    Verb.DONE: commands.Verb.DONE, Verb.RELEASE: commands.Verb.RELEASE, Verb.REJECT: commands.Verb.REJECT,
    Verb.EXTEND: commands.Verb.EXTEND, Verb.RETURN: commands.Verb.RETURN, Verb.UNDO: commands.Verb.UNDO,
}  # fmt: skip
_new_tuple = tuple.__new__
_OK, _FINISHED = ReplyCode.OK, Verdict(Outcome.OK)
OUTCOMES = {code: Outcome[code.name] for code in ReplyCode}


class QueuePartition:
    def __init__(self, node: "Node", data: Partition, companion: Partition, policy_of: Callable[[str], Policy]) -> None:
        self.node = node
        self.data = data
        self.companion = companion
        self.policy_of = policy_of  # By group; follows the settings.
        self.bodies = Bodies(data, node.reply_room)
        self.stored = StoredBatches(data, node.reply_room)
        self.pages = self._new_pages()  # Of delays that are far away, for the state that was made last.
        self.durable = Durable(node.env, data)
        self.following = Following(node, data, self._learned, self._trimmed)
        self.coordinator: LedgerCoordinator  # Given by whoever loads it.
        self.rounds = Rounds(self)
        self.exchanges = Exchanges(self)
        self.has_changed = asyncio.Event()  # Something was decided: for who waits for room.
        self._lines: dict[str, Line] = {}  # By group.
        self._looking: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    def new_state(self) -> LedgerState:
        """For another load: what the last one has cached is of no use to it."""
        self.pages.close()
        self.pages = self._new_pages()
        return LedgerState(self.policy_of, self.node.env.rng.random, self.pages, self.node.env.wall_ms())

    def _new_pages(self) -> BucketFiles:
        name, directory = f"{self.data.topic}-{self.data.index}", self.node.ledgers.new_directory()
        return BucketFiles(self.node, directory, name, self._learned, self._pages_lost)

    def _pages_lost(self, reason: str) -> None:
        state = self.coordinator.state
        if state is not None and state.pages is self.pages:  # Else another load has begun already.
            self.coordinator.reload(f"delays that were cached cannot be read back: {reason}")

    @property
    def state(self) -> LedgerState:
        state = self.coordinator.state
        if state is None:
            raise NotHere
        return state

    def close(self) -> None:
        """Another node leads, or the node stops: whoever waits asks again."""
        self.following.end()
        self.bodies.close()
        self.stored.close()
        self.pages.close()
        for handle in (self._looking, self._timer):
            if handle is not None:
                handle.cancel()
        self._looking = self._timer = None
        lines, self._lines = self._lines, {}
        for line in lines.values():
            for waiter in line.everybody():
                waiter.leave()
                if not waiter.heard.done():
                    waiter.heard.set_exception(NotHere())
        self.coordinator.close()
        self.has_changed.set()

    def send_waiting_away(self) -> None:
        """They hear that there is nothing."""
        for line in list(self._lines.values()):
            for waiter in line.everybody():
                waiter.time_is_up()

    def id_of(self, offset: int) -> str:
        return message_id(self.data.topic_id, self.data.index, offset)

    # Asking the ledger

    async def ask(self, order: Callable[[Asker], Command]) -> Any:
        """The ledger's reply, when it is durable. Raises NotHere or QueueRefusal."""
        self.state  # noqa: B018 - raises where there is none
        try:
            return checked(await self.coordinator.ask(order))
        except Refusal as refusal:
            raise not_available(refusal) from None

    async def read(self, look: Callable[[LedgerState], Any]) -> Any:
        """What the ledger shows now, when all of it is durable."""
        self.state  # noqa: B018
        try:
            return await self.coordinator.read(look)
        except Refusal as refusal:
            raise not_available(refusal) from None

    def _learned(self) -> None:
        self.coordinator.set_timer()  # Delays, and duplicates to be finished.
        self.look_soon()

    def _trimmed(self, start: int) -> None:
        self.coordinator.order(Trimmed(Nobody(), start))

    # Taking

    def line(self, group: str) -> Line:
        line = self._lines.get(group)
        if line is None:
            line = self._lines[group] = Line()
        if len(line) >= LINE_LENGTH_MAX:
            raise QueueRefusal(Code.NOT_AVAILABLE, f"{LINE_LENGTH_MAX} others wait for messages of this queue")
        return line

    def waiting(self, group: str) -> int:
        """How many stand in line."""
        return len(self._lines.get(group, ()))

    def is_ready(self, group: str) -> bool:
        """Whether something can be taken now, and nobody is before."""
        return not self.is_paused(group) and self.state.ready_at(group, self.node.env.wall_ms()) == 0 and not self._lines.get(group)

    def is_paused(self, group: str) -> bool:
        """By the queue's settings, which hold for its own doors."""
        return self.data.config.queue_paused and group == commands.QUEUE_GROUP

    def serve(self, waiter: Waiter) -> None:
        """Decides at once; the waiter hears of it when that is durable. It stands in no line meanwhile."""
        wish, asker = waiter.wish, _Taking(self, waiter)
        if self.is_paused(wish.group):
            asker.answered(Taken((), is_paused=True))
            return
        self.coordinator.catch_up()
        take = Take(asker, wish.group, wish.count, wish.lease_ms, wish.who, wish.attempt_id, only_again=wish.only_again)
        self.coordinator.submit(take, asker)

    def served_with(self, waiter: Waiter, reply: Taken) -> None:
        """What was decided for it is durable."""
        _Taking(self, waiter).answered(reply)

    def look_soon(self) -> None:
        """Something may be ready for whoever waits."""
        if self._lines and self._looking is None:
            self._looking = asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._looking = None
        wall_ms, next_ms = self.node.env.wall_ms(), None
        for group, line in list(self._lines.items()):
            while (waiter := line.first()) is not None and (state := self.coordinator.state) is not None:
                ready_at = None if self.is_paused(group) else state.ready_at(group, wall_ms)
                if ready_at != 0:
                    next_ms = ready_at if next_ms is None or (ready_at is not None and ready_at < next_ms) else next_ms
                    break
                waiter.leave()
                self.serve(waiter)
            if not line:
                self._lines.pop(group, None)
        self._set_timer(wall_ms, next_ms)

    def _set_timer(self, wall_ms: int, next_ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if next_ms is not None and self._lines:
            seconds = max(TIMER_SECONDS_MIN, (next_ms - wall_ms) / 1000)
            self._timer = asyncio.get_running_loop().call_later(seconds, self.look_soon)

    def give_back(self, group: str, deliveries: Sequence[Delivery]) -> None:
        """Nobody is there any more who would work on them: nobody has seen them. Those that were given once more meanwhile, to the same
        attempt, stay with whoever has that answer."""
        if deliveries and self.coordinator.state is not None:
            items = tuple(Settlement(each.offset, each.lease, commands.Verb.UNDO) for each in deliveries)
            self.coordinator.order(Settle(Nobody(), group, items))

    async def lend(self, group: str, deliveries: Sequence[Delivery], held: HeldReply | None = None) -> list[Lent]:
        """The messages of these deliveries, as many as the node has room for; the others are given back. One whose record is gone is
        finished, and counted as dropped."""
        room = self.node.reply_room
        bytes_max = min(LENT_BYTES_MAX, room.fair_share())
        room.take(bytes_max)  # Others read at the same time.
        try:
            found, unread = await self.bodies.read([each.offset for each in deliveries], bytes_max=bytes_max)
        except BaseException:
            self.give_back(group, deliveries)
            raise
        finally:
            room.give_back(bytes_max)
        if held is not None:
            held.add(sum(map(bytes_of, found.values())))
        if len(found) < len(deliveries):
            deliveries = self._without_unread(group, deliveries, frozenset(unread))
            gone = tuple(Settlement(each.offset, each.lease, commands.Verb.DONE) for each in deliveries if each.offset not in found)
            if gone and self.coordinator.state is not None:
                self.coordinator.order(Settle(Nobody(), group, gone, is_dropped=True))
            deliveries = [each for each in deliveries if each.offset in found]
        return self.lent(group, deliveries, found)

    def _without_unread(self, group: str, deliveries: Sequence[Delivery], unread: frozenset[int]) -> Sequence[Delivery]:
        if not unread:
            return deliveries
        self.give_back(group, [each for each in deliveries if each.offset in unread])
        return [each for each in deliveries if each.offset not in unread]

    def lent(self, group: str, deliveries: Sequence[Delivery], found: dict[int, Message]) -> list[Lent]:
        """Straight on, for this is made for every message: all names at once, and tuples without their class's own ceremony."""
        topic_id, index = self.data.topic_id, self.data.index
        handles = receipt_handles(topic_id, index, group, [(each[0], each[2]) for each in deliveries])
        names = message_ids(topic_id, index, [each[0] for each in deliveries])
        lent = []
        for (offset, attempt, _, deadline_ms, first_taken_ms), handle, name in zip(deliveries, handles, names, strict=True):
            _, timestamp_ms, key, value, headers = message = found[offset]
            if headers and (kept := kept_id(message)):
                name = kept
            fields = name, handle, index, offset, attempt, deadline_ms, first_taken_ms, timestamp_ms, key, value or b"", headers
            lent.append(_new_tuple(Lent, fields))
        return lent

    # Settling

    async def finish(self, group: str, deliveries: Sequence[tuple[int, int]]) -> list[Verdict]:
        """The same as `settle` for (offset, lease) pairs that are all done, together with whoever else comes now."""
        self.state  # noqa: B018 - raises where there is none
        outcomes = await self.rounds.finish(group, deliveries)
        return [_FINISHED if outcome[0] is _OK else Verdict(OUTCOMES[outcome.code], outcome.when_ms) for outcome in outcomes]

    async def settle(self, group: str, orders: Sequence[tuple[Handle, Order]]) -> list[Verdict]:
        items = tuple(
            Settlement(handle.offset, handle.lease, _VERBS[order.verb], order.delay_ms, order.reason, order.who) for handle, order in orders
        )
        reply: Settled = await self.ask(lambda asker: Settle(asker, group, items))
        return [Verdict(OUTCOMES[outcome.code], outcome.when_ms) for outcome in reply.outcomes]


class _Taking:
    """A take that was decided: it hears once that is durable."""

    __slots__ = ("_queue", "_waiter")

    def __init__(self, queue: QueuePartition, waiter: Waiter) -> None:
        self._queue = queue
        self._waiter = waiter

    def answered(self, reply: Taken) -> None:
        queue, waiter = self._queue, self._waiter
        if waiter.heard.done():
            queue.give_back(waiter.wish.group, reply.deliveries)
        elif reply.fault is not Fault.NONE:
            waiter.heard.set_exception(refusal_of(reply.fault))
        elif reply.deliveries or not waiter.waits or (reply.is_over_limit and queue.data.config.queue_inflight_refuse):
            waiter.heard.set_result(Served(queue, reply))
        else:
            self._stand()

    def _stand(self) -> None:
        try:
            self._waiter.stand()
        except QueueRefusal as refusal:
            self._waiter.leave()
            self._waiter.heard.set_exception(refusal)
            return
        for place in self._waiter.places:
            place.look_soon()  # Something may have come since this was decided, or be due at a known time.

    def refused(self, code: ErrorCode, reason: str) -> None:
        if not self._waiter.heard.done():
            self._waiter.heard.set_exception(not_available(Refusal(code, reason)))


def kept_id(message: Message) -> str:
    """The id that it brought along from another queue."""
    for name, content in message.headers:
        if name == ID and content is not None:
            return content.decode(errors="replace")
    return ""
