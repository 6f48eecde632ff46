"""Latest values: of all records of a key the last one, and nothing of a key whose last record has no value.

Within a partition the offset decides, whatever the timestamps say. A key that stands in several partitions (the topic has grown since, or
somebody chose partitions by hand) has its latest where the timestamp is greatest: offsets of different partitions cannot be compared.
Pure: frame → frame. Records come with the columns of the source; rows without a key belong to no one and are left out.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

COLUMNS = ("key", "value", "partition", "offset", "timestamp", "headers")


def latest(records: DataFrame) -> DataFrame:
    """One row for each key, those without a value included: they still have to beat what came before them."""
    keyed = records.where(F.col("key").isNotNull()).select(*COLUMNS).repartition("key")  # One shuffle for both steps.
    row = F.struct(*(name for name in COLUMNS if name != "key")).alias("row")
    in_partition = keyed.groupBy("key", "partition").agg(F.max_by(row, "offset").alias("row"))
    chosen = in_partition.groupBy("key").agg(F.max_by("row", F.struct("row.timestamp", "partition")).alias("row"))
    return chosen.select("key", "row.*")


def standing(rows: DataFrame) -> DataFrame:
    """Without the keys that were removed."""
    return rows.where(F.col("value").isNotNull())
