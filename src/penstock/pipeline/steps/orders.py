"""The steps of `orders`: raw orders judged, doubles dropped, customers added, revenue summed up by the minute. Frames in, frames out.

Rules:
- Nothing is lost without a trace. A record that is no order, or comes too late to be counted, becomes a dead letter as it came, with the
  reason; an order of a customer whom nobody knows is counted for an unknown country.
- Whether an order is late is judged by its record's timestamp, not by what else was read so far. A replay judges it the same way.
- The same `order_id` is the same order: the first one counts, within a span that bounds what must be remembered.
Not here: topics and where they are read from (jobs/orders.py), and the example's orders (examples/).
"""

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.pipeline.steps import times

LATE_AFTER = timedelta(minutes=10)  # An order older than this when its record was written is too late to be counted.
EARLY_MAX = timedelta(minutes=1)  # Clocks differ; an order that is dated further ahead than this is wrong.
DOUBLES_WITHIN = timedelta(hours=1)  # How long an order's id is remembered.
# Revenue waits so long for orders: as late as they may be, and as far ahead as clocks may be, and what partitions are read apart.
REVENUE_WAITS = LATE_AFTER + EARLY_MAX + timedelta(minutes=4)
WINDOW = timedelta(minutes=1)
NOBODY = "unknown"  # Country and segment of customers whom nobody knows.

_TEXT, _LONG = T.StringType(), T.LongType()
ORDER = T.StructType().add("order_id", _TEXT).add("customer_id", _TEXT).add("amount_cents", _LONG).add("ordered_at", _TEXT)
CUSTOMER = T.StructType().add("name", _TEXT).add("country", _TEXT).add("segment", _TEXT)
ENRICHED = T.StructType([*ORDER.fields, *CUSTOMER.fields])

_FIELDS = ORDER.fieldNames()
_BROKEN = "_broken"
_CENTS_MAX = 10**11  # A billion in the currency: whoever orders for more has mistyped.


def judged(raw: DataFrame) -> DataFrame:
    """Records of raw orders with the order's fields beside them, and in `reason` why one cannot be counted; null where it can."""
    schema = T.StructType([*ORDER.fields, T.StructField(_BROKEN, _TEXT)])
    parsed = F.from_json(F.col("value").cast("string"), schema, {"columnNameOfCorruptRecord": _BROKEN})
    opened = raw.withColumn("order", parsed).withColumn("ordered_at", F.try_to_timestamp("order.ordered_at"))
    fields = [F.col(f"order.{name}").alias(name) for name in _FIELDS if name != "ordered_at"]
    return opened.select(*raw.columns, *fields, "ordered_at", _reason().alias("reason"))


def once(orders: DataFrame, within: timedelta = DOUBLES_WITHIN) -> DataFrame:
    """Without orders that were there before. What is no order has no id of its own and is told apart by its place in the log."""
    place = F.concat_ws("/", "topic", "partition", "offset")
    told_apart = orders.withColumn("identity", F.when(F.col("reason").isNull(), F.col("order_id")).otherwise(place))
    # By the records' time, which hardly runs backwards, and not by the orders' own: an order that comes late is not dropped for that.
    return times.once(told_apart, ["identity"], within=_text(within)).drop("identity")


def validated(raw: DataFrame) -> DataFrame:
    """Raw orders as records of clean ones, each once; those with a `reason` keep their bytes and say where they come from."""
    orders = once(judged(raw))
    is_good = F.col("reason").isNull()
    clean = F.to_json(F.struct("order_id", "customer_id", "amount_cents", _iso("ordered_at").alias("ordered_at")))
    return orders.select(
        F.when(is_good, F.col("customer_id").cast("binary")).otherwise(F.col("key")).alias("key"),
        F.when(is_good, clean.cast("binary")).otherwise(F.col("value")).alias("value"),
        "reason",
        F.struct("topic", "partition", "offset").alias("origin"),
    )


def opened(records: DataFrame, schema: T.StructType = ORDER) -> DataFrame:
    """Records that an earlier stage wrote, as their fields; `ordered_at` is a time."""
    fields = records.select(F.from_json(F.col("value").cast("string"), schema).alias("order")).select("order.*")
    return fields.withColumn("ordered_at", F.to_timestamp("ordered_at"))


def customers_of(table: DataFrame) -> DataFrame:
    """The latest record of each customer as the customer's fields; a customer who was deleted is none."""
    fields = F.from_json(F.col("value").cast("string"), CUSTOMER)
    known = table.where(F.col("value").isNotNull()).select(F.col("key").cast("string").alias("customer_id"), fields.alias("customer"))
    return known.select("customer_id", "customer.*")


def enriched(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Orders with their customer's name, country and segment."""
    joined = orders.join(F.broadcast(customers), "customer_id", "left")
    return joined.select(*_FIELDS, "name", *(F.coalesce(name, F.lit(NOBODY)).alias(name) for name in ("country", "segment")))


def revenue(orders: DataFrame, waits: timedelta = REVENUE_WAITS) -> DataFrame:
    """What each country's customers ordered in each minute of the orders' own time: one row for a minute, once it is complete."""
    sums = [F.count("*").alias("orders"), F.sum("amount_cents").alias("revenue_cents")]
    minutes = times.windowed(orders, sums, time="ordered_at", width=_text(WINDOW), waits=_text(waits), by=["country"])
    return minutes.select(_iso("start").alias("minute"), "country", "orders", "revenue_cents")


def keyed(frame: DataFrame, key: Column) -> DataFrame:
    """Rows as records: the key, and all columns as JSON."""
    times = {field.name for field in frame.schema.fields if isinstance(field.dataType, T.TimestampType)}
    columns = [_iso(name).alias(name) if name in times else F.col(name) for name in frame.columns]
    return frame.select(key.cast("binary").alias("key"), F.to_json(F.struct(*columns)).cast("binary").alias("value"))


def _reason() -> Column:
    """The first thing that is wrong with an order."""
    behind = F.col("ordered_at") < F.col("timestamp") - _span(LATE_AFTER)
    ahead = F.col("ordered_at") > F.col("timestamp") + _span(EARLY_MAX)
    return (
        F.when(F.col("value").isNull(), "the record has no value")
        .when(F.col(f"order.{_BROKEN}").isNotNull(), "not JSON, or a field of another type")
        .when(F.coalesce("order.order_id", F.lit("")) == "", "order_id is missing")
        .when(F.coalesce("order.customer_id", F.lit("")) == "", "customer_id is missing")
        .when(F.col("order.amount_cents").isNull(), "amount_cents is missing")
        .when(~F.col("order.amount_cents").between(1, _CENTS_MAX), f"amount_cents is not between 1 and {_CENTS_MAX}")
        .when(F.col("ordered_at").isNull(), "ordered_at is missing, or no time as in 2026-01-31T12:00:00Z")
        .when(ahead, f"ordered_at is more than {_text(EARLY_MAX)} after the record was written")
        .when(behind, f"too late to be counted: ordered_at is more than {_text(LATE_AFTER)} before the record was written")
    )


def _iso(column: str) -> Column:
    return F.date_format(F.to_utc_timestamp(F.col(column), F.current_timezone()), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def _span(span: timedelta) -> Column:
    return F.expr(f"INTERVAL '{int(span.total_seconds())}' SECOND")


def _text(span: timedelta) -> str:
    return f"{int(span.total_seconds())} seconds"
