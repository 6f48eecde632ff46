"""The records of a companion partition: what was decided, one record for each decision and group, and checkpoints in pieces.

They are replayed in the order of the log, each one once, on top of the checkpoint that was begun last: a record tells what changed, not
all there is to say. Therefore the log is not compacted; it is cut off below the last whole checkpoint.

A key is a big-endian int16 kind and the group's name; a value is an int16 version and the fields, little-endian as the rows are. A kind or
version that this node doesn't know is refused: guessing at leases gives messages to two. A new field gets a new version; a number is never
used again for something else. Texts (who, why) stand once behind the entries that have them.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, assert_never

from penstock.cluster.records import UnknownRecord
from penstock.errors import BrokenPromise
from penstock.packed import rows_of

VERSION = 1
_KEYS_MAX = 1_000  # That are remembered: one is written with every decision.

_KIND = struct.Struct(">h")
_LEASED = struct.Struct("<qqqBBI")  # wall, deadline, first lease, lengths of who and of the attempt id, count
_CHANGED = struct.Struct("<qBIIIIH")  # wall, flags, counts of done runs, returned, extended, buried, texts
_PAIR = struct.Struct("<qq")
_RETURNED = struct.Struct("<qqqBHH")  # offset, not before, place, flags, who, reason
_BURIED = struct.Struct("<qHH")
_TURNED = struct.Struct("<qBqq")  # wall, what, offset, end
_BOUND = struct.Struct("<q16siq?I")  # wall, topic id, partition, first lease, is sent off, count
_PIECE = struct.Struct("<qI?")
_TEXT = struct.Struct("<H")
_NO_TEXT = _TEXT.pack(0)

_DROPPED, _FAILURE, _UNDONE, _LET_GO = 1, 1, 2, 4  # Flags: the first of a record, the others of a returned message.


class Kind(IntEnum):
    LEASED = 1
    CHANGED = 2
    TURNED = 3
    PIECE = 4
    BOUND = 5
    NOTED = 6


class Turn(IntEnum):
    """What happens to a whole ledger."""

    PURGED = 1
    PAUSED = 2
    RESUMED = 3
    REWOUND = 4
    STARTED = 5
    FORGOTTEN = 6
    DELAYED = 7


class Leased(NamedTuple):
    """These messages are somebody's until the deadline, by leases with numbers side by side."""

    group: str
    wall_ms: int
    deadline_ms: int
    first_lease: int
    who: bytes
    attempt_id: bytes
    offsets: tuple[int, ...]


class Returned(NamedTuple):
    """A message is nobody's any more, and may be taken again."""

    offset: int
    not_before: int  # 0: at once.
    place: int
    is_failure: bool  # It goes into the message's history.
    who: bytes = b""  # Empty: who held it.
    reason: bytes = b""
    is_undone: bool = False  # The delivery does not count.
    is_let_go: bool = False  # By whom it was given to: that one cannot take it up again.


class Buried(NamedTuple):
    offset: int
    who: bytes = b""
    reason: bytes = b""


class Changed(NamedTuple):
    group: str
    wall_ms: int
    done: tuple[tuple[int, int], ...] = ()  # Runs of messages.
    returned: tuple[Returned, ...] = ()
    extended: tuple[tuple[int, int], ...] = ()  # (offset, the new deadline)
    buried: tuple[Buried, ...] = ()
    is_dropped: bool = False  # What is done was lost with its log.


@dataclass(frozen=True, slots=True)
class Turned:
    group: str
    wall_ms: int
    what: Turn
    offset: int = 0  # PURGED: everything below is done. REWOUND: to here. STARTED, DELAYED: from here.
    end: int = 0  # REWOUND, STARTED: the end of what was known by then. DELAYED: by so many milliseconds.


@dataclass(frozen=True, slots=True)
class Bound:
    """These messages go to a partition of another queue. Those that are sent off get leases with numbers side by side, which name the move;
    the others have the one of their last delivery."""

    group: str
    wall_ms: int
    topic_id: bytes
    partition: int
    first_lease: int
    is_sent_off: bool
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Noted:
    name: str
    text: bytes  # Empty: there is no such note any more.


