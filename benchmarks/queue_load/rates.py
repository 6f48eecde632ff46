"""Closed loops over several connections: each asks, waits for the answer, and asks again.

Four stretches in one run, on one queue. *Send* for a time; *receive* what was sent, and *delete* what was received, each until nothing is
left or the time is over; then *life*, where every connection sends, receives and deletes in turn, as workers beside senders do. However
slow the server is, each connection has one turn.
A stretch is counted from its first request to its last answer; sending has a warm-up before it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.load.frames import UnexpectedReply
from benchmarks.load.pipeline import Timing
from benchmarks.load.stopwatch import Lap, Stopwatch
from benchmarks.queue_load.calls import Calls, drop_queue, make_queue
from benchmarks.queue_load.talk import Talk

Turn = Callable[[Talk], Awaitable[int]]  # One turn of a loop: messages that it was about; 0 where there is nothing left to do.


@dataclass(frozen=True, slots=True)
class RateLoad:
    batch: int
    connections: int

    async def run(self, host: str, port: int, timing: Timing) -> dict[str, float]:
        talks = [await Talk.open(host, port) for _ in range(self.connections)]
        url = await make_queue(talks[0], f"bench-{time.monotonic_ns()}")
        calls = Calls(url, self.batch)
        handles: list[list[bytes]] = []

        async def receive(talk: Talk) -> int:
            taken = await calls.receive(talk)
            if taken:
                handles.append(taken)
            return len(taken)

        async def delete(talk: Talk) -> int:
            return await calls.delete(talk, handles.pop()) if handles else 0

        async def live(talk: Talk) -> int:
            await calls.send(talk)
            taken = await calls.receive(talk)
            return await calls.delete(talk, taken) if taken else 0

        await _turns(talks, calls.send, timing.warm_up_s, timing)
        figures: dict[str, float] = {}
        for name, turn in (("send", calls.send), ("receive", receive), ("delete", delete), ("life", live)):
            count, lap = await _turns(talks, turn, timing.seconds, timing)
            if not count:
                raise UnexpectedReply(f"{name}: no message in {timing.seconds} s")
            figures |= _told(name, count, lap)
        await drop_queue(talks[0], url)
        for talk in talks:
            talk.close()
        return figures


async def _turns(talks: list[Talk], turn: Turn, seconds: float, timing: Timing) -> tuple[int, Lap]:
    watch = Stopwatch(timing.broker_pids)
    until = watch.began_s + seconds

    async def loop(talk: Talk) -> int:
        count = 0
        while moved := await turn(talk):
            count += moved
            if time.perf_counter() >= until:
                break
        return count

    counts = await asyncio.gather(*map(loop, talks))
    return sum(counts), watch.lap()


def _told(name: str, count: int, lap: Lap) -> dict[str, float]:
    return {
        f"{name}_per_s": count / lap.seconds,
        f"{name}_generator_cpu": lap.own_cpu_s / lap.seconds,
        f"{name}_broker_cpu": lap.broker_cpu_s / lap.seconds,
    }
