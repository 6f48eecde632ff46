"""What of a log is not on the disk yet, and how far it is once a flush has ended.

Appends, rolls and other flushes go on while a flush is under way. So a ticket notes how much of each file it covers, and what was written
after it stays unflushed. Tickets may overlap and end in any order: each covers everything that was unflushed when it began.
"""

from typing import NamedTuple

from penstock.env import File, SyncFailures
from penstock.log.open_files import OpenFile, OpenFiles
from penstock.log.segment import Segment
from penstock.vocabulary import Offset


class FlushTicket(NamedTuple):
    files: tuple[File, ...]
    directories: tuple[str, ...]
    end_offset: Offset  # What is durable if the flush of all these files and directories succeeds.
    covered: tuple[tuple[Segment, int], ...]  # How many bytes of each.
    lineage: int  # Bytes that were cut off since make it void.

    def failure_among(self, failures: SyncFailures) -> str | None:
        """What failed of this ticket's own; a round flushes many logs."""
        mine = [file.path for file in self.files] + list(self.directories)
        return next((f"{path}: {reason}" for path, reason in failures if path in mine), None)


class Unflushed:
    """The files with unflushed bytes, each pinned so that it can be flushed, and the directories with unflushed names."""

    __slots__ = ("_files", "directories", "held", "lineage")

    def __init__(self, files: OpenFiles) -> None:
        self._files = files
        self.lineage = 0  # How often bytes were cut off.
        self.held: dict[Segment, OpenFile] = {}
        self.directories: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.held or self.directories)

    def hold(self, segment: Segment) -> OpenFile:
        """Before the first byte is written to it. A missing file is made."""
        held = self.held.get(segment)
        if held is None:
            held = self.held[segment] = self._files.pin(segment.path, create=True)
        return held

    def begin(self, end_offset: Offset) -> FlushTicket:
        if len(self.held) == 1:  # Nearly always.
            for segment, held in self.held.items():
                return FlushTicket((held.file,), self.directories, end_offset, ((segment, segment.size),), self.lineage)
        return FlushTicket(
            tuple(held.file for held in self.held.values()),
            self.directories,
            end_offset,
            tuple((segment, segment.size) for segment in self.held),
            self.lineage,
        )

    def settle(self, ticket: FlushTicket) -> None:
        """The ticket's flush succeeded."""
        for segment, size in ticket.covered:
            if segment.size == size and (held := self.held.pop(segment, None)) is not None:
                self._files.unpin(held)
        if self.directories is ticket.directories:  # Otherwise a name was added meanwhile: they are flushed once more.
            self.directories = ()

    def add_names(self, directories: list[str]) -> None:
        self.directories = tuple(dict.fromkeys((*self.directories, *directories)))

    def void_tickets(self) -> None:
        self.lineage += 1

    def let_go(self, segment: Segment) -> None:
        """The segment is going; nothing of it needs to be flushed."""
        held = self.held.pop(segment, None)
        if held is not None:
            self._files.unpin(held)

    def let_all_go(self) -> None:
        for segment in list(self.held):
            self.let_go(segment)
        self.directories = ()
        self.void_tickets()
