"""The real `Env`: the machine's clock, chance, threads, and one data directory."""

import asyncio
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TypeVar, cast

from penstock.server import kernel
from penstock.server.disk import RealDisk
from penstock.server.vigil import PROCESSORS_MIN, Vigil, processors
from penstock.vocabulary import Instant

T = TypeVar("T")

OFFLOAD_THREADS = 2  # What is offloaded (codecs, checksums) lets other threads run meanwhile; two keep a small machine's other core busy.


KEPT_MEMORY_BYTES_MAX = 64 << 20  # Some replies' worth: enough to serve fetches from, small beside what a node may use.


class RealEnv:
    # The same clock that both event loops count in; asked directly because uvloop's own answer is rounded to a millisecond.
    now = staticmethod(cast("Callable[[], Instant]", time.monotonic))

    def __init__(self, data_dir: str, *, awake_s: float = 0.0, disk_type: type[RealDisk] = RealDisk) -> None:
        """`awake_s`: for how long at most the loop stays awake for a flush. Tests bring a disk with doors that they can hold shut."""
        kernel.keep_freed_memory(KEPT_MEMORY_BYTES_MAX)
        self.rng = Random()  # Seeded by the system.
        self._vigil = Vigil(awake_s if processors() >= PROCESSORS_MIN else 0)
        self.disk = disk_type(data_dir, self._vigil)
        self._threads = ThreadPoolExecutor(OFFLOAD_THREADS, "offload")

    def nonce(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def offload(self, function: Callable[..., T], *arguments: object) -> T:
        working = asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
        self._vigil.threads += 1
        working.add_done_callback(self._worked)
        return await working

    def _worked(self, _: object) -> None:
        self._vigil.threads -= 1

    def shut(self) -> None:
        """Ends the threads. The last thing a node's process does."""
        self._threads.shutdown()
        self.disk.shut()
