"""A log as it grows: appended at the end, flushed, read from anywhere, remembered in checkpoints. `log.py` adds what makes it shorter.

Rules:
- What is appended can be read at once. It is durable when a flush that began later has ended well: `flushed_end` tells how far.
- A write or flush that failed sets `failure`. The log then takes no more appends, whatever the disk says later; reads go on. Only opening
  it again makes it trusted, since that writes once more what may not be on the disk. A full disk is no failure: the append is undone and
  may be tried again.
- Batches are stored as they come. Their offset, epoch and checksum are the caller's doing.
- Reads, lookups, flushes, checkpoints and compaction may overlap with appends and with each other.

`append` and `read` are on the hot path: no object per batch beyond a tuple, one call of the disk each. Holding small batches back to write
several at once would save 1.1 µs of 1.4 for each, and a full disk would be found out only after the append had been promised.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from penstock.env import Env, SyncFailures
from penstock.errors import DiskFailed, DiskFull, ReadFailed, require
from penstock.log.checkpoint import Checkpoint, capture, write
from penstock.log.config import LogConfig, LogIdentity
from penstock.log.epochs import Epochs
from penstock.log.faults import LogDamaged, OffsetOutOfRange, Unreadable
from penstock.log.flushing import FlushTicket, Unflushed
from penstock.log.found import Found, Report
from penstock.log.index import SparseIndex
from penstock.log.lookup import Lookup, Range, TimedRecord
from penstock.log.open_files import OpenFile, OpenFiles
from penstock.log.reader import Reader
from penstock.log.recovery import EPOCH_MAX, Opening, ancestors, ignore_damage, recover
from penstock.log.segment import Segment, Shelf
from penstock.log.streaming import Stream
from penstock.log.swapping import Swaps
from penstock.vocabulary import Buffer, Offset
from penstock.wire.batches import BatchHeader

CLOSED = "the log is closed"
NEVER = -1
EXTRA_PER_APPENDED = 4  # So many bytes of the owner's may be written again, with a checkpoint, for one that was appended.


class GrowingLog:
    __slots__ = (
        "_checkpoint_base", "_checkpoint_end", "_checkpoint_start", "_checkpointed_bytes", "_closed_bytes", "_config", "_disk", "_env",
        "_extra_bytes", "_files", "_has_news", "_index", "_lacks_directory", "_next_number", "_on_damage", "_reader", "_rolled_bytes",
        "_shelf", "_swaps", "_turn", "_unflushed", "_write", "_writing", "_written_number", "clean_end", "directory", "end_offset",
        "epochs", "failure", "flushed_end", "identity", "is_start_known", "owner_is_void", "report", "start_offset",
    )  # fmt: skip

    def __init__(self, opening: Opening, found: Found) -> None:
        """Use `open`."""
        self._env = opening.env
        self._disk = opening.env.disk
        self._write = opening.env.disk.append
        self._files = opening.files
        self._config = opening.config
        self._on_damage = opening.on_damage
        self.directory = opening.directory
        self.identity = opening.identity
        self.start_offset = Offset(found.start_offset)  # The first that may be read.
        self.is_start_known = found.is_start_known  # False: files that lay before it may be lost, since no checkpoint tells of the start.
        self.end_offset = Offset(found.end_offset)  # The next to be written.
        self.flushed_end = Offset(found.flushed_end)  # Everything below is on the disk.
        self.epochs: Epochs = found.epochs
        self.failure: str | None = found.failure  # Why no more appends are taken.
        self.report: Report = found.report  # How opening it went.
        self.clean_end = found.clean_end  # Compaction has seen to everything below.
        has_active = bool(found.segments) and not found.segments[-1].name.is_compacted
        self._shelf = Shelf(found.segments if has_active else [*found.segments, self._new_segment()])
        self._swaps = Swaps(self._disk, self._files, found.generation, is_listed=found.lists_replaced)
        self._index: SparseIndex = self._shelf.active.index or SparseIndex(self._config.index_interval_bytes)  # The active segment's.
        self._reader = Reader(
            self._disk, self._files, self._shelf, self.epochs, identity=self.identity, config=self._config, gaps_below=found.gaps_below
        )
        self._unflushed = Unflushed(self._files)
        self._lacks_directory = found.lacks_directory  # It is made before the first file.
        self._writing: OpenFile | None = None  # The active segment's file, while it has unflushed bytes.
        self._closed_bytes = self._shelf.size_bytes - self._shelf.active.size
        self._rolled_bytes = 0  # In segments that were closed since this log was opened.
        self._has_news = found.has_news  # Since the last checkpoint a segment was closed or an epoch began.
        # A cut has begun, and the owner has not said since that what it built from the batches fits them again. No checkpoint is written
        # meanwhile: it would vouch for the owner's state.
        self.owner_is_void = False
        self._next_number = 1
        self._written_number = 0
        self._checkpoint_end = found.checkpoint_end  # What the checkpoint on the disk covers, and where it lets the log begin.
        self._checkpoint_start = found.start_offset if found.is_saved else NEVER
        self._checkpoint_base = found.checkpoint_bases[-1] if found.checkpoint_bases else NEVER  # The last segment that it lists.
        self._checkpointed_bytes = self._shelf.active.size - found.report.scanned_bytes
        self._extra_bytes = 0  # Of its owner's in the last checkpoint.
        self._turn: asyncio.Lock | None = None  # Checkpoints, deletions, swaps and truncations take turns.

    @classmethod
    async def open(
        cls,
        env: Env,
        directory: str,
        identity: LogIdentity,
        config: LogConfig,
        files: OpenFiles,
        *,
        is_clean: bool,
        restore: Callable[[bytes], None],
        replay: Callable[[BatchHeader], None],
        replay_control: Callable[[BatchHeader, Buffer], None] | None = None,
        epoch_max: int = EPOCH_MAX,
        known_end: int = 0,
        accepts_loss: bool = False,
        on_damage: Callable[[int], None] = ignore_damage,
    ) -> Self:
        """Opens the log, or makes it. Calls `restore` once with what the last checkpoint kept for its owner, then `replay` for each batch
        that came after it; for control batches `replay_control`, if there is one, with the whole batch. Everything in a log that was
        opened is flushed. No batch of a later epoch than `epoch_max` is believed, and no log that ends below `known_end`,
        unless `accepts_loss`. A read that finds damage calls `on_damage` with its offset."""
        opening = Opening(
            env, directory, identity, config, files, is_clean, restore, replay, epoch_max, replay_control, known_end, accepts_loss,
            on_damage,
        )  # fmt: skip
        return cls(opening, await recover(opening))

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = self._reader.config = config

    @property
    def size_bytes(self) -> int:
        return self._closed_bytes + self._shelf.active.size

    @property
    def active_base(self) -> int:
        """Where the segment begins that is written to; all before it is closed."""
        return self._shelf.active.base_offset

    @property
    def gaps_below(self) -> int:
        """Below this offset compaction may have taken records out."""
        return self._reader.gaps_below

    @property
    def appended_bytes(self) -> int:
        """All that was ever appended since this log was opened, and what it held in its last segment then: retention takes none of it."""
        return self._rolled_bytes + self._shelf.active.size

    # Appending

    def append(self, batch: Buffer, header: BatchHeader) -> None:
        """Writes one batch at the end; `header` is its header as it stands in the bytes, which may be reused after this returns.

        `DiskFull`: nothing of it is kept, and the log goes on. `DiskFailed`: see `failure`.
        """
        size, epochs, held, segment = len(batch), self.epochs, self._writing, self._shelf.active
        if (
            held is None
            or header.base_offset != self.end_offset
            or header.leader_epoch != epochs.latest
            or segment.size + size > self._config.segment_bytes
        ):
            segment, held = self._prepare(header, size)
        position, index = segment.size, self._index
        try:
            self._write(held.file, (batch,))
        except DiskFailed as failure:
            self._take_back(segment, held, failure)
            raise
        if position >= index.next_at:
            index.add(header.base_offset, position, header.max_timestamp)
        elif header.max_timestamp > index.times[-1]:
            index.times[-1] = header.max_timestamp
        if header.leader_epoch != epochs.latest:
            epochs.begin(header.leader_epoch, header.base_offset)
            self._has_news = True
        segment.size = position + size
        self.end_offset = Offset(header.base_offset + header.last_offset_delta + 1)

    def _prepare(self, header: BatchHeader, size: int) -> tuple[Segment, OpenFile]:
        """All that is not the usual case: the first append after a flush, a new epoch, a new segment, a log that takes no more."""
        if self.failure is not None:
            raise DiskFailed(self.failure)
        require(header.base_offset == self.end_offset, "a batch is appended at the end of its log")
        require(header.leader_epoch >= self.epochs.latest, "leader epochs never go back")
        segment, config = self._shelf.active, self._config
        is_old = self._env.wall_ms() - segment.opened_ms >= config.segment_ms
        try:
            if segment.size and (is_old or segment.size + size > config.segment_bytes):
                self._roll()
            segment = self._shelf.active
            self._writing = self._hold(segment)
        except DiskFull:
            raise
        except FileNotFoundError:
            self._fail(f"{self.directory} is not there any more")
            raise DiskFailed(f"{self.directory} is not there any more") from None
        except DiskFailed as failure:
            self._fail(str(failure))
            raise
        return segment, self._writing

    def _make_directory(self) -> None:
        """What opening the log had no room for. `DiskFull`: there is still none, and it can be tried again."""
        if self._lacks_directory:
            self._disk.mkdir(self.directory)
            self._lacks_directory = False
            self._unflushed.add_names(ancestors(self.directory))

    def _hold(self, segment: Segment) -> OpenFile:
        self._make_directory()
        held = self._unflushed.hold(segment)
        if not segment.size:  # Its name is as new as its bytes; and so are, for the first segment, the directories above it.
            self._unflushed.add_names(ancestors(self.directory) if len(self._shelf.segments) == 1 else [self.directory])
        return held

    def roll_if_old(self, wall_ms: int) -> None:
        """Closes the active segment when it was begun too long ago. Appends do that too, but an idle log has none."""
        segment = self._shelf.active
        if self.failure is None and segment.size and wall_ms - segment.opened_ms >= self._config.segment_ms:
            self._roll()

    def _roll(self) -> None:
        """The log goes on in a new segment. Nothing has changed if its file cannot be made."""
        require(self._shelf.active.size > 0, "a log goes on in a new segment only after one that holds batches")
        closed, fresh = self._shelf.active, self._new_segment()
        held = self._unflushed.hold(fresh)
        require(not self._disk.size(held.file), "nothing lies beyond the end of a log")
        self._shelf.add(fresh)
        self._index = fresh.index or self._index
        self._unflushed.add_names([self.directory])
        self._writing = held
        self._closed_bytes += closed.size
        self._rolled_bytes += closed.size
        self._has_news = True

    def _new_segment(self) -> Segment:
        return Segment(self.directory, self.end_offset, self._env.wall_ms(), SparseIndex(self._config.index_interval_bytes))

    def _take_back(self, segment: Segment, held: OpenFile, failure: DiskFailed) -> None:
        """Some of the batch may be in the file."""
        if isinstance(failure, DiskFull):
            try:
                self._disk.truncate(held.file, segment.size)
                return
            except DiskFailed as worse:
                failure = worse
        self._fail(str(failure))

    def _fail(self, reason: str) -> None:
        if self.failure is None:
            self.failure = reason
            self._writing = None
            self._unflushed.let_all_go()

    def _check_alive(self) -> None:
        if self.failure is not None:
            raise DiskFailed(self.failure)

    # Flushing

    def begin_flush(self) -> FlushTicket | None:
        """What must be flushed for everything appended so far to be durable; None when it is, or never will be."""
        unflushed = self._unflushed
        if self.failure is not None or not (unflushed.held or unflushed.directories):
            return None
        return unflushed.begin(self.end_offset)

    def end_flush(self, ticket: FlushTicket, failures: SyncFailures) -> None:
        """`failures` may be those of a round over many logs."""
        if self.failure is not None:
            return
        failed = ticket.failure_among(failures) if failures else None
        unflushed = self._unflushed
        if failed is not None:
            self._fail(failed)
        elif ticket.lineage == unflushed.lineage:
            unflushed.settle(ticket)
            self._writing = unflushed.held.get(self._shelf.active)
            self.flushed_end = max(self.flushed_end, ticket.end_offset)

    async def flush(self) -> None:
        """Flushes this log alone; raises if it cannot be."""
        self._check_alive()
        ticket = self.begin_flush()
        if ticket is not None:
            self.end_flush(ticket, await self._disk.sync(ticket.files, ticket.directories))
            self._check_alive()

    # Reading

    def read(self, offset: int, *, bytes_max: int, end_offset: int) -> Buffer | None:
        """Whole verified batches from the one that holds the offset, below `end_offset`: up to `bytes_max`, but at least one.

        Empty: there is nothing yet. None: the answer must wait for the disk, use `read_later`.
        """
        if offset < self.start_offset or offset > self.end_offset:
            raise OffsetOutOfRange(f"{offset} is not between {self.start_offset} and {self.end_offset}")
        if offset >= end_offset or offset >= self.end_offset:
            return b""
        try:
            return self._reader.read(offset, bytes_max, end_offset if end_offset < self.end_offset else self.end_offset)
        except (LogDamaged, ReadFailed) as failure:
            raise self._damaged(offset, failure) from None

    async def read_later(self, offset: int, *, bytes_max: int, end_offset: int) -> Buffer:
        if offset < self.start_offset or offset > self.end_offset:
            raise OffsetOutOfRange(f"{offset} is not between {self.start_offset} and {self.end_offset}")
        if offset >= end_offset or offset >= self.end_offset:
            return b""
        try:
            return await self._reader.read_later(offset, bytes_max, min(end_offset, self.end_offset))
        except (LogDamaged, ReadFailed) as failure:
            raise self._damaged(offset, failure) from None

    def _damaged(self, offset: int, failure: LogDamaged | ReadFailed) -> LogDamaged:
        """Tells the owner that a read at this offset has found damage; returns what the reader is told."""
        where = failure.offset if isinstance(failure, LogDamaged) else None
        self._on_damage(offset if where is None else where)
        return failure if isinstance(failure, LogDamaged) else Unreadable(str(failure))

    def _report_damage(self, damage: LogDamaged) -> None:
        """Tells the owner of damage that was not found by a read, if the log still has its place."""
        first_base = self._shelf.segments[0].base_offset
        if damage.offset is not None and damage.offset >= first_base:
            segment_end = self._shelf.end_of(self._shelf.place_of(damage.offset), self.end_offset)
            if segment_end > (offset := max(damage.offset, self.start_offset)):
                self._on_damage(offset)

    def stream(self, offset: int, *, bytes_max: int, end_offset: int) -> Stream | None:
        """As `read`, for much at once that is read while it is sent. None where there is little, or nobody knows how much: use `read`."""
        if offset < self.start_offset or offset >= min(end_offset, self.end_offset):
            return None
        return self._reader.stream(offset, bytes_max, min(end_offset, self.end_offset))

    async def find_timestamp(self, timestamp: int, end_offset: int) -> TimedRecord | None:
        """The first record below `end_offset` with this timestamp or a later one."""
        return await self._search(end_offset, lambda lookup: lookup.first_at_or_after(timestamp))

    async def max_timestamp(self, end_offset: int) -> TimedRecord | None:
        """The first record below `end_offset` with the highest timestamp."""
        return await self._search(end_offset, Lookup.newest)

    async def _search(self, end_offset: int, ask: Callable[[Lookup], Awaitable[TimedRecord | None]]) -> TimedRecord | None:
        while True:
            wanted, log_end = Range(self.start_offset, min(end_offset, self.end_offset)), self.end_offset
            lookup = Lookup(self._env, self._files, self._reader, self._shelf, epochs=self.epochs, wanted=wanted, log_end=log_end)
            try:
                return await ask(lookup)
            except LogDamaged as damage:
                if not lookup.is_overtaken:
                    self._report_damage(damage)
                    raise

    # Checkpoints

    @property
    def wants_checkpoint(self) -> bool:
        """Whether a start after a crash would have much to scan, or would have to take a new epoch on trust."""
        unsaved_bytes = self.appended_bytes - self._checkpointed_bytes
        # One with much of its owner's waits until a part of that was appended: so what all of them cost grows with the log alone.
        is_much = unsaved_bytes >= max(self._config.checkpoint_bytes, self._extra_bytes // EXTRA_PER_APPENDED)
        is_due = unsaved_bytes > 0 and (self._has_news or is_much)
        return (is_due or self._swaps.is_listed) and not self.owner_is_void

    def owner_is_rebuilt(self) -> None:
        """What the owner built from the batches fits them again. What it captured before that is never written."""
        self.owner_is_void = False
        self._written_number = self._next_number
        self._next_number += 1

    def has_saved_start(self, offset: int) -> bool:
        """Whether the next start will let the log begin at this offset or later: by its checkpoint, or as no file begins before."""
        return self._checkpoint_start >= offset or self._shelf.segments[0].base_offset >= offset

    def begin_checkpoint(self, extra: bytes, *, start_offset: int = 0) -> Checkpoint:
        """Captures what the log and its owner know now, to be written once it is flushed; with a later start, for who then raises it."""
        require(start_offset <= self.end_offset, "a log starts no later than it ends")
        number, self._next_number = self._next_number, self._next_number + 1
        return capture(
            number, self.identity, self._shelf, self.epochs, start_offset=max(self.start_offset, start_offset), end_offset=self.end_offset,
            gaps_below=self._reader.gaps_below, clean_end=self.clean_end, appended_bytes=self.appended_bytes, extra=extra,
        )  # fmt: skip

    async def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Makes it the one that the next start goes by, unless a later one is already."""
        async with self._taking_turn():
            self._check_alive()
            is_late = checkpoint.number < self._written_number or checkpoint.start_offset < self._checkpoint_start
            if is_late or self.owner_is_void:
                return  # Also one that was captured before a cut, and claims what is gone.
            require(checkpoint.end_offset <= self.flushed_end, "a checkpoint claims only what is flushed")
            await self._replace_checkpoint(checkpoint.content, also=self._shelf.closed_with_index())
            self._written_number = checkpoint.number
            self._checkpoint_end, self._checkpoint_start = checkpoint.end_offset, checkpoint.start_offset
            self._checkpoint_base = checkpoint.last_base
            self._checkpointed_bytes = checkpoint.appended_bytes
            self._extra_bytes = checkpoint.extra_bytes
            self._swaps.checkpoint_written(checkpoint.number)
            self._has_news = max(self._shelf.active.base_offset, self.epochs.latest_start) >= checkpoint.end_offset

    async def _replace_checkpoint(self, content: bytes, also: list[Segment]) -> None:
        try:
            await write(self._disk, self.directory, self.identity, content, also)
        except DiskFull:
            raise
        except DiskFailed as failure:
            self._fail(str(failure))
            raise
        except FileNotFoundError:
            self._fail(f"{self.directory} is gone")
            raise DiskFailed(f"{self.directory} is gone") from None

    # The end of its life

    async def close(self, extra: bytes) -> None:
        """Flushes, leaves a checkpoint if anything is new, and lets go of everything. One that cannot be flushed raises, and is closed."""
        try:
            await self.flush()
            is_saved = (self._checkpoint_start, self._checkpoint_end) == (self.start_offset, self.end_offset) and not self._swaps.is_listed
            if not is_saved and self.end_offset:
                await self.write_checkpoint(self.begin_checkpoint(extra))
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Lets go of everything, flushes nothing: for a log that failed, or that nobody needs any more."""
        self.failure = self.failure or CLOSED
        self._writing = None
        self._unflushed.let_all_go()
        for segment in self._shelf.segments:
            self._files.forget(segment.path)
        self._swaps.let_go()

    def _taking_turn(self) -> asyncio.Lock:
        self._turn = self._turn or asyncio.Lock()
        return self._turn
