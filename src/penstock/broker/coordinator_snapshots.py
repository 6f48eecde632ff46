"""A coordinator's snapshot on disk: what the log says of every key, so that loading does not grow with history.

A cache beside the partition's segments, believed only when every part of it is whole, belongs to this partition and stands for a part of
this very log; otherwise it is as if it weren't there, and the log alone is read. It is written while the coordinator goes on: each key's
record is taken at some moment after the noted offset. Since the last record of a key says all about it, replaying the log from that offset
over the snapshot leads to the same state. What was taken after that offset must not be cut off the log later, for the snapshot would not
show it: so it is put in place when all that it may hold is committed.
It is disbelieved when it is ahead of the log, when another leader wrote the record before its offset, and when compaction has been past
its offset: a key's deletion may have been taken out of the log there, and the snapshot would bring the key back to life.
In pieces, so that neither writing nor reading it holds up the loop.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from struct import Struct, error

from penstock.env import Disk, File
from penstock.errors import DiskFailed
from penstock.log.log import Log
from penstock.log.small_files import TEMPORARY, seal, unseal
from penstock.settings import KIB
from penstock.vocabulary import TopicId
from penstock.wire.keyed_records import Pair

NAME = "coordinator.snapshot"
VERSION = 1
PIECE_BYTES = 128 * KIB  # A few milliseconds of replaying.

_KIND = b"pnstk-cs"
_LENGTH = Struct("<I")  # bytes of the sealed piece that follows
_HEAD = Struct("<16siqiI?")  # topic id, partition, offset, leader epoch before it, number of the piece, whether it is the last
_ENTRY = Struct("<II")  # bytes of the key, bytes of the value

Entry = tuple[bytes, bytes]


class NotKept(Exception):
    """What the snapshot holds may still be cut off the log: it is thrown away."""


class Disbelieved(Exception):
    """The snapshot is not one of this log, or not whole."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Which log the snapshot is of, and how far it goes at least."""

    topic_id: TopicId
    partition: int
    offset: int
    leader_epoch: int  # Of the record before the offset.

    @classmethod
    def now(cls, log: Log) -> "Mark":
        return cls(log.identity.topic_id, log.identity.partition, log.end_offset, log.epochs.latest)

    def is_of(self, log: Log) -> bool:
        if (self.topic_id, self.partition) != (log.identity.topic_id, log.identity.partition):
            return False
        if not max(log.start_offset, log.gaps_below) <= self.offset <= log.end_offset:
            return False
        return self.offset == 0 or log.epochs.epoch_at(self.offset - 1) == self.leader_epoch


async def write(
    disk: Disk, log: Log, mark: Mark, entries: Iterable[Entry],
    *, pause: Callable[[], Awaitable[None]], commit: Callable[[], Awaitable[bool]],
) -> int:  # fmt: skip
    """Puts a snapshot in place of the last one; returns its size. `commit` waits until what the entries stand for is flushed and committed,
    and says whether it is. Raises NotKept or DiskFailed with nothing changed.

    A crash at any moment leaves the old one or the new one.
    """
    path = f"{log.directory}/{NAME}"
    file = disk.open(path + TEMPORARY, create=True)
    try:
        size = await _write_pieces(disk, file, mark, entries, pause)
        if not await commit():
            raise NotKept
        failures = await disk.sync([file])
    except BaseException:
        disk.close(file)
        disk.unlink(path + TEMPORARY)
        raise
    disk.close(file)
    if not failures:
        disk.rename(path + TEMPORARY, path)
        failures = await disk.sync((), [log.directory])
    if failures:
        raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")
    return size


async def _write_pieces(disk: Disk, file: File, mark: Mark, entries: Iterable[Entry], pause: Callable[[], Awaitable[None]]) -> int:
    if disk.size(file):
        disk.truncate(file, 0)  # A crash left it behind.
    number, gathered, gathered_bytes, size = 0, [], 0, 0
    for key, value in entries:
        entry = _ENTRY.pack(len(key), len(value)) + key + value
        gathered.append(entry)
        gathered_bytes += len(entry)
        if gathered_bytes >= PIECE_BYTES:
            size += _append(disk, file, mark, number, b"".join(gathered), is_last=False)
            number, gathered, gathered_bytes = number + 1, [], 0
        await pause()
    return size + _append(disk, file, mark, number, b"".join(gathered), is_last=True)


def _append(disk: Disk, file: File, mark: Mark, number: int, entries: bytes, *, is_last: bool) -> int:
    head = _HEAD.pack(mark.topic_id, mark.partition, mark.offset, mark.leader_epoch, number, is_last)
    piece = seal(_KIND, VERSION, head + entries)
    disk.append(file, (_LENGTH.pack(len(piece)), piece))
    return _LENGTH.size + len(piece)


async def read(disk: Disk, log: Log) -> AsyncGenerator[tuple[Mark, list[Pair], int], None]:
    """The snapshot, piece by piece: its mark, some of its entries, and how many bytes were read so far.

    Raises Disbelieved, perhaps after some pieces: then all that was read must be thrown away. Nothing at all: there is no snapshot.
    """
    path = f"{log.directory}/{NAME}"
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return
    try:
        size, at, number, is_last = disk.size(file), 0, 0, False
        while not is_last:
            content = await _read_piece(disk, file, at, size)
            at += _LENGTH.size + len(content)
            mark, entries, is_last = _decode(content, number, log, path)
            number += 1
            yield mark, entries, at
        if at != size:
            raise Disbelieved("it goes on after its last piece")
    finally:
        disk.close(file)


async def _read_piece(disk: Disk, file: File, at: int, size: int) -> bytes:
    head = await disk.read_later(file, at, _LENGTH.size)
    if len(head) < _LENGTH.size:
        raise Disbelieved("it is cut off")
    length = _LENGTH.unpack(head)[0]
    if length > size - at - _LENGTH.size:
        raise Disbelieved("it is cut off")
    return await disk.read_later(file, at + _LENGTH.size, length)


def _decode(content: bytes, number: int, log: Log, path: str) -> tuple[Mark, list[Pair], bool]:
    body = unseal(content, _KIND, VERSION, path)
    if body is None:
        raise Disbelieved(f"piece {number} is damaged")
    try:
        topic_id, partition, offset, leader_epoch, found_number, is_last = _HEAD.unpack_from(body)
        mark = Mark(TopicId(topic_id), partition, offset, leader_epoch)
        if found_number != number or not mark.is_of(log):
            raise Disbelieved("it is of another log, or of another time of this one")
        return mark, _entries(bytes(body[_HEAD.size :])), is_last
    except error:
        raise Disbelieved(f"piece {number} cannot be read") from None


def _entries(packed: bytes) -> list[Pair]:
    found: list[Pair] = []
    at, size, unpack = 0, len(packed), _ENTRY.unpack_from
    while at < size:
        key_bytes, value_bytes = unpack(packed, at)
        at += _ENTRY.size
        value_at = at + key_bytes
        found.append((packed[at:value_at], packed[value_at : value_at + value_bytes]))
        at = value_at + value_bytes
    return found
