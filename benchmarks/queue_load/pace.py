"""Messages at a fixed rate through one door, and how long each took: from the moment it was due to be sent until a worker held it.

The clock starts when a message was due, not when the generator got round to it, so that a stall counts for every message that it delayed.
Workers settle what they hold; a run that leaves a message behind, or gets one twice, has no figures.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

from benchmarks.load.frames import UnexpectedReply
from benchmarks.load.pipeline import Timing
from benchmarks.load.stopwatch import Stopwatch
from benchmarks.tables import quantile

DRAIN_S = 30.0
UNSENT_MAX = 5_000  # Past this the server does not hold the rate and there is nothing to measure.


class Door(Protocol):
    """One queue through one door."""

    async def open(self) -> None: ...

    async def send(self, number: int) -> None: ...

    async def take(self, worker: int) -> list[int]:
        """Waits for messages and begins to settle them: their numbers, as soon as they are there."""
        ...

    @property
    def workers(self) -> int: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class PaceLoad:
    door: Door
    rate: int

    async def run(self, timing: Timing) -> dict[str, float]:
        await self.door.open()
        course = _Course(self.door, self.rate, timing)
        figures = await course.run()
        await self.door.close()
        return figures


class _Course:
    def __init__(self, door: Door, rate: int, timing: Timing) -> None:
        self._door, self._rate, self._timing = door, rate, timing
        self._due: list[float] = []
        self._latencies: dict[int, float] = {}  # By number.
        self._unsent = 0
        self._failure: BaseException | None = None
        self._all_there = asyncio.Event()
        self._total = int(rate * (timing.warm_up_s + timing.seconds))

    async def run(self) -> dict[str, float]:
        workers = [asyncio.ensure_future(self._work(number)) for number in range(self._door.workers)]
        watch = Stopwatch(self._timing.broker_pids)
        sends = set()
        for number in range(self._total):
            due = watch.began_s + number / self._rate
            left = due - time.perf_counter()
            if left > 0:
                await asyncio.sleep(left)
            self._due.append(due)
            self._unsent += 1
            if self._unsent > UNSENT_MAX or self._failure is not None:
                raise UnexpectedReply(f"{self._rate:,} messages a second are not held: {self._failure or 'too many wait to be sent'}")
            task = asyncio.ensure_future(self._send(number))
            sends.add(task)
            task.add_done_callback(sends.discard)
        async with asyncio.timeout(DRAIN_S):
            await asyncio.gather(*sends)
            await self._all_there.wait()
        lap = watch.lap()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        skipped = int(self._rate * self._timing.warm_up_s)
        ordered = sorted(taken for number, taken in self._latencies.items() if number >= skipped)
        return {
            "p50_s": quantile(ordered, 0.5), "p99_s": quantile(ordered, 0.99), "max_s": ordered[-1],
            "generator_cpu": lap.own_cpu_s / lap.seconds, "broker_cpu": lap.broker_cpu_s / lap.seconds,
        }  # fmt: skip

    async def _send(self, number: int) -> None:
        try:
            await self._door.send(number)
        except Exception as failure:
            self._fail(failure)
        self._unsent -= 1

    async def _work(self, worker: int) -> None:
        try:
            while True:
                numbers = await self._door.take(worker)
                now = time.perf_counter()
                for number in numbers:
                    if number in self._latencies:
                        raise UnexpectedReply(f"message {number} came twice")
                    self._latencies[number] = now - self._due[number]
                if len(self._latencies) == self._total:
                    self._all_there.set()
        except Exception as failure:
            self._fail(failure)

    def _fail(self, failure: BaseException) -> None:
        self._failure = self._failure or failure
