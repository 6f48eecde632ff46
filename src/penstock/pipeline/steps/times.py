"""What depends on time: the same thing only once, and sums over windows. Both forget, by a watermark, so that state stays bounded."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def once(frame: DataFrame, by: Sequence[str], *, within: str, time: str = "timestamp") -> DataFrame:
    """The first row of each combination of these columns; one that comes again `within` that span ("1 hour") is dropped.

    By the record's own time, unless told otherwise: a column that runs backwards would drop rows that only come late."""
    if not frame.isStreaming:
        return frame.dropDuplicates(list(by))
    return frame.withWatermark(time, within).dropDuplicatesWithinWatermark(list(by))


def windowed(frame: DataFrame, sums: Sequence[Column], *, time: str, width: str, waits: str, by: Sequence[str] = ()) -> DataFrame:
    """These sums over windows of that width, one row a window and combination of `by`, with its `start` and `end`.

    A window's row is written once, when it is over for longer than `waits`; a row that comes later than that is not counted."""
    groups = frame.withWatermark(time, waits).groupBy(F.window(time, width).alias("_window"), *by)
    rows = groups.agg(*sums).withColumn("start", F.col("_window.start")).withColumn("end", F.col("_window.end"))
    return rows.select("start", "end", *(name for name in rows.columns if name not in ("_window", "start", "end")))
