"""Dead letters, moved to their queue in steps, so that none is lost and none is there twice; and letters that are sent off elsewhere.

What is owed is the ledger's to say, and it is believed once that is durable. A copy goes to the other queue (carrying.py); then the
source's ledger hears that it is buried. After a failover, or a crash between the steps, the next leader finds it owed and begins again.
Where the dead-letter queue is missing or full, the letters wait, that is reported, and it is tried again, ever more seldom. A letter that
somebody has sent off (redriving.py) and that is refused there is ready again where it was, if that was the first try: one that was tried
before may be there after all, or be on its way still, and waits as dead letters do.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.askers import Asker
from penstock.broker.queues.calls import QUEUE_GROUP, Code, QueueRefusal
from penstock.broker.queues.carrying import Carried, bind_all, carry
from penstock.broker.queues.confirming import tell_over
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.queues.refusals import NotHere, caught_up
from penstock.errors import DiskFailed
from penstock.queues.commands import Buried, Command, Unbind
from penstock.queues.state import LedgerState
from penstock.queues.views import LetterOwed
from penstock.vocabulary import TopicId

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

LETTERS_AT_ONCE = 100
WAITING_MAX = 1_000  # Tried in vain, before all of them wait.
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.1, 60.0


class SentOff(NamedTuple):
    moved: int  # How many are there, or on their way.
    refusal: QueueRefusal | None = None  # Of the first that was refused. Those are ready again.


class Burying:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._at_work: dict[QueuePartition, None] = {}
        self._in_hand: dict[QueuePartition, dict[int, None]] = {}  # Offsets that are being sent off: somebody waits for just those.

    def look_soon(self, queue: QueuePartition) -> None:
        """Something may be owed that was not before."""
        state = queue.coordinator.state
        if state is not None and state.is_owing and queue not in self._at_work and self._first(queue, state, 1):
            self._at_work[queue] = None
            self._node.spawn(self._bury_all(queue))

    async def send_off(self, queue: QueuePartition, offsets: Sequence[int], target: TopicId) -> SentOff:
        """Ready messages to another queue, by somebody's order. Those that are not ready any more are passed over."""
        topics = self._node.image.topics_by_id
        if target not in topics:
            await caught_up(self._node)
        topic = topics.get(target)
        if topic is None:
            raise QueueRefusal(Code.NO_SUCH_QUEUE, "the queue that they are sent off to is not there")
        in_hand = self._in_hand.setdefault(queue, {})
        offsets = [offset for offset in offsets if offset not in in_hand]  # A call that is made twice: those are being tried.
        in_hand.update(dict.fromkeys(offsets))
        try:
            untried = frozenset(offset for offset in offsets if not queue.state.is_burying(QUEUE_GROUP, offset))
            await bind_all(self._node, queue, QUEUE_GROUP, offsets, topic)
            owed = await queue.read(lambda state: state.owed_of(QUEUE_GROUP, offsets))
            letters = [each for each in owed if each.is_sent_off]
            carried = await self._carry(queue, QUEUE_GROUP, letters, untried)
            for refusal in islice(carried.waiting.values(), 1):  # They are on their way, and will be tried again.
                self._node.report(f"{len(carried.waiting)} messages of {queue.data.topic} wait for the queue {topic.name!r}: {refusal}")
            return SentOff(len(letters) - len(carried.refused), next(iter(carried.refused.values()), None))
        finally:
            for offset in offsets:
                in_hand.pop(offset, None)
            if not in_hand:
                self._in_hand.pop(queue, None)
            self.look_soon(queue)

    async def _bury_all(self, queue: QueuePartition) -> None:
        pause_s, waiting = PAUSE_SECONDS_MIN, dict[int, None]()  # Those that were tried in vain: others may go elsewhere.
        try:
            while True:
                letters = await self._owed(queue, waiting)
                if letters:
                    in_vain = await self._bury(queue, letters)
                    waiting.update(dict.fromkeys(in_vain))
                    if len(in_vain) < len(letters):
                        pause_s = PAUSE_SECONDS_MIN
                if letters is None or (waiting and (not letters or len(waiting) >= WAITING_MAX)):
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, PAUSE_SECONDS_MAX)
                    waiting.clear()
                elif not letters and not self._first(queue, queue.state, 1, waiting):
                    return  # Otherwise it came while we waited for what was there before to be durable.
        except NotHere:
            return  # The next leader finds it owed.
        finally:
            del self._at_work[queue]

    async def _owed(self, queue: QueuePartition, waiting: Container[int]) -> list[LetterOwed] | None:
        """None: nothing is committed now, so nobody knows."""
        try:
            owed: list[LetterOwed] = await queue.read(lambda state: self._first(queue, state, LETTERS_AT_ONCE, waiting))
            return owed
        except QueueRefusal:
            return None

    def _first(self, queue: QueuePartition, state: LedgerState, count: int, waiting: Container[int] = ()) -> list[LetterOwed]:
        in_hand = self._in_hand.get(queue, {})
        found = (letter for letter in state.owed() if letter.offset not in in_hand and letter.offset not in waiting)
        return list(islice(found, count))

    async def _bury(self, queue: QueuePartition, letters: Sequence[LetterOwed]) -> list[int]:
        """Those of them that have to wait."""
        by_group: dict[str, list[LetterOwed]] = {}
        for letter in letters:
            by_group.setdefault(letter.group, []).append(letter)
        in_vain = list[int]()
        for group, chosen in by_group.items():
            why: dict[int, QueueRefusal | DiskFailed] = {}
            try:
                carried = await self._carry(queue, group, chosen)
                why |= carried.waiting
            except (QueueRefusal, DiskFailed) as refusal:
                why = {each.offset: refusal for each in chosen}
            for reason in islice(why.values(), 1):
                self._report(queue, group, len(why), reason)
            in_vain += why
        return in_vain

    async def _carry(
        self, queue: QueuePartition, group: str, letters: Sequence[LetterOwed], untried: frozenset[int] = frozenset()
    ) -> Carried:
        """Carries them, and has the ledger know what became of them. Those that were refused are ready again."""
        target = queue.policy_of(group).dead_letter
        ends = [each.offset for each in letters if not target and not each.topic_id]  # No queue for dead letters: that is the end of them.
        carried = await carry(self._node, queue, [each for each in letters if target or each.topic_id], target, untried)
        if done := (*ends, *carried.done):
            await queue.ask(_buried(group, done))
        for place, moves in carried.once.items():
            self._node.spawn(tell_over(self._node, place, moves))
        if carried.refused:
            await queue.ask(_back(group, tuple(carried.refused)))
        return carried

    def _report(self, queue: QueuePartition, group: str, count: int, refusal: Exception) -> None:
        target = queue.policy_of(group).dead_letter
        self._node.report(f"{count} dead letters of {queue.data.topic}-{queue.data.index} wait for the queue {target!r}: {refusal}")


def _buried(group: str, offsets: tuple[int, ...]) -> Callable[[Asker], Command]:
    return lambda asker: Buried(asker, group, offsets)


def _back(group: str, offsets: tuple[int, ...]) -> Callable[[Asker], Command]:
    return lambda asker: Unbind(asker, group, offsets)
