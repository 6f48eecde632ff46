"""Batches with offsets missing between them, as compaction will leave them: readers get the next batch that is there."""

import pytest
from log.bench import DIRECTORY, FIRST_MS, IDENTITY, SMALL, Bench, bases_in, batch_at, run

from penstock.log.checkpoint import Remembered, encode
from penstock.log.epochs import Epochs
from penstock.log.index import SparseIndex
from penstock.log.segment import Segment
from penstock.simulator.disk import SimDisk

KEPT = {0: [2, 3, 7], 10: [], 20: [21, 29], 30: [30, 31]}  # What is left of segments of ten.
EPOCHS = {0: 0, 4: 5, 6: 29}


async def compacted(disk: SimDisk, *, is_indexed: bool) -> Bench:
    bench = Bench(disk, SMALL)
    disk.mkdir(DIRECTORY)
    segments = []
    for base, offsets in KEPT.items():
        segment = Segment(DIRECTORY, base, FIRST_MS, SparseIndex(1))
        file = disk.open(segment.path, create=True)
        for offset in offsets:
            batch = batch_at(offset, epoch=max(epoch for epoch, start in EPOCHS.items() if start <= offset))
            assert segment.index is not None
            segment.index.note(offset, segment.size, FIRST_MS + offset)
            disk.append(file, (batch,))
            segment.size += len(batch)
        segments.append(segment)
    epochs = Epochs()
    for epoch, start in EPOCHS.items():
        epochs.begin(epoch, start)
    content = encode(IDENTITY, Remembered(0, 32, 30, segments, epochs, b""))
    disk.append(disk.open(f"{DIRECTORY}/checkpoint", create=True), (content,))
    if not is_indexed:
        disk.kill()
    await bench.open(is_clean=True)
    return bench


@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_reader_at_a_missing_offset_gets_the_next_batch_that_is_there(is_indexed: bool) -> None:
    async def story() -> None:
        bench = await compacted(SimDisk(), is_indexed=is_indexed)
        left = [offset for offsets in KEPT.values() for offset in offsets]
        for wanted in (*range(32), *range(31, -1, -1)):
            read = await bench.log.read_later(wanted, bytes_max=1, end_offset=32)
            assert bases_in(read) == [min(offset for offset in left if offset >= wanted)], f"at {wanted}"
        assert bases_in(await bench.read_all()) == left

    run(story())


def test_a_reader_whose_end_lies_in_a_gap_gets_nothing_past_it() -> None:
    async def story() -> None:
        bench = await compacted(SimDisk(), is_indexed=True)
        assert await bench.log.read_later(8, bytes_max=1_000, end_offset=20) == b""
        assert await bench.log.read_later(22, bytes_max=1_000, end_offset=25) == b""
        assert bases_in(await bench.log.read_later(1, bytes_max=1_000, end_offset=5)) == [2, 3]

    run(story())


def test_a_time_is_found_across_gaps() -> None:
    async def story() -> None:
        bench = await compacted(SimDisk(), is_indexed=False)
        for wanted, offset in ((0, 2), (4, 7), (8, 21), (22, 29), (31, 31)):
            found = await bench.log.find_timestamp(FIRST_MS + wanted, 32)
            assert found is not None
            assert found.offset == offset

    run(story())
