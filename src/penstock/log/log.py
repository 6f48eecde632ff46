"""One partition on one disk: appended at the end, read from anywhere, forgotten from the front.

How it grows and is read is in `growing_log.py`, with the rules that hold for all of it. Here is what makes it shorter: retention from
the front, and a follower's duties, which are to cut off what its leader never had and to start over where its leader now begins. And what
makes a damaged segment whole again.
"""

from collections.abc import Sequence

from penstock.errors import DiskFailed, DiskFull, require
from penstock.log import deleting, truncating
from penstock.log.checkpoint import Checkpoint, Remembered, encode
from penstock.log.epochs import Epochs
from penstock.log.faults import LogDamaged, damage_at
from penstock.log.flushing import FlushTicket
from penstock.log.found import Report
from penstock.log.growing_log import NEVER, GrowingLog
from penstock.log.index import SparseIndex
from penstock.log.lookup import TimedRecord
from penstock.log.mending import CannotMend, Fetch, Mended, SegmentMending, keep_damaged
from penstock.log.open_files import OpenFile
from penstock.log.retention import Expired, ages_out_ms, find_expired
from penstock.log.segment import Segment
from penstock.log.small_files import TEMPORARY
from penstock.vocabulary import Offset

__all__ = ["Checkpoint", "Expired", "FlushTicket", "Log", "Report", "TimedRecord"]


