"""What an idle log costs, and that nothing costs more the longer a log is. Row 26 of the checklist."""

import asyncio
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from log.bench import ALL, IDENTITY, Bench, StillEnv, batch_at, run

from penstock.env import File, SyncFailures
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.log.open_files import OpenFiles
from penstock.server.disk import RealDisk, RealFile
from penstock.simulator.disk import SimDisk, SimFile
from penstock.vocabulary import Buffer
from penstock.wire.batches import read_header


class Counting(SimDisk):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()
        self.bytes_read = 0

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.asked["open"] += 1
        return super().open(path, create=create)

    def read_at(self, file: File, position: int, size: int) -> bytes:
        self.asked["read"] += 1
        content = super().read_at(file, position, size)
        self.bytes_read += len(content)
        return content


def test_after_a_clean_stop_a_log_opens_by_reading_one_small_file_and_keeps_nothing_open() -> None:
    async def story() -> None:
        disk = Counting()
        bench = Bench(disk)
        await bench.open()
        bench.append(200)
        await bench.close()
        disk.asked.clear()
        disk.bytes_read = 0
        operations = disk.operations
        await bench.open(is_clean=True)
        assert disk.asked == {"open": 2, "read": 1}
        assert disk.bytes_read == len(disk.snapshot(f"{bench.directory}/checkpoint"))
        assert disk.operations == operations, "nothing is changed"
        assert len(bench.files) == 0
        await bench.close()
        assert disk.operations == operations, "nothing new, nothing written"

    run(story())


def test_after_a_crash_only_what_lies_above_the_checkpoint_is_read() -> None:
    async def story() -> None:
        disk = Counting()
        bench = Bench(disk, LogConfig(segment_bytes=50_000))
        await bench.open()
        bench.append(1_000)
        await bench.checkpoint()
        bench.append(10)
        await bench.log.flush()
        disk.power_cut()
        disk.bytes_read = 0
        await bench.open()
        assert bench.log.end_offset == 1_010
        assert disk.bytes_read < 10 * 171 + 20_000

    run(story())


def test_an_idle_log_takes_a_few_kilobytes() -> None:
    async def story() -> None:
        disk = SimDisk()
        files = OpenFiles(disk, 100)
        env = Bench(disk).env
        for number in range(100):
            bench = Bench(disk, directory=f"t/{number}")
            await bench.open()
            bench.append(3)
            await bench.close()
        tracemalloc.start()
        logs = [
            await Log.open(
                env, f"t/{number}", IDENTITY, LogConfig(), files, is_clean=True, restore=lambda extra: None, replay=lambda header: None
            )
            for number in range(100)
        ]
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert held / len(logs) < 4_096

    run(story())


def test_a_read_deep_in_a_long_log_reads_little_more_than_it_returns() -> None:
    async def story() -> None:
        disk = Counting()
        bench = Bench(disk, LogConfig())
        await bench.open()
        bench.append(5_000)
        disk.bytes_read = 0
        for offset in range(4_999, 0, -500):
            bench.log.read(offset, bytes_max=171, end_offset=ALL)
        assert disk.bytes_read < 10 * (4_096 + 3 * 171)
        offset, disk.bytes_read = 0, 0
        while offset < 5_000:
            offset += len(bench.log.read(offset, bytes_max=10_000, end_offset=ALL) or b"") // 171
        assert disk.bytes_read < 1.1 * 5_000 * 171, "who reads on reads nothing twice"

    run(story())


class CountingReal(RealDisk):
    """Counts what is asked of a real disk."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.asked: Counter[str] = Counter()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        self.asked["open"] += 1
        return super().open(path, create=create)

    def read_at(self, file: File, position: int, size: int) -> bytes:
        self.asked["read"] += 1
        return super().read_at(file, position, size)

    def append(self, file: File, chunks: Sequence[Buffer]) -> None:
        self.asked["append"] += 1
        super().append(file, chunks)

    async def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> SyncFailures:
        self.asked["sync"] += 1
        return await super().sync(files, directories)


def test_each_of_many_idle_logs_on_a_real_disk_is_opened_by_reading_one_small_file(tmp_path: Path) -> None:
    count = 300

    async def story() -> None:
        disk = CountingReal(str(tmp_path))
        env, files = StillEnv(disk), OpenFiles(disk, 100)

        async def open_log(number: int, *, is_clean: bool) -> Log:
            return await Log.open(
                env, f"topics/ab/{number}", IDENTITY, LogConfig(), files,
                is_clean=is_clean, restore=lambda extra: None, replay=lambda header: None,
            )  # fmt: skip

        async def write(number: int) -> None:
            log = await open_log(number, is_clean=False)
            batch = batch_at(0)
            log.append(batch, read_header(batch))
            await log.close(b"")

        for first in range(0, count, 50):
            await asyncio.gather(*map(write, range(first, first + 50)))
        disk.asked.clear()
        logs = [await open_log(number, is_clean=True) for number in range(count)]
        assert disk.asked == {"open": 2 * count, "read": count}
        assert all(log.end_offset == 1 for log in logs)
        assert len(files) == 0
        disk.shut()

    run(story())
