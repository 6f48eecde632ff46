"""The job `archive` on a real node: every record once, in the right directory, with all that it has, as other readers see it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from job_runs import run_job
from pipeline_topics import Topics

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.jobs import archive
from penstock.pipeline.stage import Context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def ms(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type]


def everything(path: Path | str) -> list[dict[str, Any]]:
    return ds.dataset(str(path), format="parquet", partitioning="hive").to_table().to_pylist()


@pytest.fixture
def elsewhere(spark: "SparkSession") -> Iterator[None]:
    """The session is in New York, where it is still yesterday."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


@pytest.mark.invariant("lake.batch-counts-once")
@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_every_record_is_archived_once_with_all_that_it_has(
    spark: "SparkSession", topics: Topics, tmp_path: Path, checkpoint: str, format: str
) -> None:
    one, other = topics.create(partitions=2), topics.create()
    before, after = ms(2026, 11, 14, 22, 30), ms(2026, 11, 14, 23, 30)  # The same day in UTC, two days in Vienna.
    topics.write(one, [(b"k", b"a"), (None, b"b"), (b"k", None)], partition=0, timestamp=before, headers=[("h", b"1"), ("h", None)])
    topics.write(one, [(b"k", b"c")], partition=1, timestamp=after)
    topics.write(other, [(b"", b"")], timestamp=after)
    target = str(tmp_path / "archive")
    wanted = {"topics": f"{one},{other}", "to": target, "format": format, "time_zone": "Europe/Vienna"}
    for fresh, count in (([], 5), ([(b"k", b"d")], 6)):
        topics.write(one, fresh, partition=1, timestamp=after)
        told = run_job(archive.JOB, spark, topics.bootstrap, checkpoint, **wanted)
        assert len(everything(target)) == count, told
    for name in ("1", ".1.crc"):  # As after a crash between the sink's commit and Spark's own note of it: the batch is done again.
        (Path(checkpoint) / archive.STAGE / "commits" / name).unlink(missing_ok=True)
    run_job(archive.JOB, spark, topics.bootstrap, checkpoint, **wanted)

    found = sorted(everything(target), key=lambda row: (row["topic"] != one, row["partition"], row["offset"]))
    assert [row["key"] for row in found] == [b"k", None, b"k", b"k", b"k", b""]
    assert [row["value"] for row in found] == [b"a", b"b", None, b"c", b"d", b""]
    assert [(row["partition"], row["offset"]) for row in found] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (0, 0)]
    assert [str(row["date"]) for row in found] == ["2026-11-14"] * 3 + ["2026-11-15"] * 3
    assert found[0]["timestamp"] == datetime.fromtimestamp(before / 1000, UTC)
    assert found[0]["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert not found[3]["headers"]
    assert {row["topic"] for row in found} == {one, other}


@pytest.mark.invariant("lake.archive-resumes")
def test_an_archive_whose_checkpoint_is_lost_goes_on_where_it_ends(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(partitions=2)
    topics.write_values(topic, 50, partition=0)
    target = str(tmp_path / "archive")
    run_job(archive.JOB, spark, topics.bootstrap, str(tmp_path / "first"), topics=topic, to=target, rows="20", compact_every="2")
    topics.write_values(topic, 10, partition=0, first=50)
    topics.write_values(topic, 5, partition=1, first=60)
    (tmp_path / "second" / archive.STAGE / "offsets").mkdir(parents=True)  # As of a start that was killed before it noted any.
    run_job(archive.JOB, spark, topics.bootstrap, str(tmp_path / "second"), topics=topic, to=target, rows="20")
    assert sorted(int(row["value"]) for row in everything(target)) == list(range(65))
    assert spark.read.parquet(target).count() == 65
    assert spark.read.parquet(target).schema.simpleString() == (
        "struct<key:binary,value:binary,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>,topic:string,date:date>"
    )


def test_a_checkpoint_has_begun_when_it_notes_offsets(tmp_path: Path) -> None:
    assert not archive.has_begun(str(tmp_path)) and not archive.has_begun("hdfs://somewhere/checkpoint")
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / ".0.1234.tmp").touch()
    assert not archive.has_begun(str(tmp_path)), "a start that was killed before its first note counts as one that goes on"
    (tmp_path / "offsets" / "0").touch()
    assert archive.has_begun(str(tmp_path))


def test_any_timestamp_has_a_date_that_readers_know(spark: "SparkSession", tmp_path: Path) -> None:
    micros = {
        -(2**63): "0001-01-01",  # What the source makes of -2**63 and -2**62 milliseconds.
        -1: "1970-01-01",
        ms(2026, 11, 14, 23, 30) * 1000: "2026-11-15",
        253_402_300_799_999_999: "9999-12-31",
        253_402_300_800_000_000: "9999-12-31",  # The year 10000.
        2**63 - 1: "9999-12-31",
    }
    told = {"time-zone": "Europe/Vienna"}
    made = spark.createDataFrame(list(enumerate(micros)), "offset long, us long")
    columns = ["offset", "timestamp_micros(us) timestamp", *(f"'' {name}" for name in ("key", "value", "topic", "headers"))]
    columns += ["0 partition", "0 timestampType"]
    dated = archive.dated(made.selectExpr(*columns), Context(spark, "", "archive", archive.STAGE, told, ""))
    for format in ("parquet", "delta"):
        target = str(tmp_path / format)
        wanted = {"path": target, "tableFormat": format, "partitionBy": ",".join(archive.PARTITION_BY)}
        for _ in range(2):  # What has such dates can be written to again.
            dated.write.format("penstock-lake").mode("append").options(**wanted).save()
        read = DeltaTable(target).to_pyarrow_dataset() if format == "delta" else ds.dataset(target, format="parquet", partitioning="hive")
        found = sorted((row["offset"], str(row["date"])) for row in read.to_table(["offset", "date"]).to_pylist())
        assert found == sorted([*enumerate(micros.values())] * 2)


def test_wrong_options_are_refused_before_anything_starts() -> None:
    good = {"topics": "a", "to": "/tmp/x"}
    wrong = {"time-zone": "Mars/Olympus", "format": "csv", "rows": "0", "retain": "long", "starting": "now", "file-mb": "0"}
    for name, value in wrong.items():
        with pytest.raises(PipelineComplaint, match=name.replace("-", ".")):
            archive.pipeline(archive.JOB.filled(good | {name: value}))
    with pytest.raises(PipelineComplaint, match="'to'"):
        archive.JOB.filled({"topics": "a"})
