"""The job `snapshot` on a real node: the latest value of each key, tombstones removed, refreshed from where it was."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from job_runs import run_job
from pipeline_topics import Topics

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.jobs import snapshot
from penstock.pipeline.jobs.snapshot import Offsets, Refresh, plan
from penstock.pipeline.lake.staging_frames import stage_frame
from penstock.pipeline.lake.table import open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.invariant("lake.snapshot-offsets-atomic")]


def values(path: str, format: str, topic: str) -> dict[bytes, bytes]:
    if format == "delta":
        rows = DeltaTable(path).to_pyarrow_table(filters=[("topic", "=", topic)]).to_pylist()
    else:
        rows = ds.dataset(f"{path}/topic={topic}", format="parquet").to_table().to_pylist()
    assert len({row["key"] for row in rows}) == len(rows), "a key stands in the table twice"
    return {row["key"]: row["value"] for row in rows}


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_table_follows_its_topic(spark: "SparkSession", topics: Topics, tmp_path: Path, checkpoint: str, format: str) -> None:
    topic = topics.create(partitions=2, cleanup_policy="compact")
    path = str(tmp_path / "table")
    wanted = {"topic": topic, "to": path, "format": format}

    def refresh() -> list[str]:
        return run_job(snapshot.JOB, spark, topics.bootstrap, checkpoint, **wanted).lines

    topics.write(topic, [(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"a", b"2"), (b"gone", b"1"), (b"gone", None)])
    assert "no table of this topic yet" in refresh()[0]
    assert values(path, format, topic) == {b"a": b"2", b"b": b"1", b"c": b"1"}
    before = open_table(path, format, partition_by=("topic",)).snapshot()

    topics.write(topic, [(b"b", None), (b"c", b"3"), (b"d", b"1"), (b"nothing", None)], headers=[("h", b"1")])
    assert refresh() == [f"{topic}: 4 records read, 3 keys"]
    assert values(path, format, topic) == {b"a": b"2", b"c": b"3", b"d": b"1"}
    assert all(Path(place).exists() for place in before.locations()), "files were taken from under a reader"
    assert refresh() == [f"{topic}: nothing new"]

    table = open_table(path, format, partition_by=("topic",))
    stage_frame(spark.range(3), table, within=(("topic", topic),))  # As of a job that was killed before its commit.
    assert values(path, format, topic) == {b"a": b"2", b"c": b"3", b"d": b"1"}
    topics.write(topic, [(b"a", None), (b"c", None), (b"d", None)])
    refresh()
    assert table.snapshot((("topic", topic),)).rows == 0


def test_a_topic_made_anew_makes_a_new_table(spark: "SparkSession", topics: Topics, tmp_path: Path, checkpoint: str) -> None:
    topic, other = topics.create(), topics.create()
    path = str(tmp_path / "table")
    topics.write(topic, [(b"a", b"1"), (b"b", b"1"), (None, b"nobody's")])
    topics.write(other, [(b"z", b"1")])
    for name in (topic, other):
        run_job(snapshot.JOB, spark, topics.bootstrap, checkpoint, topic=name, to=path)
    topics.delete(topic)
    topics.create(topic)
    topics.write(topic, [(b"c", b"1")])
    run_job(snapshot.JOB, spark, topics.bootstrap, checkpoint, topic=topic, to=path)
    assert values(path, "parquet", topic) == {b"c": b"1"}
    assert values(path, "parquet", other) == {b"z": b"1"}
    with pytest.raises(PipelineComplaint, match="no topic 'absent'"):
        run_job(snapshot.JOB, spark, topics.bootstrap, checkpoint, topic="absent", to=path)


def test_the_latest_is_the_last_of_a_partition_and_the_youngest_of_several(spark: "SparkSession") -> None:
    from penstock.pipeline.steps.latest import latest, standing

    rows = [
        ("late clock", "old", 0, 1, 500),
        ("late clock", "new", 0, 2, 100),  # The clock went back, the offset did not.
        ("moved", "old", 0, 9, 100),
        ("moved", "new", 1, 1, 200),  # The topic has grown, and the key went to another partition.
        ("removed", "old", 0, 3, 100),
        ("removed", None, 1, 2, 300),
        (None, "nobody's", 0, 4, 100),
    ]
    frame = spark.createDataFrame(rows, "key string, value string, partition int, offset long, ms long")
    columns = ["key", "value", "partition", "offset", "timestamp_millis(ms) timestamp", "cast(null as array<string>) headers"]
    records = frame.selectExpr(*columns)
    found = {row.key: row.value for row in latest(records).collect()}
    assert found == {"late clock": "new", "moved": "new", "removed": None}
    assert {row.key for row in standing(latest(records)).collect()} == {"late clock", "moved"}


def test_what_a_refresh_reads_follows_from_what_the_table_has_seen() -> None:
    offsets = Offsets("id", earliest={0: 0, 1: 5}, latest={0: 10, 1: 9})
    whole = (offsets.earliest, offsets.latest)

    def planned(seen: dict[int, int | None], *, age_s: float | None = 10.0, is_forced: bool = False) -> Refresh | None:
        return plan(offsets, seen, age_s=age_s, rebuild_after_s=60, is_forced=is_forced)

    assert planned({0: 10, 1: 9}) is None
    assert planned({0: 4, 1: 9}) == Refresh({0: 4, 1: 9}, offsets.latest)
    assert planned({0: 10, 1: None}) == Refresh({0: 10, 1: 5}, offsets.latest), "a new partition is read from its beginning"
    up_to_date = {0: 10, 1: 9}
    for seen, given in [({}, {"age_s": None}), (up_to_date, {"is_forced": True}), (up_to_date, {"age_s": 61.0}), ({0: 10, 1: 4}, {})]:
        found = planned(seen, **given)  # type: ignore[arg-type]
        assert found is not None and found.rebuilt_why and (found.starts, found.ends) == whole
    with pytest.raises(PipelineComplaint, match="records were lost"):
        planned({0: 11, 1: 9})


def test_marks_note_what_has_grown() -> None:
    marks = Refresh({0: 0, 1: 0}, {0: 10, 1: 9}).marks("id", {0: 10, 1: None}, 77)
    assert marks == {"snapshot/id/1": 9, "snapshot/id/refreshed-at-ms": 77}
    seen = snapshot.all_marks("id", {0: 10, 1: None}, 76)
    assert seen == {"snapshot/id/0": 10, "snapshot/id/1": None, "snapshot/id/refreshed-at-ms": 76}, "others could change what stands still"
