"""The steps of `traffic`: what went through topics, by the window, by the key, and how long it took to arrive. Frames in, frames out.

Records come as `measured` makes them: their place, time, key and size, without the value, which is looked at once and then gone.
Samples say what a group had committed at some moment (`SAMPLE`).
Not here: what the figures mean (traffic/), and where samples come from (traffic/sampling.py).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE = (
    T.StructType()
    .add("group", T.StringType())
    .add("topic", T.StringType())
    .add("partition", T.IntegerType())
    .add("committed", T.LongType())  # The offset from which the group will read on.
    .add("end", T.LongType())  # The next offset to be written.
    .add("sampled_ms", T.LongType())
)
_PLACE = ("topic", "partition")


def measured(records: DataFrame) -> DataFrame:
    """Records as they count here: place, time, key and size in bytes."""
    size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
    return records.select("topic", "partition", "offset", "timestamp", "key", size.cast("long").alias("bytes"))


def by_window(records: DataFrame, seconds: int) -> DataFrame:
    """Records and bytes of each partition in each window of time that has any."""
    windows = records.groupBy(*_PLACE, _start("timestamp", seconds))
    return windows.agg(F.count("*").alias("records"), F.sum("bytes").alias("bytes"))


def by_key(records: DataFrame) -> DataFrame:
    """Records and bytes of each key; the key that is null is one, too."""
    return records.groupBy("topic", "key").agg(F.count("*").alias("records"), F.sum("bytes").alias("bytes"))


def heaviest(keys: DataFrame, count: int) -> DataFrame:
    """The keys of each topic that have the most records, as many as `count`; those without a key are nobody's."""
    rank = F.row_number().over(Window.partitionBy("topic").orderBy(F.desc("records"), "key"))
    return keys.where(F.col("key").isNotNull()).withColumn("rank", rank).where(F.col("rank") <= count)


def placed(keys: DataFrame, counts: Sequence[int]) -> DataFrame:
    """How many records each partition would have, if the topic had so many partitions and Java's client wrote it: one row for each
    number of partitions in `counts` and each partition that has any."""
    columns = [f"in_{count}" for count in counts]
    schema = T.StructType([T.StructField("topic", T.StringType()), T.StructField("records", T.LongType())])
    for column in columns:
        schema = schema.add(column, T.IntegerType())

    def place(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for batch in batches:
            key = batch.column("key")
            where = [partitions_of(key, count) for count in counts]
            yield pa.RecordBatch.from_arrays([batch.column("topic"), batch.column("records"), *where], ["topic", "records", *columns])

    rows = keys.where(F.col("key").isNotNull()).select("topic", "key", "records").mapInArrow(place, schema)
    each = F.explode(F.array(*(F.struct(F.lit(count).alias("partitions"), F.col(f"in_{count}").alias("partition")) for count in counts)))
    told = rows.select("topic", "records", each.alias("place")).select("topic", "records", "place.*")
    return told.groupBy("topic", "partitions", "partition").agg(F.sum("records").alias("records"))


def partitions_of(keys: "pa.Array", count: int) -> "pa.Array":
    """Where Java's client would put each of these keys, none of which is null."""
    import pyarrow as pa

    from penstock.wire.columns import BinaryColumn, partition_rows

    _, offsets, contents = keys.buffers()
    found = partition_rows(BinaryColumn(None, offsets, contents or b"", keys.offset), len(keys), count)
    return pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(found)])


def lags(samples: DataFrame, seconds: int) -> DataFrame:
    """How far each group was behind at the end of each window in which it was looked at, over all partitions."""
    behind = F.greatest(F.col("end") - F.col("committed"), F.lit(0))
    last = samples.groupBy("group", *_PLACE, _start("sampled_at", seconds)).agg(F.max_by(behind, "sampled_at").alias("lag"))
    return last.groupBy("group", "topic", "start").agg(F.sum("lag").alias("lag"))


def delays(records: DataFrame, samples: DataFrame, seconds: int) -> DataFrame:
    """How long after a record was written a group was first seen to have committed it, by the window in which it was written.

    What a group had committed before it was first looked at says nothing and is left out; so is what it has not committed yet."""
    first = samples.groupBy("group", *_PLACE).agg(F.min("committed").alias("seen_from"))
    wanted = records.join(F.broadcast(first), list(_PLACE)).where(F.col("offset") >= F.col("seen_from"))
    written = wanted.select("group", *_PLACE, "offset", "timestamp", F.lit(None).cast("timestamp").alias("sampled_at"))
    committed = samples.select("group", *_PLACE, (F.col("committed") - 1).alias("offset"), F.lit(None).cast("timestamp"), "sampled_at")
    later = Window.partitionBy("group", *_PLACE).orderBy(F.desc("offset")).rangeBetween(Window.unboundedPreceding, Window.currentRow)
    arrived = written.union(committed).withColumn("arrived_at", F.min("sampled_at").over(later))
    took = F.greatest(_millis("arrived_at") - _millis("timestamp"), F.lit(0))
    done = arrived.where(F.col("timestamp").isNotNull() & F.col("arrived_at").isNotNull()).withColumn("took_ms", took)
    return _percentiles(done, "group", "topic", seconds=seconds)


def ages(records: DataFrame, field: str, seconds: int) -> DataFrame:
    """How old what a record tells of was when the record was written, by a time in the JSON of its value."""
    told = F.try_to_timestamp(F.get_json_object(F.col("value").cast("string"), f"$.{field}"))
    known = records.withColumn("told_at", told).where(F.col("told_at").isNotNull())
    aged = known.withColumn("took_ms", F.greatest(_millis("timestamp") - _millis("told_at"), F.lit(0)))
    return _percentiles(aged, "topic", seconds=seconds)


def opened_samples(records: DataFrame) -> DataFrame:
    """Samples from the records of their topic; what is none is left out."""
    sample = F.from_json(F.col("value").cast("string"), SAMPLE)
    told = records.select(sample.alias("sample")).select("sample.*").where(F.col("sampled_ms").isNotNull() & F.col("committed").isNotNull())
    return told.withColumn("sampled_at", F.timestamp_millis("sampled_ms"))


def _percentiles(frame: DataFrame, *by: str, seconds: int) -> DataFrame:
    grouped = frame.groupBy(*by, _start("timestamp", seconds))
    return grouped.agg(
        F.count("*").alias("records"),
        F.percentile_approx("took_ms", 0.5).alias("p50_ms"),
        F.percentile_approx("took_ms", 0.99).alias("p99_ms"),
        F.max("took_ms").alias("max_ms"),
    )


def _start(time: str, seconds: int) -> Column:
    """The start of the window that a time lies in, in seconds since 1970."""
    second = F.unix_seconds(F.col(time))
    return (second - F.pmod(second, F.lit(seconds))).alias("start")


def _millis(time: str) -> Column:
    return F.unix_millis(F.col(time))
