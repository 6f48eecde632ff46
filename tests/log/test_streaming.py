"""Long reads whose length is told before their bytes are read."""

import pytest
from log.bench import ALL, DIRECTORY, Bench, run

from penstock.log.config import LogConfig
from penstock.log.faults import LogDamaged
from penstock.log.log import Log
from penstock.log.streaming import PIECE_BYTES, STREAM_BYTES_MIN, Stream
from penstock.simulator.disk import SimDisk

CONFIG = LogConfig(segment_bytes=64 << 20)
MEBIBYTE = 1 << 20


async def drained(stream: Stream) -> bytes:
    pieces = []
    while not stream.is_done:
        piece = stream.next_piece()
        pieces.append(bytes(await stream.next_piece_later() if piece is None else piece))
    stream.close()
    return b"".join(pieces)


async def filled(disk: SimDisk, *, batches: int, value_bytes: int, epoch_changes: int = 0) -> Bench:
    bench = Bench(disk, CONFIG)
    await bench.open()
    for epoch in range(epoch_changes + 1):
        bench.append(batches, value=b"v" * value_bytes, epoch=epoch)
    await bench.log.flush()
    return bench


def streamed(log: Log, offset: int, *, bytes_max: int = MEBIBYTE, end_offset: int = ALL) -> Stream:
    stream = log.stream(offset, bytes_max=bytes_max, end_offset=end_offset)
    assert stream is not None
    return stream


@pytest.mark.parametrize("value_bytes", [300, 5_000, 60_000, 300_000])
def test_a_stream_is_as_long_as_it_said_and_the_same_bytes_as_a_read(value_bytes: int) -> None:
    async def test() -> None:
        bench = await filled(SimDisk(), batches=3 * MEBIBYTE // value_bytes, value_bytes=value_bytes)
        whole = await bench.read_all(bytes_max=10 * MEBIBYTE)
        stream = streamed(bench.log, 0, bytes_max=2 * MEBIBYTE)
        assert STREAM_BYTES_MIN <= len(stream) <= 2 * MEBIBYTE
        content = await drained(stream)
        assert len(content) == len(stream)
        assert whole.startswith(content)

    run(test())


def test_streams_one_after_another_miss_nothing() -> None:
    async def test() -> None:
        bench = await filled(SimDisk(), batches=600, value_bytes=9_000, epoch_changes=1)
        whole, found, offset = await bench.read_all(bytes_max=MEBIBYTE), b"", 0
        while (stream := bench.log.stream(offset, bytes_max=MEBIBYTE, end_offset=ALL)) is not None:
            found += await drained(stream)
            offset = 1200 * len(found) // len(whole)  # Every batch is one record of the same size.
        assert len(found) > 9 * MEBIBYTE
        assert whole == found + await bench.read_all(offset)

    run(test())


def test_nothing_is_streamed_at_or_past_the_readers_end() -> None:
    async def test() -> None:
        bench = await filled(SimDisk(), batches=400, value_bytes=9_000)
        stream = streamed(bench.log, 0, bytes_max=8 * MEBIBYTE, end_offset=100)
        assert (await drained(stream)).count(b"v" * 9_000) <= 100
        assert bench.log.stream(90, bytes_max=MEBIBYTE, end_offset=100) is None, "too little to be worth it"
        assert bench.log.stream(400, bytes_max=MEBIBYTE, end_offset=ALL) is None

    run(test())


def test_a_reader_that_takes_nothing_holds_one_piece_and_one_that_never_began_holds_nothing() -> None:
    async def test() -> None:
        bench = await filled(SimDisk(), batches=400, value_bytes=9_000)
        await bench.close()
        await bench.open(is_clean=True)
        await bench.log.read_later(0, bytes_max=1, end_offset=ALL)  # Has the index loaded.
        streamed(bench.log, 0)
        assert not bench.files._pinned
        begun = streamed(bench.log, 0)
        piece = begun.next_piece() or await begun.next_piece_later()
        assert len(piece) <= PIECE_BYTES
        assert len(bench.files._pinned) == 1
        begun.close()
        begun.close()
        assert not bench.files._pinned

    run(test())


def test_a_stream_survives_that_its_segment_is_deleted() -> None:
    async def test() -> None:
        bench = Bench(SimDisk(), LogConfig(segment_bytes=2 * MEBIBYTE, retention_bytes=MEBIBYTE))
        await bench.open()
        bench.append(600, value=b"v" * 9_000)
        await bench.log.flush()
        whole = await bench.read_all(bytes_max=MEBIBYTE)
        stream = streamed(bench.log, 0)
        begun = bytes(stream.next_piece() or await stream.next_piece_later())
        assert await bench.retain(bench.env.wall)
        assert bench.log.start_offset > 0
        assert whole.startswith(begun + await drained(stream))
        assert not bench.files._pinned

    run(test())


@pytest.mark.parametrize("position", [100, 400_000, 900_000])
def test_rot_in_the_middle_breaks_the_stream_off_and_the_next_read_says_why(position: int) -> None:
    async def test() -> None:
        disk = SimDisk()
        bench = await filled(disk, batches=400, value_bytes=9_000)
        whole = await bench.read_all(bytes_max=MEBIBYTE)
        disk.rot(f"{DIRECTORY}/{0:020}.log", position)
        found = b""
        with pytest.raises(LogDamaged):
            stream = streamed(bench.log, 0)
            while True:
                found += bytes(stream.next_piece() or await stream.next_piece_later())
        assert whole.startswith(found)
        assert len(found) <= position
        assert bench.log.stream(0, bytes_max=MEBIBYTE, end_offset=ALL) is None
        offset = len(found) * 400 // len(whole)
        with pytest.raises(LogDamaged):
            while True:
                offset += len(await bench.log.read_later(offset, bytes_max=1, end_offset=ALL)) * 400 // len(whole)

    run(test())


def test_an_index_that_lies_about_where_a_batch_begins_is_found_out() -> None:
    async def test() -> None:
        bench = await filled(SimDisk(), batches=400, value_bytes=9_000)
        index = bench.log._shelf.active.index
        assert index is not None
        for entry in range(1, len(index.positions)):
            index.positions[entry] += 7
        with pytest.raises(LogDamaged):
            await drained(streamed(bench.log, 0))

    run(test())
