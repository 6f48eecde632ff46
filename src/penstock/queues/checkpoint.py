"""A state in pieces, and back: so that loading does not grow with history.

The pieces show the state at the moment the checkpoint was begun, whatever happens while they are drawn: what is packed never changes, so
copies of the dictionaries are enough. Together with the records from that moment on, and the messages from `learned_end` on, they give the
same state as all records and messages from the beginning.
A piece is a kind, and rows of that kind; those of a ledger follow the piece that names it. Little-endian as the rows are.
Pages of delays that are far away are pieces as they are, so they are copied and not looked into, neither here nor at a load. They may have
to be fetched first: in their place, None is drawn.
"""

import struct
from array import array
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING

from penstock.cluster.records import UnknownRecord
from penstock.errors import BrokenPromise
from penstock.packed import rows_of
from penstock.queues.bits import FULL, SHIFT, Bits
from penstock.queues.ledger import Ledger
from penstock.queues.messages import unpack
from penstock.queues.states import State
from penstock.queues.timetable import Drawing, Timetable

if TYPE_CHECKING:
    from penstock.queues.state import LedgerState

VERSION = 1
PIECE_BYTES = 200_000  # About; it must fit into a record, and be made in some milliseconds.

_HEAD = struct.Struct("<BH")  # kind, version
_STATE = struct.Struct("<qqq")  # learned end, dedup from, base of those exempt from dedup
_LEDGER = struct.Struct("<qqqq?H")  # base, next lease, finished, dropped, is paused, bytes of the name; then the name
_PAIR = struct.Struct("<qq")
_NAMED = struct.Struct("<qI")  # a number, and how many bytes follow
_KEY = struct.Struct("<qqI")
_RUN = struct.Struct("<qI")  # first chunk, how many; 0: one that is not full, and its bits follow
_CUT = struct.Struct("<q")  # Before a page: from which offset on nothing in it counts.
_CHUNK_BYTES = (1 << SHIFT) // 8


class Kind(IntEnum):
    STATE = 1
    MARKS = 2
    KEPT = 3
    DELAYS = 4
    DUPLICATES = 5
    DEDUP = 6
    LEDGER = 7
    DONE = 8
    ROWS = 9
    FAILURES = 10
    BURYING = 11
    REPEATS = 12
    EXEMPT = 13
    MOVES = 14
    NOTES = 15
    BOUND = 16
    PURGED = 17
    WAITING = 18
    OPTIONS = 19  # As KEPT was, without what follows from it; that has a kind of its own now.
    NEAR_DELAYS = 20
    FAR_DELAYS = 21
    NEAR_EXPIRIES = 22
    FAR_EXPIRIES = 23
    COMMON_DELAYS = 24  # From which message on messages that ask for none have which.
    IN_ORDER = 25  # Who waits for it in order, and when each was written.


def pieces(state: "LedgerState") -> Iterator[bytes | None]:
    """Everything is copied before the first piece is drawn. None: the next one is not at hand yet; draw again a little later."""
    parts: list[Iterator[bytes | None]] = [
        _rows(Kind.STATE, iter([_STATE.pack(state.learned_end, state.dedup_from, state.messages.exempt.base)])),
        *_of_messages(state),
    ]
    for ledger in state.ledgers.values():
        parts += _of_ledger(ledger)
    return (piece for part in parts for piece in part)


class Restoring:
    """Takes the pieces of a checkpoint one by one, in order: there may be more of them than memory should hold."""

    def __init__(self, state: "LedgerState") -> None:
        state.ledgers.clear()
        self._reader = _Reader(state)

    def read(self, piece: bytes) -> None:
        try:
            self._reader.read(piece)
        except (struct.error, UnicodeDecodeError, ValueError, IndexError) as wrong:
            raise BrokenPromise(f"a checkpoint of a queue's ledger does not read back: {wrong}") from None


# Writing


