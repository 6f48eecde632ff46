"""The same in Python, for machines without the compiled one. `many` says what each promises."""

import binascii
import struct
from collections.abc import Iterable, Sequence

from penstock.queues.commands import ANY_LEASE, Settlement, Verb
from penstock.queues.records import Leased
from penstock.queues.replies import Delivery
from penstock.queues.rows import ATTEMPTS_MAX, ROW
from penstock.queues.states import State

_LEASED = State.LEASED.value
_new_tuple = tuple.__new__  # Half the cost of calling a named tuple's class.

HANDLE_VERSION = 1
HANDLE_CHARACTERS = 47
_HANDLE = struct.Struct(">B6sIqqI")  # version, topic, partition, offset, lease, group's hash; the checksum is behind it
# A handle filled up to whole letters, for many at once.
_BLOCK, _ENDING, _FILLING = struct.Struct(">B6sIqqIIx"), struct.Struct(">Ix"), "A"
_TO_URL, _FROM_URL = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_", b"+/")  # Of base64, as URLs have it.


def lease_rows(rows: dict[int, bytes], record: Leased) -> int:
    before, pack = 0, ROW.pack
    _, wall_ms, deadline_ms, first_lease, who, _, offsets = record
    for lease, offset in enumerate(offsets, first_lease):
        row = rows.get(offset)
        if row is None:
            rows[offset] = pack(_LEASED, 1, lease, deadline_ms, offset, wall_ms, wall_ms) + who
        else:
            state, attempts, _, _, place, first_ms, _ = ROW.unpack_from(row)
            before += state == _LEASED
            attempts = min((attempts & ATTEMPTS_MAX) + 1, ATTEMPTS_MAX)
            rows[offset] = pack(_LEASED, attempts, lease, deadline_ms, place, first_ms or wall_ms, wall_ms) + who
    return before


def deliveries(rows: dict[int, bytes], record: Leased) -> tuple[Delivery, ...]:
    found = []
    _, wall_ms, deadline_ms, first_lease, _, _, offsets = record
    for lease, offset in enumerate(offsets, first_lease):
        row = rows.get(offset)
        if row is None:
            found.append(_new_tuple(Delivery, (offset, 1, lease, deadline_ms, wall_ms)))
        else:
            fields = ROW.unpack_from(row)
            attempt = min((fields[1] & ATTEMPTS_MAX) + 1, ATTEMPTS_MAX)
            found.append(Delivery(offset, attempt, lease, deadline_ms, fields[5] or wall_ms))
    return tuple(found)


def held_offsets(rows: dict[int, bytes], items: Sequence[Settlement], wall_ms: int) -> list[int] | None:
    offsets = []
    for offset, lease, verb, delay_ms, _, _, end_offset in items:
        packed = rows.get(offset)
        if packed is None or verb is not Verb.DONE or delay_ms is not None or end_offset or lease == ANY_LEASE:
            return None
        state, _, held, when, _, _, _ = ROW.unpack_from(packed)
        if state != _LEASED or held != lease or when <= wall_ms:
            return None
        offsets.append(offset)
    return offsets


def drop_rows(rows: dict[int, bytes], start: int, end: int) -> int:
    before = 0
    for offset in range(start, end):
        row = rows.pop(offset, None)
        before += row is not None and row[0] == _LEASED
    return before


def write_ids(prefix: str, offsets: Iterable[int]) -> list[str]:
    return [f"{prefix}{offset:012x}" for offset in offsets]


def write_handles(topic: bytes, partition: int, hashed: int, pairs: Iterable[tuple[int, int]]) -> list[str]:
    """Of (offset, lease) pairs, in one go: each takes 36 bytes, of which the last is nothing, so 48 letters without the last."""
    blocks, pack = bytearray(), _HANDLE.pack
    for offset, lease in pairs:
        content = pack(HANDLE_VERSION, topic, partition, offset, lease, hashed)
        blocks += content
        blocks += _ENDING.pack(binascii.crc32(content))
    text = binascii.b2a_base64(blocks, newline=False).translate(_TO_URL).decode()
    return [text[at : at + HANDLE_CHARACTERS] for at in range(0, len(text), HANDLE_CHARACTERS + 1)]


def read_handles(texts: Sequence[str], topic: bytes, hashed: int) -> tuple[int, list[tuple[int, int]]] | None:
    """The partition that all of these handles are of, and their (offset, lease) pairs. None: one of them is not what it should be, or they
    are of several partitions."""
    if any(len(text) != HANDLE_CHARACTERS for text in texts):
        return None
    try:
        raw = binascii.a2b_base64(_FILLING.join((*texts, "")).encode("ascii").translate(_FROM_URL))
    except (binascii.Error, ValueError):
        return None
    if len(raw) != _BLOCK.size * len(texts):
        return None
    pairs, partition, at = list[tuple[int, int]](), -1, 0
    common = HANDLE_VERSION, topic, hashed
    for version, its_topic, index, offset, lease, its_hash, checksum in _BLOCK.iter_unpack(raw):
        if (version, its_topic, its_hash) != common or checksum != binascii.crc32(raw[at : at + _HANDLE.size]) or index != partition >= 0:
            return None
        if offset < 0 or lease < 0:
            return None
        partition = index
        pairs.append((offset, lease))
        at += _BLOCK.size
    return partition, pairs
