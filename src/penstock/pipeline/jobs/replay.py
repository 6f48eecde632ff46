"""`replay`: an archive or any table → a topic, in order for each key, no faster than asked, exactly once.

    archive ──────────────────────────► read in offset order, at a bounded rate ─► sink (exactly once) ─► topic
    any table ─ lanes of keys, sorted ─► spool ─┘

One streaming query does it, which ends when everything that was there at its start is written. Killed or stopped, it goes on from its
checkpoint: the sink recognises a batch that it has written before. Started again after its end, it brings what was archived since.
Order: records of one partition of the archive, and so of one key, are written in the order of their offsets. Rows of a table are written
in the order of `order-by` for each key. Between keys there is no order.
Not here: reading an archive (lake/reading.py), tables in lanes (lake/spool.py), the sink.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.options import Options, WrongOption
from penstock.pipeline.pipeline import BatchContext, Job, JobOption, Pipeline
from penstock.pipeline.progress import StageProgress
from penstock.pipeline.stage import Context, FromFrame, Stage, ToFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGE = "rows"
ARCHIVE = "archive"
SAY_SECONDS = 2.0
GRACE_SECONDS = 1.0  # Batches follow each other without a gap, so that a stop finds none; a batch cut short is done again.
READ_OPTIONS = {"csv": {"header": "true"}}  # Without its first line nobody could name a column.
LANES = 8  # Of a table, where the topic is not there yet to say how many partitions it has.


@dataclass(frozen=True, slots=True)
class Wish:
    """What is replayed and where to. A checkpoint belongs to one."""

    source: str
    format: str
    topic: str
    to: str
    order_by: tuple[str, ...]
    key: str
    value: str
    starting_ms: int | None
    ending_ms: int | None
    keeps_partitions: bool
    keeps_timestamps: bool


def run(context: BatchContext) -> None:
    wish = read_wish(context.options)
    _claim(context.checkpoint, wish)
    path, form, topic = _archive_of(context, wish)
    if _is_empty(path, form):
        context.say(f"{wish.source} has no rows")
        return
    _make_topic(context.bootstrap, wish, lambda: _partitions_of(path, form, topic))
    told = {"path": path, "tableFormat": form, "topic": topic} | _bounds(wish, context.options)
    stage = Stage(STAGE, FromFrame(lambda given: records(given, told)), _shaper(wish), _sink(context.bootstrap, wish))
    _drive(Pipeline(JOB.name, [stage], summary=JOB.summary), context)


def records(context: Context, told: Mapping[str, str]) -> "DataFrame":
    return context.spark.readStream.format("penstock-lake").options(**told).load()


def read_wish(options: Mapping[str, str]) -> Wish:
    given = Options(options)
    wish = Wish(
        source=options["from"],
        format=options["from-format"].strip().lower(),
        topic=options["topic"],
        to=options["to"],
        order_by=tuple(name.strip() for name in options["order-by"].split(",") if name.strip()),
        key=options["key"],
        value=options["value"],
        starting_ms=_moment("starting", options["starting"]),
        ending_ms=_moment("ending", options["ending"]),
        keeps_partitions=given.choice("partitions", "by-key", ("by-key", "keep")) == "keep",
        keeps_timestamps=given.choice("timestamps", "new", ("new", "keep")) == "keep",
    )
    given.whole("rate", 0)
    if wish.format == ARCHIVE and (wish.order_by or wish.key or wish.value):
        raise WrongOption("order-by, key and value are for tables; an archive has its own", "leave them out, or say from-format parquet")
    if wish.format != ARCHIVE and (wish.keeps_partitions or wish.starting_ms is not None or wish.ending_ms is not None):
        raise WrongOption("partitions, starting and ending are for archives, and this is a table", "leave them out")
    return wish


def _archive_of(context: BatchContext, wish: Wish) -> tuple[str, str, str]:
    """Path, format and topic of the archive to be read: the one asked for, or a spool made of a table."""
    from penstock.pipeline.lake.positions import topics_of
    from penstock.pipeline.lake.reading import chosen_topic
    from penstock.pipeline.lake.spool import as_records, is_spooled, spool
    from penstock.pipeline.lake.table import format_at, open_table

    if wish.format == ARCHIVE:
        form = format_at(wish.source)
        return wish.source, form, chosen_topic(wish.topic or None, topics_of(open_table(wish.source, form).snapshot()), wish.source)
    path = os.path.join(context.checkpoint, "spool")
    if not is_spooled(path):
        frame = as_records(table_rows(context.spark, wish.format, wish.source), key=wish.key or None, value=wish.value or None)
        order = wish.order_by or tuple(name for name in ("partition", "offset") if {"partition", "offset"} <= set(frame.columns))
        if not order:
            context.say("no order-by: rows of one key are written in no particular order")
        context.say(f"sorting the rows of {wish.source} by key")
        spool(frame, path, topic=wish.to, lanes=_partition_count(context.bootstrap, wish.to) or LANES, order_by=order)
    return path, "parquet", wish.to


def table_rows(spark: "SparkSession", format: str, path: str) -> "DataFrame":
    from penstock.pipeline.lake.table import frame_of, open_table

    if format == "delta":
        return frame_of(spark, open_table(path, "delta").snapshot())
    return spark.read.format(format).options(**READ_OPTIONS.get(format, {})).load(path)


def _shaper(wish: Wish) -> Callable[["DataFrame", Context], "DataFrame"]:
    columns = {"key": True, "value": True, "headers": True, "partition": wish.keeps_partitions, "timestamp": wish.keeps_timestamps}
    return lambda frame, context: frame.select(*(name for name, is_wanted in columns.items() if is_wanted))


def _sink(bootstrap: str, wish: Wish) -> ToFormat:
    told = {"kafka.bootstrap.servers": bootstrap, "topic": wish.to, "includeTimestamp": str(wish.keeps_timestamps).lower()}
    return ToFormat("penstock", told)


def _bounds(wish: Wish, options: Mapping[str, str]) -> dict[str, str]:
    told = {"rowsPerBatch": options["rows"]}
    if int(options["rate"]):
        told["rowsPerSecond"] = options["rate"]
    if wish.starting_ms is not None:
        told["startingTimestamp"] = str(wish.starting_ms)
    if wish.ending_ms is not None:
        told["endingTimestamp"] = str(wish.ending_ms)
    return told


def _drive(pipeline: Pipeline, context: BatchContext) -> None:
    """Runs the query to its end, and tells how far it is."""
    from penstock.pipeline.running import Plan, Run

    going = Run(pipeline, context.spark, Plan(context.bootstrap, context.checkpoint, context.options, is_once=True, grace_s=GRACE_SECONDS))
    stage = going.progress.stages[STAGE]
    stopping = threading.Event()
    said_at, counted = time.monotonic(), 0

    def look() -> None:
        nonlocal said_at, counted
        context.count("rows", stage.rows_out - counted)
        counted = stage.rows_out
        if context.is_stopping():
            stopping.set()
        if stage.batches and time.monotonic() - said_at >= SAY_SECONDS:
            said_at = time.monotonic()
            context.say(how_far(stage))

    going.start()
    try:
        going.wait(stopping, look)
    finally:
        going.stop()
    look()
    context.say(f"{counted:,} rows written" + ("; stopped, the next run goes on from here" if stopping.is_set() else ""))


def how_far(stage: StageProgress) -> str:
    """Of a batch that is done again Spark does not say how much is left behind it."""
    left = "" if stage.lag is None else f" {stage.lag:,} to go,"
    return f"{stage.rows_out:,} rows written,{left} {stage.rows_per_second:,.0f} rows/s in the last batch"


def _claim(checkpoint: str, wish: Wish) -> None:
    """A checkpoint that was made for another replay would skip rows of this one."""
    path = os.path.join(checkpoint, "replay.json")
    told = json.loads(json.dumps(asdict(wish)))
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            before = json.load(file)
        for name, value in told.items():
            if before.get(name) != value:
                raise PipelineComplaint(
                    f"the checkpoint {checkpoint} belongs to another replay: its {name} is {before.get(name)!r}, not {value!r}",
                    "run this one under another name (--name), or with other checkpoints",
                )
        return
    os.makedirs(checkpoint, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(told, file)


def _make_topic(bootstrap: str, wish: Wish, partitions: Callable[[], int]) -> None:
    """Where it is missing, with as many partitions as the archive has."""
    from penstock.pipeline.brokers import brokers

    there = _partition_count(bootstrap, wish.to)
    if there is None:
        broker = brokers({"kafka.bootstrap.servers": bootstrap})
        broker.run(broker.client.create_topic(wish.to, partitions=partitions()))
    elif wish.keeps_partitions and there < partitions():
        raise PipelineComplaint(
            f"the topic {wish.to!r} has {there} partitions, and the archive has {partitions()}",
            f"penstock topics add-partitions {wish.to} {partitions()}, or leave out partitions=keep",
        )


def _partition_count(bootstrap: str, topic: str) -> int | None:
    from penstock.peers.failures import UnknownTopic
    from penstock.pipeline.brokers import brokers

    broker = brokers({"kafka.bootstrap.servers": bootstrap})
    try:
        return len(broker.run(broker.client.describe(topic)).partitions)
    except UnknownTopic:
        return None


def _is_empty(path: str, form: str) -> bool:
    from penstock.pipeline.lake.table import open_table

    return not open_table(path, form).snapshot().files


def _partitions_of(path: str, form: str, topic: str) -> int:
    from penstock.pipeline.lake.positions import spans_of
    from penstock.pipeline.lake.table import open_table

    return 1 + max((span.partition for span in spans_of(open_table(path, form).snapshot(), topic)), default=0)


def _moment(name: str, text: str) -> int | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongOption(f"{name} is {text!r}", "write a moment like 2026-11-15T12:00:00+01:00") from None
    if moment.tzinfo is None:
        raise WrongOption(f"{name} is {text!r}, which says no time zone", f"write {text}Z for UTC, or {text}+01:00")
    return int(moment.timestamp() * 1000)


JOB = Job(
    "replay",
    "An archive or any table into a topic, in order for each key, at a bounded rate, exactly once.",
    options=(
        JobOption("from", "the path of the archive or the table"),
        JobOption("to", "the topic; it is made where it is missing"),
        JobOption("from-format", "archive, or what the table is: parquet, delta, json, csv (with a line of names), orc", ARCHIVE),
        JobOption("topic", "which topic of the archive; the only one where nothing is said", ""),
        JobOption("rate", "the most rows a second; 0 for as fast as it goes", "0"),
        JobOption("rows", "the most rows of one batch", "100000"),
        JobOption("starting", "only records from this moment on, like 2026-11-15T00:00:00Z", ""),
        JobOption("ending", "only records before this moment", ""),
        JobOption("partitions", "by-key, or keep: each record into the partition that it came from", "by-key"),
        JobOption("timestamps", "new, or keep; retention drops kept ones by their age", "new"),
        JobOption("order-by", "of a table: the columns that say what comes first, with commas between", ""),
        JobOption("key", "of a table: an expression of SQL for the key; its column `key` where nothing is said", ""),
        JobOption("value", "of a table: an expression for the value; its column `value`, else the row as JSON", ""),
    ),
    run=run,
)