def _of_messages(state: "LedgerState") -> list[Iterator[bytes | None]]:
    messages = state.messages
    kept, duplicates, waiting = messages.kept.copy(), list(messages.duplicates), messages.waiting.copy()
    delays = messages.delays.draw(messages.waiting.has_any)
    expiries = messages.expiries.draw(lambda start, end: bool(messages.kept) or messages.waiting.has_any(start, end))
    overdue = messages.overdue.copy()  # Looked at already, and put off for a while: after a load they are looked at at once.
    near = ((until_ms, offset) for until_ms, offset in expiries.near if offset in kept or offset in waiting)
    near_expiries = ((0 if offset in overdue else until_ms, offset) for until_ms, offset in near)
    return [
        _rows(Kind.MARKS, (_PAIR.pack(*mark) for mark in messages.marks())),
        _rows(Kind.OPTIONS, (_named(offset, packed) for offset, packed in kept.items())),
        _rows(Kind.WAITING, _runs_of(waiting.chunks)),
        _rows(Kind.NEAR_DELAYS, (_PAIR.pack(*each) for each in delays.near if each[1] in waiting)),
        _pages(Kind.FAR_DELAYS, delays),
        _rows(Kind.COMMON_DELAYS, (_PAIR.pack(*each) for each in messages.common_delay.told())),
        _rows(Kind.IN_ORDER, _pairs_of(messages.common_delay.entries(), waiting)),
        _rows(Kind.NEAR_EXPIRIES, (_PAIR.pack(*each) for each in near_expiries)),
        _pages(Kind.FAR_EXPIRIES, expiries),
        _rows(Kind.DUPLICATES, (_PAIR.pack(offset, 0) for offset in duplicates)),
        _rows(Kind.EXEMPT, _runs_of(messages.exempt.bits.chunks.copy())),
        _rows(Kind.DEDUP, (_KEY.pack(at, until, len(key)) + key for key, at, until in state.window.entries(state.learned_end))),
        _rows(Kind.MOVES, (_KEY.pack(at, noted, len(source)) + source for source, at, noted in state.moves.entries(state.learned_end))),
        _rows(Kind.NOTES, (_named(len(name.encode()), name.encode() + text) for name, text in list(state.notes.items()))),
    ]


def _of_ledger(ledger: Ledger) -> list[Iterator[bytes | None]]:
    done = ledger.done
    name = ledger.group.encode()
    head = _LEDGER.pack(done.base, ledger.next_lease, ledger.finished, ledger.dropped, ledger.is_paused, len(name)) + name
    chunks, rows, failures, repeats = done.bits.chunks.copy(), ledger.rows.copy(), ledger.failures.copy(), ledger.repeats.taken.copy()
    burying, bound, purged_ms = list(ledger.burying), ledger.bound.copy(), ledger.purged_ms
    return [
        _rows(Kind.LEDGER, iter([head])),
        _rows(Kind.DONE, _runs_of(chunks)),
        _rows(Kind.ROWS, (_named(offset, row) for offset, row in rows.items())),
        _rows(Kind.FAILURES, (_named(offset, packed) for offset, packed in failures.items())),
        _rows(Kind.BURYING, (_PAIR.pack(offset, 0) for offset in burying)),
        _rows(Kind.BOUND, (_named(offset, place) for offset, place in bound.items())),
        _rows(Kind.PURGED, iter([_PAIR.pack(purged_ms, 0)] if purged_ms else [])),
        _rows(Kind.REPEATS, (_named(len(key), key + batch) for key, batch in repeats.items())),
    ]


def _rows(kind: Kind, rows: Iterator[bytes]) -> Iterator[bytes]:
    piece = bytearray(_HEAD.pack(kind, VERSION))
    for row in rows:
        piece += row
        if len(piece) > PIECE_BYTES:
            yield bytes(piece)
            piece = bytearray(_HEAD.pack(kind, VERSION))
    if len(piece) > _HEAD.size:
        yield bytes(piece)


def _pages(kind: Kind, drawing: Drawing) -> Iterator[bytes | None]:
    for drawn in drawing.pages():
        yield None if drawn is None else _HEAD.pack(kind, VERSION) + _CUT.pack(drawn[0]) + drawn[1]


