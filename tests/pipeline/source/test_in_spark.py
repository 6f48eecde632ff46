"""The source inside of Spark, on a real node: what a job sees, in batches and as a stream, whatever happens to its tasks and its broker."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pipeline_topics import Topics
from ports import free_port
from waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.needs("spark"), pytest.mark.spark]

# As the guide of Spark's Kafka source lists them, and as its code has them: every column may be null.
KAFKA_COLUMNS = {
    "key": "binary", "value": "binary", "topic": "string", "partition": "integer", "offset": "long", "timestamp": "timestamp",
    "timestampType": "integer",
}  # fmt: skip
KAFKA_HEADERS = {
    "type": "array",
    "containsNull": True,
    "elementType": {
        "type": "struct",
        "fields": [
            {"name": "key", "type": "string", "nullable": True, "metadata": {}},
            {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
        ],
    },
}


class Reading:
    """How tests read one node's topics."""

    def __init__(self, spark: "SparkSession", bootstrap: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap

    def batch(self, **options: object) -> "DataFrame":
        return self._with(self._spark.read, options).load()

    def stream(self, **options: object) -> "DataFrame":
        return self._with(self._spark.readStream, {"startingOffsets": "earliest"} | options).load()

    def _with(self, reader: Any, options: dict[str, object]) -> Any:
        texts = {name.replace("_", "."): str(value) for name, value in options.items()}
        return reader.format("penstock").option("kafka.bootstrap.servers", self._bootstrap).options(**texts)


class Seen:
    """What a query wrote, batch by batch; a batch that comes again replaces what it was."""

    def __init__(self, checkpoint: str) -> None:
        self.batches: dict[int, list[bytes | None]] = {}
        self._checkpoint = checkpoint

    def start(self, frame: "DataFrame", **trigger: Any) -> "StreamingQuery":
        writing = frame.select("value").writeStream.option("checkpointLocation", self._checkpoint).foreachBatch(self._take)
        return (writing.trigger(**trigger) if trigger else writing).start()

    def run(self, frame: "DataFrame") -> None:
        """Everything that there is now."""
        self.start(frame, availableNow=True).awaitTermination()

    def values(self) -> list[bytes | None]:
        return sorted(value for batch in self.batches.values() for value in batch)  # type: ignore[type-var]

    def _take(self, frame: "DataFrame", batch_id: int) -> None:
        self.batches[batch_id] = [None if row.value is None else bytes(row.value) for row in frame.collect()]


@pytest.fixture
def reading(spark: "SparkSession", topics: Topics) -> Reading:
    return Reading(spark, topics.bootstrap)


def numbers(*spans: tuple[int, int]) -> list[bytes | None]:
    return sorted(b"%d" % number for start, end in spans for number in range(start, end))


def test_the_schema_is_that_of_sparks_kafka_source(reading: Reading, topics: Topics) -> None:
    topic = topics.create()
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in KAFKA_COLUMNS.items()]
    headers = {"name": "headers", "type": KAFKA_HEADERS, "nullable": True, "metadata": {}}
    for frame in (reading.batch(subscribe=topic), reading.stream(subscribe=topic)):
        assert json.loads(frame.schema.json()) == {"type": "struct", "fields": fields}
    assert json.loads(reading.batch(subscribe=topic, includeHeaders="true").schema.json())["fields"] == [*fields, headers]
    assert reading.batch(subscribe=topic).count() == 0, "an empty topic is an empty frame"


