"""Lag in records, in time, and in time to loss: the arithmetic, and the same measured at a node."""

import asyncio
from typing import Any

import pytest
from members import commit, coordinated
from serving import Line, Serving, batch, records_in, rows_of, started, virtually

from penstock.broker import group_lag
from penstock.broker.group_lag import CommittedOffset, PartitionLag
from penstock.broker.group_views import groups_now, offsets_now
from penstock.broker.lag import Lag, Span, lag_of, next_unread
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World
from penstock.vocabulary import TopicPartition
from penstock.wire.batches import Record, encode_batch
from penstock.wire.compression import Codec

ALL_LOOPS = True

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_700_000_000_000


# The arithmetic


def lag(committed: int, span: Span, timestamp_ms: int | None = NOW_MS - 7, ages_out_ms: int | None = 500) -> Lag:
    return lag_of(committed, span, next_timestamp_ms=timestamp_ms, ages_out_ms=ages_out_ms, wall_ms=NOW_MS)


def test_lag_is_the_end_less_what_is_committed() -> None:
    assert lag(30, Span(10, 100)) == Lag(records=70, lost=0, time_ms=7, loss_ms=500)


def test_whoever_has_read_all_has_no_lag_of_any_kind() -> None:
    assert lag(100, Span(10, 100)) == Lag(0, 0, 0, None)
    assert lag(0, Span(0, 0)) == Lag(0, 0, 0, None)


def test_a_commit_past_the_end_is_neither_negative_lag_nor_none() -> None:
    assert lag(120, Span(10, 100)) == Lag(records=0, lost=0, time_ms=None, loss_ms=None, past_end=20)
    assert lag(1, Span(0, 0)) == Lag(0, 0, None, None, 1)
    assert lag(100, Span(10, 100)).past_end == 0


def test_what_is_lost_is_counted_and_the_clock_runs_from_what_is_left() -> None:
    assert next_unread(4, Span(10, 100)) == 10
    assert lag(4, Span(10, 100)) == Lag(records=96, lost=6, time_ms=7, loss_ms=500)


def test_a_log_that_lost_everything_has_nothing_left_to_read() -> None:
    assert next_unread(4, Span(10, 10)) is None
    assert lag(4, Span(10, 10)) == Lag(records=6, lost=6, time_ms=0, loss_ms=None)


def test_clocks_that_run_ahead_and_segments_that_are_overdue_never_count_below_zero() -> None:
    assert lag(30, Span(10, 100), NOW_MS + 9, -3) == Lag(70, 0, 0, 0)


def test_what_nobody_knows_stays_unknown() -> None:
    assert lag(30, Span(10, 100), None, None) == Lag(70, 0, None, None)


# Measured at a node


async def opened(serving: Serving, **topic: Any) -> Line:
    await serving.open(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=4)
    serving.env.wall_stopped_ms = NOW_MS
    line = await serving.line()
    await coordinated(line)
    await line.create("a", 2, **topic)
    return line


async def measured(serving: Serving, *offsets: tuple[int, int], topic: str = "a") -> list[PartitionLag]:
    wanted = [CommittedOffset("g", TopicPartition(topic, partition), offset) for partition, offset in offsets]
    return await serving.node.group_lags.measure(wanted)


async def test_time_lag_is_the_age_of_the_record_at_the_committed_offset(serving: Serving) -> None:
    line = await opened(serving)
    for age_ms in (50, 40):
        await line.produce_batch("a", batch(b"x", timestamp_ms=NOW_MS - age_ms))
    await line.produce_batch("a", bytes(encode_batch([Record(value=b"y", timestamp_ms=NOW_MS - age) for age in (30, 20, 10)])))
    rows = await measured(serving, *[(0, offset) for offset in range(6)])
    assert [row.lag and (row.lag.records, row.lag.time_ms) for row in rows] == [(5, 50), (4, 40), (3, 30), (2, 20), (1, 10), (0, 0)]
    assert rows[0].span == Span(0, 5)


@pytest.mark.parametrize("codec", list(Codec))
async def test_the_record_is_found_inside_a_compressed_batch_too(serving: Serving, codec: Codec) -> None:
    line = await opened(serving)
    records = [Record(value=b"y" * 50, timestamp_ms=NOW_MS - age) for age in (30, 20, 10)]
    await line.produce_batch("a", bytes(encode_batch(records, codec=codec)))
    (row,) = await measured(serving, (0, 1))
    assert row.lag is not None
    assert row.lag.time_ms == 20


async def test_append_time_is_one_time_for_the_whole_batch(serving: Serving) -> None:
    line = await opened(serving, message_timestamp_type="LogAppendTime")
    await line.produce("a", b"1", b"2", b"3")
    serving.env.wall_ahead_ms = 9
    (row,) = await measured(serving, (0, 2))
    assert row.lag is not None
    assert row.lag.time_ms == 9


