"""Finds records by time. Clocks are not trusted: timestamps may stand in any order.

A lookup skips segments and stretches that hold nothing new enough, and reads one stretch of batches, verified, off the loop. Inside the
batch that it finds it looks at the records, so that the answer is the record and not the batch around it.
Appends, rolls, retention and compaction go on meanwhile, so everything it goes by is noted when it begins.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.env import Env
from penstock.errors import MalformedInput
from penstock.log.epochs import Epochs
from penstock.log.faults import LogDamaged, damage_at
from penstock.log.index import NO_TIMESTAMP, SparseIndex
from penstock.log.open_files import OpenFile, OpenFiles
from penstock.log.reader import Reader
from penstock.log.segment import Segment, Shelf
from penstock.log.walking import Walk
from penstock.wire.batches import BatchHeader, Record, iterate_records, unpack_batch
from penstock.wire.records import TIMESTAMP_HIGHEST, TIMESTAMP_LOWEST, RecordFault, RecordsVerdict, check_records

UNPACKED_BYTES_MAX = 1 << 30  # More than any batch that was ever admitted unpacks to.


class TimedRecord(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class Range(NamedTuple):
    start_offset: int
    end_offset: int

    def holds(self, other: "Range") -> bool:
        return self.start_offset <= other.start_offset and other.end_offset <= self.end_offset

    def touches(self, other: "Range") -> bool:
        return other.start_offset < self.end_offset and self.start_offset < other.end_offset


class Part(NamedTuple):
    """A segment as it was when the lookup began, or one stretch of it."""

    segment: Segment
    offsets: Range
    newest: int  # No record in it is newer.
    position: int
    end: int


class FoundBatch(NamedTuple):
    header: BatchHeader
    content: bytes
    at: int

    @property
    def offsets(self) -> Range:
        return Range(self.header.base_offset, self.header.end_offset)

    @property
    def bytes(self) -> bytes:
        return self.content[self.at : self.at + self.header.size]


class Lookup:
    """One search. Used once."""

    def __init__(self, env: Env, files: OpenFiles, reader: Reader, shelf: Shelf, *, epochs: Epochs, wanted: Range, log_end: int) -> None:
        self._env = env
        self._files = files
        self._reader = reader
        self._epochs = epochs
        self._wanted = wanted
        parts = [_whole(segment, shelf.end_of(place, log_end)) for place, segment in enumerate(shelf.segments)]
        self._parts = [part for part in parts if wanted.touches(part.offsets)]

    @property
    def is_overtaken(self) -> bool:
        """Whether compaction has replaced a segment meanwhile: what the search went by may be gone."""
        return any(part.segment.is_replaced for part in self._parts)

    async def first_at_or_after(self, timestamp: int) -> TimedRecord | None:
        """The first record, by offset, with this timestamp or a later one."""
        for part in self._parts:
            if part.newest >= timestamp:
                with damage_at(part.offsets.start_offset):
                    found = await self._first_in_segment(part, timestamp)
                if found is not None:
                    return found
        return None

    async def newest(self) -> TimedRecord | None:
        """The record with the highest timestamp; the first of them, if several have it."""
        highest = NO_TIMESTAMP
        for part in self._parts:
            with damage_at(part.offsets.start_offset):
                highest = max(highest, part.newest if self._wanted.holds(part.offsets) else await self._highest_in_segment(part))
        return await self.first_at_or_after(highest) if highest != NO_TIMESTAMP else None

    async def _first_in_segment(self, part: Part, timestamp: int) -> TimedRecord | None:
        held = self._reader.pin(part.segment)
        try:
            for stretch in _stretches(part, await self._reader.index_of(part.segment, held)):
                if stretch.newest < timestamp or not self._wanted.touches(stretch.offsets):
                    continue
                for batch in await self._batches(stretch, held):
                    if batch.header.max_timestamp < timestamp:
                        continue
                    found = await self._env.offload(_first_record, batch.bytes, timestamp, *self._wanted)
                    if found is not None:
                        return TimedRecord(found[0], found[1], batch.header.leader_epoch)
            return None
        finally:
            self._files.unpin(held)

    async def _highest_in_segment(self, part: Part) -> int:
        held = self._reader.pin(part.segment)
        highest = NO_TIMESTAMP
        try:
            for stretch in _stretches(part, await self._reader.index_of(part.segment, held)):
                if self._wanted.holds(stretch.offsets):
                    highest = max(highest, stretch.newest)
                elif self._wanted.touches(stretch.offsets) and stretch.newest > highest:
                    for batch in await self._batches(stretch, held):
                        highest = max(highest, await self._highest_in_batch(batch))
            return highest
        finally:
            self._files.unpin(held)

    async def _highest_in_batch(self, batch: FoundBatch) -> int:
        if self._wanted.holds(batch.offsets):
            return batch.header.newest_timestamp
        return await self._env.offload(_highest_timestamp, batch.bytes, *self._wanted)

    async def _batches(self, stretch: Part, held: OpenFile) -> list[FoundBatch]:
        """The stretch's batches that the search is about. None is believed unless all of the stretch is."""
        found: list[FoundBatch] = []
        offset = stretch.offsets.start_offset
        walk = Walk(self._env.disk, held.file, stretch.position, stretch.end, first_offset=offset, verify=True)
        while (chunk := await walk.next_chunk()).scan.batches:
            for position, header in chunk.headers():
                is_next = header.base_offset == offset or offset < self._reader.gaps_below
                if not is_next or header.leader_epoch != self._epochs.epoch_at(header.base_offset):
                    raise LogDamaged(f"{stretch.segment.path}: the batch at position {position} is not what was written")
                batch = FoundBatch(header, chunk.content, position - chunk.position)
                if self._wanted.touches(batch.offsets):
                    found.append(batch)
                offset = header.end_offset
        if walk.position != stretch.end:
            raise LogDamaged(f"{stretch.segment.path}: the batch at position {walk.position} is not what was written")
        return found