def test_a_batch_of_every_kind_of_record(spark: "SparkSession", reading: Reading, topics: Topics) -> None:
    topic = topics.create(partitions=2, max_message_bytes=4 << 20)
    large = os.urandom(1 << 20)
    topics.write(topic, [(None, None), (b"k", large)], partition=0, timestamp=1_767_225_600_123)
    topics.write(topic, [(b"h", b"v")], partition=1, headers=[("a", b"1"), ("b", None)])
    topics.write_in_transaction(topic, [(b"x", b"aborted")], partition=1, ends="abort")
    rows = reading.batch(subscribe=topic, includeHeaders="true").orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset, row.key, row.value) for row in rows] == [
        (0, 0, None, None),
        (0, 1, b"k", large),
        (1, 0, b"h", b"v"),
    ]
    assert [row.headers and [(one.key, one.value) for one in row.headers] for row in rows] == [None, None, [("a", b"1"), ("b", None)]]
    assert {row.topic for row in rows} == {topic} and {row.timestampType for row in rows} == {0}
    assert rows[0].timestamp.isoformat() == "2026-01-01T00:00:00.123000"
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW v USING penstock OPTIONS (`kafka.bootstrap.servers` '{topics.bootstrap}', subscribe '{topic}')"
    )
    assert [row[0] for row in spark.sql("SELECT length(value) FROM v WHERE partition = 0 ORDER BY offset").collect()] == [None, 1 << 20]
    only = spark.read.format("penstock").schema("offset long, value binary").options(subscribe=topic).option(
        "kafka.bootstrap.servers", topics.bootstrap
    )  # fmt: skip
    assert sorted(row.offset for row in only.load().collect()) == [0, 0, 1]


def test_filters_reach_the_log(spark: "SparkSession", reading: Reading, topics: Topics) -> None:
    topic = topics.create(partitions=4)
    for partition in range(4):
        topics.write_values(topic, 200, partition=partition)
    narrow = reading.batch(subscribe=topic).where("partition = 2 and offset >= 100 and offset < 110")
    assert narrow.rdd.getNumPartitions() == 1, "one task was planned, not four"
    assert [row.offset for row in narrow.orderBy("offset").collect()] == list(range(100, 110))
    assert reading.batch(subscribe=topic).where("partition in (1, 3)").rdd.getNumPartitions() == 2
    skewed = reading.batch(subscribe=topic, minPartitions=8)
    assert (skewed.rdd.getNumPartitions(), skewed.count()) == (8, 800)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert narrow.select("value").where("offset > 107").count() == 2, "also in a session that hands nothing down"
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_a_wrong_option_and_a_missing_topic_are_told_in_words(reading: Reading, topics: Topics) -> None:
    with pytest.raises(Exception, match="did you mean startingOffsets"):
        reading.batch(subscribe="any", startingOffset="earliest").count()
    with pytest.raises(Exception, match="there is no topic 'absent'"):
        reading.batch(subscribe="absent", fetchOffset_retryIntervalMs=10).count()


