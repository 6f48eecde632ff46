"""A replica's disk: the metadata log, its snapshot and its vote, as consensus sees them (`LogView`) and as they are written.

The entries that the log still holds are kept in memory too. They are few: a snapshot is taken every few megabytes, and what lies before
the one before it goes. So a core can ask for any of them without waiting for a read.
Only one task writes (quorum_persisting.py). What is opened is durable, also what a killed process had left in the kernel's memory.

A snapshot that came from a leader takes the place of the log in two steps: first its file, then the log starts over at its end. When a
crash comes between the two, the next opening finds that the log doesn't hold the snapshot's last entry, and takes the second step.
"""

from collections.abc import Sequence
from typing import Self

from penstock.broker import quorum_files
from penstock.broker.quorum_entries import decode, encode, is_old
from penstock.broker.quorum_files import Snapshot
from penstock.consensus.effects import PersistVote
from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.nouns import NO_TERM, Entry, Replica, Term
from penstock.env import Env
from penstock.errors import DiskFailed, require
from penstock.log.config import LogConfig, LogIdentity
from penstock.log.log import Log
from penstock.log.open_files import OpenFiles
from penstock.log.recovery import EPOCH_MAX
from penstock.settings import MIB
from penstock.vocabulary import METADATA_TOPIC_ID, Offset
from penstock.wire.batches import Record, decode_records, encode_batch, read_header

METADATA_DIRECTORY = "metadata"
SEGMENT_BYTES = 4 * MIB  # The front of the log goes by whole segments.
READ_BYTES = 1 * MIB
LOADED_BYTES_MAX = 64 * MIB  # Of a longer log, which an older Penstock left, only what came after the snapshot is kept in memory.
_BATCH_BYTES_MAX = 64 * MIB
_CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=-1, retention_bytes=-1, checkpoint_bytes=64 * MIB)


