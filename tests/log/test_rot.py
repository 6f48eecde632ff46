"""Bytes that changed on the disk are never served, and never make recovery cut what was flushed. Rows 2, 4 and 27 of the checklist."""

import pytest
from log.bench import SMALL, Bench, bases_in, batch_at, headers_in, run
from tiers import pick_step

from penstock.log.config import LogConfig
from penstock.log.faults import LogDamaged
from penstock.log.tail import SECTOR_BYTES
from penstock.simulator.disk import SimDisk
from penstock.wire.batches import read_header

ONE_SEGMENT = LogConfig(index_interval_bytes=300)
BATCHES = 7
EPOCHS = (0, 0, 0, 3, 3, 9, 9)
STEP = pick_step(test=3, slow=1)  # In `make test` each byte is changed by one of the masks, which begin at different ones.


async def write(disk: SimDisk, config: LogConfig = ONE_SEGMENT, epochs: tuple[int, ...] = EPOCHS, *, checkpoint_after: int = 0) -> Bench:
    bench = Bench(disk, config)
    await bench.open()
    for number, epoch in enumerate(epochs, 1):
        bench.append(1, records=2, value=b"ten bytes.", epoch=epoch)
        if number == checkpoint_after:
            await bench.checkpoint()
    await bench.log.flush()
    return bench


def flipped(whole: bytes, position: int, mask: int) -> bytes:
    changed = bytearray(whole)
    changed[position] ^= mask
    return bytes(changed)


async def read_what_is_good(bench: Bench, whole: bytes) -> set[int]:
    """Reads at every offset, in both ways; returns the offsets that are served. What is served must be what was written."""
    log, served = bench.log, set()
    batches_by_offset = {offset: at for at, offset in enumerate(range(0, 2 * BATCHES, 2))}
    size = len(whole) // BATCHES
    for offset in range(log.start_offset, log.end_offset):
        for bytes_max in (1, 10_000):
            try:
                read = log.read(offset, bytes_max=bytes_max, end_offset=log.end_offset)
                if read is None:
                    read = await log.read_later(offset, bytes_max=bytes_max, end_offset=log.end_offset)
            except LogDamaged:
                continue
            assert read, f"offset {offset} is neither served nor damaged"
            begin = batches_by_offset[offset - offset % 2] * size
            assert read == whole[begin : begin + len(read)], f"wrong bytes at {offset}"
            served.update(range(offset, headers_in(read)[-1].end_offset))
    return served


@pytest.mark.repeats
@pytest.mark.invariant("log.checksum-verified")
@pytest.mark.parametrize(("mask", "first"), [(0x01, 0), (0x80, 1), (0xFF, 2)])
def test_a_byte_that_changed_under_an_open_log_is_never_served(mask: int, first: int) -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        whole = disk.snapshot(bench.path(0))
        size = len(whole) // BATCHES
        for position in range(first % STEP, len(whole), STEP):
            disk.restore(bench.path(0), flipped(whole, position, mask))
            bench.log._reader.forget_places()
            served = await read_what_is_good(bench, whole)
            bad = position // size
            assert not served & {2 * bad, 2 * bad + 1}, f"the batch with byte {position} was served"
            assert served >= set(range(2 * bad)), f"what stands before byte {position} was not served"

    run(story())


@pytest.mark.repeats
@pytest.mark.invariant("log.no-cut-below-checkpoint")
@pytest.mark.parametrize(("mask", "first"), [(0x01, 0), (0x80, 1), (0xFF, 2)])
def test_a_byte_that_changed_below_the_checkpoint_is_never_served_nor_cut(mask: int, first: int) -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        await bench.close()
        whole = disk.snapshot(bench.path(0))
        for position in range(first % STEP, len(whole), STEP):
            rotten = flipped(whole, position, mask)
            disk.restore(bench.path(0), rotten)
            log = await bench.open(is_clean=position % 2 == 0)
            assert (log.failure, log.end_offset) == (None, 2 * BATCHES)
            served = await read_what_is_good(bench, whole)
            bad = position // (len(whole) // BATCHES)
            assert not served & {2 * bad, 2 * bad + 1}
            assert disk.snapshot(bench.path(0)) == rotten
            log.abandon()

    run(story())


