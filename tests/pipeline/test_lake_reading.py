"""Which offsets an archive holds and how far a reader may go: the arithmetic behind `replay`, without Spark's session."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lake_rows import rows, table_at, write

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.lake.layout import StagedFile
from penstock.pipeline.lake.pacing import BUCKET_SECONDS, Pace
from penstock.pipeline.lake.positions import Span, Times, ends_of, spans_of, topics_of
from penstock.pipeline.lake.reading import Part, advance, read_rows, read_wish

pytestmark = pytest.mark.needs("spark")


def test_the_log_tells_where_a_topic_ends_also_when_files_are_joined(tmp_path: Path) -> None:
    table = table_at(tmp_path, "parquet")
    for batch in range(3):
        write(table, [rows(batch * 10, 10), rows(batch * 100, 5, topic="other")], batch=batch)
    for _ in range(2):
        assert topics_of(table.snapshot()) == ["orders", "other"]
        assert ends_of(table.snapshot(), ["orders", "other", "none"]) == {"orders": {0: 30}, "other": {0: 205}, "none": {}}
        table.compact(file_bytes=1 << 20)
    assert [(span.first, span.end, span.rows) for span in spans_of(table.snapshot(), "other")] == [(0, 205, 15)]


def test_times_choose_the_records_and_not_only_the_days(tmp_path: Path) -> None:
    table = table_at(tmp_path, "parquet")
    write(table, [rows(0, 30, days=3)])  # Offset n is of noon of day n % 3.
    second_noon = int(datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp() * 1000)
    found = spans_of(table.snapshot(), "orders", Times(from_ms=second_noon))
    assert [(span.first, span.rows) for span in found] == [(1, 10), (2, 10)]
    found = spans_of(table.snapshot(), "orders", Times(from_ms=second_noon, until_ms=second_noon + 1))
    assert [(span.first, span.end, span.rows) for span in found] == [(1, 29, 10)]
    assert spans_of(table.snapshot(), "orders", Times(from_ms=second_noon + 1, until_ms=second_noon + 2)) == []


def test_a_directory_whose_date_is_none_or_the_outermost_may_hold_any_time() -> None:
    def file_of(day: str) -> StagedFile:
        return StagedFile("path", (("topic", "orders"), ("date", day)), 1, 1)

    far_ms = 10**15
    for day in ("<value out of range: -106751992>", "10000-01-01", "0001-01-01", "9999-12-31"):
        is_held = [Times(from_ms=far_ms).may_hold(file_of(day)), Times(until_ms=-far_ms).may_hold(file_of(day))]
        assert is_held == [day != "0001-01-01", day != "9999-12-31"]


dense = st.lists(st.integers(1, 50), min_size=1, max_size=6)


@given(lanes=st.dictionaries(st.integers(0, 4), dense, min_size=1, max_size=4), limit=st.integers(1, 60))
def test_a_reader_comes_to_the_end_and_takes_no_more_than_allowed(lanes: dict[int, list[int]], limit: int) -> None:
    """Where files follow each other every row is passed once, in steps of at most the limit, and one more for each partition."""
    spans = []
    for partition, sizes in lanes.items():
        first = 0
        for size in sizes:
            spans.append(Span(partition, first, first + size, size, f"{partition}-{first}"))
            first += size
    at: dict[int, int] = {}
    passed, target = 0, {partition: sum(sizes) for partition, sizes in lanes.items()}
    while at != target:
        before = at
        at, taken = advance(spans, at, limit)
        assert all(at[partition] >= before.get(partition, 0) for partition in at)
        assert 0 < taken == sum(at.values()) - sum(before.values()) <= limit + len(lanes)
        passed += taken
    assert passed == sum(target.values())
    assert advance(spans, at, limit) == (at, 0)


def test_files_that_overlap_are_counted_together() -> None:
    spans = [Span(0, 0, 100, 50, "even"), Span(0, 1, 101, 50, "odd"), Span(0, 500, 600, 100, "later")]
    assert advance(spans, {}, 20)[0][0] in range(18, 23)
    assert advance(spans, {0: 101}, 10) == ({0: 510}, 10)


def test_no_second_sees_more_rows_than_asked_for() -> None:
    pace = Pace(rows_per_second=100, started_at=0.0)
    assert pace.rows_at(0.1) == 0 and pace.seconds_until(0.1) == pytest.approx(0.4)
    assert pace.rows_at(1.0) == 100
    pace.take(100)
    assert pace.rows_at(1.0) == 0
    assert pace.rows_at(2.5) == 150
    pace.take(150)
    assert pace.rows_at(1000.0) == 100 * BUCKET_SECONDS, "a long pause is made up for"
    pace.take(500)
    assert pace.rows_at(1000.4) == 0


def test_rows_of_a_part_come_in_order_and_few_at_a_time_where_they_are_large(tmp_path: Path) -> None:
    table = table_at(tmp_path, "parquet")
    large = rows(0, 60)
    values = pa.array([os.urandom(10_000) for _ in range(60)], pa.binary())
    large = large.set_column(large.schema.get_field_index("value"), "value", values)
    write(table, [large.slice(30, 30)], batch=0)
    write(table, [large.slice(0, 30)], batch=1)
    wish = read_wish({"path": str(tmp_path)})
    paths = tuple(file.path for file in table.snapshot().files)
    for held_bytes, most in ((100_000, 10), (1, 1), (1 << 30, 55)):
        parts = list(read_rows(Part(0, 3, 58, paths), wish, held_bytes=held_bytes))
        assert 0 < max(part.num_rows for part in parts) <= most
        assert [offset for part in parts for offset in part["offset"].to_pylist()] == list(range(3, 58))
        assert pa.concat_tables(parts)["value"].to_pylist() == values.to_pylist()[3:58]


def test_an_archive_of_several_topics_asks_which(tmp_path: Path) -> None:
    write(table_at(tmp_path, "parquet"), [rows(0, 3), rows(0, 3, topic="other")])
    assert read_wish({"path": str(tmp_path), "topic": "other"}).topic == "other"
    with pytest.raises(PipelineComplaint, match="holds orders, other"):
        read_wish({"path": str(tmp_path)})
    with pytest.raises(PipelineComplaint, match="and not 'third'"):
        read_wish({"path": str(tmp_path), "topic": "third"})
    with pytest.raises(PipelineComplaint, match="rowsPerSecond"):
        read_wish({"path": str(tmp_path), "topic": "other", "rowsPerSecond": "0"})
