"""Messages carried from a queue's partition to another queue: dead letters, and those that somebody sends off.

Before the first copy leaves, the source's ledger has bound the message to one partition of one queue; so it is never tried at two places,
whatever happens to settings and partitions meanwhile. The copy names its move, and the partition that gets it knows all moves that its
source may repeat (queues/moves.py). So a message may be carried as often as anybody likes, by this leader or the next one, at once or after
a week, and is there once.
A place is given up only when its queue was deleted: the copy, if there was one, is gone with it.
Not here: who carries when (burying.py), forgetting of moves (confirming.py).
"""

import json
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.askers import Asker
from penstock.broker.queues.asking import Place
from penstock.broker.queues.bodies import Message
from penstock.broker.queues.calls import LENT_BYTES_MAX, Code, Draft, QueueRefusal
from penstock.broker.queues.leading import QueuePartition, kept_id
from penstock.cluster.image import Topic
from penstock.queues import headers
from penstock.queues.commands import Bind, Command
from penstock.queues.moves import source_of
from penstock.queues.views import LetterOwed
from penstock.vocabulary import TopicId
from penstock.wire.murmur2 import partition_of_key

if TYPE_CHECKING:
    from penstock.broker.node import Node

# What a message says of an earlier move; those of an earlier one go.
_OF_MOVES = frozenset(
    {headers.ID, headers.SOURCE, headers.REASON, headers.FAILED_AT, headers.ATTEMPTS, headers.MOVED, headers.SENT_AT}
)  # fmt: skip
_OPTIONS = frozenset({headers.PRIORITY, headers.DELIVER_AT, headers.EXPIRES_AT, headers.GROUP, headers.DEDUP, headers.FIRST})


class Carried(NamedTuple):
    done: list[int]  # Offsets of those that are safe there, or whose record is gone.
    refused: dict[int, QueueRefusal]  # Those that were sent off and are there for certain not, and why.
    waiting: dict[int, QueueRefusal]  # Those that are to be tried again, and why: they may be there, or have nowhere else to be.
    once: dict[Place, list[str]]  # Moves of those that are there by a first try: no call of theirs is on its way.


async def carry(
    node: "Node", queue: QueuePartition, letters: Sequence[LetterOwed], target: str, untried: Container[int] = ()
) -> Carried:  # fmt: skip
    """Those that are bound go there; dead letters that are not, to the queue `target`. What cannot be carried to one place keeps none from
    another. Bound ones may have been tried before, but for the `untried`. Raises QueueRefusal where the ledger does not answer, NotHere
    and DiskFailed."""
    carried = Carried([], {}, {}, {})
    while letters:
        found, unread = await queue.bodies.read([letter.offset for letter in letters], bytes_max=LENT_BYTES_MAX)
        carried.done.extend(letter.offset for letter in letters if letter.offset not in found and letter.offset not in unread)
        there = [(letter, found[letter.offset]) for letter in letters if letter.offset in found]
        for place, chosen in (await _places(node, queue, there, target, carried)).items():
            for letter, move, refusal in await _carry_to(node, queue, place, chosen):
                is_first_try = not letter.topic_id or letter.offset in untried
                if refusal is None:
                    carried.done.append(letter.offset)
                    if is_first_try:
                        carried.once.setdefault(place, []).append(move)
                elif letter.is_sent_off and is_first_try and refusal.code is not Code.NOT_AVAILABLE:
                    carried.refused[letter.offset] = refusal
                else:  # An earlier try may be there; and a log that failed under it may have it once it is open again.
                    carried.waiting[letter.offset] = refusal
        letters = [letter for letter in letters if letter.offset in unread]
    return carried


async def bind_all(node: "Node", queue: QueuePartition, group: str, offsets: Sequence[int], target: Topic) -> None:
    """Those that are ready are sent off to that queue: nobody gets them here any more."""
    while offsets:
        found, unread = await queue.bodies.read(offsets, bytes_max=LENT_BYTES_MAX)
        places: dict[Place, list[int]] = {}
        for offset, message in found.items():
            places.setdefault(_choose(queue, target, offset, message), []).append(offset)
        for place, chosen in places.items():
            await queue.ask(_bind(group, place, tuple(chosen), sent_off=True))
        offsets = unread


