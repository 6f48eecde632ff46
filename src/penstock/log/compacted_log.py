"""A log from whose closed segments compaction may leave out what nobody needs. All that it does to the log as a whole is here.

`compaction.py` says how a round goes and why it is safe; this says which segments it may touch, and puts what it made in their place.
Every topic's log is one of these, since a topic can become a compacted one at any time.
"""

from collections.abc import Sequence

from penstock.errors import DiskFailed, require
from penstock.log.compaction import Account, Compaction, CopyFailed, Order, pack_ends
from penstock.log.decided import NO_SPANS, Spans
from penstock.log.dirt import Dirt, find_dirt
from penstock.log.faults import LogDamaged
from penstock.log.index import SparseIndex
from penstock.log.log import Log
from penstock.log.mending import CompactedMending, Fetch, Mended, keep_damaged
from penstock.log.segment import Segment
from penstock.log.small_files import TEMPORARY
from penstock.log.swapping import put_in_place
from penstock.vocabulary import Instant

__all__ = ["Account", "CompactedLog", "Dirt"]


class CompactedLog(Log):
    __slots__ = ()

    def dirt(self, wall_ms: int, end_offset_max: int) -> Dirt | None:
        """What compaction could see to, all below `end_offset_max`; None when there is nothing."""
        return find_dirt(
            self._shelf, self._config, start_offset=self.start_offset, clean_end=self.clean_end, log_end=self.end_offset,
            end_offset_max=min(end_offset_max, self.flushed_end), wall_ms=wall_ms,
        )  # fmt: skip

    def covers(self, dirt: Dirt) -> bool:
        """Whether the checkpoint on the disk knows all of these segments as closed. Compaction touches no others."""
        return self._checkpoint_base >= dirt.end_offset

    async def compact(
        self,
        dirt: Dirt,
        *,
        last_offsets: Sequence[int],
        aborted: Spans = NO_SPANS,
        keys_bytes_max: int,
        spare_bytes: int = 0,
        replaced_stay_seconds: float = 0.0,
        account: Account | None = None,
    ) -> Account:
        """One round of compaction, told in `account` as it goes. The checkpoint must cover the dirt.

        The batches with these last offsets stay, though perhaps empty: their producers are known by them. What belongs to the aborted
        transactions goes. All that began before the dirt ends must be decided, and the aborted ones among them be given.
        """
        order = Order(
            dirt, self.directory, self.clean_end, self._env.wall_ms(), self._config.delete_retention_ms, self._config.segment_bytes,
            self._config.index_interval_bytes, keys_bytes_max, spare_bytes, pack_ends([*last_offsets, dirt.end_offset - 1]),
            aborted,
        )  # fmt: skip
        lineage = self._unflushed.lineage

        async def swap(group: Sequence[Segment], compacted: Segment) -> bool:
            return await self._swap(group, compacted, lineage, replaced_stay_seconds)

        account = account or Account()
        compaction = Compaction(self._env, self._reader, self.epochs, order, generation=self._next_generation, swap=swap, account=account)
        try:
            await compaction.run()
        except CopyFailed as failure:
            self._fail(str(failure))
            raise
        except FileNotFoundError:
            raise DiskFailed(f"{self.directory} is gone") from None
        except LogDamaged as damage:
            if all(segment.is_replaced or segment in self._shelf.segments for segment in dirt.segments):
                self._report_damage(damage)
                raise
            return account  # Retention was faster.
        if lineage == self._unflushed.lineage:
            self.clean_end = max(self.clean_end, account.clean_end)
        return account

    async def remove_replaced(self, now: Instant | None = None) -> None:
        """Removes files that compaction has replaced: those that have stayed for long enough, or all."""
        await self._swaps.remove_later(self._env, now)

    def _next_generation(self) -> int:
        self._check_alive()
        return self._swaps.next_generation()

    async def _swap(self, group: Sequence[Segment], compacted: Segment, lineage: int, stay_seconds: float) -> bool:
        """Puts the compacted segment in the place of the group; False when that is not there any more as it was."""
        async with self._taking_turn():
            self._check_alive()
            place = self._shelf.place_of(compacted.base_offset)
            if lineage != self._unflushed.lineage or self._shelf.segments[place : place + len(group)] != list(group):
                return False
            await self._put_in_place(place, group, compacted, stay_seconds)
            return True

    async def _put_in_place(self, place: int, group: Sequence[Segment], compacted: Segment, stay_seconds: float) -> None:
        require(compacted.name.end_offset <= self._checkpoint_base, "compaction touches only what the checkpoint lists as closed")
        try:
            await put_in_place(self._disk, self.directory, compacted)
        except DiskFailed as failure:
            self._fail(str(failure))
            raise
        replaced = self._shelf.replace(place, len(group), compacted)
        self._closed_bytes += compacted.size - sum(segment.size for segment in replaced)
        self._reader.gaps_below = max(self._reader.gaps_below, compacted.name.end_offset)
        self._reader.forget_places()
        self._swaps.swapped(replaced, Instant(self._env.now() + stay_seconds), self._next_number)

    async def mend(self, offset: int, fetch: Fetch) -> Mended | None:
        """Also in a segment that compaction has made."""
        segment = self._shelf.holding(offset)
        if not segment.name.is_compacted:
            return await super().mend(offset, fetch)
        async with self._taking_turn():
            self._check_alive()
            lineage = self._unflushed.lineage
            if not self.start_offset <= offset < self.end_offset or not self._is_there_still(segment, lineage):
                return None
            if segment.name.end_offset > self._checkpoint_base:
                raise DiskFailed(f"{segment.path}: no checkpoint lists it")
            name = segment.name._replace(generation=self._swaps.next_generation())
        target = Segment(self.directory, name, segment.opened_ms, SparseIndex(self._config.index_interval_bytes))
        held = self._reader.pin(segment)
        try:
            mending = CompactedMending(self._disk, held.file, segment, target, epochs=self.epochs.copy(), fetch=fetch)
            try:
                await mending.write_anew()
            except Exception:
                if self._is_there_still(segment, lineage):
                    raise
                return None
            async with self._taking_turn():
                self._check_alive()
                is_there = self._is_there_still(segment, lineage) and segment.name.end_offset <= self._checkpoint_base
                if not is_there or not mending.mended.stretches:
                    self._disk.unlink(target.path + TEMPORARY)
                if not is_there:
                    return None
                if mending.mended.stretches:
                    await keep_damaged(self._disk, held.file, segment, self.directory, mending.mended)
                    await self._put_in_place(self._shelf.place_of(segment.base_offset), [segment], target, 0.0)
        finally:
            self._files.unpin(held)
        self._reader.trust(segment)
        return mending.mended