def _whole(segment: Segment, end_offset: int) -> Part:
    return Part(segment, Range(segment.base_offset, end_offset), segment.max_timestamp, 0, segment.size)


def _stretches(part: Part, index: SparseIndex) -> Iterator[Part]:
    """Over copies: the index of the active segment grows, and is thinned, while the search waits."""
    offsets, positions, times = index.offsets[:], index.positions[:], index.times[:]
    if part.end and (not positions or positions[0]):
        raise LogDamaged(f"{part.segment.path}: the batch at position 0 is not what was written")
    for entry, position in enumerate(positions):
        is_last = entry + 1 == len(positions) or positions[entry + 1] >= part.end
        end_offset = part.offsets.end_offset if is_last else offsets[entry + 1]
        end = part.end if is_last else positions[entry + 1]
        yield Part(part.segment, Range(offsets[entry], end_offset), times[entry], position, end)
        if is_last:
            return


def _first_record(batch: bytes, timestamp: int, start_offset: int, end_offset: int) -> tuple[int, int] | None:
    header, payload = _unpacked(batch)
    found = None if header.uses_log_append_time else _first_by_compiled_walk(header, payload, timestamp)
    if found is not None and start_offset <= found[1] < end_offset:
        return found
    for record in _records(header, payload, start_offset, end_offset):
        if record.timestamp_ms >= timestamp:
            return record.timestamp_ms, record.offset
    return None


def _first_by_compiled_walk(header: BatchHeader, payload: bytes, timestamp: int) -> tuple[int, int] | None:
    """A batch may hold millions of records. For the check of admission the first that is new enough is the first that is too new."""
    verdict = _walk(header, payload, header.record_count, timestamp_max=timestamp - 1)
    if verdict.fault != RecordFault.TIMESTAMP:
        return None
    newest = _walk(header, payload, verdict.fault_index + 1, timestamp_max=TIMESTAMP_HIGHEST).max_timestamp  # All before it are older.
    return newest, header.base_offset + verdict.fault_index


def _walk(header: BatchHeader, payload: bytes, count: int, *, timestamp_max: int) -> RecordsVerdict:
    return check_records(
        payload, count,
        base_timestamp=header.base_timestamp, timestamp_min=TIMESTAMP_LOWEST, timestamp_max=timestamp_max, keys_required=False,
    )  # fmt: skip


def _highest_timestamp(batch: bytes, start_offset: int, end_offset: int) -> int:
    header, payload = _unpacked(batch)
    return max((record.timestamp_ms for record in _records(header, payload, start_offset, end_offset)), default=NO_TIMESTAMP)


def _unpacked(batch: bytes) -> tuple[BatchHeader, bytes]:
    try:
        return unpack_batch(batch, bytes_max=UNPACKED_BYTES_MAX)
    except MalformedInput as malformed:
        raise LogDamaged(f"a stored batch cannot be unpacked: {malformed}") from None


def _records(header: BatchHeader, payload: bytes, start_offset: int, end_offset: int) -> Iterator[Record]:
    try:
        for record in iterate_records(header, payload):
            if record.offset >= end_offset:
                return
            if record.offset >= start_offset:
                yield record
    except MalformedInput as malformed:
        raise LogDamaged(f"a stored batch cannot be unpacked: {malformed}") from None
