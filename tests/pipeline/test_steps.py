"""The shared steps on small tables; and the guide's own example."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "pipelines.md"
RECORD = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"


def records(spark, *values: bytes | None):
    from datetime import UTC, datetime

    at = datetime(2026, 1, 1, tzinfo=UTC)
    return spark.createDataFrame([(b"k", value, "t", 0, place, at) for place, value in enumerate(values)], RECORD)


def test_what_is_wrong_gets_the_first_reason_and_stays_as_it_came(spark) -> None:
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType, StringType, StructType

    from penstock.pipeline.steps.parsing import NO_VALUE, NOT_JSON, checked, parsed_json, with_origin

    schema = StructType().add("id", LongType()).add("name", StringType())
    frame = records(spark, b'{"id": 1, "name": "a"}', None, b"{", b'{"id": "x"}', b'{"name": "b"}', b'{"id": -1}', b"[]", b"\xff\xfe")
    rules = {"no id": F.col("parsed.id").isNotNull(), "no name": F.col("parsed.name").isNotNull(), "negative": F.col("parsed.id") > 0}
    rows = checked(parsed_json(with_origin(frame), schema), rules).orderBy("offset").collect()
    assert [row.reason for row in rows] == [None, NO_VALUE, NOT_JSON, NOT_JSON, "no id", "no name", NOT_JSON, NOT_JSON]
    assert [row.parsed is None for row in rows] == [row.reason in (NO_VALUE, NOT_JSON) for row in rows]
    assert rows[0].parsed.asDict() == {"id": 1, "name": "a"} and bytes(rows[2].value) == b"{"
    assert rows[3].origin.asDict() == {"topic": "t", "partition": 0, "offset": 3}


def test_the_latest_of_each_key_is_the_one_with_the_highest_offset_of_the_latest_time(spark) -> None:
    from penstock.pipeline.steps.tables import latest, looked_up

    rows = [
        (b"a", b"1", 0, 0, 5),
        (b"a", b"2", 0, 1, 5),
        (b"b", b"1", 0, 2, 5),
        (b"b", None, 0, 3, 6),
        (None, b"x", 0, 4, 6),
        (b"c", b"1", 0, 5, 1),
    ]
    frame = spark.createDataFrame(rows, "key binary, value binary, partition int, offset long, at long")
    table = latest(frame.selectExpr("key", "value", "partition", "offset", "timestamp_seconds(at) AS timestamp"))
    orders = spark.createDataFrame([("a",), ("b",), ("z",), (None,)], "customer string")
    found = {row.customer: row.name and bytes(row.name) for row in looked_up(orders, table, on="customer", into="name").collect()}
    assert found == {"a": b"2", "b": None, "z": None, None: None}


def test_windows_sum_up_and_doubles_count_once(spark) -> None:
    from pyspark.sql import functions as F

    from penstock.pipeline.steps.times import once, windowed

    rows = [("a", 10, "x"), ("a", 10, "x"), ("b", 59, "x"), ("c", 60, "y"), ("d", 61, "x")]
    frame = spark.createDataFrame(rows, "id string, at long, kind string").selectExpr("id", "kind", "timestamp_seconds(at) AS time")
    sums = windowed(
        once(frame, ["id"], within="1 hour"), [F.count("*").alias("rows")], time="time", width="1 minute", waits="1 minute", by=["kind"]
    )
    found = sums.selectExpr("unix_seconds(start)", "unix_seconds(end)", "kind", "rows").collect()
    assert sorted(map(tuple, found)) == [(0, 60, "x", 2), (60, 120, "x", 1), (60, 120, "y", 1)]


def test_the_guides_smallest_pipeline_and_its_test_hold(spark) -> None:
    program, check = (
        text for text in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "def clean" in text or "def test_" in text
    )
    names: dict[str, object] = {}
    exec(program, names)
    exec(check, names)
    names["test_a_click_without_a_user_is_dead"](spark)
    assert names["pipeline"].stages[0].dead_letters == "clicks.dead"
