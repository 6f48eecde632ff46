"""Joining a stream with a table: a compacted topic read as one, kept fresh while the query runs.

    customers = table(context, "customers")
    with_customers = looked_up(orders, customers, on="customer_id", into="customer")

Each micro-batch meets the table as it is when the batch begins, or a moment later; a batch that is done again after a failure may meet a
newer one. Whoever needs the state of the table at the time of an event joins two streams instead.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.pipeline.datasource import NAME
from penstock.pipeline.stage import Context


def table(context: Context, topic: str, **options: str) -> DataFrame:
    """The topic's latest record of each key that was not deleted, with the columns of the source. Fresh in every micro-batch."""
    told = {"kafka.bootstrap.servers": context.bootstrap, "subscribe": topic, "latestByKey": "true"} | options
    return context.spark.read.format(NAME).options(**told).load()


def latest(records: DataFrame) -> DataFrame:
    """The same of any frame of records that is no stream, such as an archive: key, value, partition, offset and timestamp of the last."""
    last = F.max_by(F.struct("value", "partition", "offset", "timestamp"), F.struct("timestamp", "offset"))
    return records.where(F.col("key").isNotNull()).groupBy("key").agg(last.alias("last")).select("key", "last.*").where("value IS NOT NULL")


def looked_up(frame: DataFrame, table: DataFrame, *, on: str, into: str) -> DataFrame:
    """The frame with one more column: the table's value for the key that the column `on` holds, null where the table has none.

    The table goes to every worker whole, so that the frame stays where it is."""
    small = table.select(F.col("key").alias("_key"), F.col("value").alias(into))
    return frame.join(F.broadcast(small), F.col(on).cast("binary") == F.col("_key"), "left").drop("_key")