class Log(GrowingLog):
    __slots__ = ()

    # The front

    def raise_start(self, offset: int) -> None:
        """Nothing below the offset is read any more. The next checkpoint keeps that; room comes back with what `expired` finds."""
        require(offset <= self.end_offset, "a log starts no later than it ends")
        if offset > self.start_offset:
            self.start_offset, self.is_start_known = Offset(offset), True

    def segment_start(self, offset: int) -> int:
        """Where the segment that holds the offset begins: a start that is moved up to there frees whole files. Below its start, the log
        has none to give: it is that start."""
        return self._shelf.holding(offset).base_offset if offset > self.start_offset else self.start_offset

    def segment_end(self, offset: int) -> int:
        """Where the segment ends that holds the offset."""
        return self._shelf.end_of(self._shelf.place_of(offset), self.end_offset)

    def expired(self, wall_ms: int, end_offset_max: int) -> Expired | None:
        """The segments that may go, all below `end_offset_max`; None when there are none."""
        return find_expired(
            self._shelf, self._config,
            start_offset=self.start_offset, end_offset=self.end_offset, end_offset_max=end_offset_max, wall_ms=wall_ms,
        )  # fmt: skip

    def ages_out_ms(self, offset: int, wall_ms: int) -> int | None:
        """How soon age alone may take the segment that holds the offset; None where nothing goes by age."""
        return ages_out_ms(self._shelf, self._config, offset=offset, wall_ms=wall_ms)

    async def delete_segments(self, plan: Expired) -> None:
        """Moves the start, durably, and then removes the files. Reads that are under way go on.

        A checkpoint must cover what goes: its owner's state was built from those batches too. Otherwise `DiskFailed`, and nothing changes.
        """
        async with self._taking_turn():
            self._check_alive()
            if self._checkpoint_end < plan.start_offset:
                raise DiskFailed(f"{self.directory}: no checkpoint covers the segments before offset {plan.start_offset}")
            await self._swaps.remove_later(self._env)
            going = deleting.still_going(plan, self._shelf, self.end_offset)
            if not going:
                return
            if going[-1] is self._shelf.active:
                self._roll()
            start_offset = max(self.start_offset, self._shelf.end_of(len(going) - 1, self.end_offset))
            first_base = self._shelf.segments[len(going)].base_offset
            content = deleting.checkpoint_from(self._disk, self.directory, self.identity, start_offset, first_base)
            await self._replace_checkpoint(content, also=[])
            self.raise_start(start_offset)  # Not before: nobody is told of a start that could go back.
            self._checkpoint_start = self.start_offset
            self._closed_bytes -= sum(segment.size for segment in self._shelf.remove_first(len(going)))
            self.epochs.drop_below(first_base)
            for segment in going:
                self._drop(segment)
            failures = await deleting.remove_files(self._env, self.directory, going)
            if failures:
                self._fail(f"{failures[0][0]}: {failures[0][1]}")
                self._check_alive()

    # Damage

    async def mend(self, offset: int, fetch: Fetch) -> Mended | None:
        """Replaces the damaged batches of the segment that holds the offset by those of a good copy, which `fetch` returns. Durable.

        Each batch that is fetched is checked: where another log has the same epoch at the same offset, it has the same record. Retention,
        checkpoints and cuts take their turns while it is fetched. Returns None where the segment has been removed, cut or compacted by
        now: nothing is left to mend. Raises CannotMend, DiskFailed, or what `fetch` raises, with nothing changed.
        """
        segment = await self._segment_to_mend(offset)
        if segment is None:
            return None
        lineage = self._unflushed.lineage
        end_offset = self._shelf.end_of(self._shelf.place_of(segment.base_offset), self.end_offset)
        held = self._reader.pin(segment)
        try:
            mending = SegmentMending(self._disk, held.file, segment, epochs=self.epochs.copy(), end_offset=end_offset, fetch=fetch)
            try:
                await mending.write_anew()
            except Exception:
                if self._is_there_still(segment, lineage):
                    raise
                return None
            async with self._taking_turn():
                self._check_alive()
                if not self._is_there_still(segment, lineage):
                    self._disk.unlink(segment.path + TEMPORARY)
                    return None
                await keep_damaged(self._disk, held.file, segment, self.directory, mending.mended)
                self._disk.rename(segment.path + TEMPORARY, segment.path)
                if failures := await self._disk.sync((), [self.directory]):
                    self._fail(f"{failures[0][0]}: {failures[0][1]}")
                    self._check_alive()
        finally:
            self._files.unpin(held)
        self._files.forget(segment.path)
        self._reader.trust(segment)
        return mending.mended

    async def _segment_to_mend(self, offset: int) -> Segment | None:
        """The closed segment that holds the offset; None where the log no longer has it, or a cut has taken it off again."""
        async with self._taking_turn():
            self._check_alive()
            if not self.start_offset <= offset < self.end_offset:
                return None
            segment = self._shelf.holding(offset)
            if segment is self._shelf.active:
                self._roll()
                await self.flush()
        if segment.name.is_compacted:
            raise CannotMend(f"{segment.path} was compacted here: other copies may have other batches")
        return segment

    def _is_there_still(self, segment: Segment, lineage: int) -> bool:
        """Whether nothing was cut off since, and the segment was neither removed nor replaced."""
        return lineage == self._unflushed.lineage and self._shelf.holding(segment.base_offset) is segment

    # The end

    async def truncate_to(self, offset: int) -> None:
        """Cuts off the batch that holds the offset and everything after it, durably. Nothing is appended meanwhile.

        What the owner built from the batches is its own to rebuild (`owner_is_rebuilt`): the checkpoints are gone too.
        """
        async with self._taking_turn():
            self._check_alive()
            require(offset >= self.start_offset, "a log is not cut below its start")
            if offset < self.end_offset:
                self.owner_is_void = True
                await self._cut_to(offset)

    async def start_over(self, offset: int) -> None:
        """Makes the log empty, durably, to go on at the offset, wherever it began and ended before. Nothing is appended meanwhile.

        A crash leaves the log as it was, cut off somewhere, or empty at the offset. What its owner built from the batches is void, and
        its own to rebuild (`owner_is_rebuilt`).
        `DiskFull`: the log may have been cut, and it can be tried again.
        """
        async with self._taking_turn():
            self._check_alive()
            self._make_directory()
            self.owner_is_void = True
            kept_end = max(offset, self._shelf.segments[0].base_offset)
            if kept_end < self.end_offset:  # No batch may be left that seems to come after what will be written next.
                await self._cut_to(kept_end)
            try:
                await self._begin_again(offset)
            except DiskFull:
                raise
            except DiskFailed as failure:
                self._fail(str(failure))
                raise
            await self.flush()

    async def _cut_to(self, offset: int) -> None:
        place = self._shelf.place_of(offset)
        segment = self._shelf.segments[place]
        held = self._reader.pin(segment)
        try:
            cut = await self._begin_cut(segment, held, offset)
        except BaseException:
            self._files.unpin(held)
            raise
        try:
            await self._empty(self._shelf.segments[place + 1 :])
            for later in self._shelf.segments[place + 1 :]:
                self._drop(later)
                truncating.drop_file(self._disk, later)
            self._shelf.remove_from(place + 1)
            if segment.name.is_compacted:
                segment, cut = await self._cut_compacted(segment, held, cut)
            else:
                self._disk.truncate(held.file, cut.position)
                held.index = None
        except DiskFailed as failure:
            self._fail(str(failure))
            raise
        finally:
            self._files.unpin(held)
        self._settle_cut(segment, cut)
        await self.flush()

    async def _begin_cut(self, segment: Segment, held: OpenFile, offset: int) -> truncating.Cut:
        """Finds where to cut, and lets no checkpoint claim what will go. Where that meets damage, or a full disk, the log goes on, and the
        cut can be tried again."""
        try:
            with damage_at(segment.base_offset):
                index = await self._reader.index_of(segment, held)
                cut = await truncating.find_cut(self._disk, held.file, segment, index, offset)
            self._swaps.remove()
            await self._keep_only_start(min(self.start_offset, cut.end_offset))
            return cut
        except LogDamaged as damage:
            self._report_damage(damage)
            raise
        except DiskFull:
            raise
        except DiskFailed as failure:
            self._fail(str(failure))
            raise

    async def _keep_only_start(self, start_offset: int) -> None:
        """All else that the checkpoints claim may go with the cut."""
        first_base = self._shelf.segments[0].base_offset
        await truncating.keep_only_start(self._disk, self.directory, self.identity, start_offset=start_offset, first_base=first_base)

    async def _empty(self, segments: Sequence[Segment]) -> None:
        """A segment in which nothing was written yet may have no file."""
        pinned = [self._reader.pin(segment) for segment in segments if segment.size]
        try:
            await truncating.empty(self._disk, [held.file for held in pinned])
        finally:
            for held in pinned:
                self._files.unpin(held)

    async def _cut_compacted(self, segment: Segment, held: OpenFile, cut: truncating.Cut) -> tuple[Segment, truncating.Cut]:
        """What stays of a compacted segment is another one. The log goes on in a segment of its own after it."""
        front = Segment(self.directory, segment.name.cut(cut.end_offset, self._swaps.next_generation()), segment.opened_ms, cut.index_left)
        front.size, self.end_offset = cut.position, Offset(cut.end_offset)
        active = self._new_segment()
        if cut.end_offset > segment.base_offset:
            await truncating.copy_front(self._disk, held.file, cut.position, front)
        self._unflushed.hold(active)
        if failures := await self._disk.sync((), [self.directory]):
            raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")
        self._drop(segment)
        truncating.drop_file(self._disk, segment)
        self._shelf.cut_off_last([front] if cut.end_offset > segment.base_offset else [], active)
        return active, truncating.Cut(0, cut.end_offset, active.index or cut.index_left)

    def _drop(self, segment: Segment) -> None:
        """The segment is going: nobody opens it any more."""
        self._unflushed.let_go(segment)
        self._files.forget(segment.path)

    def _settle_cut(self, segment: Segment, cut: truncating.Cut) -> None:
        segment.size, segment.index, self._index = cut.position, cut.index_left, cut.index_left
        self.end_offset = Offset(cut.end_offset)
        self.flushed_end = min(self.flushed_end, self.end_offset)
        self.start_offset = min(self.start_offset, self.end_offset)  # It may have stood inside the batch that was cut.
        self.clean_end = min(self.clean_end, self.end_offset)
        self.epochs.cut(self.end_offset)
        self._reader.forget_places()
        self._reader.gaps_below = min(self._reader.gaps_below, self.end_offset)
        self._unflushed.void_tickets()
        self._unflushed.add_names([self.directory])
        self._writing = self._unflushed.hold(segment)
        self._closed_bytes = self._shelf.size_bytes - segment.size
        self._forget_checkpoint()

    def _forget_checkpoint(self) -> None:
        self._checkpoint_end = self._checkpoint_start = self._checkpoint_base = NEVER
        self._checkpointed_bytes = self._rolled_bytes
        self._written_number = self._next_number  # Checkpoints that were captured before are never written.
        self._next_number += 1

    async def _begin_again(self, offset: int) -> None:
        """The log ends at or before the offset, or is empty. From the moment of the new checkpoint on a start goes by that alone: it
        removes the files that begin before the offset. One that begins after it is empty, and is taken for torn."""
        self._swaps.remove()
        await self._keep_only_start(self.start_offset)
        self._forget_checkpoint()
        fresh = self._segment_at(offset)
        self._unflushed.hold(fresh)
        content = encode(self.identity, Remembered(offset, offset, 0, [fresh], Epochs(), b""))
        try:
            await self._replace_checkpoint(content, also=[])
        except DiskFull:
            if fresh is not self._shelf.active:
                self._drop(fresh)
                truncating.drop_file(self._disk, fresh)
            raise
        for segment in self._shelf.begin_again(fresh):
            self._drop(segment)
            truncating.drop_file(self._disk, segment)
        self._settle_cut(fresh, truncating.Cut(0, offset, fresh.index or SparseIndex(self._config.index_interval_bytes)))
        self.epochs.cut(0)
        self.start_offset = self.flushed_end = Offset(offset)
        self.is_start_known = True
        self._checkpoint_end = self._checkpoint_start = self._checkpoint_base = offset

    def _segment_at(self, offset: int) -> Segment:
        """An empty one that begins there: the active one, where it does already."""
        active = self._shelf.active
        if active.base_offset == offset and not active.size:
            return active
        return Segment(self.directory, offset, self._env.wall_ms(), SparseIndex(self._config.index_interval_bytes))
