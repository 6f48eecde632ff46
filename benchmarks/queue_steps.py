"""What does each step of a message's life cost a node, apart from sockets? A send, a take, a settle, and the three in turn.

The node runs in this process on a real disk, and is called where its doors call it. Each call waits for its answer, so everything is
flushed; several callers at once share flushes, as connections do. Seconds are those of the processor, for others may be using the machine:
of the loop's own thread, and of the whole process, whose other threads flush.
"""

import argparse
import asyncio
import cProfile
import gc
import pstats
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from benchmarks.machine import described, header
from benchmarks.tables import table
from penstock.broker.node import Node
from penstock.broker.queues.calls import Draft, Lent, Order, Outcome, Sent, Verb
from penstock.server.env import RealEnv
from penstock.settings import NodeSettings

QUEUE = "steps"
BODY = b'{"order": 4711, "sum": "12.50"}' * 4
STEPS = ("send", "take", "settle", "life")

Call = Callable[[], Awaitable[None]]


class Spent:
    """Of the processor, in microseconds for each call."""

    def __init__(self) -> None:
        self.loop_us = self.all_us = 0.0

    @contextmanager
    def counted(self, calls: int) -> Iterator[None]:
        gc.collect()
        loop_s, all_s = time.thread_time(), time.process_time()
        yield
        self.loop_us = (time.thread_time() - loop_s) / calls * 1e6
        self.all_us = (time.process_time() - all_s) / calls * 1e6


class Steps:
    """Calls of so many messages each."""

    def __init__(self, node: Node, count: int) -> None:
        self._queues = node.queues
        self._count = count
        self._drafts = [Draft(BODY) for _ in range(count)]
        self._lent: list[list[Lent]] = []

    async def send(self) -> None:
        results = await self._queues.send(QUEUE, self._drafts)
        assert all(isinstance(each, Sent) for each in results)

    async def take(self) -> None:
        lent = await self._queues.take(QUEUE, self._count, lease_ms=3_600_000)
        assert len(lent) == self._count
        self._lent.append(lent)

    async def settle(self) -> None:
        await self._settle(self._lent.pop())

    async def life(self) -> None:
        """Whatever is there is taken: another caller may have sent it."""
        await self.send()
        lent = await self._queues.take(QUEUE, self._count, lease_ms=3_600_000, wait_s=20.0)
        await self._settle(lent)

    async def _settle(self, lent: list[Lent]) -> None:
        verdicts = await self._queues.settle(QUEUE, [Order(each.handle, Verb.DONE) for each in lent])
        assert all(each.outcome is Outcome.OK for each in verdicts)


async def repeat(call: Call, calls: int, callers: int) -> None:
    left = calls

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call()

    await asyncio.gather(*(caller() for _ in range(callers)))


async def measure(directory: Path, count: int, callers: int, calls: int, profiled: str | None) -> list[Spent]:
    env = RealEnv(str(directory))
    node = Node(env, NodeSettings())
    await node.start()
    found = []
    try:
        await node.queues.create(QUEUE, {})
        steps = Steps(node, count)
        await repeat(steps.life, calls // 10, callers)  # So that everything has run once.
        for name in STEPS:
            spent, call = Spent(), getattr(steps, name)
            profile = cProfile.Profile() if profiled == name else None
            with spent.counted(calls):
                if profile is not None:
                    profile.enable()
                await repeat(call, calls, callers)
                if profile is not None:
                    profile.disable()
            if profile is not None:
                pstats.Stats(profile).sort_stats("tottime").print_stats(45)
            found.append(spent)
        counts = await node.queues.counts(QUEUE)
        assert counts.ready + counts.leased == 0
    finally:
        await node.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.queue_steps", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=4_000, help="of each step")
    parser.add_argument("--count", type=int, nargs="*", default=(1, 10), help="messages in a call")
    parser.add_argument("--callers", type=int, nargs="*", default=(1, 16), help="at once")
    parser.add_argument("--directory", type=Path, help="on the disk to be measured on")
    parser.add_argument("--profile", choices=STEPS, help="say where the time of this step goes")
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.gettempdir())
    print(header("Steps of a message", described(directory, "CPU of a node in one process, without sockets")))
    rows = []
    for count in given.count:
        for callers in given.callers:
            directory = Path(tempfile.mkdtemp(prefix="queue-steps-", dir=given.directory))
            try:
                found = uvloop.run(measure(directory, count, callers, given.calls, given.profile))
            finally:
                shutil.rmtree(directory)
            rows.append((f"{count}, {callers} at once", *(f"{each.loop_us:,.0f} / {each.all_us:,.0f}" for each in found)))
    print(table(("messages in a call", *STEPS), rows))
    print("\nMicroseconds of the processor for each call: of the loop's thread / of the whole process. A life is three calls.")


if __name__ == "__main__":
    main()
