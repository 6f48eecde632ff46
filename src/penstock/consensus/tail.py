"""The log as the core knows it: what the shell holds, and behind it the tail that the shell was told to persist and has not confirmed yet.

The tail shadows the view: at and above its first offset the view is never asked, so it does not matter how far the shell has come.
`durable_end` is the only thing that may be promised to others. A cut lowers it at once, though the disk learns of it later.
"""

from collections import deque
from collections.abc import Sequence

from penstock.consensus.log_view import LogView, SnapshotHead
from penstock.consensus.nouns import Entry, Term
from penstock.errors import require
from penstock.vocabulary import Offset


class WrittenLog:
    __slots__ = ("_arriving", "_entries", "_first", "_under_way", "_view", "durable_end", "end")

    def __init__(self, view: LogView) -> None:
        self._view = view
        self._first = view.end  # Of the tail.
        self._entries: list[Entry] = []
        self._arriving: SnapshotHead | None = None  # A snapshot that the shell puts in the place of the whole log.
        self._under_way: deque[tuple[int, Offset, Offset]] = deque()  # Sequence, first and end of what is being persisted.
        # Every entry below this is on this replica's disk, and is still in its log.
        self.durable_end = view.end
        self.end = view.end

    @property
    def start(self) -> Offset:
        return self._view.start if self._arriving is None else self._arriving.end

    @property
    def last_term(self) -> Term:
        return self.term_before(self.end)

    @property
    def snapshot(self) -> SnapshotHead | None:
        """One that can be sent. A replica that has just received its own log as a snapshot has none to give yet."""
        return self._view.snapshot if self._arriving is None else None

    def read_snapshot(self, position: int, bytes_max: int) -> bytes:
        return self._view.read_snapshot(position, bytes_max)

    def term_before(self, end: Offset) -> Term:
        if end > self._first:
            return self._entries[end - self._first - 1].term
        if self._arriving is not None:
            require(end == self._arriving.end, "what a snapshot stands for is asked for at its end only")
            return self._arriving.term
        return self._view.term_before(end)

    def entries(self, first: Offset, *, entries_max: int, bytes_max: int) -> tuple[Entry, ...]:
        """At least one, if there is one."""
        if first < self._first:
            return tuple(self._view.entries(first, Offset(min(self._first, first + entries_max)), bytes_max))
        at, size = first - self._first, 0
        found: list[Entry] = []
        for entry in self._entries[at : at + entries_max]:
            size += len(entry.payload)
            if found and size > bytes_max:
                break
            found.append(entry)
        return tuple(found)

    def end_not_above(self, term: Term, end: Offset) -> Offset:
        """The highest end, up to the one given, whose last entry is of this term or an older one. Terms never fall along a log."""
        low, high = self.start, end
        while low < high:
            middle = Offset((low + high + 1) // 2)
            if self.term_before(middle) <= term:
                low = middle
            else:
                high = Offset(middle - 1)
        return low

    def replace_from(self, first: Offset, entries: Sequence[Entry], sequence: int) -> None:
        """The log is now what it was below `first`, and then these."""
        require(self.start <= first <= self.end, "a log has no gaps")
        if first < self._first:
            self._first, self._entries = first, []
        else:
            del self._entries[first - self._first :]
        self._entries.extend(entries)
        self.end = Offset(first + len(entries))
        self.durable_end = min(self.durable_end, first)
        self._under_way.append((sequence, first, self.end))

    def reset(self, head: SnapshotHead, sequence: int) -> None:
        """The log is now this snapshot, and nothing after it."""
        self._arriving, self._first, self._entries = head, head.end, []
        self.end = head.end
        self.durable_end = Offset(0)
        self._under_way.append((sequence, Offset(0), head.end))

    def persisted(self, sequence: int) -> None:
        ends = []
        while self._under_way and self._under_way[0][0] <= sequence:
            ends.append(self._under_way.popleft()[2])
        if not ends:
            return
        still_cut = [first for _, first, _ in self._under_way]
        self.durable_end = min([ends[-1], *still_cut])
        if self._arriving is not None and 0 not in still_cut:
            self._arriving = None
        if self._arriving is None and self.durable_end > self._first:
            del self._entries[: self.durable_end - self._first]
            self._first = self.durable_end
