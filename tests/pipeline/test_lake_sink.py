"""The format "penstock-lake" in Spark: frames written at once, options that are wrong, and tasks that fail."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lake_rows import held

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.lake.reading import read_wish
from penstock.pipeline.lake.sink import read_plan
from penstock.pipeline.lake.table import open_table
from penstock.pipeline.sink.options import OPTIONS as SINK_OPTIONS
from penstock.pipeline.source.options import OPTIONS as SOURCE_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_frame_written_under_a_name_counts_once_and_a_failure_leaves_nothing(spark: "SparkSession", tmp_path: Path, format: str) -> None:
    from pyspark.sql import functions as F

    path = str(tmp_path / "table")
    frame = spark.range(0, 100, numPartitions=2).select(F.col("id").alias("offset"), (F.col("id") % 3).cast("int").alias("part"))

    def write(rows: "DataFrame", **options: str) -> None:
        rows.write.format("penstock-lake").mode("append").options(path=path, tableFormat=format, partitionBy="part", **options).save()

    write(frame, writeId="first")
    write(frame, writeId="first")
    table = open_table(path, format, partition_by=("part",))
    assert held(table) == list(range(100))

    failing = frame.withColumn("offset", F.when(F.col("offset") == 99, F.raise_error(F.lit("no"))).otherwise(F.col("offset")).cast("long"))
    with pytest.raises(Exception, match="no"):
        write(failing)
    assert held(table) == list(range(100))
    table.clean(retain_s=0)  # A task that Spark has ended while another failed could tell nobody of its files.
    files = {str(found) for found in Path(table.directory).rglob("*.parquet")}
    assert files == set(table.snapshot().locations()), "a failed write left files"

    write(frame.where("offset < 10"))
    assert held(table) == sorted([*range(100), *range(10)])
    with pytest.raises(Exception, match="other columns"):
        write(frame.withColumn("more", F.lit(1)))
    with pytest.raises(Exception, match="only added to"):
        frame.write.format("penstock-lake").mode("overwrite").options(path=path).save()


def test_wrong_options_are_refused_by_name() -> None:
    wrong = {"tableFormat": "orc", "fileBytes": "10", "compactEvery": "often", "retain": "5m"}
    for name, value in wrong.items():
        with pytest.raises(PipelineComplaint, match=name):
            read_plan({"path": "/tmp/x", name: value})
    with pytest.raises(PipelineComplaint, match="path is missing"):
        read_plan({})
    for misspelled, meant in (("compactEvry", "compactEvery"), ("partitonBy", "partitionBy")):
        with pytest.raises(PipelineComplaint, match=f"did you mean {meant}"):
            read_plan({"path": "/tmp/x", misspelled: "5"})
    with pytest.raises(PipelineComplaint, match="did you mean rowsPerSecond"):
        read_wish({"path": "/tmp/x", "rowsPerSec": "5"})


def test_options_of_spark_and_of_other_ends_are_let_pass() -> None:
    plain = read_plan({"path": "/tmp/x"})
    for name in ("checkpointLocation", "mergeSchema", "queryName", "compression", *SOURCE_OPTIONS, *SINK_OPTIONS):
        assert read_plan({"path": "/tmp/x", name: "x"}) == plain, name
