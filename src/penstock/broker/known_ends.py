"""How far each copy on this disk is known to be whole: one offset for each partition, in a file of the node's own (`node/known-ends`).

Everything below a copy's known end was flushed here, and committed. If the log is opened later and ends below it, or if its files are
missing, acknowledged records have been lost: such a copy neither leads nor counts as in sync (assignments.py). Without this file a
loss could not be told from a write that a crash has torn off, nor from a new log.

Rules:
- A known end rises in rounds of a few seconds and when the node stops, never for an acknowledgement.
- It falls before the log is cut below it (`lower`), and is forgotten before the files of the copy are removed (`forget`). Both are durable
  when the call returns, so a later copy of the same partition begins with no known end.
- A file that is missing or cannot be read says nothing about any copy. Where the disk is too full for a new file, the old one is removed.
"""

import asyncio
from struct import Struct, error

from penstock.broker.identity import NODE_DIRECTORY
from penstock.env import Env
from penstock.errors import DiskFailed, DiskFull
from penstock.log.small_files import overwrite_file, read_whole, seal, unseal
from penstock.packed import rows_of
from penstock.vocabulary import Offset, TopicId

KNOWN_ENDS = "known-ends"
VERSION = 1

KNOWN_ENDS_PATH = f"{NODE_DIRECTORY}/{KNOWN_ENDS}"
_KIND = b"pnstk-ke"
_ROW = Struct("<16siq")  # topic id, partition, known end

Key = tuple[TopicId, int]


class KnownEnds:
    def __init__(self, env: Env) -> None:
        self._env = env
        self._ends: dict[Key, Offset] = {}
        self._has_news = False  # The file says less than `_ends`.
        self._said_most: dict[Key, Offset] = {}  # The file says no more than this, whatever becomes of a write that is under way.
        self._turn = asyncio.Lock()  # For writing the file.

    def load(self) -> bool:
        """Reads the file, before any log is opened. False: there is one, and it cannot be read."""
        content = read_whole(self._env.disk, KNOWN_ENDS_PATH)
        if content is None:
            return True
        ends = read_known_ends(content)
        self._ends = ends or {}
        self._said_most = dict(self._ends)
        return ends is not None

    def of(self, topic_id: TopicId, partition: int) -> Offset:
        """Everything below this offset was on this disk and committed; 0 where nothing is known."""
        return self._ends.get((topic_id, partition), Offset(0))

    def raise_to(self, topic_id: TopicId, partition: int, end: Offset) -> None:
        """Notes a later end, for the next `save`."""
        if end > self.of(topic_id, partition):
            self._ends[topic_id, partition] = end
            self._has_news = True

    async def lower(self, topic_id: TopicId, partition: int, end: Offset) -> None:
        """Makes sure that the file claims nothing at or above `end`. Raises DiskFailed, and then the log must not be cut.

        Where the end is raised again while this waits, as long as the copy is open, it is lowered once more."""
        key = (topic_id, partition)
        while max(self.of(topic_id, partition), self._said_most.get(key, 0)) > end:
            self._ends[key] = min(end, self.of(topic_id, partition))
            await self._write()

    async def forget(self, topic_id: TopicId, partition: int) -> None:
        """Makes sure that the file says nothing about this copy. Raises DiskFailed, and then its files must stay."""
        await self.lower(topic_id, partition, Offset(0))
        self._ends.pop((topic_id, partition), None)

    def topic_deleted(self, topic_id: TopicId) -> None:
        """Forgets the copies of a topic that never comes back. That need not be durable: its id is used only once."""
        for key in [key for key in self._ends if key[0] == topic_id]:
            del self._ends[key]
            self._said_most.pop(key, None)

    async def save(self) -> None:
        """Writes the file if there is anything new. Raises DiskFailed; then the file is as it was."""
        if self._has_news:
            await self._write()

    async def _write(self) -> None:
        disk = self._env.disk
        async with self._turn:
            is_falling = any(self._ends.get(key, 0) < most for key, most in self._said_most.items())
            if not self._has_news and not is_falling:
                return  # Another call has just written it.
            ends = {key: end for key, end in self._ends.items() if end > 0}
            self._has_news = False
            self._said_most |= {key: max(end, self._said_most.get(key, end)) for key, end in ends.items()}
            body = b"".join(_ROW.pack(*key, end) for key, end in ends.items())
            try:
                try:
                    await overwrite_file(disk, NODE_DIRECTORY, KNOWN_ENDS, seal(_KIND, VERSION, body))
                except DiskFull:
                    if not is_falling:
                        raise
                    disk.unlink(KNOWN_ENDS_PATH)
                    if failures := await disk.sync((), [NODE_DIRECTORY]):
                        raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}") from None
                    self._has_news, ends = True, {}
            except DiskFailed:
                self._has_news = True
                raise
            self._said_most = ends


def read_known_ends(content: bytes) -> dict[Key, Offset] | None:
    """What the file says of each copy; None where it cannot be read."""
    body = unseal(content, _KIND, VERSION, KNOWN_ENDS_PATH)
    try:
        rows = None if body is None else list(rows_of(_ROW, body))
    except error:
        rows = None
    return None if rows is None else {(TopicId(topic_id), partition): Offset(end) for topic_id, partition, end in rows}
