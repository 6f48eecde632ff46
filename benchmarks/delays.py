"""What do delays that are far away cost a queue's ledger: in memory, at a load, and when their time comes?

Two million messages that are delayed for a week, sent a hundred a second, plain and with a priority and a group; their pages in files on
the real disk, as a node has them. Memory is what Python has allocated once all are known. Opening: the clock goes through
that week until the last message is in line; the longest step is what a node would stand still for.
Seconds are those of the processor, apart from the longest step, which a wait for the disk would show in.
"""

import argparse
import asyncio
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.machine import described, header
from benchmarks.tables import table
from penstock.broker.queues.bucket_files import BucketFiles
from penstock.queues.commands import QUEUE_GROUP
from penstock.queues.headers import Traits
from penstock.queues.pages import PageStore
from penstock.queues.policy import Policy
from penstock.queues.state import LedgerState, Marked
from penstock.server.env import RealEnv
from penstock.settings import DAY_MS
from penstock.vocabulary import Instant

WALL_MS = 1_800_000_000_000
WEEK_MS = 7 * DAY_MS
EVERY_MS = 10
STEP_MS = 10_000
LEARNED_AT_ONCE = 1_000
POLICY = Policy(in_flight_max=1 << 40)


class Host:
    """What files of buckets need of a node."""

    def __init__(self, env: RealEnv) -> None:
        self.env = env
        self.disk_is_low = False
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def report(self, sentence: str) -> None:
        raise SystemExit(sentence)


def message(offset: int, *, has_options: bool) -> Marked:
    sent_ms = WALL_MS + offset * EVERY_MS
    traits = Traits(deliver_at=sent_ms + WEEK_MS, written_ms=sent_ms)
    return Marked(offset, traits._replace(priority=7, group=b"customer-%d" % (offset % 1_000)) if has_options else traits)


def new_state(pages: PageStore | None, wall_ms: int) -> LedgerState:
    return LedgerState(lambda _: POLICY, Random(1).random, pages, wall_ms)


def learned(pages: PageStore | None, messages: int, *, has_options: bool) -> LedgerState:
    state = new_state(pages, WALL_MS)
    state.begin(Instant(0), WALL_MS)
    for first in range(0, messages, LEARNED_AT_ONCE):
        entries = [message(offset, has_options=has_options) for offset in range(first, first + LEARNED_AT_ONCE)]
        state.learn(entries, first + LEARNED_AT_ONCE)
    return state


async def opened(state: LedgerState, messages: int) -> tuple[float, float]:
    """Processor seconds for all of them, and the longest step."""
    wall_ms, end_ms, longest = WALL_MS + messages * EVERY_MS, WALL_MS + messages * EVERY_MS + WEEK_MS, 0.0
    began = time.process_time()
    while wall_ms < end_ms or state.messages.waiting.count:
        wall_ms += STEP_MS
        then = time.perf_counter()
        state.lapse(Instant((wall_ms - WALL_MS) / 1_000), wall_ms)
        longest = max(longest, time.perf_counter() - then)
        await asyncio.sleep(0)
    return time.process_time() - began, longest


async def measure(host: Host | None, messages: int, *, has_options: bool) -> tuple[str, ...]:
    def pages(name: str) -> BucketFiles | None:
        return None if host is None else BucketFiles(host, name, "the benchmark", lambda: None, lambda reason: None)

    tracemalloc.start()
    store = pages("learned")
    state = learned(store, messages, has_options=has_options)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    began = time.process_time()
    pieces = []
    for piece in state.checkpoint():
        if piece is not None:
            pieces.append(piece)
        elif store is not None:
            await store.fetched()
    drawn = time.process_time() - began
    del state
    gc.collect()
    wall_ms = WALL_MS + messages * EVERY_MS
    began = time.process_time()
    again = new_state(pages("loaded"), wall_ms)
    again.restore(pieces)
    while not again.prepare(wall_ms):
        await asyncio.sleep(0)
    again.begin(Instant((wall_ms - WALL_MS) / 1_000), wall_ms)
    loaded = time.process_time() - began
    assert again.counts(QUEUE_GROUP, wall_ms).delayed == messages
    size = sum(map(len, pieces))
    del pieces
    opening, longest = await opened(again, messages)
    where = "memory" if host is None else "files"
    return (
        f"{'with options' if has_options else 'plain'}, {where}", f"{held / 1e6:,.1f} MB", f"{held / messages:,.2f}", f"{drawn:,.2f} s",
        f"{size / 1e6:,.0f} MB", f"{loaded:,.2f} s", f"{opening / messages * 1e6:,.2f} µs", f"{longest * 1e3:,.0f} ms",
    )  # fmt: skip


async def run(messages: int, directory: str | None, *, is_beside_memory: bool) -> None:
    rows = []
    with tempfile.TemporaryDirectory(dir=directory) as place:
        print(header("Messages that are delayed for a week", described(Path(place), "a queue's ledger in one process, its pages in files")))
        host = Host(RealEnv(place))
        for has_options in (False, True):
            for each in (None, host) if is_beside_memory else (host,):
                rows.append(await measure(each, messages, has_options=has_options))
        host.env.shut()
    heads = ("memory", "bytes each", "checkpoint", "its size", "load", "opening, each", "longest step")
    print(table((f"{messages:,} delayed for a week", *heads), rows))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.delays", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--data-dir", default=None, help="the disk to be measured")
    parser.add_argument("--memory", action="store_true", help="also with all pages in memory")
    given = parser.parse_args()
    asyncio.run(run(given.messages, given.data_dir, is_beside_memory=given.memory))


if __name__ == "__main__":
    main()