@dataclass(frozen=True, slots=True)
class CheckpointPiece:
    """A part of a checkpoint. `at` is the end of the companion log when the checkpoint began: records from there on come on top of it."""

    at: int
    number: int
    is_last: bool
    content: bytes


Record = Leased | Changed | Turned | Bound | Noted | CheckpointPiece


def encode(record: Record) -> tuple[bytes, bytes]:
    match record:
        case Leased():
            return _key(Kind.LEASED, record.group), _leased(record)
        case Changed():
            return _key(Kind.CHANGED, record.group), _changed(record)
        case Turned():
            fields = _TURNED.pack(record.wall_ms, record.what, record.offset, record.end)
            return _key(Kind.TURNED, record.group), _KIND.pack(VERSION) + fields
        case Bound():
            return _key(Kind.BOUND, record.group), _bound(record)
        case Noted():
            return _key(Kind.NOTED, record.name), _KIND.pack(VERSION) + record.text
        case CheckpointPiece():
            return _key(Kind.PIECE, ""), _KIND.pack(VERSION) + _PIECE.pack(record.at, record.number, record.is_last) + record.content
        case _:
            assert_never(record)


def decode(key: bytes, value: bytes | None) -> Record:
    try:
        number = _KIND.unpack_from(key)[0]
        if number not in _READERS:
            raise _unknown("key", number)
        if value is None:
            raise ValueError("it has no value")
        version = _KIND.unpack_from(value)[0]
        if version != VERSION:
            raise _unknown(f"{Kind(number).name.lower()} record", version)
        return _READERS[number](str(key[_KIND.size :], "utf-8"), value)
    except (struct.error, UnicodeDecodeError, ValueError, IndexError) as wrong:
        raise BrokenPromise(f"a record of a queue's ledger does not read back: {wrong}") from None


@lru_cache(_KEYS_MAX)
def _key(kind: Kind, group: str) -> bytes:
    return _KIND.pack(kind) + group.encode()


def _leased(record: Leased) -> bytes:
    count = len(record.offsets)
    return b"".join(
        (
            _KIND.pack(VERSION),
            _LEASED.pack(record.wall_ms, record.deadline_ms, record.first_lease, len(record.who), len(record.attempt_id), count),
            record.who,
            record.attempt_id,
            struct.pack(f"<{count}q", *record.offsets),
        )
    )


def _read_leased(group: str, value: bytes) -> Leased:
    wall_ms, deadline_ms, first_lease, who_bytes, id_bytes, count = _LEASED.unpack_from(value, _KIND.size)
    who_at = _KIND.size + _LEASED.size
    id_at = who_at + who_bytes
    offsets_at = id_at + id_bytes
    _expect_end(offsets_at + 8 * count, value)
    offsets = struct.unpack_from(f"<{count}q", value, offsets_at)
    return Leased(group, wall_ms, deadline_ms, first_lease, value[who_at:id_at], value[id_at:offsets_at], offsets)