def _pairs_of(entries: "array[int]", waiting: Bits) -> Iterator[bytes]:
    for at in range(0, len(entries), 2):
        if entries[at] in waiting:
            yield _PAIR.pack(entries[at], entries[at + 1])


def _named(number: int, content: bytes) -> bytes:
    return _NAMED.pack(number, len(content)) + content


def _runs_of(chunks: dict[int, int]) -> Iterator[bytes]:
    """Full chunks side by side as one."""
    run_start = run_end = -1
    for number in sorted(chunks):
        chunk = chunks[number]
        if chunk == FULL and number == run_end:
            run_end += 1
            continue
        if run_end > run_start:
            yield _RUN.pack(run_start, run_end - run_start)
        if chunk == FULL:
            run_start, run_end = number, number + 1
        else:
            run_start = run_end = -1
            yield _RUN.pack(number, 0) + chunk.to_bytes(_CHUNK_BYTES, "little")
    if run_end > run_start:
        yield _RUN.pack(run_start, run_end - run_start)


# Reading


class _Reader:
    def __init__(self, state: "LedgerState") -> None:
        self._state = state
        self._ledger: Ledger | None = None

    def read(self, piece: bytes) -> None:
        kind, version = _HEAD.unpack_from(piece)
        if version != VERSION or kind not in _READERS:
            raise UnknownRecord(
                f"a checkpoint of a queue's ledger has form {kind}.{version}: start a newer Penstock on this data directory"
            )
        _READERS[Kind(kind)](self, piece[_HEAD.size :])

    @property
    def ledger(self) -> Ledger:
        if self._ledger is None:
            raise ValueError("a part of a ledger comes before its name")
        return self._ledger

    def state(self, content: bytes) -> None:
        messages = self._state.messages
        messages.learned_end, self._state.dedup_from, messages.exempt.base = _STATE.unpack(content)

    def marks(self, content: bytes) -> None:
        for end, written_ms in rows_of(_PAIR, content):
            self._state.messages.mark(end, written_ms)

    def options(self, content: bytes) -> None:
        self._state.messages.kept.update(_read_named(content))

    def waiting(self, content: bytes) -> None:
        _read_bits(self._state.messages.waiting, content)

    def near_delays(self, content: bytes) -> None:
        _read_near(self._state.messages.delays, content)

    def far_delays(self, content: bytes) -> None:
        self._state.messages.delays.restore(_CUT.unpack_from(content)[0], content[_CUT.size :])

    def common_delays(self, content: bytes) -> None:
        for start, span_ms in rows_of(_PAIR, content):
            self._state.messages.common_delay.tell(start, span_ms)

    def in_order(self, content: bytes) -> None:
        for offset, written_ms in rows_of(_PAIR, content):
            self._state.messages.common_delay.add(offset, written_ms)

    def near_expiries(self, content: bytes) -> None:
        _read_near(self._state.messages.expiries, content)

    def far_expiries(self, content: bytes) -> None:
        self._state.messages.expiries.restore(_CUT.unpack_from(content)[0], content[_CUT.size :])

    def kept(self, content: bytes) -> None:
        messages = self._state.messages
        for offset, packed in _read_named(content):
            messages.kept[offset] = packed
            expires_at = unpack(packed).expires_at
            if expires_at:
                messages.expiries.add(expires_at, offset)

    def delays(self, content: bytes) -> None:
        for until_ms, offset in rows_of(_PAIR, content):
            self._state.messages.delay(offset, until_ms)

    def duplicates(self, content: bytes) -> None:
        for offset, _ in rows_of(_PAIR, content):
            self._state.messages.duplicates[offset] = None

    def dedup(self, content: bytes) -> None:
        for key, offset, until_ms in _read_keys(content):
            self._state.window.note(key, offset, until_ms)

    def moves(self, content: bytes) -> None:
        for source, offset, noted_ms in _read_keys(content):
            self._state.moves.note(source, offset, noted_ms)

    def notes(self, content: bytes) -> None:
        for size, packed in _read_named(content):
            self._state.notes[str(packed[:size], "utf-8")] = packed[size:]

    def named(self, content: bytes) -> None:
        base, next_lease, finished, dropped, is_paused, size = _LEDGER.unpack_from(content)
        if len(content) != _LEDGER.size + size:
            raise ValueError("the name of a group is cut off")
        ledger = self._ledger = self._state.add_ledger(str(content[_LEDGER.size :], "utf-8"), base)
        ledger.next_lease, ledger.finished, ledger.dropped, ledger.is_paused = next_lease, finished, dropped, is_paused

    def done(self, content: bytes) -> None:
        _read_bits(self.ledger.done.bits, content)

    def exempt(self, content: bytes) -> None:
        _read_bits(self._state.messages.exempt.bits, content)

    def rows(self, content: bytes) -> None:
        ledger = self.ledger
        for offset, row in _read_named(content):
            ledger.rows[offset] = row
            ledger.leased += row[0] == State.LEASED

    def failures(self, content: bytes) -> None:
        for offset, packed in _read_named(content):
            self.ledger.failures[offset] = packed
            self.ledger.failures_bytes += len(packed)

    def burying(self, content: bytes) -> None:
        for offset, _ in rows_of(_PAIR, content):
            self.ledger.burying[offset] = None

    def bound(self, content: bytes) -> None:
        self.ledger.bound.update(_read_named(content))

    def purged(self, content: bytes) -> None:
        self.ledger.purged_ms = _PAIR.unpack(content)[0]

    def repeats(self, content: bytes) -> None:
        for size, packed in _read_named(content):
            self.ledger.repeats.taken[packed[:size]] = packed[size:]


