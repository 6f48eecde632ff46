"""The job `replay` on a real node: archives and tables come back into topics, in order for each key, once, and no faster than asked."""

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from job_runs import Told, run_job
from lake_rows import PARTITION_BY, SCHEMA
from pipeline_topics import Seen, Topics

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.jobs import replay
from penstock.pipeline.lake.layout import FileNames
from penstock.pipeline.lake.staging import stage
from penstock.pipeline.lake.table import Table, open_table
from penstock.pipeline.progress import StageProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.invariant("lake.replay-once-in-order")]

KEYS = 7
START = datetime(2026, 11, 14, 12, tzinfo=UTC)


def archive_of(path: Path, format: str, *, records: int, batches: int = 1, first: int = 0, table: Table | None = None) -> Table:
    """An archive of one topic with two partitions: record n has the key n % 7, every tenth none, and goes where its key says."""
    table = table or open_table(str(path), format, partition_by=PARTITION_BY)
    for batch in range(batches):
        numbers = range(first + batch * records, first + (batch + 1) * records)
        rows = [_row(number) for number in reversed(numbers)]  # Order is the reader's to make: files promise none.
        names = FileNames(query="q", batch=first + batch, task=0, attempt=0)
        files = stage([pa.RecordBatch.from_pylist(rows, SCHEMA)], table.directory, partition_by=PARTITION_BY, names=names)
        assert table.commit(files, schema=SCHEMA, marks={"q": first + batch})
    return table


def _row(number: int) -> dict[str, object]:
    moment = START + timedelta(minutes=number)
    return {
        "key": None if number % 10 == 0 else b"key-%d" % (number % KEYS),
        "value": b"%d" % number,
        "topic": "orders",
        "partition": (number % KEYS) % 2,
        "offset": number * 3,  # With gaps, as in a compacted topic.
        "timestamp": moment,
        "timestampType": 0,
        "headers": [{"key": "n", "value": b"%d" % number}] if number % 2 else None,
        "date": moment.date(),
    }


def assert_in_order(found: list[Seen], count: int) -> None:
    """Each record once, each with its own key and headers, and those of a key in order and in one partition."""
    assert sorted(int(record.value or b"") for record in found) == list(range(count))
    for record in found:
        expected = _row(int(record.value or b""))
        assert record.key == expected["key"]
        assert dict(record.headers) == {one["key"]: one["value"] for one in expected["headers"] or ()}  # type: ignore[attr-defined]
    keyed = sorted((record for record in found if record.key is not None), key=lambda record: record.key or b"")
    for key, own in itertools.groupby(keyed, key=lambda record: record.key):
        group = list(own)
        assert len({record.partition for record in group}) == 1, key
        numbers = [int(record.value or b"") for record in sorted(group, key=lambda record: record.offset)]
        assert numbers == sorted(numbers), key


def test_an_archive_comes_back_in_order_and_a_stopped_replay_goes_on(
    spark: "SparkSession", topics: Topics, tmp_path: Path, checkpoint: str
) -> None:
    table = archive_of(tmp_path / "archive", "delta", records=500, batches=2)
    table.compact(file_bytes=1 << 20)
    to = f"{tmp_path.name}-back"
    wanted = {"from": table.path, "to": to, "rows": "250"}

    def after_the_first_batch(told: Told) -> bool:
        return told.counts["rows"] > 0

    slowly = wanted | {"rate": "150"}  # So that it is stopped before it is done.
    first = run_job(replay.JOB, spark, topics.bootstrap, checkpoint, is_stopping=after_the_first_batch, **slowly)
    assert "stopped" in first.lines[-1]
    assert first.counts["rows"] <= len(topics.read(to)) < 1000
    run_job(replay.JOB, spark, topics.bootstrap, checkpoint, **wanted)
    assert topics.partitions(to) == [0, 1]
    assert_in_order(topics.read(to), 1000)

    archive_of(tmp_path / "archive", "delta", records=20, first=1000, table=table)
    run_job(replay.JOB, spark, topics.bootstrap, checkpoint, **wanted)
    assert_in_order(topics.read(to), 1020)
    with pytest.raises(PipelineComplaint, match="belongs to another replay"):
        run_job(replay.JOB, spark, topics.bootstrap, checkpoint, **(wanted | {"to": "elsewhere"}))


