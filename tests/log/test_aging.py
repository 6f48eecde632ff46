"""How soon age alone may take the segment of an offset: what a group that lags behind wants to know."""

from log.bench import FIRST_MS, Bench, run

from penstock.log.config import DAY_MS, UNLIMITED, LogConfig
from penstock.simulator.disk import SimDisk

FIVE_A_SEGMENT = LogConfig(segment_bytes=900, retention_ms=DAY_MS, index_interval_bytes=300)
HOUR_MS = 3_600_000


async def write(config: LogConfig = FIVE_A_SEGMENT) -> Bench:
    """Three segments of five batches, each twelve hours younger than the one before."""
    bench = Bench(SimDisk(), config)
    await bench.open()
    for number in range(3):
        for _ in range(5):
            bench.append(1, timestamps=(FIRST_MS + number * 12 * HOUR_MS,))
    await bench.log.flush()
    return bench


def test_a_segment_ages_by_its_newest_record() -> None:
    async def story() -> None:
        bench = await write()
        now_ms = FIRST_MS + 20 * HOUR_MS
        assert [bench.log.ages_out_ms(offset, now_ms) for offset in (0, 4, 5, 14)] == [
            4 * HOUR_MS, 4 * HOUR_MS, 16 * HOUR_MS, 28 * HOUR_MS,
        ]  # fmt: skip

    run(story())


def test_what_it_tells_is_when_retention_takes_it() -> None:
    async def story() -> None:
        bench = await write()
        left_ms = bench.log.ages_out_ms(0, FIRST_MS)
        assert left_ms is not None
        assert bench.log.expired(FIRST_MS + left_ms, 15) is None
        expired = bench.log.expired(FIRST_MS + left_ms + 1, 15)
        assert expired is not None
        assert expired.start_offset == 5

    run(story())


def test_an_overdue_segment_has_negative_time_left() -> None:
    async def story() -> None:
        assert (await write()).log.ages_out_ms(0, FIRST_MS + 25 * HOUR_MS) == -HOUR_MS

    run(story())


def test_a_log_that_keeps_everything_never_ages_out() -> None:
    async def story() -> None:
        bench = await write(LogConfig(segment_bytes=900, retention_ms=UNLIMITED))
        assert bench.log.ages_out_ms(0, FIRST_MS) is None

    run(story())


def test_records_without_a_time_are_no_older_than_the_next_segment() -> None:
    async def story() -> None:
        bench = Bench(SimDisk(), FIVE_A_SEGMENT)
        await bench.open()
        for _ in range(5):
            bench.append(1, timestamps=(-1,))
        bench.env.wall = FIRST_MS + HOUR_MS
        bench.append(1, timestamps=(-1,))
        assert bench.log.ages_out_ms(0, FIRST_MS + 2 * HOUR_MS) == 23 * HOUR_MS
        assert bench.log.ages_out_ms(5, FIRST_MS + 2 * HOUR_MS) == DAY_MS

    run(story())