async def _places(
    node: "Node", queue: QueuePartition, there: Sequence[tuple[LetterOwed, Message]], target: str, carried: Carried
) -> dict[Place, list[tuple[LetterOwed, Message]]]:
    """Where they go; that is durable then."""
    places: dict[Place, list[tuple[LetterOwed, Message]]] = {}
    unbound: dict[tuple[str, Place], list[int]] = {}
    for letter, message in there:
        bound = Place(TopicId(letter.topic_id), letter.partition)
        place = None if node.image.partition(*bound) is None else bound
        if place is None and letter.is_sent_off:
            deleted = QueueRefusal(Code.NO_SUCH_QUEUE, "the queue that it was sent off to was deleted")
            carried.refused[letter.offset] = deleted  # And with it the copy, if there was one.
            continue
        if place is None:
            try:
                place = _choose(queue, node.queues.topic_of(target), letter.offset, message)
            except QueueRefusal as refusal:
                carried.waiting[letter.offset] = refusal
                continue
            unbound.setdefault((letter.group, place), []).append(letter.offset)
        places.setdefault(place, []).append((letter, message))
    for (group, place), offsets in unbound.items():
        await queue.ask(_bind(group, place, tuple(offsets), sent_off=False))
    return places


async def _carry_to(
    node: "Node", queue: QueuePartition, place: Place, chosen: Sequence[tuple[LetterOwed, Message]]
) -> list[tuple[LetterOwed, str, QueueRefusal | None]]:
    """Each with the move that was to bring it, and why it has not, unless it has."""
    owed = [(letter, message) for letter, message in chosen if queue.state.is_burying(letter.group, letter.offset)]  # Not purged meanwhile.
    drafts = [sent_back(queue, *each) if each[0].is_sent_off else dead_letter(queue, *each) for each in owed]
    try:
        results = await node.queues.send_to(place, drafts) if drafts else []
    except QueueRefusal as refusal:
        lost = QueueRefusal(Code.NOT_AVAILABLE, refusal.words)  # Whatever it says: nobody knows of any of them.
        return [(letter, draft.moved, lost) for (letter, _), draft in zip(owed, drafts, strict=True)]
    return [
        (letter, draft.moved, result if isinstance(result, QueueRefusal) else None)
        for (letter, _), draft, result in zip(owed, drafts, results, strict=True)
    ]


def _choose(queue: QueuePartition, target: Topic, offset: int, message: Message) -> Place:
    """By the group, so that its order holds; else by the key; else by where it lay."""
    group = headers.parse([each for each in message.headers if each[0] == headers.GROUP], 0).group
    by = group or (message.key if message.key is not None else queue.id_of(offset).encode())
    return Place(target.topic_id, partition_of_key(by, len(target.partitions)))


def _bind(group: str, place: Place, offsets: tuple[int, ...], *, sent_off: bool) -> Callable[[Asker], Command]:
    return lambda asker: Bind(asker, group, place.topic_id, place.partition, offsets, sent_off)


def dead_letter(queue: QueuePartition, letter: LetterOwed, message: Message) -> Draft:
    """It keeps its message's id, and says where it comes from, why, and what was tried."""
    history = [{"taken": each.taken_ms, "ended": each.ended_ms, "who": each.who, "reason": each.reason} for each in letter.history]
    told: list[tuple[str, bytes | None]] = [
        (headers.SOURCE, queue.data.topic.encode()),
        (headers.REASON, letter.reason.encode(errors="replace")),
        (headers.FAILED_AT, b"%d" % letter.failed_ms),
        (headers.ATTEMPTS, json.dumps({"count": letter.attempts, "failures": history}, separators=(",", ":")).encode()),
        (headers.SENT_AT, dict(message.headers).get(headers.SENT_AT) or b"%d" % message.timestamp_ms),  # Of the first, if it died before.
    ]
    draft = sent_back(queue, letter, message)
    return draft._replace(headers=(*draft.headers, *told), delay_ms=0)


def sent_back(queue: QueuePartition, letter: LetterOwed, message: Message) -> Draft:
    own = headers.parse([each for each in message.headers if each[0] in _OPTIONS], 0)
    kept = [each for each in message.headers if each[0] not in _OF_MOVES and each[0] not in _OPTIONS]
    if own.dedup:
        kept = [*(each for each in kept if each[0] != headers.SENT_DEDUP), (headers.SENT_DEDUP, own.dedup)]
    return Draft(
        body=message.value or b"",
        key=message.key,
        headers=tuple(kept),
        priority=own.priority,
        group=own.group.decode(),
        kept_id=kept_id(message) or queue.id_of(letter.offset),
        moved=source_of(queue.data.topic_id, queue.data.index, letter.offset, letter.lease, letter.group),
    )