async def test_a_cold_record_is_read_off_the_loop_and_remembered(serving: Serving) -> None:
    line = await opened(serving)
    await line.produce_batch("a", batch(b"x", timestamp_ms=NOW_MS - 50))
    serving.env.disk.is_cold = True
    (row,) = await measured(serving, (0, 0))
    assert row.lag is not None
    assert row.lag.time_ms == 50
    serving.env.disk.cold_reads.hold()  # Whoever read now would wait for ever.
    (again,) = await measured(serving, (0, 0))
    assert again == row


@pytest.mark.invariant("node.observation-bounded")
async def test_one_look_reads_a_bounded_number_of_records_and_the_next_goes_on(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lag, "LOOKUPS_MAX", 2)
    line = await opened(serving)
    for _ in range(5):
        await line.produce_batch("a", batch(b"x", timestamp_ms=NOW_MS - 50))
    for known in (2, 4, 5):
        rows = await measured(serving, *[(0, offset) for offset in range(5)])
        assert [row.lag is not None and row.lag.time_ms for row in rows] == [50] * known + [None] * (5 - known)


async def test_time_to_loss_follows_the_segment_of_the_next_record(serving: Serving) -> None:
    line = await opened(serving, retention_ms=DAY_MS, segment_bytes=1024)
    await line.produce_batch("a", batch(b"x" * 900, timestamp_ms=NOW_MS - 20 * HOUR_MS))
    await line.produce_batch("a", batch(b"x" * 900, timestamp_ms=NOW_MS - 5 * HOUR_MS))
    rows = await measured(serving, (0, 0), (0, 1), (0, 2))
    assert [row.lag and row.lag.loss_ms for row in rows] == [4 * HOUR_MS, 19 * HOUR_MS, None]


async def test_a_topic_that_drops_nothing_by_age_loses_nothing(serving: Serving) -> None:
    line = await opened(serving, cleanup_policy="compact", retention_ms=1)
    await line.produce_batch("a", bytes(encode_batch([Record(key=b"k", value=b"v", timestamp_ms=NOW_MS - 50)])))
    (row,) = await measured(serving, (0, 0))
    assert row.lag == Lag(1, 0, 50, None)


async def test_an_offset_past_the_end_is_told_as_such(serving: Serving) -> None:
    line = await opened(serving)
    await line.produce("a", b"1", b"2")
    rows = await measured(serving, (0, 2), (0, 9))
    assert [row.lag and (row.lag.records, row.lag.time_ms, row.lag.past_end) for row in rows] == [(0, 0, 0), (0, None, 7)]


async def test_a_topic_that_is_gone_has_a_row_without_numbers(serving: Serving) -> None:
    await opened(serving)
    (row,) = await measured(serving, (0, 3), topic="nowhere")
    assert (row.committed, row.span, row.lag) == (3, None, None)


async def test_what_groups_have_committed_is_seen_in_order(serving: Serving) -> None:
    line = await opened(serving)
    await line.create("b")
    await commit(line, "late", "b", {0: 1})
    await commit(line, "early", "b", {0: 2})
    await commit(line, "early", "a", {1: 3, 0: 4})
    names = [each.group for each in await groups_now(serving.node)]
    assert names == ["early", "late"]
    found = [(each.group, *each.where, each.offset) async for each in offsets_now(serving.node, names)]
    assert found == [("early", "a", 0, 4), ("early", "a", 1, 3), ("early", "b", 0, 2), ("late", "b", 0, 1)]


def test_where_compaction_took_the_record_the_next_one_that_is_left_tells_the_time() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, cleaner_backoff_ms=1_000, disk_free_bytes_min=0)
        line = await Line.open(address)
        await line.create("a", cleanup_policy="compact", segment_bytes=1_024, min_cleanable_dirty_ratio=0.1)
        times = []
        for number in range(40):
            times.append(env.wall_ms())
            record = Record(key=b"k%d" % (number % 2), value=bytes(200), timestamp_ms=times[-1])
            await line.produce_batch("a", bytes(encode_batch([record])))
            await asyncio.sleep(0.01)
        await asyncio.sleep(5)
        left = records_in(rows_of(await line.fetch("a", 0))["a", 0].records)
        assert left[0].offset > 20, "the beginning was compacted away"
        (row,) = await node.group_lags.measure([CommittedOffset("g", TopicPartition("a", 0), 3)])
        assert row.lag is not None
        assert (row.lag.records, row.lag.lost, row.lag.loss_ms) == (37, 0, None)
        assert row.lag.time_ms == env.wall_ms() - times[left[0].offset]

    virtually(scenario)
