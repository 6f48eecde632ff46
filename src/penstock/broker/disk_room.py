"""The room on the node's disk: when producers are refused, when others shall lead instead, and a reserve for what must be written.

By the setting `disk.free.bytes.min`:
- Short: less than one and a half times as much is free, or a write found no room. The controller is told, and has others lead what this
  node leads, before it must refuse anything. It is over when twice as much is free, and not before `SHORT_SECONDS`: leadership does not
  go back and forth at the edge.
- Low: less than that is free. Producers are refused.

The reserve is a file that takes room (`disk.reserve.bytes`). When a write finds no room, or almost nothing is left, the file is removed.
What it took is for the metadata log, checkpoints, and the logs of groups, transactions and queues, without which nothing could be moved
off this node: until it is there again the disk counts as short and low, and followers copy no records of clients. It is made again when
twice as much is free. That it could be made also shows that there is room, where the number of free bytes does not (a quota).
A reserve that was lost with the power is like one that was given up, so it is never flushed.

Not here: who is refused (handlers), what the controller makes of it (cluster/registering.py).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from penstock.broker.identity import NODE_DIRECTORY
from penstock.env import Env
from penstock.errors import DiskFailed
from penstock.settings import NodeSettings
from penstock.vocabulary import Instant

RESERVE_PATH = f"{NODE_DIRECTORY}/reserve"
RESERVE_SHARE = 16  # The reserve takes no more than this part of the disk, and is given up when less than this part of it is free.
ROOM_TO_REFILL = 2  # So many times the reserve must be free before it is made: what is left can be written to.
SHORT_SECONDS = 10.0
RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 1.0, 16.0  # Between tries to make the reserve on a disk that claims to have room.


class DiskRoom:
    def __init__(self, env: Env, settings: Callable[[], NodeSettings], report: Callable[[str], None]) -> None:
        """`settings`: those that hold now."""
        self._env = env
        self._settings = settings
        self._report = report
        self.is_low = False
        self.is_short = False
        self.found_no_room = False  # A write did, and none has succeeded since.
        self.reserve_bytes = 0  # What is kept, or should be.
        self.has_reserve = False
        self.news = asyncio.Event()  # `is_short` has changed.
        self._short_until: Instant = env.now()
        self._refill_at: Instant = env.now()
        self._refill_pause = RETRY_SECONDS_MIN

    @property
    def is_in_reserve(self) -> bool:
        """What is written now takes the room of the reserve."""
        return self.reserve_bytes > 0 and not self.has_reserve

    async def begin(self) -> None:
        """Looks for the reserve that the directory has. It is given up at once where the start might need the room."""
        disk = self._env.disk
        self.reserve_bytes = min(self._settings().disk_reserve_bytes, disk.total_bytes() // RESERVE_SHARE)
        self.has_reserve = self.reserve_bytes > 0 and _size_of(self._env) == self.reserve_bytes
        if not self.has_reserve or disk.free_bytes() < self.reserve_bytes:
            self.has_reserve = False
            with suppress(DiskFailed):
                disk.unlink(RESERVE_PATH)
        await self.refill()
        if self.is_in_reserve:
            self._report(f"the disk has no room for the reserve ({self.reserve_bytes} bytes, disk.reserve.bytes): it is made when there is")

    def look(self) -> None:
        """Lets writes be tried again when there seems to be room; that there is, only a write can tell (quotas, inodes)."""
        free, least = self._env.disk.free_bytes(), self._settings().disk_free_bytes_min
        if free < self.reserve_bytes // RESERVE_SHARE:
            self.make_room()
        was_low, self.is_low = self.is_low, free < least or self.is_in_reserve
        if was_low != self.is_low and not self.found_no_room:
            self._report("the disk is nearly full: produce requests are refused" if self.is_low else "the disk has room again")
        if 2 * free < 3 * least or self.is_in_reserve:
            self._become_short()
        elif self.is_short and free >= 2 * least and self._env.now() >= self._short_until:
            self.is_short = False
            self.news.set()

    def was_full(self) -> None:
        """A write found no room: no other needs to try before the next look, but for what the reserve is for."""
        self.make_room()
        self.is_low = True
        self._become_short()
        if not self.found_no_room:
            self.found_no_room = True
            self._report("the disk is full: produce requests are refused")

    def had_room(self) -> None:
        """A write has succeeded. One into the reserve shows nothing."""
        if self.found_no_room and not self.is_in_reserve:
            self.found_no_room = False
            self._report("the disk has room again")

    def make_room(self) -> bool:
        """Gives up the reserve; returns whether there was one."""
        if not self.has_reserve:
            return False
        self.has_reserve = False
        try:
            self._env.disk.unlink(RESERVE_PATH)
        except DiskFailed as failure:
            self._report(f"the reserve cannot be given up: {failure}")
            return False
        self._report(f"the disk is full: the reserve of {self.reserve_bytes} bytes is given up for what the node itself must write")
        self._refill_at = Instant(self._env.now() + self._refill_pause)
        self._become_short()
        return True

    async def refill(self) -> None:
        """Makes the reserve again if there is room for it."""
        now, disk = self._env.now(), self._env.disk
        if not self.is_in_reserve or now < self._refill_at or disk.free_bytes() < ROOM_TO_REFILL * self.reserve_bytes:
            return
        try:
            await disk.allocate(RESERVE_PATH, self.reserve_bytes)
        except DiskFailed:
            self._refill_pause = min(2 * self._refill_pause, RETRY_SECONDS_MAX)
            self._refill_at = Instant(now + self._refill_pause)
            return
        self._refill_pause = RETRY_SECONDS_MIN
        self.has_reserve = True
        self.had_room()
        self.look()

    def _become_short(self) -> None:
        self._short_until = Instant(self._env.now() + SHORT_SECONDS)
        if not self.is_short:
            self.is_short = True
            self.news.set()


def _size_of(env: Env) -> int | None:
    try:
        file = env.disk.open(RESERVE_PATH)
    except (FileNotFoundError, DiskFailed):
        return None
    try:
        return env.disk.size(file)
    finally:
        env.disk.close(file)