class _Texts:
    """The texts of a record, each once; the empty one is number 0."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {b"": 0}

    def number(self, text: bytes) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def _changed(record: Changed) -> bytes:
    if not (record.returned or record.extended or record.buried):  # What nearly all are: the same as below, of runs that are done.
        head = _CHANGED.pack(record.wall_ms, _DROPPED if record.is_dropped else 0, len(record.done), 0, 0, 0, 1)
        return b"".join((_KIND.pack(VERSION), head, _pairs(record.done), _NO_TEXT))
    texts = _Texts()
    pieces: list[bytes] = [_pairs(record.done)]
    for each in record.returned:
        flags = (_FAILURE if each.is_failure else 0) | (_UNDONE if each.is_undone else 0) | (_LET_GO if each.is_let_go else 0)
        numbers = texts.number(each.who), texts.number(each.reason)
        pieces.append(_RETURNED.pack(each.offset, each.not_before, each.place, flags, *numbers))
    pieces.append(_pairs(record.extended))
    pieces += [_BURIED.pack(each.offset, texts.number(each.who), texts.number(each.reason)) for each in record.buried]
    counts = len(record.done), len(record.returned), len(record.extended), len(record.buried), len(texts.numbers)
    for text in texts.numbers:
        pieces += (_TEXT.pack(len(text)), text)
    return b"".join((_KIND.pack(VERSION), _CHANGED.pack(record.wall_ms, _DROPPED if record.is_dropped else 0, *counts), *pieces))


def _read_changed(group: str, value: bytes) -> Changed:
    wall_ms, flags, done, returned, extended, buried, texts = _CHANGED.unpack_from(value, _KIND.size)
    done_at = _KIND.size + _CHANGED.size
    returned_at = done_at + _PAIR.size * done
    extended_at = returned_at + _RETURNED.size * returned
    buried_at = extended_at + _PAIR.size * extended
    texts_at = buried_at + _BURIED.size * buried
    words = _read_texts(value, texts_at, texts)
    return Changed(
        group, wall_ms,
        done=tuple(_read_pairs(value[done_at:returned_at])),
        returned=tuple(
            Returned(
                offset, not_before, place, bool(each & _FAILURE), words[who], words[reason], bool(each & _UNDONE), bool(each & _LET_GO)
            )
            for offset, not_before, place, each, who, reason in rows_of(_RETURNED, value[returned_at:extended_at])
        ),
        extended=tuple(_read_pairs(value[extended_at:buried_at])),
        buried=tuple(Buried(offset, words[who], words[why]) for offset, who, why in rows_of(_BURIED, value[buried_at:texts_at])),
        is_dropped=bool(flags & _DROPPED),
    )  # fmt: skip


def _read_texts(value: bytes, at: int, count: int) -> list[bytes]:
    words = []
    for _ in range(count):
        start = at + _TEXT.size
        at = start + _TEXT.unpack_from(value, at)[0]
        words.append(value[start:at])
    _expect_end(at, value)
    return words


def _read_turned(group: str, value: bytes) -> Turned:
    _expect_end(_KIND.size + _TURNED.size, value)
    wall_ms, what, offset, end = _TURNED.unpack_from(value, _KIND.size)
    return Turned(group, wall_ms, Turn(what), offset, end)


def _bound(record: Bound) -> bytes:
    count = len(record.offsets)
    fields = record.wall_ms, record.topic_id, record.partition, record.first_lease, record.is_sent_off, count
    return _KIND.pack(VERSION) + _BOUND.pack(*fields) + struct.pack(f"<{count}q", *record.offsets)


def _read_bound(group: str, value: bytes) -> Bound:
    wall_ms, topic_id, partition, first_lease, is_sent_off, count = _BOUND.unpack_from(value, _KIND.size)
    offsets_at = _KIND.size + _BOUND.size
    _expect_end(offsets_at + 8 * count, value)
    return Bound(group, wall_ms, topic_id, partition, first_lease, is_sent_off, struct.unpack_from(f"<{count}q", value, offsets_at))


def _read_noted(name: str, value: bytes) -> Noted:
    return Noted(name, value[_KIND.size :])


def _read_piece(_: str, value: bytes) -> CheckpointPiece:
    at, number, is_last = _PIECE.unpack_from(value, _KIND.size)
    return CheckpointPiece(at, number, is_last, value[_KIND.size + _PIECE.size :])


_READERS: dict[int, Callable[[str, bytes], Record]] = {
    Kind.LEASED: _read_leased,
    Kind.CHANGED: _read_changed,
    Kind.TURNED: _read_turned,
    Kind.PIECE: _read_piece,
    Kind.BOUND: _read_bound,
    Kind.NOTED: _read_noted,
}


def _pairs(pairs: Sequence[tuple[int, int]]) -> bytes:
    return b"".join([_PAIR.pack(*pair) for pair in pairs])


def _read_pairs(value: bytes) -> Iterable[tuple[int, int]]:
    return rows_of(_PAIR, value)


def _expect_end(at: int, value: bytes) -> None:
    if at != len(value):
        raise ValueError(f"it has {len(value)} bytes instead of {at}")


def _unknown(what: str, number: int) -> UnknownRecord:
    return UnknownRecord(f"a queue's ledger has a {what} of form {number}: start a newer Penstock on this data directory")
