"""What the core sees of the log, which is the shell's: terms, entries, and the snapshot that stands for what is gone."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.consensus.nouns import Entry, Term
from penstock.consensus.voters import Voters
from penstock.vocabulary import Offset


class SnapshotHead(NamedTuple):
    """Everything about a snapshot but its bytes."""

    end: Offset  # It stands for every entry below this.
    term: Term  # Of the entry before `end`.
    voters: Voters  # Those that held at `end`.
    size: int


class LogView(Protocol):
    """The log as it is written. It has at least what was confirmed by `Persisted`; what it has beyond that the core does not look at."""

    @property
    def start(self) -> Offset:
        """The first entry that is still there. A snapshot covers everything below; 0 without one."""

    @property
    def end(self) -> Offset: ...

    @property
    def snapshot(self) -> SnapshotHead | None:
        """The newest one. Its end is at or above `start`."""

    def term_before(self, end: Offset) -> Term:
        """The term of the entry at `end - 1`, for any end from `start` to `end`; at 0 it is 0."""

    def entries(self, first: Offset, end: Offset, bytes_max: int) -> Sequence[Entry]:
        """Entries from `first` on, in order, at least one, then as many as fit into the bytes."""

    def read_snapshot(self, position: int, bytes_max: int) -> bytes:
        """A piece of the newest snapshot."""
