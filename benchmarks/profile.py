"""Where does a node's event loop spend its time under one load? Runs the node under cProfile and prints the heaviest functions.

The profiler slows every Python call and no C call, so small functions look heavier than they are: read shares, not seconds.
Threads other than the loop's (flushes, cold reads) are not in it.
"""

import argparse
import pstats
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.processes import Broker
from benchmarks.report import working_directory
from benchmarks.subjects import Subject, penstock

FILL_S = 2.0


def main() -> None:
    arguments = _arguments()
    with working_directory(arguments.data_dir) as directory:
        profile = directory / "profile"
        command = penstock(directory / "node")
        under_profiler = [sys.executable, "-m", "cProfile", "-o", str(profile), *command.arguments[1:]]
        with Broker(replace(command, arguments=under_profiler)) as broker:
            print(_load(Subject("node", broker, {"flush": arguments.flush}), arguments))
        _print_profile(profile, arguments.lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["produce", "fetch", "end-to-end"])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--flush", choices=["ack", "interval", "os"], default="ack")
    parser.add_argument("--batch-bytes", type=int, default=0, help="0: one record per batch")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--lines", type=int, default=30)
    return parser.parse_args()


def _load(subject: Subject, arguments: argparse.Namespace) -> dict[str, float]:
    partitions = 1 if arguments.kind == "end-to-end" else arguments.partitions
    shape = {"partitions": partitions, "connections": arguments.connections, "depth": arguments.depth, "batch_bytes": arguments.batch_bytes}
    subject.admin().create("t", partitions, subject.topic_configs)
    if arguments.kind == "fetch":
        subject.load("produce", "t", warm_up_s=0.0, seconds=FILL_S, **shape)
    return subject.load(arguments.kind, "t", warm_up_s=0.0, seconds=arguments.seconds, **shape)


def _print_profile(profile: Path, lines: int) -> None:
    stats = pstats.Stats(str(profile))
    stats.sort_stats("tottime").print_stats(lines)


if __name__ == "__main__":
    main()
