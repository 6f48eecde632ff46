"""Any frame laid out as an archive: in lanes of keys, each in order, so that it can be replayed in order, bounded and resumable.

A frame has no order and no positions. Here each row gets a lane by its key and a number within the lane by the wanted order, and both are
written down once, as `partition` and `offset` of an archive of one topic. Whoever is killed while spooling begins anew; whoever finds the
spool done uses it as it is, also where the frame's own source has changed meanwhile: positions in a checkpoint keep their meaning.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.lake.table import open_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DONE = "spooled"  # The mark under which the rows count.
COLUMNS = ("key", "value", "headers", "partition", "offset", "timestamp", "timestampType", "topic")
_ORDER = "__order"
HEADERS = "array<struct<key:string,value:binary>>"


def is_spooled(path: str) -> bool:
    return open_table(path, "parquet").mark(DONE) is not None


def spool(frame: "DataFrame", path: str, *, topic: str, lanes: int, order_by: Sequence[str]) -> None:
    """Writes the records of a frame (`as_records`) to `path`. One whole task sorts one lane, on disk where it must."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    for name in order_by:
        if name not in frame.columns:
            has = ", ".join(frame.columns)
            raise PipelineComplaint(f"rows should be in the order of {name!r}, which the table does not have", f"it has {has}")
    lane = F.when(F.col("key").isNull(), F.monotonically_increasing_id()).otherwise(F.xxhash64("key"))
    order = F.struct(*(F.col(name) for name in order_by)) if order_by else F.monotonically_increasing_id()
    laned = frame.withColumns({_ORDER: order, "partition": F.pmod(lane, F.lit(lanes)).cast("int")})
    number = (F.row_number().over(Window.partitionBy("partition").orderBy(_ORDER)) - 1).cast("long")
    numbered = laned.withColumns({"offset": number, "timestampType": F.lit(-1), "topic": F.lit(topic)}).select(*COLUMNS)
    numbered.write.format("penstock-lake").mode("append").options(path=path, partitionBy="topic", writeId=DONE).save()


def as_records(frame: "DataFrame", *, key: str | None, value: str | None) -> "DataFrame":
    """Key, value, headers and timestamp of each row, beside its own columns.

    Key and value are expressions of SQL, bytes as they are and all else as its text; without them the columns of that name, else no key and
    the whole row as JSON.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, TimestampType

    def column(expression: str | None, name: str, otherwise: "Column") -> "Column":
        chosen = F.expr(expression) if expression else F.col(name) if name in frame.columns else otherwise
        is_binary = isinstance(frame.select(chosen).schema[0].dataType, BinaryType)
        return chosen if is_binary else chosen.cast("string").cast("binary")  # Numbers and times have no other bytes; ANSI refuses them.

    whole = F.to_json(F.struct(*(F.col(f"`{name}`") for name in frame.columns)), {"ignoreNullFields": "false"})
    headers = F.col("headers") if "headers" in frame.columns else F.lit(None)
    has_time = "timestamp" in frame.columns and isinstance(frame.schema["timestamp"].dataType, TimestampType)
    made = {
        "key": column(key, "key", F.lit(None)),
        "value": column(value, "value", whole),
        "headers": headers.cast(HEADERS),
        "timestamp": F.col("timestamp") if has_time else F.current_timestamp(),
    }
    return frame.withColumns(made)
