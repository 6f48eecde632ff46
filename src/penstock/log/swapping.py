"""The last steps of a swap, and what is left of it: files that were replaced, and a checkpoint that still lists them.

Replaced files stay for a while under their names, though nothing would be lost without them: a reader that was promised bytes of such a
file, and has not opened it yet, still gets them. Sooner or later everything that is in the way of something else goes: before retention
takes the file that replaced them, and before a cut, which a name from before it must not contradict.
"""

from penstock.env import Disk, Env
from penstock.errors import DiskFailed
from penstock.log.open_files import OpenFiles
from penstock.log.segment import Segment
from penstock.log.small_files import TEMPORARY, unlink_all
from penstock.vocabulary import Instant


async def put_in_place(disk: Disk, directory: str, compacted: Segment) -> None:
    """Gives a copy that is flushed its final name, durably."""
    disk.rename(compacted.path + TEMPORARY, compacted.path)
    if failures := await disk.sync((), [directory]):
        raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")


class Swaps:
    __slots__ = ("_disk", "_files", "_generation", "_number", "_replaced", "is_listed")

    def __init__(self, disk: Disk, files: OpenFiles, generation: int, *, is_listed: bool) -> None:
        self._disk = disk
        self._files = files
        self._generation = generation
        self._number = 0
        self._replaced: list[tuple[Segment, Instant]] = []  # With the moment from which on they may go; the oldest first.
        self.is_listed = is_listed  # The checkpoint on the disk lists segments that were replaced: a start would have to read others.

    def next_generation(self) -> int:
        self._generation += 1
        return self._generation

    def swapped(self, replaced: list[Segment], until: Instant, next_checkpoint: int) -> None:
        self._replaced += [(segment, until) for segment in replaced]
        self._number = next_checkpoint
        self.is_listed = True

    def checkpoint_written(self, number: int) -> None:
        self.is_listed = number < self._number

    @property
    def replaced_bytes(self) -> int:
        return sum(segment.size for segment, _ in self._replaced)

    def remove(self, now: Instant | None = None) -> None:
        """Removes the files whose time has come, or all of them. Their names are dead: it need not be flushed."""
        while self._replaced and (now is None or self._replaced[0][1] <= now):
            segment, _ = self._replaced.pop(0)
            self._files.forget(segment.path)
            self._disk.unlink(segment.index_path)
            self._disk.unlink(segment.path)

    async def remove_later(self, env: Env, now: Instant | None = None) -> None:
        """The same away from the loop: a large file takes long. Each stands in the list until it is gone, for whoever cannot wait."""
        while self._replaced and (now is None or self._replaced[0][1] <= now):
            first = self._replaced[0]
            self._files.forget(first[0].path)
            await env.offload(unlink_all, self._disk, [first[0].index_path, first[0].path])
            if self._replaced and self._replaced[0] is first:
                self._replaced.pop(0)

    def let_go(self) -> None:
        """The log is being closed: the next start removes the files."""
        for segment, _ in self._replaced:
            self._files.forget(segment.path)
        self._replaced.clear()
