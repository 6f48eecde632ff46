"""The steps of `dead-letters`: what queues have buried, by queue, kind of failure, worker and time. Frames in, frames out.

A letter is a record of a queue of dead letters that says which queue it comes from; other records of the topic are none. The *kind* of a
failure is its reason without what differs from message to message: ids and numbers. All of it is done by Spark's own functions, so that
no row goes through Python.
Not here: what the figures mean and how they look (dead_letters/).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

# The headers that a node writes on dead letters: queues/headers.py.
SOURCE, REASON, FAILED_AT, ID, ATTEMPTS = "penstock.source", "penstock.reason", "penstock.failed-at", "penstock.id", "penstock.attempts"
_NAMES = (SOURCE, REASON, FAILED_AT, ID, ATTEMPTS)

FAILURE = T.StructType().add("taken", T.LongType()).add("ended", T.LongType()).add("who", T.StringType()).add("reason", T.StringType())
HISTORY = T.StructType().add("count", T.IntegerType()).add("failures", T.ArrayType(FAILURE))

NO_REASON = "(no reason given)"
NOBODY = "(nobody named)"
KIND_CHARACTERS_MAX = 120

_CUT_OUT = (  # In this order: an id may have numbers in it.
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "<id>"),
    (r"\b0[xX][0-9a-fA-F]+\b", "<id>"),
    (r"\b(?=[0-9a-fA-F]*[0-9])(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,}\b", "<id>"),
    (r"[0-9]+(?:[.,:][0-9]+)*", "#"),
    (r"\s+", " "),
)


def kind_of(reason: Column) -> Column:
    """`order 4711 timed out after 30.5 s` is `order # timed out after # s`."""
    kind = reason
    for pattern, instead in _CUT_OUT:
        kind = F.regexp_replace(kind, pattern, instead)
    kind = F.left(F.trim(kind), F.lit(KIND_CHARACTERS_MAX))
    return F.when(kind.isNull() | (kind == ""), NO_REASON).otherwise(kind)


def letters(records: DataFrame) -> DataFrame:
    """One row for each dead letter: the queue it lies in (`topic`), the one it comes from (`queue`), id, reason and kind, when it failed
    for the last time and in whose hands, how often, and all that was tried. Records need their headers."""
    told = records.select("topic", "partition", "offset", "timestamp", *(_header(name).alias(name) for name in _NAMES))
    failed_at = F.timestamp_millis(F.col(f"`{FAILED_AT}`").try_cast("long"))
    opened = told.where(F.col(f"`{SOURCE}`").isNotNull()).select(
        "topic", "partition", "offset",
        F.col(f"`{SOURCE}`").alias("queue"),
        F.col(f"`{ID}`").alias("id"),
        F.coalesce(F.col(f"`{REASON}`"), F.lit("")).alias("reason"),
        F.coalesce(failed_at, F.col("timestamp")).alias("failed_at"),
        F.from_json(F.col(f"`{ATTEMPTS}`"), HISTORY).alias("history"),
    )  # fmt: skip
    failures = F.coalesce(F.col("history.failures"), F.array().cast(T.ArrayType(FAILURE)))
    return opened.select(
        "topic", "partition", "offset", "queue", "id", "reason", kind_of(F.col("reason")).alias("kind"), "failed_at",
        F.coalesce(F.col("history.count"), F.lit(0)).alias("attempts"),
        _named(F.try_element_at(failures, F.lit(-1))["who"]).alias("worker"),
        failures.alias("failures"),
    )  # fmt: skip


def by_kind(found: DataFrame) -> DataFrame:
    """Letters of each queue and kind of failure, with their times, how often they were tried, and one of them as an example."""
    return found.groupBy("queue", "kind").agg(
        F.count("*").alias("letters"),
        F.count_distinct("worker").alias("workers"),
        F.avg("attempts").alias("attempts"),
        F.min(F.unix_millis("failed_at")).alias("first_ms"),
        F.max(F.unix_millis("failed_at")).alias("last_ms"),
        F.max_by("reason", "failed_at").alias("example"),
        F.max_by("id", "failed_at").alias("example_id"),
    )


def by_window(found: DataFrame, seconds: int) -> DataFrame:
    """Letters of each queue and kind by the window of time in which they failed for the last time."""
    second = F.unix_seconds("failed_at")
    return found.groupBy("queue", "kind", (second - F.pmod(second, F.lit(seconds))).alias("start")).agg(F.count("*").alias("letters"))


def by_worker(found: DataFrame) -> DataFrame:
    """What failed in whose hands, the attempts before the last one too: who fails where others do not stands out."""
    each = found.select("queue", "id", "partition", "offset", F.explode("failures").alias("failure"))
    held = F.greatest(F.col("failure.ended") - F.col("failure.taken"), F.lit(0))
    return each.groupBy("queue", _named(F.col("failure.who")).alias("worker")).agg(
        F.count("*").alias("failures"),
        F.count_distinct("partition", "offset").alias("letters"),
        F.count_distinct(kind_of(F.col("failure.reason"))).alias("kinds"),
        F.percentile_approx(held, 0.5).alias("held_p50_ms"),
        F.max(held).alias("held_max_ms"),
    )


def redrivable(
    found: DataFrame, *, queue: str = "", reason: str = "", kind: str = "", worker: str = "", after_ms: int = 0, before_ms: int = 0
) -> DataFrame:
    """Those letters that fit everything that is given, one row for each id: what failed twice is sent back once."""
    fits = F.col("id").isNotNull()
    if queue:
        fits &= F.col("queue") == queue
    if reason:
        fits &= F.contains("reason", F.lit(reason))
    if kind:
        fits &= F.contains("kind", F.lit(kind))
    if worker:
        fits &= F.exists("failures", lambda each: each.who == worker)
    if after_ms:
        fits &= F.unix_millis("failed_at") >= after_ms
    if before_ms:
        fits &= F.unix_millis("failed_at") < before_ms
    last = found.where(fits).groupBy("topic", "id").agg(F.max_by(F.struct("queue", "kind", "failed_at"), "failed_at").alias("last"))
    return last.select("topic", "id", "last.queue", "last.kind", "last.failed_at")


def _header(name: str) -> Column:
    """As text; the last one where there are several, null where there is none. Strangers may have written any bytes there."""
    last = F.try_element_at(F.filter("headers", lambda each: each.key == name), F.lit(-1))
    return F.make_valid_utf8(last["value"].cast("string"))


def _named(who: Column) -> Column:
    return F.coalesce(F.nullif(who, F.lit("")), F.lit(NOBODY))
