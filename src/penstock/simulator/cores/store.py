"""A replica's disk: what is durable, and what was written and waits for its flush.

Writes become durable in their order. A crash keeps a prefix of those that wait, and of the last one perhaps only a part: what a real disk
may do between a write and the end of its flush.
"""

from collections import deque
from collections.abc import Sequence
from random import Random

from penstock.consensus.effects import InstallSnapshot, Persist, PersistEntries, PersistVote
from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.nouns import DirectoryId, Entry, Term
from penstock.vocabulary import Offset


class Store:
    def __init__(self, directory: DirectoryId) -> None:
        self.directory = directory
        self.vote: PersistVote | None = None
        self.snapshot: SnapshotHead | None = None
        self.image = b""  # The snapshot's content.
        self.start = Offset(0)
        self._entries: list[Entry] = []
        self._term_before_start = Term(0)
        self._waiting: deque[tuple[Persist, bytes]] = deque()  # With the content of a snapshot that is installed.

    # The view of the core: what is durable.

    @property
    def end(self) -> Offset:
        return Offset(self.start + len(self._entries))

    def term_before(self, end: Offset) -> Term:
        if end == self.start:
            return self._term_before_start
        return self._entries[end - self.start - 1].term

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
        return self.image[position : position + bytes_max]

    def has(self, end: Offset, term: Term) -> bool:
        """Whether everything below `end` is here, if the entry before it is of this term."""
        return end < self.start or (end <= self.end and self.term_before(end) == term)

    # Writing.

    def write(self, persist: Persist, content: bytes = b"") -> None:
        self._waiting.append((persist, content))

    @property
    def waiting_sequence(self) -> int:
        return self._waiting[-1][0].sequence if self._waiting else 0

    def flush(self, sequence: int) -> None:
        while self._waiting and self._waiting[0][0].sequence <= sequence:
            self._make_durable(*self._waiting.popleft())

    def crash(self, rng: Random) -> None:
        for _ in range(rng.randint(0, len(self._waiting))):
            self._make_durable(*self._waiting.popleft())
        if self._waiting and isinstance(torn := self._waiting[0][0], PersistEntries) and rng.random() < 0.5:
            kept = torn.entries[: rng.randint(0, len(torn.entries))]
            self._make_durable(torn._replace(entries=kept), b"")
        self._waiting.clear()

    def take_snapshot(self, head: SnapshotHead, image: bytes, *, entries_kept: int) -> None:
        """A snapshot of this replica's own state, durable at once; the log begins a little before its end."""
        if self.snapshot is not None and self.snapshot.end >= head.end:
            return
        self.snapshot, self.image = head, image
        start = Offset(max(self.start, head.end - entries_kept))
        self._term_before_start = self.term_before(start)
        del self._entries[: start - self.start]
        self.start = start

    def _make_durable(self, persist: Persist, content: bytes) -> None:
        match persist:
            case PersistVote():
                self.vote = persist
            case PersistEntries():
                del self._entries[persist.first - self.start :]
                self._entries += persist.entries
            case InstallSnapshot():
                self.snapshot, self.image = persist.head, content
                self.start, self._term_before_start, self._entries = persist.head.end, persist.head.term, []
