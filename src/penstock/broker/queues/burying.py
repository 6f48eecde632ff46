"""Dead letters, moved to their queue: in two steps, so that none is lost and none is there twice.

What is owed is the ledger's to say, and it is believed once that is durable. A copy goes to the dead-letter queue with a dedup id that
names the source, so that it may be sent again; then the source's ledger hears that it is buried. After a failover, or a crash between the
two, the next leader finds it owed and begins again. A dead letter keeps its message's id, and says in its headers where it comes from, why,
and what was tried. Where the dead-letter queue is missing or full, the letters wait, that is reported, and it is tried again, ever more
seldom.
"""

import asyncio
import json
import logging
from binascii import crc32
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from penstock.broker.askers import Asker
from penstock.broker.queues.bodies import Message
from penstock.broker.queues.calls import LENT_BYTES_MAX, Draft, QueueRefusal
from penstock.broker.queues.leading import NotHere, QueuePartition, kept_id
from penstock.errors import DiskFailed
from penstock.queues import headers
from penstock.queues.commands import Buried, Command
from penstock.queues.views import LetterOwed

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

LETTERS_AT_ONCE = 100
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.1, 60.0

# What a dead letter says of its last life; the ones of an earlier burial go.
MOVED = frozenset({headers.ID, headers.SOURCE, headers.REASON, headers.FAILED_AT, headers.ATTEMPTS})
_OPTIONS = frozenset({headers.PRIORITY, headers.DELIVER_AT, headers.EXPIRES_AT, headers.GROUP, headers.DEDUP})


class Burying:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._at_work: dict[QueuePartition, None] = {}

    def look_soon(self, queue: QueuePartition) -> None:
        """Something may be owed that was not before."""
        state = queue.coordinator.state
        if state is not None and queue not in self._at_work and next(state.owed(), None) is not None:
            self._at_work[queue] = None
            self._node.spawn(self._bury_all(queue))

    async def _bury_all(self, queue: QueuePartition) -> None:
        pause_s = PAUSE_SECONDS_MIN
        try:
            while True:
                letters = await self._owed(queue)
                if letters == []:
                    if next(queue.state.owed(), None) is None:
                        return
                    continue  # It came while we waited for what was there before to be durable.
                if letters is not None and await self._bury(queue, letters):
                    pause_s = PAUSE_SECONDS_MIN
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, PAUSE_SECONDS_MAX)
        except NotHere:
            return  # The next leader finds it owed.
        finally:
            del self._at_work[queue]

    async def _owed(self, queue: QueuePartition) -> list[LetterOwed] | None:
        """None: nothing is committed now, so nobody knows."""
        try:
            owed: list[LetterOwed] = await queue.read(lambda state: list(islice(state.owed(), LETTERS_AT_ONCE)))
            return owed
        except QueueRefusal:
            return None

    async def _bury(self, queue: QueuePartition, letters: Sequence[LetterOwed]) -> bool:
        """Whether all of them are buried."""
        by_target: dict[tuple[str, str], list[LetterOwed]] = {}
        for letter in letters:
            by_target.setdefault((letter.group, queue.policy_of(letter.group).dead_letter), []).append(letter)
        is_all = True
        for (group, target), chosen in by_target.items():
            name = f"{queue.data.topic}-{queue.data.index}"
            try:
                done = await self._move_all(queue, target, chosen) if target else [letter.offset for letter in chosen]
                if done:
                    await queue.ask(_buried(group, tuple(done)))
                is_all &= len(done) == len(chosen)
            except (QueueRefusal, DiskFailed) as refusal:
                self._node.report(f"{len(chosen)} dead letters of {name} wait for the queue {target!r}: {refusal}")
                is_all = False
        return is_all

    async def _move_all(self, queue: QueuePartition, target: str, letters: Sequence[LetterOwed]) -> list[int]:
        """The offsets of those that are safe in the other queue, or whose message is gone."""
        moved = list[int]()
        while letters:
            done, letters = await self._move(queue, target, letters)
            moved += done
        return moved

    async def _move(self, queue: QueuePartition, target: str, letters: Sequence[LetterOwed]) -> tuple[list[int], list[LetterOwed]]:
        """The same for the first of them, as many as are read at once; and the others."""
        found, unread = await queue.bodies.read([letter.offset for letter in letters], bytes_max=LENT_BYTES_MAX)
        there = [letter for letter in letters if letter.offset in found]
        gone = [letter.offset for letter in letters if letter.offset not in found and letter.offset not in unread]
        drafts = [dead_letter(queue, letter, found[letter.offset]) for letter in there]
        results = await self._node.queues.send(target, drafts) if drafts else []
        for result in results:
            if isinstance(result, QueueRefusal):
                self._node.report(f"a dead letter of {queue.data.topic} is refused by the queue {target!r}, and waits: {result.words}")
        moved = [letter.offset for letter, result in zip(there, results, strict=True) if not isinstance(result, QueueRefusal)]
        return gone + moved, [letter for letter in letters if letter.offset in unread]


def _buried(group: str, offsets: tuple[int, ...]) -> Callable[[Asker], Command]:
    return lambda asker: Buried(asker, group, offsets)


def dead_letter(queue: QueuePartition, letter: LetterOwed, message: Message) -> Draft:
    data, own = queue.data, headers.parse([each for each in message.headers if each[0] in _OPTIONS], 0)
    history = [{"taken": each.taken_ms, "ended": each.ended_ms, "who": each.who, "reason": each.reason} for each in letter.history]
    told: list[tuple[str, bytes | None]] = [
        (headers.SOURCE, data.topic.encode()),
        (headers.REASON, letter.reason.encode("ascii", "backslashreplace")),
        (headers.FAILED_AT, b"%d" % letter.failed_ms),
        (headers.ATTEMPTS, json.dumps({"count": letter.attempts, "failures": history}, separators=(",", ":")).encode()),
    ]
    kept = tuple(each for each in message.headers if each[0] not in MOVED and each[0] not in _OPTIONS)
    return Draft(
        body=message.value or b"",
        key=message.key,
        headers=(*kept, *told),
        priority=own.priority,
        delay_ms=0,
        group=own.group.decode(),
        dedup=f"{data.topic_id.hex()}.{data.index}.{letter.offset}.{crc32(letter.group.encode()):x}",
        kept_id=kept_id(message) or queue.id_of(letter.offset),
    )