@pytest.mark.repeats
@pytest.mark.invariant("log.damage-never-cut")
@pytest.mark.parametrize(("mask", "first"), [(0x01, 0), (0x04, 1), (0x80, 2), (0xFF, 0)])
@pytest.mark.parametrize("config", [ONE_SEGMENT, LogConfig(segment_bytes=300)], ids=["one segment", "three batches a segment"])
def test_recovery_never_cuts_a_changed_byte_that_has_valid_batches_after_it(mask: int, first: int, config: LogConfig) -> None:
    """The checkpoint stands after the first batch; all that follows is scanned."""

    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk, config, (4,) * BATCHES, checkpoint_after=1)
        disk.kill()
        files = {path: disk.snapshot(path) for path in disk.files()}
        logs = {path: content for path, content in files.items() if path.endswith(".log")}
        whole = b"".join(logs.values())
        size = len(whole) // BATCHES
        for at in range(size + first % STEP, len(whole), STEP):
            path, position = place_of(at, logs)
            rotten = flipped(logs[path], position, mask)
            disk.restore(path, rotten)
            log = await bench.open(epoch_max=4)
            served = await read_what_is_good(bench, whole)
            bad = at // size
            assert served == set(range(2 * bad)), f"byte {at}: served is not what stands before it"
            if bad < BATCHES - 1:
                assert log.failure is not None, f"byte {at} went unnoticed"
                assert "nothing was cut" in log.failure
                assert {name: disk.snapshot(name) for name in logs} == logs | {path: rotten}
            log.abandon()
            for name in disk.files():
                disk.restore(name, files[name]) if name in files else disk.lose(name)

    run(story())


def place_of(at: int, logs: dict[str, bytes]) -> tuple[str, int]:
    for path, content in logs.items():
        if at < len(content):
            return path, at
        at -= len(content)
    raise ValueError("past the end")


@pytest.mark.invariant("log.damage-never-cut")
@pytest.mark.parametrize("offset", [1, 64, 256, 257])
def test_a_flipped_bit_of_an_offset_at_the_end_of_a_sector_is_not_taken_for_a_sector_that_was_lost(offset: int) -> None:
    """Without its only bit the offset is zeros, and no checksum covers it: as if the end of the sector had never been written."""

    async def story(bytes_there: int) -> None:
        disk = SimDisk()
        bench = Bench(disk, ONE_SEGMENT)
        await bench.open()
        await bench.log.start_over(offset - 1)
        path, beside_value_bytes = bench.path(offset - 1), len(batch_at(0, value=b"v" * 1_000)) - 1_000
        bench.append(value=b"v" * (2 * SECTOR_BYTES - bytes_there - beside_value_bytes))
        position = disk.size(bench.log._writing.file)  # type: ignore[union-attr]
        assert position % SECTOR_BYTES == SECTOR_BYTES - bytes_there
        bench.append(2)
        await bench.log.flush()
        disk.kill()
        whole = disk.snapshot(path)
        for bit in range(64):
            changed = flipped(whole, position + bit // 8, 1 << bit % 8)
            disk.restore(path, changed)
            await bench.open()
            assert bench.log.failure is not None
            assert "nothing was cut off" in bench.log.failure
            assert disk.snapshot(path) == changed
            bench.log.abandon()

    for bytes_there in range(1, 13):
        run(story(bytes_there))


def test_an_epoch_that_was_raised_on_the_disk_puts_all_that_claims_it_in_doubt() -> None:
    """Nobody knows which of the two contradicting batches lies, when there is no third."""

    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk, epochs=(2, 2, 2, 2))
        disk.kill()
        whole = disk.snapshot(bench.path(0))
        size = len(whole) // 4
        disk.restore(bench.path(0), flipped(whole, 2 * size + 15, 0x10))
        log = await bench.open()
        assert log.failure is not None
        assert log.end_offset == 4

    run(story())


