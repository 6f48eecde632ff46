"""How long does a group coordinator take to load after many commits? By default 10 million commits over 100,000 keys.

The load goes through the node's own runtime, in this process: every commit is decided, appended, flushed, replayed and answered, and
snapshots are written as they fall due; only the sockets are left out. A request commits several partitions of one group, as consumers do.
Then three starts: after a stop in order, after a crash (the node is dropped as kill -9 would drop it), and without any snapshot.
Opening the logs is counted apart from loading the coordinators; on a busy machine seconds of processor say more than those of the clock.
A loaded node is asked for offsets, so that a wrong load gives no figure.
"""

import argparse
import asyncio
import gc
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from benchmarks.machine import described, header
from benchmarks.tables import table
from penstock.broker import coordinator_snapshots
from penstock.broker.node import Node
from penstock.cluster.commands import CreateTopics, NewTopic
from penstock.errors import ErrorCode
from penstock.groups.commands import CommitOffsets, NewOffset
from penstock.server.env import RealEnv
from penstock.settings import MIB, NodeSettings

TOPIC = "load"
IN_FLIGHT_MAX = 500


class Waiting:
    """The askers of all commits under way: counts them, and notes what was not taken."""

    def __init__(self) -> None:
        self.under_way = 0
        self.refused = 0
        self.has_room = asyncio.Event()

    def asker(self) -> "Asker":
        self.under_way += 1
        return Asker(self)

    def one_ended(self, *, was_taken: bool) -> None:
        self.under_way -= 1
        self.refused += not was_taken
        if self.under_way <= IN_FLIGHT_MAX // 2:
            self.has_room.set()

    async def until_room(self, under_way_max: int = IN_FLIGHT_MAX) -> None:
        while self.under_way > under_way_max:
            self.has_room.clear()
            await self.has_room.wait()


class Asker:
    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting

    def answered(self, reply: Any) -> None:
        self._waiting.one_ended(was_taken=all(code == 0 for *_, code in reply.offsets))

    def refused(self, code: ErrorCode, reason: str) -> None:
        self._waiting.one_ended(was_taken=False)


class Opened(NamedTuple):
    """Seconds that opening the logs took, and loading the coordinators; of the clock, and of the processor for both together."""

    opening: float
    loading: float
    processor: float


async def open_node(directory: Path) -> tuple[Node, RealEnv, Opened]:
    gc.collect()
    env = RealEnv(str(directory))
    node = Node(env, NodeSettings())
    began, processor_before = time.perf_counter(), time.process_time()
    await node.start()
    opened = time.perf_counter()
    await node.groups.prepare()
    while node.groups.is_loading():
        await asyncio.sleep(0.001)
    return node, env, Opened(opened - began, time.perf_counter() - opened, time.process_time() - processor_before)


async def commit_all(node: Node, groups: int, partitions: int, commits: int) -> float:
    """Commits every partition of every group in turn, over and over; the seconds that it took."""
    waiting, began, rounds = Waiting(), time.perf_counter(), commits // (groups * partitions)
    for number in range(rounds):
        offsets = tuple(NewOffset(TOPIC, partition, number * 100 + partition) for partition in range(partitions))
        for group in range(groups):
            asker = waiting.asker()
            coordinator = node.groups.find(f"group-{group}")
            coordinator.submit(CommitOffsets(token=asker, group=f"group-{group}", offsets=offsets), asker)
            await waiting.until_room()
        print(f"\r{(number + 1) * groups * partitions:,} commits, {time.perf_counter() - began:.0f} s", end="", file=sys.stderr, flush=True)
    while waiting.under_way:
        await asyncio.sleep(0.001)
    print(file=sys.stderr)
    assert waiting.refused == 0, f"{waiting.refused} commits were refused"
    return time.perf_counter() - began


async def check(node: Node, groups: int, partitions: int, rounds: int) -> None:
    for group in range(0, groups, max(1, groups // 50)):
        name = f"group-{group}"
        wanted = [(TOPIC, partition) for partition in range(partitions)]
        views = await node.groups.find(name).read(lambda state, name=name, wanted=wanted: state.offsets(name, wanted))
        expected = [(rounds - 1) * 100 + partition for partition in range(partitions)]
        assert [view.offset for view in views] == expected, f"{name} was not loaded right"


async def crash(node: Node, env: RealEnv) -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    env.shut()


def sizes(directory: Path) -> tuple[float, float]:
    """Mebibytes of logs and of snapshots."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    logs = sum(path.stat().st_size for path in files if path.suffix == ".log")
    snapshots = sum(path.stat().st_size for path in files if path.name == coordinator_snapshots.NAME)
    return logs / MIB, snapshots / MIB


async def measure(directory: Path, arguments: argparse.Namespace) -> None:
    groups, partitions, commits = arguments.groups, arguments.keys // arguments.groups, arguments.commits
    rounds = commits // (groups * partitions)
    node, env, _ = await open_node(directory)
    await node.submit(CreateTopics((NewTopic(TOPIC, node.new_topic_id(), partitions),)))
    seconds = await commit_all(node, groups, partitions, commits)
    print(f"{commits:,} commits over {groups * partitions:,} keys in {seconds:.0f} s: {commits / seconds:,.0f} a second\n")
    rows = []
    for ending in ("stop in order", "crash", "no snapshot"):
        if ending == "stop in order":
            await node.stop()
            env.shut()
        else:
            await crash(node, env)
        if ending == "no snapshot":
            for path in directory.rglob(coordinator_snapshots.NAME):
                path.unlink()
        logs, snapshots = sizes(directory)
        node, env, took = await open_node(directory)
        await check(node, groups, partitions, rounds)
        rows.append([ending, *(f"{seconds:.2f}" for seconds in took), f"{logs:.0f}", f"{snapshots:.1f}"])
        if ending == "stop in order" and arguments.tail:
            await commit_all(node, groups, partitions, groups * partitions * rounds_of_tail(arguments.tail, groups * partitions))
            rounds = rounds_of_tail(arguments.tail, groups * partitions)
    await node.stop()
    env.shut()
    print(table(["after", "opening logs, s", "loading coordinators, s", "both, s of processor", "logs, MiB", "snapshots, MiB"], rows))


def rounds_of_tail(tail: int, keys: int) -> int:
    return max(1, tail // keys)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=100_000, help="groups times partitions (default: 100,000)")
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--tail", type=int, default=100_000, help="commits between the clean start and the crash (default: 100,000)")
    parser.add_argument("--data-dir", help="a directory on the disk to be measured (default: a temporary one)")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="coordinator-load-", dir=arguments.data_dir))
    print(header("Loading coordinators", described(directory, "starts of a node after many commits; no sockets")))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(measure(directory / "data", arguments))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
