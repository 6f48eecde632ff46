"""Pages of delays that are far away, in files of the node's disk: one file for each bucket, each page appended once and read once.

The files are caches, and belong to one loaded ledger: it alone knows where in them its pages lie. They are never flushed, never read by
anybody else, and gone when the ledger is: whatever a crash, an earlier leader or an earlier load has left is removed at the next start.
A ledger that is loaded has written its own by then, from its log. So a file can be missing or damaged, but never out of date.
Rules: a page that cannot be written stays in memory, which is told, and is written when the next one can be; so does every page while the
disk is nearly full, for its room is kept for what matters. Beyond a bound senders are refused. A page that does not come back as it was
given (its checksum tells) is a lost cache: the ledger is loaded again.
What is not in the page cache is read off the loop, and so are files removed.
"""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count, islice
from typing import Any, Protocol
from zlib import crc32

from penstock.env import Env
from penstock.errors import DiskFailed
from penstock.settings import MIB

DIRECTORY = "delays"
HELD_BYTES_MAX = 64 * MIB  # Of one ledger, while its disk takes nothing: four million delays.
WRITTEN_AT_ONCE = 8  # Of those that could not be written before.


class Host(Protocol):
    """What is needed of a node."""

    @property
    def env(self) -> Env: ...

    @property
    def disk_is_low(self) -> bool: ...

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None: ...

    def report(self, sentence: str) -> None: ...


class Place:
    __slots__ = ("checksum", "content", "name", "path", "position", "size")

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self.size = len(content)
        self.checksum = crc32(content)
        self.path = ""  # Empty: in no file.
        self.position = 0
        self.content: bytes | None = content  # While it is in no file.


class BucketFiles:
    def __init__(self, node: Host, directory: str, whose: str, on_news: Callable[[], None], on_lost: Callable[[str], None]) -> None:
        """`on_news` hears when pages were fetched, `on_lost` when one is lost."""
        self._node = node
        self._disk = node.env.disk
        self._directory = directory
        self._whose = whose
        self._on_news = on_news
        self._on_lost = on_lost
        self.failure = ""  # Why a page is lost. Nothing is brought back from then on.
        self._numbers = count()
        self._paths: dict[str, str] = {}  # Of the file to which pages of a bucket are appended.
        self._pages: dict[str, int] = {}  # How many of a file are needed.
        self._held: dict[Place, None] = {}  # In memory, for they could not be written.
        self._held_bytes = 0
        self._fetching: dict[Place, None] = {}
        self._fetched: dict[Place, bytes] = {}
        self._has_news = asyncio.Event()
        self._is_made = self.is_closed = False

    @property
    def is_full(self) -> bool:
        """More is in memory than should be."""
        return self._held_bytes > HELD_BYTES_MAX

    def put(self, name: str, content: bytes) -> object:
        place = Place(name, content)
        if self._write(place):
            self._write_held()
        else:
            self._held[place] = None
            self._held_bytes += place.size
        return place

    def get(self, place: object) -> bytes | None:
        assert isinstance(place, Place)
        if place.content is not None:
            return place.content
        if (fetched := self._fetched.pop(place, None)) is not None:
            return fetched
        if self.failure or self.is_closed or place in self._fetching:
            return None
        content = self._read_now(place)
        if content is None and not self.failure:
            self._fetching[place] = None
            self._node.spawn(self._fetch(place))
        return content

    def drop(self, place: object) -> None:
        assert isinstance(place, Place)
        self._fetched.pop(place, None)
        if place in self._held:
            self._let_go(place)
        elif place.path:
            self._pages[place.path] -= 1
            if not self._pages[place.path]:
                del self._pages[place.path]
                if self._paths.get(place.name) == place.path:
                    del self._paths[place.name]
                self._node.spawn(self._remove(place.path))

    async def fetched(self) -> None:
        """Waits for the next page, or for the news that it is lost; not at all where none is being fetched."""
        if not self._fetching or self.failure:
            await asyncio.sleep(0)
            return
        self._has_news.clear()
        await self._has_news.wait()

    def close(self) -> None:
        """Nobody needs any of it."""
        if not self.is_closed:
            self.is_closed = True
            self._has_news.set()
            if self._is_made:
                self._node.spawn(self._remove(self._directory))

    # Writing

    def _write(self, place: Place) -> bool:
        assert place.content is not None
        if self._node.disk_is_low:
            self._stays("less is free than disk.free.bytes.min and disk.reserve.bytes ask for")
            return False
        path = self._paths.get(place.name) or f"{self._directory}/{place.name}.{next(self._numbers)}"
        try:
            if not self._is_made:
                self._disk.mkdir(self._directory)
                self._is_made = True
            file = self._disk.open(path, create=True)
            try:
                position = self._disk.size(file)  # A write that failed may have left something.
                self._disk.append(file, [place.content])
            finally:
                self._disk.close(file)
        except (DiskFailed, FileNotFoundError) as failure:
            self._stays(failure)
            return False
        self._paths[place.name] = place.path = path
        self._pages[path] = self._pages.get(path, 0) + 1
        place.position, place.content = position, None
        return True

    def _stays(self, reason: object) -> None:
        if not self._held:
            self._node.report(f"delays of {self._whose} that are far away stay in memory, for they cannot be written: {reason}")

    def _write_held(self) -> None:
        """A few at a time: it goes on whenever something new is written."""
        for place in list(islice(self._held, WRITTEN_AT_ONCE)):
            if not self._write(place):
                return
            self._let_go(place)

    def _let_go(self, place: Place) -> None:
        del self._held[place]
        self._held_bytes -= place.size

    # Reading

    def _read_now(self, place: Place) -> bytes | None:
        try:
            file = self._disk.open(place.path)
            try:
                content = self._disk.read_now(file, place.position, place.size)
            finally:
                self._disk.close(file)
        except (DiskFailed, FileNotFoundError) as failure:
            self._lost(failure)
            return None
        return None if content is None else self._checked(place, content)

    async def _fetch(self, place: Place) -> None:
        try:
            file = self._disk.open(place.path)
            try:
                content = await self._disk.read_later(file, place.position, place.size)
            finally:
                self._disk.close(file)
        except (DiskFailed, FileNotFoundError) as failure:
            if place.path in self._pages:  # Else it was dropped meanwhile.
                self._lost(failure)
        else:
            if (checked := self._checked(place, content)) is not None and place.path in self._pages:
                self._fetched[place] = checked
        finally:
            self._fetching.pop(place, None)
            self._has_news.set()
        if not self.is_closed and not self.failure:
            self._on_news()

    def _checked(self, place: Place, content: bytes) -> bytes | None:
        if len(content) == place.size and crc32(content) == place.checksum:
            return content
        self._lost(f"{place.path} has other bytes at {place.position} than were written there")
        return None

    def _lost(self, failure: object) -> None:
        if not self.failure and not self.is_closed:
            self.failure = str(failure) or "a file is gone"
            self._node.report(f"delays of {self._whose} cannot be read back: {failure}; its ledger is loaded again from its log")
            asyncio.get_running_loop().call_soon(self._on_lost, self.failure)  # Not in the middle of a decision.

    async def _remove(self, path: str) -> None:
        try:
            await self._node.env.offload(self._disk.unlink, path)
        except (DiskFailed, FileNotFoundError) as failure:
            self._node.report(f"{path} stays until the next start: {failure}")
