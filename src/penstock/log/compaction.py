"""Compaction: of the records with one key only the last is kept, and a key that was deleted is forgotten after a while.

A round has two walks. The first enters the keys of the dirty part into a map (key_map.py): key to last offset. The second copies
the log from its start to the end of the map, a group of segments at a time, without what the map has a later record for (sifting.py).
Each copy then takes the place of its group by one rename. Offsets never change.

The swap, in order, and what makes it safe to stop anywhere:

    1. the copy is written under a temporary name        a crash leaves a name that the next start removes
    2. it is flushed                                     so what has the final name is always whole
    3. it gets its final name                            which says which offsets it stands for, and its generation
    4. the directory is flushed                          from here on it holds; before, either outcome is right
    5. readers are sent to it                            those who have an old file open go on reading that
    6. after a while the old files are removed           their names are dead since 3: a later generation stands for their offsets

Invariants:
- At every moment, and after a power cut at every moment, each offset below the log's end belongs to exactly one whole file: of the files
  that stand for it the one with the highest generation (`segment.standing`), and generations are never given twice.
- An old file goes only when the name of the new one is durable. A start that finds both makes sure of that first (sweeping.py).
- For each key the record with the highest offset below the map's end stays, unless it is a tombstone whose horizon has passed. A record
  that the map cannot judge stays. Records of aborted transactions are none: they go, and take no other's place (decided.py).
- Groups are swapped in the order of their offsets, each durably before the next. A tombstone therefore never goes before the values that it
  deletes: those stand before it, and went with an earlier group, with the same one, or in an earlier round.
- The clean end moves only after the last group: a round that is broken off is simply done again.
- Only closed segments take part that are flushed, committed, before every open transaction, and listed as closed by the checkpoint on the
  disk. So no start ever looks for a torn write in them, and the checkpoint's own tail never lies inside of them.
- Nothing damaged is copied. Where a walk finds damage the round ends, the old files stay, and readers are told as ever.

The map and the chunk at hand are all that a round holds in memory. When the map is full the round ends where it ends; the next one goes on
from there. The work is done away from the loop, a chunk at a time.
Not here: which log is next, and when (broker/cleaning.py); transactions (sifting.py says what that means).
"""

import sys
from array import array
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.env import Env, File
from penstock.errors import DiskFailed, DiskFull
from penstock.log.chunks import ChunkWalk
from penstock.log.decided import Decided, Spans
from penstock.log.dirt import Dirt
from penstock.log.epochs import Epochs
from penstock.log.index import SparseIndex
from penstock.log.key_map import KeyMap
from penstock.log.reader import Reader
from penstock.log.segment import Segment, SegmentName
from penstock.log.sifting import Sieve, note, sift
from penstock.log.small_files import TEMPORARY, write_fresh

TIME_MAX = 2**63 - 1
SEED_BITS = 128
_POSITION_MAX = 2**32 - 1  # An index keeps positions in 32 bits.

Swap = Callable[[Sequence[Segment], Segment], Awaitable[bool]]


class CopyFailed(DiskFailed):
    """A write or a flush failed: whatever the disk says later is not believed."""


class MapTooSmall(Exception):
    """A single batch has more keys than the map may hold: this log cannot be compacted with so little memory."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a round is to do."""

    dirt: Dirt
    directory: str
    clean_end: int
    wall_ms: int
    delete_retention_ms: int
    group_bytes_max: int
    index_interval_bytes: int
    keys_bytes_max: int
    spare_bytes: int  # So much room is left on the disk for others.
    kept_ends: bytes  # Packed by `pack_ends`.
    aborted: Spans


@dataclass(slots=True)
class Account:
    """What a round has done so far."""

    clean_end: int = 0  # How far the log is clean now.
    bytes_read: int = 0  # In both walks.
    bytes_written: int = 0
    bytes_freed: int = 0
    records_removed: int = 0
    segments_replaced: int = 0
    is_complete: bool = False  # False: something came in between, and the next round does it again.


@contextmanager
def _told_apart() -> Iterator[None]:
    """A write that fails takes the log offline; a read that fails does not."""
    try:
        yield
    except DiskFull:
        raise
    except DiskFailed as failure:
        raise CopyFailed(str(failure)) from failure


def pack_ends(last_offsets: Sequence[int]) -> bytes:
    ends = array("q", sorted(last_offsets))
    if sys.byteorder == "little":
        ends.byteswap()
    return ends.tobytes()