@pytest.mark.invariant("log.damage-never-cut")
def test_damage_in_the_middle_leaves_both_sides_readable() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, SMALL)
        await bench.open()
        bench.append(40)
        await bench.close()
        disk.rot(bench.path(11), 171 * 3 + 100)
        await bench.open(is_clean=True)
        with pytest.raises(LogDamaged):
            await bench.log.read_later(14, bytes_max=1, end_offset=40)
        assert bases_in(await bench.log.read_later(11, bytes_max=10_000, end_offset=40)) == [11, 12, 13]
        assert bases_in(await bench.read_all(start=22)) == list(range(22, 40))
        assert bench.log.failure is None, "a bad read takes nothing offline by itself"

    run(story())


def test_damage_is_read_around_also_with_an_index_that_was_made_anew() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, SMALL)
        await bench.open()
        bench.append(40)
        await bench.close()
        whole = disk.snapshot(bench.path(11))
        for position in range(171 * 3, 171 * 4):
            disk.restore(bench.path(11), flipped(whole, position, 0x10))
            if disk.exists(bench.path(11, ".index")):
                disk.lose(bench.path(11, ".index"))
            await bench.open(is_clean=True)
            for offset in (*range(11, 14), *range(16, 22)):
                read = await bench.log.read_later(offset, bytes_max=1, end_offset=40)
                assert bases_in(read) == [offset]
            with pytest.raises(LogDamaged):
                await bench.log.read_later(14, bytes_max=1, end_offset=40)
            with pytest.raises(LogDamaged):
                await bench.log.find_timestamp(bench.env.wall + 14, 40)
            bench.log.abandon()

    run(story())


def test_a_lookup_does_not_pass_over_a_segment_whose_first_batch_is_damaged() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, SMALL)
        await bench.open()
        bench.append(40)
        await bench.close()
        disk.rot(bench.path(11), 100)
        disk.lose(bench.path(11, ".index"))
        await bench.open(is_clean=True)
        with pytest.raises(LogDamaged):
            await bench.log.find_timestamp(bench.env.wall + 11, 40)
        with pytest.raises(LogDamaged):
            await bench.log.read_later(11, bytes_max=1, end_offset=40)
        assert bases_in(await bench.log.read_later(12, bytes_max=1, end_offset=40)) == [12]

    run(story())


def test_a_round_over_all_offsets_finds_rot_in_cold_segments() -> None:
    """How a scrubber works: it reads on from where it was."""

    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk, SMALL)
        await bench.open()
        bench.append(40)
        await bench.close()
        await bench.open(is_clean=True)
        assert len(await bench.read_all()) == 40 * 171
        disk.rot(bench.path(22), 900)
        with pytest.raises(LogDamaged):
            await bench.read_all()

    run(story())


def test_a_segment_that_shrank_under_an_open_log_is_damage() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        whole = disk.snapshot(bench.path(0))
        for size in (0, 10, 100, len(whole) - 1):
            disk.restore(bench.path(0), whole[:size])
            bench.log._reader.forget_places()
            with pytest.raises(LogDamaged):
                bench.log.read(12, bytes_max=1, end_offset=14)

    run(story())


def test_an_epoch_that_nobody_led_is_not_believed() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = await write(disk)
        disk.kill()
        log = await bench.open(epoch_max=8)
        assert log.failure is not None
        assert log.end_offset == 10
        assert read_header(disk.snapshot(bench.path(0)), 5 * len(disk.snapshot(bench.path(0))) // 7).leader_epoch == 9

    run(story())