_READERS = {
    Kind.STATE: _Reader.state, Kind.MARKS: _Reader.marks, Kind.KEPT: _Reader.kept, Kind.DELAYS: _Reader.delays,
    Kind.DUPLICATES: _Reader.duplicates, Kind.DEDUP: _Reader.dedup, Kind.LEDGER: _Reader.named, Kind.DONE: _Reader.done,
    Kind.ROWS: _Reader.rows, Kind.FAILURES: _Reader.failures, Kind.BURYING: _Reader.burying, Kind.REPEATS: _Reader.repeats,
    Kind.EXEMPT: _Reader.exempt, Kind.MOVES: _Reader.moves, Kind.NOTES: _Reader.notes, Kind.BOUND: _Reader.bound,
    Kind.PURGED: _Reader.purged,
    Kind.WAITING: _Reader.waiting, Kind.OPTIONS: _Reader.options, Kind.NEAR_DELAYS: _Reader.near_delays,
    Kind.FAR_DELAYS: _Reader.far_delays, Kind.NEAR_EXPIRIES: _Reader.near_expiries, Kind.FAR_EXPIRIES: _Reader.far_expiries,
    Kind.COMMON_DELAYS: _Reader.common_delays, Kind.IN_ORDER: _Reader.in_order,
}  # fmt: skip


def _read_near(table: Timetable, content: bytes) -> None:
    for when_ms, offset in rows_of(_PAIR, content):
        table.near.add(when_ms, offset)


def _read_bits(bits: Bits, content: bytes) -> None:
    at = 0
    while at < len(content):
        first, count = _RUN.unpack_from(content, at)
        at += _RUN.size
        if count:
            bits.add_range(first << SHIFT, (first + count) << SHIFT)
        else:
            chunk = int.from_bytes(content[at : at + _CHUNK_BYTES], "little")
            bits.chunks[first] = chunk
            bits.count += chunk.bit_count()
            at += _CHUNK_BYTES
            if at > len(content):
                raise ValueError("a chunk of a set is cut off")


def _read_keys(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    at = 0
    while at < len(content):
        offset, time_ms, size = _KEY.unpack_from(content, at)
        at += _KEY.size + size
        if at > len(content):
            raise ValueError("a key is cut off")
        yield content[at - size : at], offset, time_ms


def _read_named(content: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(content):
        number, size = _NAMED.unpack_from(content, at)
        at += _NAMED.size + size
        if at > len(content):
            raise ValueError("a row is cut off")
        yield number, content[at - size : at]
