"""What of the pipeline is measured, one step at a time: each makes its own topics, and deletes them.

- read: a batch query over a whole topic (count, sum of the values' lengths, highest offset), so that Spark must look at every row.
- write: rows that Spark makes up itself, so that "Spark alone" says what of the time is not the sink's.
- micro-batch: how long one takes when there is next to nothing in it.
- growth: the same read over more and more rows, and the most memory that a worker came to.
A figure is only reported when the rows were all there.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import pipeline_topics
from benchmarks.figures import Measure
from benchmarks.pipeline_spark import Cost, Meter
from benchmarks.pipeline_topics import Place
from benchmarks.steps import CPU_A_ROW, Pairs
from benchmarks.subjects import LoadFailed
from benchmarks.tables import quantile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

OURS, THEIRS = "penstock", "kafka"  # Formats.
TRICKLE = 200  # Rows a second.
KEY_BYTES = 8
_FIRST_FEW = 5
_STREAM_PATIENCE_S = 180.0


@dataclass(frozen=True, slots=True)
class Shape:
    value_bytes: int
    partitions: int
    rows: int

    def __str__(self) -> str:
        size = f"{self.value_bytes} B" if self.value_bytes < 1000 else f"{self.value_bytes // 1000} KB"
        return f"{size}, {self.partitions} partition{'s' if self.partitions > 1 else ''}"


@dataclass(frozen=True, slots=True)
class Bench:
    """A session and one broker."""

    spark: "SparkSession"
    place: Place
    meter: Meter

    # Reading.

    def read(self, topic: str, shape: Shape, frame: "DataFrame") -> Pairs:
        from pyspark.sql import functions as f

        query = frame.agg(f.count("*"), f.sum(f.length("value")), f.max("offset"))
        found: list[Any] = []
        cost = self.meter.measure(lambda: found.extend(query.collect()[0]))
        if (found[0], found[1]) != (shape.rows, shape.rows * shape.value_bytes):
            raise LoadFailed(f"{topic} gave {found} instead of {shape.rows:,} rows")
        yield from self._rates(f"read {shape}", shape, cost)

    def frame(self, form: str, topic: str, schema: str | None = None) -> "DataFrame":
        reader = self.spark.read.format(form).option("kafka.bootstrap.servers", self.place.bootstrap).option("subscribe", topic)
        return (reader.schema(schema) if schema else reader).load()

    def consume(self, topic: str, shape: Shape) -> Pairs:
        found: list[int] = []
        cost = self.meter.measure(lambda: found.extend(self._consumed(topic, shape)))
        if found != [shape.rows, shape.rows * shape.value_bytes]:
            raise LoadFailed(f"{topic} gave {found} instead of {shape.rows:,} rows")
        yield from self._rates(f"read {shape}", shape, cost)

    def _consumed(self, topic: str, shape: Shape) -> tuple[int, int]:
        return pipeline_topics.consume(self.place.bootstrap, topic, shape.partitions, shape.rows)

    # Writing.

    def write(self, shape: Shape, form: str | None, options: dict[str, str]) -> Pairs:
        """With no form the rows go nowhere."""
        with self.place.topic(shape.partitions) as topic:
            writer = self.rows(shape).write.mode("append").format(form or "noop")
            if form:
                writer = writer.option("kafka.bootstrap.servers", self.place.bootstrap).option("topic", topic).options(**options)
            cost = self.meter.measure(writer.save)
            if form:
                self._check_written(topic, shape)
        yield from self._rates(f"write {shape}", shape, cost)

    def produce(self, shape: Shape) -> Pairs:
        values = [(b"%08d" % row, bytes(shape.value_bytes)) for row in range(10_000)]
        with self.place.topic(shape.partitions) as topic:
            cost = self.meter.measure(lambda: pipeline_topics.produce(self.place.bootstrap, topic, values, shape.rows))
            self._check_written(topic, shape)
        yield from self._rates(f"write {shape}", shape, cost)

    def rows(self, shape: Shape) -> "DataFrame":
        from pyspark.sql import functions as f

        number = f.col("id").cast("string")
        value = f.rpad(number, shape.value_bytes, "x").cast("binary")
        key = f.lpad(number, KEY_BYTES, "0").cast("binary")
        return self.spark.range(0, shape.rows, 1, 2).select(key.alias("key"), value.alias("value"))

    def _check_written(self, topic: str, shape: Shape) -> None:
        found = self.frame(OURS, topic, "value binary").count()
        if found != shape.rows:
            raise LoadFailed(f"{found:,} of {shape.rows:,} rows were written")

    # Streaming.

    def micro_batches(self, source: str, sink: str | None, checkpoint: Path, count: int) -> Pairs:
        """How long each of `count` micro-batches takes at `TRICKLE` rows a second, one right after the other."""
        with self.place.topic(1) as came, self.place.topic(1) as gone, pipeline_topics.trickle(self.place.bootstrap, came, TRICKLE):
            stream = self.spark.readStream.format(source).option("kafka.bootstrap.servers", self.place.bootstrap).option("subscribe", came)
            writer = stream.load().select("key", "value").writeStream.format(sink or "noop").option("checkpointLocation", str(checkpoint))
            if sink:
                writer = writer.option("kafka.bootstrap.servers", self.place.bootstrap).option("topic", gone)
            query = writer.trigger(processingTime="0 seconds").start()
            try:
                took = sorted(_durations_ms(query, count))
            finally:
                query.stop()
        title = f"{self.place.name}: micro-batch, source to {'sink' if sink else 'nothing'}"
        yield Measure(f"{title}, p50", "ms"), median(took)
        yield Measure(f"{title}, p95", "ms"), quantile(took, 0.95)

    # Growth.

    def growth(self, sizes: list[int], partitions: int, value_bytes: int) -> Iterator[tuple[Measure, float]]:
        with self.place.topic(partitions, self.place.fill_configs) as topic:
            there = 0
            for rows in sizes:
                pipeline_topics.fill(self.place, topic, partitions=partitions, rows=rows - there, value_bytes=value_bytes)
                shape = Shape(value_bytes, partitions, rows)
                if not there:  # The first query of a session finds nothing warm.
                    self.frame(OURS, topic).count()
                there = rows
                for measure, value in self.read(topic, shape, self.frame(OURS, topic)):
                    if measure.unit == "rows/s":
                        yield Measure(f"{self.place.name}: read {rows / 1e6:g} M rows of {shape}", "rows/s"), value
                peak = self.meter.worker_memory_peak_bytes()
                yield Measure(f"{self.place.name}: a worker's memory after {rows / 1e6:g} M rows, highest", "MB"), peak / 1e6

    def _rates(self, title: str, shape: Shape, cost: Cost) -> Pairs:
        title = f"{self.place.name}: {title}"
        yield Measure(title, "rows/s"), shape.rows / cost.seconds
        yield Measure(title, "MB/s"), shape.rows * shape.value_bytes / cost.seconds / 1e6
        for who, seconds in (("JVM", cost.jvm_s), ("Python", cost.python_s), ("broker", cost.broker_s)):
            yield Measure(title, f"{CPU_A_ROW}, {who}"), seconds / shape.rows * 1e6


def _durations_ms(query: "StreamingQuery", count: int) -> list[int]:
    """Of micro-batches that had rows, without the first few, which find nothing warm."""
    give_up = time.monotonic() + _STREAM_PATIENCE_S
    while time.monotonic() < give_up:
        query.awaitTermination(1)  # Raises what ended it.
        took = [found["durationMs"]["triggerExecution"] for found in query.recentProgress if found["numInputRows"]]
        if len(took) >= count + _FIRST_FEW:
            return took[_FIRST_FEW:]
    raise LoadFailed(f"fewer than {count + _FIRST_FEW} micro-batches had rows in {_STREAM_PATIENCE_S:.0f} s")


Step = Callable[[], Pairs]