class Store:
    def __init__(self, env: Env, me: Replica, log: Log, vote: PersistVote | None, snapshot: Snapshot | None) -> None:
        """Use `Store.open`."""
        self._env = env
        self._me = me
        self._log = log
        self._snapshot = snapshot
        self._previous_end = Offset(0)  # Of the snapshot before the newest one.
        self._entries: list[Entry] = []  # From `start` on.
        self._term_before_start = NO_TERM
        self.start = Offset(0)
        self.vote = vote
        # Of an older Penstock, which knew no terms: a snapshot in the log's checkpoint, and entries in another format.
        self.old_snapshot = b""
        self.begins_old = False
        self.is_all_old = True

    @classmethod
    async def open(cls, env: Env, files: OpenFiles, me: Replica, *, is_clean: bool, known_end: Offset, accepts_loss: bool) -> Self:
        """Raises DiskFailed, with what is damaged or missing, or NewerFormat."""
        disk = env.disk
        if not is_clean:
            await quorum_files.write_anew(disk, METADATA_DIRECTORY)
        vote = quorum_files.read_vote(disk, METADATA_DIRECTORY, me)
        snapshots = quorum_files.read_snapshots(disk, METADATA_DIRECTORY)
        kept: list[bytes] = []
        log = await Log.open(
            env, METADATA_DIRECTORY, LogIdentity(METADATA_TOPIC_ID, 0), _CONFIG, files, is_clean=is_clean,
            restore=kept.append, replay=lambda header: None, epoch_max=EPOCH_MAX if vote is None else vote.term,
            known_end=known_end, accepts_loss=accepts_loss,
        )  # fmt: skip
        if log.failure is not None:
            raise DiskFailed(
                f"the metadata log is damaged, so this node does not vote: {log.failure}. If other voters have all of it, give the node an "
                "empty disk (penstock cluster replace-node); if none has, start it once with --accept-loss metadata"
            )
        store = cls(env, me, log, vote, snapshots[0] if snapshots else None)
        store._previous_end = snapshots[1].head.end if len(snapshots) > 1 else Offset(0)
        store.old_snapshot = kept[0] if kept and not snapshots else b""
        await store._join()
        await store._load()
        return store

    # As consensus sees it.

    @property
    def end(self) -> Offset:
        return Offset(self.start + len(self._entries))

    @property
    def snapshot(self) -> SnapshotHead | None:
        return None if self._snapshot is None else self._snapshot.head

    @property
    def snapshot_content(self) -> bytes:
        return b"" if self._snapshot is None else self._snapshot.content

    def term_before(self, end: Offset) -> Term:
        return self._term_before_start if end == self.start else self._entries[end - self.start - 1].term

    def entries(self, first: Offset, end: Offset, bytes_max: int) -> Sequence[Entry]:
        found: list[Entry] = []
        size = 0
        for entry in self._entries[first - self.start : end - self.start]:
            size += len(entry.payload)
            if found and size > bytes_max:
                break
            found.append(entry)
        return found

    def read_snapshot(self, position: int, bytes_max: int) -> bytes:
        return self.snapshot_content[position : position + bytes_max]

    def applied(self, first: Offset, end: Offset) -> Sequence[Entry]:
        """All of these."""
        require(self.start <= first <= end <= self.end, "what is applied is in the log")
        return self._entries[first - self.start : end - self.start]

    # Writing. `DiskFull`: nothing of it is kept, and it may be tried again.

    async def write_vote(self, vote: PersistVote) -> None:
        await quorum_files.write_vote(self._env.disk, METADATA_DIRECTORY, self._me, vote)
        self.vote = vote

    async def cut(self, end: Offset) -> None:
        """Durable when this returns."""
        if end < self.end:
            await self._log.truncate_to(end)
            self._log.owner_is_rebuilt()  # All that is kept of the entries is below.
            require(self._log.end_offset == end, "every entry is a batch of its own")
            del self._entries[end - self.start :]

    def append(self, entry: Entry) -> None:
        """Durable after the next flush."""
        record = Record(value=encode(entry), timestamp_ms=self._env.wall_ms())
        batch = encode_batch([record], base_offset=self._log.end_offset, leader_epoch=entry.term)
        self._log.append(batch, read_header(batch))
        self._entries.append(entry)

    async def flush(self) -> None:
        await self._log.flush()

    async def install(self, snapshot: Snapshot) -> None:
        """The snapshot takes the place of log and state."""
        if self._snapshot is None or self._snapshot.head != snapshot.head:  # Else this is tried again.
            await quorum_files.write_snapshot(self._env.disk, METADATA_DIRECTORY, snapshot)
            self._note(snapshot)
        await self._start_over(snapshot.head)

    async def keep(self, snapshot: Snapshot) -> None:
        """A snapshot of what this log itself says: everything before the one before it may go. All of the log is flushed."""
        if self._snapshot is not None and self._snapshot.head.end >= snapshot.head.end:
            return  # A leader's came first.
        await quorum_files.write_snapshot(self._env.disk, METADATA_DIRECTORY, snapshot)
        self._note(snapshot)
        await self._trim()

    async def close(self) -> None:
        await self._log.close(b"")

    def abandon(self) -> None:
        self._log.abandon()

    def _note(self, snapshot: Snapshot) -> None:
        self._previous_end = self._snapshot.head.end if self._snapshot is not None else Offset(0)
        self._snapshot = snapshot

    async def _start_over(self, head: SnapshotHead) -> None:
        await self._log.start_over(head.end)
        self._log.owner_is_rebuilt()
        self.start, self._term_before_start, self._entries = head.end, head.term, []

    async def _trim(self) -> None:
        """One entry more than is needed stays on the disk: it tells the next opening its term."""
        if self._previous_end <= self.start:
            return
        self._term_before_start = self.term_before(self._previous_end)
        del self._entries[: self._previous_end - self.start]
        self.start = self._previous_end
        self._log.raise_start(self.start - 1)
        await self._log.write_checkpoint(self._log.begin_checkpoint(b""))
        plan = self._log.expired(self._env.wall_ms(), self._log.start_offset)
        if plan is not None:
            await self._log.delete_segments(plan)

    # Opening.

    async def _join(self) -> None:
        """Finds out whether the log goes on where the snapshot ends, and lets it if a crash prevented that."""
        log, head = self._log, self.snapshot
        if head is None:
            if log.start_offset:
                raise DiskFailed(f"the metadata log begins at offset {log.start_offset}, and no snapshot of what came before can be read")
        elif head.end < log.start_offset:
            raise DiskFailed(f"the metadata log begins at offset {log.start_offset}, but the only readable snapshot ends at {head.end}")
        elif head.end > log.end_offset or (head.end > log.start_offset and log.epochs.epoch_at(head.end - 1) != head.term):
            await self._start_over(head)

    async def _load(self) -> None:
        log, head = self._log, self.snapshot
        at = log.start_offset
        if head is not None and (at == head.end or log.size_bytes > LOADED_BYTES_MAX):
            at, self._term_before_start = head.end, head.term
        is_term_known = at == 0 or (head is not None and at == head.end)
        self.start = at
        while at < log.end_offset:
            at = self._take(await log.read_later(at, bytes_max=READ_BYTES, end_offset=log.end_offset), at)
        if not is_term_known:
            require(bool(self._entries), "the entry before the first one was kept")
            self._term_before_start = self._entries.pop(0).term
            self.start = Offset(self.start + 1)

    def _take(self, data: bytes | bytearray | memoryview, at: Offset) -> Offset:
        place = 0
        while place < len(data):
            header = read_header(data, place)
            for record in decode_records(data[place : place + header.size], bytes_max=_BATCH_BYTES_MAX):
                if record.offset >= at:
                    value = record.value or b""
                    self.begins_old |= record.offset == 0 and is_old(value)
                    self.is_all_old &= is_old(value)
                    self._entries.append(decode(value, header.leader_epoch))
            place += header.size
            at = Offset(header.end_offset)
        return at