def test_a_stream_reads_on_from_its_checkpoint(reading: Reading, topics: Topics, checkpoint: str) -> None:
    topic, dead = topics.create(partitions=2), topics.create()
    topics.write(topic, ((None, b"%d" % number) for number in range(40)), partition=0)
    topics.write(topic, [(b"k", b"not json")], partition=1)
    topics.write_in_transaction(topic, [(None, b"77")], partition=1, ends="abort")
    frame = reading.stream(
        subscribe=topic, maxOffsetsPerTrigger=25, groupId=f"job of {topic}", valueFormat="json", deadLetterTopic=dead, minPartitions=3
    )
    seen = Seen(checkpoint)
    seen.run(frame)
    assert seen.values() == numbers((0, 40)) and len(seen.batches) == 2
    assert [(row.key, row.value) for row in topics.read(dead)] == [(b"k", b"not json")]
    assert topics.committed(f"job of {topic}", topic) == topics.ends(topic), "all of it is done, and shows where every group's work does"

    topics.write(topic, ((None, b"%d" % number) for number in range(40, 50)), partition=1)
    seen.run(frame)
    assert seen.values() == numbers((0, 50)) and sorted(seen.batches) == [0, 1, 2]
    (offsets,) = [line for line in Path(checkpoint, "offsets", "2").read_text().splitlines() if topic in line]
    assert json.loads(offsets)[topic] == {str(partition): end for partition, end in topics.ends(topic).items()}
    command = [sys.executable, "-m", "penstock", "groups", "describe", f"job of {topic}", "--bootstrap", topics.bootstrap, "--json"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert told["lag"] == 0, told


def test_a_task_that_fails_midway_is_read_again(spark: "SparkSession", reading: Reading, topics: Topics, checkpoint: str) -> None:
    topic = topics.create()
    topics.write_values(topic, 30_000)

    def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        for place, batch in enumerate(batches):
            if place == 1 and context is not None and context.attemptNumber() == 0:
                raise RuntimeError("the first try ends here")
            yield batch

    seen = Seen(checkpoint)
    seen.run(reading.stream(subscribe=topic).select("value").mapInArrow(fail_once, "value binary"))
    assert seen.values() == numbers((0, 30_000))


def test_a_stream_outlives_its_broker_and_what_compaction_and_retention_do(spark: "SparkSession", tmp_path: Path, checkpoint: str) -> None:
    """The broker restarts, cleans the log under the query, and deletes what the query has not read while it was stopped."""
    from penstock.testing.brokers import Broker

    settings = {"kafka": f"127.0.0.1:{free_port()}", "log.cleaner.backoff.ms": "20", "topic.flush": "os"}
    node = Broker(settings, tmp_path / "node").start()
    with Topics(node.bootstrap) as topics:
        reading = Reading(spark, node.bootstrap)
        topic = topics.create(cleanup_policy="compact", segment_bytes=4096, min_cleanable_dirty_ratio=0.01)
        seen = Seen(checkpoint)
        frame = reading.stream(subscribe=topic, maxOffsetsPerTrigger=150)
        query = seen.start(frame)
        topics.write(topic, ((b"k%d" % (number % 7), b"%d" % number) for number in range(300)))
        query.processAllAvailable()
        assert set(seen.values()) >= {b"%d" % number for number in range(293, 300)}, "the last of each key"
        node.stop()
        node = Broker(settings, tmp_path / "node").start()
        topics.write(topic, ((b"k%d" % (number % 7), b"%d" % number) for number in range(300, 600)))
        query.processAllAvailable()
        until(lambda: len(topics.read(topic)) < 500, "the log is cleaned, under the query", every_s=0.1)
        topics.write(topic, [(b"k1", b"600")])
        query.processAllAvailable()
        query.stop()
        assert set(seen.values()) >= {b"%d" % number for number in range(593, 601)}
        assert reading.batch(subscribe=topic, maxRecordsPerPartition=50).count() == len(topics.read(topic))

        plain = topics.create()
        topics.write_values(plain, 10)
        seen = Seen(f"{checkpoint}-plain")
        seen.run(reading.stream(subscribe=plain))
        topics.write_values(plain, 10, first=10)
        topics.trim(plain, 15)
        with pytest.raises(Exception, match=r"offsets 10 to 14 are gone: they were deleted \(retention"):
            seen.run(reading.stream(subscribe=plain))
        seen.run(reading.stream(subscribe=plain, failOnDataLoss="false"))
        assert seen.values() == numbers((0, 10), (15, 20))
    node.stop()


def test_a_topic_that_is_deleted_under_the_query_ends_it_in_words(reading: Reading, topics: Topics, checkpoint: str) -> None:
    topic = topics.create()
    topics.write_values(topic, 5)
    seen = Seen(checkpoint)
    frame = reading.stream(subscribe=topic, fetchOffset_retryIntervalMs=10)
    query = seen.start(frame)
    query.processAllAvailable()
    topics.delete(topic)
    with pytest.raises(Exception, match="the topic or the partition was deleted"):
        query.awaitTermination(int(PATIENCE_S))
    topics.create(topic)
    topics.write_values(topic, 9)
    with pytest.raises(Exception, match="the topic was deleted and made again"):
        seen.run(frame)
    assert seen.values() == numbers((0, 5))
