"""Open files, no more of them than the node can afford.

All logs of a node share one of these. An idle log has nothing open. A file that is *pinned* (it has unflushed bytes, or a read in another
thread) stays open however many there are; the others are closed again, the longest unused first. The index of a closed segment lives
and goes with its open file, so that the same bound holds for indexes.
"""

from penstock.env import Disk, File
from penstock.log.index import SparseIndex


class OpenFile:
    __slots__ = ("file", "index", "is_forgotten", "pins")

    def __init__(self, file: File) -> None:
        self.file = file
        self.pins = 0
        self.index: SparseIndex | None = None  # Of a closed segment, once somebody needed it.
        self.is_forgotten = False  # Close it when the last pin goes: its name is gone.


class OpenFiles:
    def __init__(self, disk: Disk, limit: int) -> None:
        self._disk = disk
        self._limit = limit
        self._pinned: dict[str, OpenFile] = {}
        self._idle: dict[str, OpenFile] = {}  # The longest unused first.

    def __len__(self) -> int:
        return len(self._pinned) + len(self._idle)

    def borrow(self, path: str) -> OpenFile:
        """For use before the next call of anything here. A missing file raises FileNotFoundError."""
        held = self._pinned.get(path)
        if held is not None:
            return held
        held = self._idle.pop(path, None) or OpenFile(self._disk.open(path))
        self._idle[path] = held
        self._close_excess()
        return held

    def pin(self, path: str, *, create: bool = False) -> OpenFile:
        """Keeps the file open until `unpin`; pins are counted."""
        held = self._pinned.get(path)
        if held is None:
            held = self._idle.pop(path, None)
            if held is not None:
                self._pinned[path] = held
            else:
                held = self._pinned[path] = OpenFile(self._disk.open(path, create=create))
                self._close_excess()
        held.pins += 1
        return held

    def unpin(self, held: OpenFile) -> None:
        held.pins -= 1
        if held.pins:
            return
        if held.is_forgotten:
            self._disk.close(held.file)
            return
        path = held.file.path
        del self._pinned[path]
        self._idle[path] = held
        if len(self._pinned) + len(self._idle) > self._limit:
            self._close_excess()

    def forget(self, path: str) -> None:
        """The name is gone, or will mean another file. Who has it pinned may go on reading."""
        held = self._idle.pop(path, None)
        if held is not None:
            self._disk.close(held.file)
        elif path in self._pinned:
            self._pinned.pop(path).is_forgotten = True

    def forget_directory(self, directory: str) -> None:
        """The names of all files in it are gone, or will mean others: a log that is opened there later must not meet files of this one."""
        prefix = f"{directory}/"
        for path in [path for path in (*self._idle, *self._pinned) if path.startswith(prefix)]:
            self.forget(path)

    def _close_excess(self) -> None:
        while len(self._idle) > 1 and len(self) > self._limit:
            longest_unused = next(iter(self._idle))
            self._disk.close(self._idle.pop(longest_unused).file)
