"""Reads what lies above the checkpoint, batch by batch, and takes it in as if it were appended again.

It stops at the first batch that is not whole, does not follow the one before it, or claims an epoch that it cannot have. What that
means is for tail.py to say. A compacted segment was whole before it got its name, so nothing in it can be torn: what is wrong there
is damage. It may have gaps, and ends where its name says.
Segments that were read to their end are flushed and let go on the way, so that a long scan holds little.
"""

from collections.abc import Callable

from penstock.env import Disk
from penstock.errors import DiskFailed
from penstock.log import index_files
from penstock.log.config import LogIdentity
from penstock.log.faults import LogDamaged
from penstock.log.found import Found
from penstock.log.open_files import OpenFile, OpenFiles
from penstock.log.rewriting import refresh_name, rewrite
from penstock.log.segment import Segment
from penstock.log.tail import Stretch
from penstock.log.walking import Walk
from penstock.vocabulary import Buffer
from penstock.wire.batches import BatchHeader


class FlushFailed(DiskFailed):
    """What was found on the disk could not be flushed there."""


class TailScan:
    def __init__(
        self, disk: Disk, files: OpenFiles, identity: LogIdentity, found: Found, *,
        replay: Callable[[BatchHeader], None], replay_control: Callable[[BatchHeader, Buffer], None] | None, epoch_max: int,
        flushed_end: int,
    ) -> None:  # fmt: skip
        """`flushed_end`: everything below is surely on the disk. The rest is written once more."""
        self._disk = disk
        self._files = files
        self._identity = identity
        self._found = found
        self._replay = replay
        self._replay_control = replay_control
        self._epoch_max = epoch_max
        self._flushed_end = flushed_end
        self.held: dict[str, OpenFile] = {}
        self.is_changed = False  # Something was found, made or cut that may not be on the disk yet.
        self.is_contradicted = False  # Batches that are whole contradict each other: only damage does that.

    async def run(self, fresh: list[Segment]) -> Stretch | None:
        """Follows the last known segment from its known size, then those that came after it; None when all of it is well."""
        found = self._found
        bad = await self._follow(found.segments[-1]) if found.segments else None
        for segment in fresh:
            if bad is not None:
                break
            if segment.base_offset != found.end_offset:
                return self._gap_before(segment)
            if found.segments:
                await self._finish(found.segments[-1])
            found.segments.append(segment)
            bad = await self._follow(segment)
        return bad

    def hold(self, segment: Segment) -> OpenFile:
        if segment.path not in self.held:
            # An empty segment's name may have been lost with the power: nothing in it was flushed.
            self.held[segment.path] = self._files.pin(segment.path, create=not segment.size)
        return self.held[segment.path]

    def let_go(self, segment: Segment) -> None:
        """The segment is going."""
        self._files.forget(segment.path)
        self._files.unpin(self.held.pop(segment.path))

    def release(self) -> None:
        while self.held:
            self._files.unpin(self.held.popitem()[1])

    async def _follow(self, segment: Segment) -> Stretch | None:
        file = self.hold(segment).file
        end = self._disk.size(file)
        if end < segment.size:
            raise LogDamaged(f"{segment.path} has {end} bytes, but {segment.size} were flushed")
        if end == segment.size and self._found.is_checkpointed(segment):
            return None
        self.is_changed = True
        if segment.name.is_compacted:
            self.is_contradicted = True  # Until it has been followed to its end.
        walk = Walk(self._disk, file, segment.size, end, first_offset=self._found.end_offset, verify=True)
        while (chunk := await walk.next_chunk()).scan.batches:
            for position, header in chunk.headers():
                if header.leader_epoch < self._found.epochs.latest:
                    self._blame(header, chunk.epoch_after(position, header))
                    return Stretch(file, position, end)
                if not self._fits(header):
                    return Stretch(file, position, end)
                self._take(segment, position, header)
                if header.is_control and self._replay_control is not None:
                    self._replay_control(header, chunk.batch_at(position, header))
                else:
                    self._replay(header)
        if segment.size < end:
            return Stretch(file, segment.size, end)
        if segment.name.is_compacted:
            self.is_contradicted = False
            self._found.end_offset = segment.name.end_offset
        return None

    def _fits(self, header: BatchHeader) -> bool:
        found = self._found
        is_next = header.base_offset == found.end_offset or found.end_offset < found.gaps_below
        return is_next and header.leader_epoch <= self._epoch_max

    def _blame(self, header: BatchHeader, epoch_after: int) -> None:
        """An epoch went back, so one of the two has changed on the disk: this one, if the next agrees with those before it, or if the
        checkpoint vouches for them. Otherwise all that claims a later epoch is in doubt."""
        self.is_contradicted = True
        epochs, vouched_end = self._found.epochs, self._found.checkpoint_end
        doubtful_from = max(epochs.first_above(header.leader_epoch), epochs.next_start(vouched_end - 1) if vouched_end > 0 else 0)
        if epoch_after < epochs.latest and doubtful_from < self._found.end_offset:
            self._found.end_offset = doubtful_from
            epochs.cut(doubtful_from)

    def _take(self, segment: Segment, position: int, header: BatchHeader) -> None:
        found = self._found
        assert segment.index is not None, "a segment that is followed has its index"
        segment.index.note(header.base_offset, position, header.newest_timestamp)
        if header.leader_epoch != found.epochs.latest:
            found.epochs.begin(header.leader_epoch, header.base_offset)
        segment.size = position + header.size
        found.end_offset = header.end_offset
        found.report.scanned_bytes += header.size
        found.report.scanned_batches += 1

    def _gap_before(self, segment: Segment) -> Stretch:
        """The offsets between two segments are nowhere."""
        self.is_contradicted = segment.base_offset < self._found.end_offset or not self._found.segments
        last = self._found.segments[-1] if self._found.segments else segment
        return Stretch(self.hold(last).file, last.size, last.size)

    async def write_again(self, segment: Segment, end_offset: int) -> None:
        """What of the segment may be in the machine's memory alone, and its name. It ends at this offset."""
        if end_offset <= self._flushed_end:
            return
        position = 0
        if segment.base_offset < self._flushed_end:
            assert segment.index is not None, "a segment that was followed has its index"
            position = segment.index.positions[segment.index.find(self._flushed_end)]
        await rewrite(self._disk, self.hold(segment).file, position, segment.size)
        if segment.base_offset >= self._flushed_end:
            refresh_name(self._disk, segment.path)

    async def _finish(self, segment: Segment) -> None:
        """A closed segment is well to its end."""
        await self.write_again(segment, self._found.end_offset)
        failures = await self._disk.sync([self.hold(segment).file])
        if failures:
            raise FlushFailed(f"{failures[0][0]}: {failures[0][1]}")
        if segment.index is not None and index_files.save_if_possible(self._disk, segment, segment.index, self._identity):
            segment.let_index_go()
        self._files.unpin(self.held.pop(segment.path))
