"""A closed segment walked from front to back for compaction: read a chunk at a time, looked at away from the loop.

Unlike `walking`, which scans on the loop, it leaves everything to a function in another thread that both checks the batches and works on
them: compaction goes over whole logs, and must not hold up those who are served meanwhile.
"""

from collections.abc import Callable
from typing import TypeVar

from penstock.env import Env
from penstock.log.epochs import Epochs
from penstock.log.faults import damage_at
from penstock.log.reader import Reader
from penstock.log.segment import Segment
from penstock.log.sifting import Checked, Chunk
from penstock.wire.batches import HEADER_BYTES, read_header

CHUNK_BYTES = 1 << 20

T = TypeVar("T")


class ChunkWalk:
    """Holds the segment's file until `close`."""

    __slots__ = ("_env", "_epochs", "_held", "_reader", "_segment", "_size", "offset", "position")

    def __init__(self, env: Env, reader: Reader, segment: Segment, epochs: Epochs) -> None:
        self._env = env
        self._reader = reader
        self._segment = segment
        self._epochs = epochs  # A copy that nobody changes.
        self._size = segment.size
        self._held = reader.pin(segment)
        self.position = 0  # Where the next batch begins.
        self.offset = segment.base_offset  # It has at least this offset.

    @property
    def is_done(self) -> bool:
        return self.position == self._size

    async def step(self, work: Callable[..., tuple[Checked, T]], *arguments: object) -> T:
        """Has the next chunk worked on, and moves past what was done of it. `LogDamaged` where it is not what was written."""
        with damage_at(self.offset):
            content = await self._read()
            chunk = Chunk(self._segment.path, self.position, content, self.offset, not self._segment.name.is_compacted, self._epochs)
            checked, result = await self._env.offload(work, chunk, *arguments)
        self.position += checked.size
        self.offset = checked.end_offset
        return result

    def close(self) -> None:
        self._reader.unpin(self._held)

    async def _read(self) -> bytes:
        """At least one whole batch, if there is one."""
        disk, file, left = self._env.disk, self._held.file, self._size - self.position
        content = await disk.read_later(file, self.position, min(CHUNK_BYTES, left))
        if HEADER_BYTES <= len(content) < (size := read_header(content).size) <= left:
            content = await disk.read_later(file, self.position, size)
        return content