def test_a_replay_keeps_what_it_is_told_to_keep(
    spark: "SparkSession", topics: Topics, tmp_path: Path, checkpoint: str
) -> None:
    """Partitions and timestamps as they were, of six hours around midnight, no faster than 400 rows a second."""
    archive_of(tmp_path / "archive", "parquet", records=1500)
    to = topics.create(partitions=3)
    given = {"starting": "2026-11-14T22:00:00+01:00", "ending": "2026-11-15T03:00:00Z", "partitions": "keep", "timestamps": "keep"}
    began = datetime.now(UTC)
    run_job(replay.JOB, spark, topics.bootstrap, checkpoint, **given, **{"from": str(tmp_path / "archive"), "to": to, "rate": "400"})
    found = topics.read(to)
    assert sorted(int(record.value or b"") for record in found) == list(range(540, 900))
    for record in found:
        number = int(record.value or b"")
        assert record.partition == (number % KEYS) % 2
        assert record.timestamp_ms == int((START + timedelta(minutes=number)).timestamp() * 1000)
    assert (datetime.now(UTC) - began).total_seconds() >= 360 / 400
    narrow = topics.create(partitions=1)
    with pytest.raises(PipelineComplaint, match="has 1 partitions, and the archive has 2"):
        wanted = {"from": str(tmp_path / "archive"), "to": narrow, "partitions": "keep"}
        run_job(replay.JOB, spark, topics.bootstrap, str(tmp_path / "narrow"), **wanted)


def test_any_table_goes_to_a_topic_in_the_order_asked_for(
    spark: "SparkSession", topics: Topics, tmp_path: Path, checkpoint: str
) -> None:
    rows = [(f"c{number % 5}", number, f"text {number}") for number in reversed(range(200))]
    spark.createDataFrame(rows, "customer string, at int, text string").repartition(3).write.parquet(str(tmp_path / "table"))
    to = topics.create(partitions=2)
    wanted = {"from": str(tmp_path / "table"), "from_format": "parquet", "to": to, "order_by": "at", "key": "customer", "rows": "100"}
    run_job(replay.JOB, spark, topics.bootstrap, checkpoint, **wanted)
    run_job(replay.JOB, spark, topics.bootstrap, checkpoint, **wanted)
    found = topics.read(to)
    assert len(found) == 200
    by_key = {key: [record for record in found if record.key == key] for key in {record.key for record in found}}
    assert sorted(by_key) == [b"c%d" % number for number in range(5)]
    for key, own in by_key.items():
        number = int(key.decode()[1:])  # type: ignore[union-attr]
        assert [record.value for record in own] == [
            b'{"customer":"c%d","at":%d,"text":"text %d"}' % (number, at, at) for at in range(number, 200, 5)
        ]


def test_keys_may_be_numbers_and_the_first_line_of_a_csv_names_its_columns(spark: "SparkSession", tmp_path: Path) -> None:
    from penstock.pipeline.lake.spool import as_records

    frame = spark.createDataFrame([(7, bytearray(b"\xff\x00"))], "customer_id bigint, raw binary")
    for key, value, expected in (("customer_id", "raw", (b"7", b"\xff\x00")), ("raw", "customer_id + 1", (b"\xff\x00", b"8"))):
        row = as_records(frame, key=key, value=value).collect()[0]
        assert (bytes(row.key), bytes(row.value)) == expected
    (tmp_path / "table.csv").write_text("customer_id,name\n7,Ada\n")
    named = replay.table_rows(spark, "csv", str(tmp_path / "table.csv"))
    row = as_records(named, key="customer_id", value=None).collect()[0]
    assert (bytes(row.key), bytes(row.value)) == (b"7", b'{"customer_id":"7","name":"Ada"}')


def test_an_empty_table_and_a_column_that_is_not_there_are_told(
    spark: "SparkSession", topics: Topics, tmp_path: Path, checkpoint: str
) -> None:
    spark.createDataFrame([], "id int").write.parquet(str(tmp_path / "table"))
    wanted = {"from": str(tmp_path / "table"), "from_format": "parquet", "to": "nothing-comes"}
    for _ in range(2):
        assert "has no rows" in run_job(replay.JOB, spark, topics.bootstrap, checkpoint, **wanted).lines[-1]
    with pytest.raises(PipelineComplaint, match="order of 'at', which the table does not have"):
        run_job(replay.JOB, spark, topics.bootstrap, str(tmp_path / "other"), **wanted, order_by="at")


def test_what_is_left_is_told_where_it_is_known() -> None:
    stage = StageProgress("rows", rows_out=1_200, lag=300, rows_per_second=99.6)
    assert replay.how_far(stage) == "1,200 rows written, 300 to go, 100 rows/s in the last batch"
    stage.lag = None
    assert replay.how_far(stage) == "1,200 rows written, 100 rows/s in the last batch", "a batch that is done again"


def test_wrong_wishes_are_refused_before_anything_starts() -> None:
    good = {"from": "/data", "to": "t"}
    wrong = [
        ({"starting": "yesterday"}, "starting"),
        ({"starting": "2026-11-15T00:00:00"}, "time zone"),
        ({"partitions": "some"}, "partitions"),
        ({"rate": "fast"}, "rate"),
        ({"order-by": "at"}, "for tables"),
        ({"from-format": "parquet", "partitions": "keep"}, "for archives"),
    ]
    for given, words in wrong:
        with pytest.raises(PipelineComplaint, match=words):
            replay.read_wish(replay.JOB.filled(good | given))


def test_what_is_no_archive_is_told(tmp_path: Path) -> None:
    from penstock.pipeline.lake.table import format_at

    with pytest.raises(PipelineComplaint, match="no archive at"):
        format_at(str(tmp_path))
