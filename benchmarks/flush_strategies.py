"""Which way makes many files durable the soonest? One round: append to each of N files, then wait until all of it is on the disk.

Ways: fdatasync one after another, handed to a thread as a loop must do it, by a pool of threads, by compiled threads, one
syncfs for the whole file system, and one shared journal file that takes every append (the price of that last one, a second write of every
byte and a second reader, is not in the table).
Only the flush is timed, not the appends. Everything else that writes to the same disk meanwhile shows in the figures.
"""

import argparse
import os
import select
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.machine import described, header
from benchmarks.tables import ms, quantile, ratio, table
from penstock.server import flush_threads, kernel
from penstock.server.flush_threads import FILES_MAX, FlushThreads

Flush = Callable[[Sequence[int]], None]


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="flush-", dir=arguments.data_dir) as directory:
        root = os.open(directory, os.O_RDONLY)
        measured = f"{arguments.append_bytes} bytes appended to each file, p50 / p99 of a round in ms (ratio of p50 to fdatasync)"
        print(header("Ways to flush many files", described(Path(directory), measured)))
        print(_measure_all(directory, root, arguments))
        if not kernel.can_flush_file_system(root):
            print("\nsyncfs: not to be believed on this file system, so not used here by the broker")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default=os.getcwd(), help="a directory on the disk to be measured (default: the current one)")
    parser.add_argument("--files", type=int, nargs="+", default=[1, 2, 4, 10, 100, 1000])
    parser.add_argument("--append-bytes", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long to measure each cell")
    parser.add_argument("--pools", type=int, nargs="+", default=[4, 8, 16])
    return parser.parse_args()


def _measure_all(directory: str, root: int, arguments: argparse.Namespace) -> str:
    ways = _ways(root, arguments.pools)
    rows = []
    for files in arguments.files:
        base = 0.0
        cells = [f"{files:,} files"]
        for name, flush in ways.items():
            targets = 1 if name == "journal" else files
            if name == "compiled threads" and targets > FILES_MAX:
                cells.append("")
                continue
            p50, p99 = _measure(directory, targets, arguments.append_bytes * files // targets, flush, arguments.seconds)
            base = base or p50
            cells.append(f"{ms(p50)} / {ms(p99)} ({ratio(p50, base)})")
        rows.append(cells)
    return table(["", *ways], rows)


def _ways(root: int, pools: Sequence[int]) -> dict[str, Flush]:
    def each(fds: Sequence[int]) -> None:
        for fd in fds:
            kernel.flush_file(fd)

    def pooled(threads: int) -> Flush:
        pool = ThreadPoolExecutor(threads)

        def flush(fds: Sequence[int]) -> None:
            for _ in pool.map(each, [fds[thread::threads] for thread in range(min(threads, len(fds)))]):
                pass

        return flush

    ways: dict[str, Flush] = {"fdatasync": each, "thread": pooled(1)}
    if (threads := flush_threads.start()) is not None:
        ways["compiled threads"] = _by_compiled(threads)
    ways |= {f"pool of {threads}": pooled(threads) for threads in pools}
    return ways | {"syncfs": lambda fds: kernel.flush_file_system(root), "journal": each}


def _by_compiled(threads: FlushThreads) -> Flush:
    poll = select.epoll()
    poll.register(threads.told, select.EPOLLIN)

    def flush(fds: Sequence[int]) -> None:
        threads.begin(fds)
        left = len(fds)
        while left:
            poll.poll()
            left -= len(threads.ended())

    return flush


def _measure(directory: str, files: int, append_bytes: int, flush: Flush, seconds: float) -> tuple[float, float]:
    payload = os.urandom(append_bytes)
    fds = [os.open(f"{directory}/{number}", os.O_WRONLY | os.O_APPEND | os.O_CREAT) for number in range(files)]
    took: list[float] = []
    flush(fds)  # New names and what earlier rounds left dirty are not what is measured.
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(took) < 3:
        for fd in fds:
            os.write(fd, payload)
        began = time.perf_counter()
        flush(fds)
        took.append(time.perf_counter() - began)
    for number, fd in enumerate(fds):
        os.close(fd)
        os.unlink(f"{directory}/{number}")
    took.sort()
    return quantile(took, 0.5), quantile(took, 0.99)


if __name__ == "__main__":
    main()