class Compaction:
    """One round over one log. Used once."""

    def __init__(
        self, env: Env, reader: Reader, epochs: Epochs, order: Order, *, generation: Callable[[], int], swap: Swap, account: Account
    ) -> None:
        self._env = env
        self._disk = env.disk
        self._reader = reader
        self._epochs = epochs.copy()
        self._order = order
        self._generation = generation
        self._swap = swap
        self._decided = Decided(order.aborted)
        self.account = account
        account.clean_end = order.clean_end

    async def run(self) -> None:
        """Raises `DiskFull` where there is no room for a copy, `LogDamaged` where the log is: what was swapped before stays so."""
        order = self._order
        keys = await self._map_keys()
        horizon_ms = min(TIME_MAX, order.wall_ms + order.delete_retention_ms)
        sieve = Sieve(keys, order.wall_ms, horizon_ms, order.kept_ends, self._decided)
        for group, end_offset in self._groups(keys.end_offset):
            if not await self._replace(group, end_offset, sieve):
                return
        self.account.clean_end = keys.end_offset
        self.account.is_complete = True

    # The first walk

    async def _map_keys(self) -> KeyMap:
        order = self._order
        keys = KeyMap(self._env.rng.getrandbits(SEED_BITS).to_bytes(SEED_BITS // 8, "big"), order.keys_bytes_max)
        for segment, segment_end in self._segments():
            if segment_end <= order.clean_end:
                continue
            walk = self._walk(segment)
            try:
                while not walk.is_done:
                    if await walk.step(note, keys, self._decided):
                        if not keys.count:
                            raise MapTooSmall(f"{segment.path}: the batch at offset {walk.offset} has more keys than the map may hold")
                        keys.end_offset = walk.offset
                        return keys
            finally:
                self.account.bytes_read += walk.position
                walk.close()
        keys.end_offset = order.dirt.end_offset
        return keys

    def _segments(self) -> Iterator[tuple[Segment, int]]:
        segments = self._order.dirt.segments
        ends = [segment.base_offset for segment in segments[1:]] + [self._order.dirt.end_offset]
        return zip(segments, ends, strict=True)

    # The second walk

    def _groups(self, map_end: int) -> Iterator[tuple[list[Segment], int]]:
        """Neighbours that fit into one segment together, and where they end."""
        group: list[Segment] = []
        group_end = size = 0
        for segment, segment_end in self._segments():
            if segment.base_offset >= map_end:
                break
            if group and size + segment.size > self._order.group_bytes_max:
                yield group, group_end
                group, size = [], 0
            group.append(segment)
            group_end, size = segment_end, size + segment.size
        if group:
            yield group, group_end

    async def _replace(self, group: list[Segment], end_offset: int, sieve: Sieve) -> bool:
        """Whether the group is done with: replaced, or found to need nothing. False: it is not there any more as it was."""
        order, disk = self._order, self._disk
        old_bytes = sum(segment.size for segment in group)
        if disk.free_bytes() - old_bytes < order.spare_bytes:
            raise DiskFull(f"{order.directory}: no room for a copy of {old_bytes} bytes")
        name = SegmentName(group[0].base_offset, end_offset, self._generation())
        compacted = Segment(order.directory, name, group[0].opened_ms, SparseIndex(order.index_interval_bytes))
        path = compacted.path + TEMPORARY
        with _told_apart():
            copy = write_fresh(disk, path, b"")
        is_swapped = False
        try:
            has_changed = await self._copy(group, compacted, copy, sieve)
            if not has_changed and len(group) == 1:
                return True
            failures = await disk.sync([copy])
            if failures:
                raise CopyFailed(f"{failures[0][0]}: {failures[0][1]}")
            is_swapped = await self._swap(group, compacted)
        finally:
            disk.close(copy)
            if not is_swapped:
                disk.unlink(path)
        if is_swapped:
            self.account.bytes_freed += old_bytes - compacted.size
            self.account.segments_replaced += len(group)
        return is_swapped

    async def _copy(self, group: list[Segment], compacted: Segment, copy: File, sieve: Sieve) -> bool:
        """Writes what is left of the group; whether that is less, or otherwise, than it was."""
        assert compacted.index is not None
        has_changed = False
        for segment in group:
            walk = self._walk(segment)
            try:
                while not walk.is_done:
                    left = await walk.step(sift, sieve, self._order.index_interval_bytes)
                    if compacted.size + left.size > _POSITION_MAX:
                        raise DiskFull(f"{compacted.path} would become too large")
                    with _told_apart():
                        self._disk.append(copy, left.pieces)
                    for offset, position, newest in left.marks:
                        compacted.index.note(offset, compacted.size + position, newest)
                    compacted.size += left.size
                    has_changed |= left.batches_changed > 0
                    self.account.records_removed += left.records_removed
                    self.account.bytes_written += left.size
            finally:
                self.account.bytes_read += walk.position
                walk.close()
        return has_changed

    def _walk(self, segment: Segment) -> ChunkWalk:
        return ChunkWalk(self._env, self._reader, segment, self._epochs)
