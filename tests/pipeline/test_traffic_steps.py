"""The steps of `traffic` on small tables."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from penstock.wire.murmur2 import partition_of_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.needs("spark"), pytest.mark.spark]

RECORD = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
SAMPLE = "group string, topic string, partition int, committed long, end long, sampled_ms long"
NOON = 1_767_268_800


def at(second: float) -> datetime:
    return datetime.fromtimestamp(NOON + second, UTC)


def test_windows_keys_and_places_are_counted(spark: "SparkSession") -> None:
    from penstock.pipeline.steps.traffic import by_key, by_window, heaviest, measured, placed

    rows: list[tuple[bytes | None, bytes | None, str, int, int, datetime]] = [
        (b"a", b"12345", "t", 0, 0, at(0)),
        (b"a", None, "t", 0, 1, at(9.999)),
        (None, b"123", "t", 1, 0, at(10)),
        *((b"k-%d" % number, b"1", "u", 0, number, at(25)) for number in range(200)),
        *((b"heavy", b"1", "u", 0, 200 + number, at(26)) for number in range(7)),
    ]
    records = measured(spark.createDataFrame(rows, RECORD))
    windows = {(row.topic, row.partition, row.start - NOON): (row.records, row.bytes) for row in by_window(records, 10).collect()}
    heavy_bytes = sum(len(key or b"") + len(value or b"") for key, value, topic, *_ in rows if topic == "u")
    assert windows == {("t", 0, 0): (2, 7), ("t", 1, 10): (1, 3), ("u", 0, 20): (207, heavy_bytes)}

    keys = by_key(records).cache()
    assert keys.count() == 203
    top = heaviest(keys, 1).collect()
    assert [(row.topic, bytes(row.key), row.records, row.bytes) for row in sorted(top)] == [("t", b"a", 2, 7), ("u", b"heavy", 7, 42)]
    found = {(row.topic, row.partitions, row.partition): row.records for row in placed(keys, [3, 8]).collect()}
    wanted: dict[tuple[str, int, int], int] = {}
    for key, _, topic, *_ in rows:
        for count in (3, 8):
            if key is not None:
                place = (topic, count, partition_of_key(key, count))
                wanted[place] = wanted.get(place, 0) + 1
    assert found == wanted


def samples(spark: "SparkSession", rows: list[tuple[str, int, int, int, float]]) -> "DataFrame":
    from pyspark.sql import functions as F

    made = [(group, "t", partition, committed, end, round((NOON + second) * 1_000)) for group, partition, committed, end, second in rows]
    return spark.createDataFrame(made, SAMPLE).withColumn("sampled_at", F.timestamp_millis("sampled_ms"))


def test_lag_and_latency_come_from_what_groups_had_committed(spark: "SparkSession") -> None:
    from penstock.pipeline.steps.traffic import delays, lags, measured

    seen = samples(
        spark,
        [
            ("g", 0, 2, 10, 0.5), ("g", 0, 5, 12, 3.5), ("g", 0, 12, 12, 11.0),
            ("g", 1, 0, 4, 3.6), ("g", 1, 0, 4, 11.1),
            ("h", 0, 3, 2, 4.0),
        ],
    )  # fmt: skip
    found = {(row.group, row.start - NOON): row.lag for row in lags(seen, 10).collect()}
    assert found == {("g", 0): 7 + 4, ("g", 10): 0 + 4, ("h", 0): 0}, "the last sample of each partition, added up; never below nothing"

    records = [(None, b"v", "t", 0, offset, at(offset * 0.1)) for offset in range(14)] + [(None, b"v", "t", 1, 0, at(0))]
    took = {(row.group, row.start - NOON): row for row in delays(measured(spark.createDataFrame(records, RECORD)), seen, 1).collect()}
    # Offsets 0 and 1 were committed before anybody looked, 12 and 13 are not committed yet, and nobody read partition 1.
    assert {place: row.records for place, row in took.items()} == {("g", 0): 8, ("g", 1): 2}
    first = took["g", 0]
    assert first.max_ms == 11_000 - 500, "offset 5 was written at 0.5 s and first seen as committed at 11 s"
    assert first.p50_ms in (11_000 - 700, 11_000 - 800, 11_000 - 900)


def test_ages_are_told_by_a_field_of_the_value_and_samples_read_back_from_their_topic(spark: "SparkSession") -> None:
    from penstock.pipeline.steps.traffic import ages, opened_samples

    values = [b'{"made": "2026-01-01T12:00:00Z"}', b'{"made": "2026-01-01T11:59:58Z"}', b'{"made": "when?"}', b"no json", None]
    frame = spark.createDataFrame([(None, value, "t", 0, offset, at(1)) for offset, value in enumerate(values)], RECORD)
    (row,) = ages(frame, "made", 10).collect()
    assert (row.topic, row.records, row.max_ms) == ("t", 2, 3_000)

    kept = [b'{"group": "g", "topic": "t", "partition": 1, "committed": 4, "end": 9, "sampled_ms": 1767268800500}', b"{}", b"x", None]
    (sample,) = opened_samples(spark.createDataFrame([(None, value, "s", 0, 0, at(0)) for value in kept], RECORD)).collect()
    assert (sample.group, sample.partition, sample.committed, sample.end, sample.sampled_at.timestamp()) == ("g", 1, 4, 9, NOON + 0.5)
