"""The `Env` of one simulated process: virtual clock, chance from the seed, offloading that takes its time, a disk that lies.

`offload` runs its function at once, because pure functions over bytes cannot tell, and answers after a drawn delay, because callers can.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import TypeVar

from penstock.env import Disk
from penstock.simulator.loop import SimLoop
from penstock.vocabulary import Instant

T = TypeVar("T")

FIRST_WALL_MS = 1_700_000_000_000
OFFLOAD_SECONDS_MAX = 0.005


class WallClock:
    """A host's idea of the date. It may run fast or slow, and jump; it outlives the processes of its host."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._ms = float(FIRST_WALL_MS)  # At `_since`.
        self._since = loop.now
        self._rate = 1.0

    def ms(self) -> int:
        return int(self._ms + (self._loop.now - self._since) * 1000 * self._rate)

    def jump(self, seconds: float) -> None:
        self._ms += seconds * 1000

    def drift(self, rate: float) -> None:
        """From now on a second of the loop is `rate` seconds on this clock."""
        self._ms, self._since, self._rate = float(self.ms()), self._loop.now, rate


class SimEnv:
    """`penstock.env.Env` for one process."""

    def __init__(self, loop: SimLoop, rng: Random, disk: Disk, wall: WallClock) -> None:
        self.rng = rng
        self.disk = disk
        self.terminated = asyncio.Event()  # The host was told to end this process in order.
        self._loop = loop
        self._wall = wall

    def nonce(self, size: int) -> bytes:
        return self.rng.randbytes(size)  # Foretold by the seed, as everything here.

    def now(self) -> Instant:
        return self._loop.now

    def wall_ms(self) -> int:
        return self._wall.ms()

    async def offload(self, function: Callable[..., T], *arguments: object) -> T:
        try:
            return function(*arguments)
        finally:
            await asyncio.sleep(self.rng.random() * OFFLOAD_SECONDS_MAX)
