"""The sink under Spark itself: frames and streams, restarts from a checkpoint, a task that fails, and what is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting import until

if TYPE_CHECKING:
    import pyarrow as pa
    from pipeline_topics import Topics
    from pyspark.sql import DataFrame, SparkSession

    from penstock.testing.brokers import Broker

pytestmark = [pytest.mark.needs("spark"), pytest.mark.spark]

COLUMNS = "key binary, value string, topic string, partition int, headers array<struct<key: string, value: binary>>, more double"


def write(frame: "DataFrame", node: "Broker", mode: str = "append", **options: object) -> None:
    frame.write.format("penstock").option("kafka.bootstrap.servers", node.bootstrap).options(**options).mode(mode).save()


def texts(topics: "Topics", topic: str) -> list[str]:
    """What readers of committed records see once every partition has heard how the last transaction ended."""
    until(lambda: topics.ends(topic) == topics.ends(topic, is_committed_only=False), "no transaction is left open")
    return sorted((value or b"").decode() for value in topics.values(topic))


class Stream:
    """A query from one topic to another, cut into small batches, that runs until everything is read."""

    def __init__(self, spark: "SparkSession", node: "Broker", source: str, sink: str, checkpoint: str) -> None:
        self.spark, self.node, self.source, self.sink, self.checkpoint = spark, node, source, sink, checkpoint

    def run(self, step: Any = None, **options: object) -> int:
        """The number of the last batch."""
        reader = self.spark.readStream.format("penstock").option("kafka.bootstrap.servers", self.node.bootstrap)
        frame = reader.option("subscribe", self.source).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 20).load()
        frame = frame.select("key", "value") if step is None else step(frame.select("key", "value"))
        writer = frame.writeStream.format("penstock").option("kafka.bootstrap.servers", self.node.bootstrap).options(**options)
        query = writer.option("topic", self.sink).option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        progress = query.lastProgress
        return -1 if progress is None else int(progress["batchId"])

    def forget_commit_of(self, batch: int) -> None:
        """As if the driver had died between the sink's commit and its own."""
        for file in (Path(self.checkpoint) / "commits").glob(f"*{batch}*"):
            file.unlink()


def test_a_frame_is_written_row_by_row_to_where_it_says(spark: "SparkSession", node: "Broker", topics: "Topics") -> None:
    first, second = topics.create(partitions=2), topics.create(partitions=1)
    rows = [
        (b"k", "a", first, 1, [("h", b"1"), ("h", None)], 1.0),
        (None, None, first, 0, None, 2.0),
        (b"k", "c", second, None, [], None),
    ]
    write(spark.createDataFrame(rows, COLUMNS), node)
    seen = [(one.partition, one.key, one.value, one.headers) for one in topics.read(first)]
    assert seen == [(0, None, None, ()), (1, b"k", b"a", (("h", b"1"), ("h", None)))]
    assert texts(topics, second) == ["c"]
    frame = spark.range(20_000).selectExpr("cast(id as string) as key", "cast(id as string) as value", "'nowhere' as topic")
    write(frame.repartition(3), node, topic=first, **{"kafka.compression.type": "lz4"})
    assert texts(topics, first) == sorted(["", "a", *map(str, range(20_000))]), "the option goes before the column"


def test_what_cannot_be_written_is_refused_in_words(spark: "SparkSession", node: "Broker", topics: "Topics") -> None:
    frame, topic = spark.range(1).selectExpr("cast(id as string) as value"), topics.create()
    for problem, action in {
        "the frame has no column value, only id": lambda: write(spark.range(1), node, topic=topic),
        "set the option topic, or give the frame a column topic": lambda: write(frame, node),
        "topics cannot be overwritten": lambda: write(frame, node, mode="overwrite", topic=topic),
        "write exactly-once or at-least-once": lambda: write(frame, node, topic=topic, deliver="twice"),
    }.items():
        with pytest.raises(Exception, match=problem):
            action()
    assert topics.values(topic) == []


def test_a_write_with_a_number_counts_once_however_often_it_is_made(spark: "SparkSession", node: "Broker", topics: "Topics") -> None:
    """As foreachBatch makes it: Spark may call it again for the same batch."""
    topic, frame = topics.create(partitions=2), spark.range(100).selectExpr("cast(id as string) as value")
    for number in (0, 0, 1, 1):
        write(frame, node, topic=topic, sinkId=f"numbered-{topic}", batchId=number)
    assert texts(topics, topic) == sorted([*map(str, range(100))] * 2)
    with pytest.raises(Exception, match="has committed batch 1, and batch 0 is to be written"):
        write(frame, node, topic=topic, sinkId=f"numbered-{topic}", batchId=0)


def test_a_stream_that_is_started_again_goes_on_where_it_was(
    spark: "SparkSession", node: "Broker", topics: "Topics", checkpoint: str
) -> None:
    """Also where Spark had not noted the last batch: it comes again, and is found written."""
    source, sink = topics.create(partitions=2), topics.create(partitions=3)
    stream, ledger = Stream(spark, node, source, sink, checkpoint), f"ledger-{sink}"
    topics.write_values(source, 50)
    last = stream.run(ledgerTopic=ledger)
    assert last >= 2, "several batches"
    assert texts(topics, sink) == sorted(map(str, range(50)))
    stream.forget_commit_of(last)
    topics.write_values(source, 10, first=50)
    stream.run(ledgerTopic=ledger)
    assert texts(topics, sink) == sorted(map(str, range(60)))
    runs = {one.value for one in topics.read(ledger) if (one.key or b"").startswith(b'["run"')}
    assert len(runs) == 2, "a run is one start of the query, not one batch"
    keys = {one.value: one.partition for one in topics.read(sink)}
    assert len(set(keys.values())) == 3, "keys spread over the partitions"


def test_a_task_that_fails_in_the_middle_is_tried_again(
    spark: "SparkSession", node: "Broker", topics: "Topics", checkpoint: str, tmp_path: Path
) -> None:
    """Once by itself, then until Spark gives up: the query fails, readers are not held back, and the next start writes the batch."""
    source, sink = topics.create(partitions=2), topics.create(partitions=2)
    topics.write_values(source, 20)
    stumbles = tmp_path / "stumbles"
    stumbles.write_text("1")

    def stumbling(frame: "DataFrame") -> "DataFrame":
        return frame.mapInArrow(stumble(str(stumbles)), frame.schema)

    stream = Stream(spark, node, source, sink, checkpoint)
    stream.run(stumbling)
    assert stumbles.read_text() == "0", "nothing stumbled"
    assert texts(topics, sink) == sorted(map(str, range(20)))
    stumbles.write_text("3")
    topics.write_values(source, 20, first=20)
    with pytest.raises(Exception, match="stumbled"):
        stream.run(stumbling)
    assert texts(topics, sink) == sorted(map(str, range(20))), "rows of a batch that failed are seen"
    stream.run(stumbling)
    assert texts(topics, sink) == sorted(map(str, range(40)))


def stumble(stumbles: str) -> Any:
    """Fails after its first rows as often as the file says."""

    def step(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        file = Path(stumbles)
        for batch in batches:
            yield batch.slice(0, 3)
            left = int(file.read_text())
            if left:
                file.write_text(str(left - 1))
                raise ValueError("stumbled")
            yield batch.slice(3)

    return step
