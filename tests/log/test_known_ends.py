"""A log whose owner knows how far it was on the disk: what is missing or changed below that offset is damage, and is never cut off."""

import pytest
from log.bench import DIRECTORY, SMALL, Bench, bases_in, run

from penstock.log.config import LogConfig
from penstock.simulator.disk import SimDisk

pytestmark = pytest.mark.invariant("log.known-end")

ONE_SEGMENT = LogConfig(index_interval_bytes=300)


async def written(count: int = 10, *, config: LogConfig = ONE_SEGMENT, checkpoint_after: int = 0) -> tuple[Bench, SimDisk]:
    """A log of so many batches, all of them flushed. Its process was killed."""
    disk = SimDisk()
    bench = Bench(disk, config)
    await bench.open()
    if checkpoint_after:
        bench.append(checkpoint_after)
        await bench.checkpoint()
    bench.append(count - checkpoint_after)
    await bench.log.flush()
    disk.kill()
    return bench, disk


def flip_last_byte(disk: SimDisk, path: str) -> None:
    whole = disk.snapshot(path)
    disk.restore(path, whole[:-1] + bytes([whole[-1] ^ 1]))


@pytest.mark.parametrize("checkpoint_after", [0, 5])
def test_a_flipped_bit_in_the_last_batch_is_damage_below_the_known_end(checkpoint_after: int) -> None:
    async def story() -> None:
        bench, disk = await written(checkpoint_after=checkpoint_after)
        flip_last_byte(disk, bench.path(0))
        log = await bench.open(known_end=10)
        assert log.failure is not None and "nothing was cut off" in log.failure
        assert log.report.cut_bytes == 0
        assert bases_in(await bench.read_all()) == list(range(9))

    run(story())


def test_a_torn_tail_above_the_known_end_is_cut_off() -> None:
    async def story() -> None:
        bench, disk = await written()
        flip_last_byte(disk, bench.path(0))
        log = await bench.open(known_end=9)
        assert log.failure is None
        assert (log.end_offset, log.report.cut_bytes > 0) == (9, True)

    run(story())


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_log_that_ends_between_two_batches_below_its_known_end_is_damaged(*, is_clean: bool) -> None:
    async def story() -> None:
        bench, disk = await written(config=SMALL)
        if is_clean:
            await bench.open()
            await bench.close()
        last = [path for path in disk.files() if path.endswith(".log")][-1]
        disk.lose(last)
        log = await bench.open(is_clean=is_clean, known_end=10)
        assert log.failure is not None

    run(story())


def test_missing_files_are_damage_where_records_are_known() -> None:
    async def story() -> None:
        bench, disk = await written()
        for path in list(disk.files()):
            disk.lose(path)
        log = await bench.open(known_end=10)
        assert log.failure is not None and "the files of the log are missing" in log.failure
        assert disk.list(DIRECTORY) == []
        log.abandon()
        log = await bench.open(known_end=0)
        assert (log.failure, log.end_offset) == (None, 0)

    run(story())


@pytest.mark.parametrize("harm", ["last batch", "middle batch", "last file", "all files", "checkpointed file"])
def test_a_log_whose_loss_is_accepted_goes_on_with_what_can_be_read(harm: str) -> None:
    async def story() -> None:
        bench, disk = await written(30, config=SMALL, checkpoint_after=20)
        paths = [path for path in disk.files() if path.endswith(".log")]
        match harm:
            case "last batch":
                flip_last_byte(disk, paths[-1])
            case "middle batch":
                disk.rot(paths[-1], len(disk.snapshot(paths[-1])) // 2)
            case "last file":
                disk.lose(paths[-1])
            case "checkpointed file":
                disk.lose(paths[1])
            case _:
                for path in list(disk.files()):
                    disk.lose(path)
        log = await bench.open(known_end=30)
        assert log.failure is not None
        log.abandon()
        log = await bench.open(known_end=30, accepts_loss=True)
        assert log.failure is None
        left = log.end_offset
        assert left < 30
        assert bases_in(await bench.read_all()) == list(range(left)) == bench.seen
        bench.append(3)
        await bench.log.flush()
        disk.kill()
        log = await bench.open(known_end=left + 3)
        assert (log.failure, log.end_offset) == (None, left + 3)

    run(story())
