"""How long does compaction take, and what does the event loop feel of it?

    python -m benchmarks.compaction [records]

A log of small records under a hundred thousand keys is compacted on this machine's disk, once with a record to a batch and once with a
hundred, while a task on the same loop asks every millisecond how late it is. Beside it: the latest that task ever was, and how late it is
in one of a thousand turns.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.machine import described, header
from benchmarks.tables import count, ms, quantile, table
from penstock.log.compacted_log import CompactedLog
from penstock.log.config import LogConfig, LogIdentity
from penstock.log.open_files import OpenFiles
from penstock.server.env import RealEnv
from penstock.vocabulary import TopicId
from penstock.wire.batches import Record, encode_batch, read_header, stamp
from penstock.wire.compression import Codec
from penstock.wire.sieve import COMPILED

RECORDS = 1_000_000
KEYS = 100_000
VALUE = b"v" * 80
SEGMENT_BYTES = 4 << 20
TICK_SECONDS = 0.001


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    measured = f"{records:,} records, {KEYS:,} keys, compiled loop: {'yes' if COMPILED else 'no'}"
    print(header("Compaction", described(Path(), measured)))
    rows = []
    for in_batch, codec in ((1, Codec.NONE), (100, Codec.NONE), (100, Codec.LZ4)):
        with tempfile.TemporaryDirectory(dir=".") as directory:
            rows.append(asyncio.run(measure(directory, records, in_batch, codec)))
    print(table(("records in a batch", "read, MB", "seconds", "MB/s", "loop late, 1 of 1,000, ms", "loop late, most, ms"), rows))


async def measure(directory: str, records: int, in_batch: int, codec: Codec) -> list[str]:
    env = RealEnv(directory)
    config = LogConfig(segment_bytes=SEGMENT_BYTES, is_compacted=True)
    log = await CompactedLog.open(
        env, "log", LogIdentity(TopicId(bytes(16)), 0), config, OpenFiles(env.disk, 100),
        is_clean=False, restore=lambda extra: None, replay=lambda header: None,
    )  # fmt: skip
    for batch in batches(records, in_batch, codec):
        stamp(batch, log.end_offset, 0)
        log.append(batch, read_header(batch))
    captured = log.begin_checkpoint(b"")
    await log.flush()
    await log.write_checkpoint(captured)
    dirt = log.dirt(env.wall_ms(), log.end_offset)
    assert dirt is not None, "too few records to fill a segment"
    lateness: list[float] = []
    ticking = asyncio.create_task(tick(lateness))
    began = time.perf_counter()
    account = await log.compact(dirt, last_offsets=[], keys_bytes_max=128 << 20)
    seconds = time.perf_counter() - began
    ticking.cancel()
    lateness.sort()
    log.abandon()
    env.shut()
    megabytes = account.bytes_read / 1e6
    figures = [count(megabytes), f"{seconds:.2f}", count(megabytes / seconds), ms(quantile(lateness, 0.999)), ms(lateness[-1])]
    return [f"{in_batch}, {codec.name.lower()}", *figures]


def batches(records: int, in_batch: int, codec: Codec) -> Iterator[bytearray]:
    now_ms = time.time_ns() // 1_000_000
    for first in range(0, records, in_batch):
        chosen = [Record(b"key-%d" % (number * 7919 % KEYS), VALUE, timestamp_ms=now_ms) for number in range(first, first + in_batch)]
        yield encode_batch(chosen, codec=codec)


async def tick(lateness: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(TICK_SECONDS)
        lateness.append(time.perf_counter() - began - TICK_SECONDS)


if __name__ == "__main__":
    main()
