"""The two ends of a stage in Spark: the frame that it reads, and the writer that takes what its step gave back.

Rules: a stage reads from its topic under its own group, so that its lag shows where every other group's does. What is dead goes to the
dead letters in the same frame, and so in the same transaction as the rest. Each batch is counted on its way (`OBSERVED`), which the
query's progress tells.
Not here: starting the query (running).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, assert_never

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.datasource import NAME
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.stage import ORIGIN, REASON, Context, FromFrame, FromTopic, Stage, ToBatches, ToFormat, ToTopic

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

OBSERVED = "penstock"  # The name of the counts in a query's progress.
BOOTSTRAP = "kafka.bootstrap.servers"
HEADER = "penstock."  # What stands before the names of a dead letter's headers.
HEADERS = "array<struct<key:string,value:binary>>"


def whole_stage(stage: Stage, pipeline: Pipeline, context: Context) -> "DataStreamWriter":
    """Source, step and sink in one; not started yet."""
    return written(stage, stage.step(opened(stage, pipeline, context), context), context)


def opened(stage: Stage, pipeline: Pipeline, context: Context) -> DataFrame:
    match stage.source:
        case FromTopic(topic, starting, options):
            told = {BOOTSTRAP: context.bootstrap, "subscribe": topic, "startingOffsets": starting, "groupId": pipeline.group(stage)}
            if stage.dead_letters is not None:  # What cannot even be taken apart goes there too.
                told["deadLetterTopic"] = stage.dead_letters
            return context.spark.readStream.format(NAME).options(**(told | dict(options))).load()
        case FromFrame(build):
            return build(context)
        case _:
            assert_never(stage.source)


def written(stage: Stage, frame: DataFrame, context: Context) -> "DataStreamWriter":
    match stage.sink:
        case ToTopic(output_mode=mode, options=options):
            told = {BOOTSTRAP: context.bootstrap} | dict(options)
            records = as_records(stage, stage.sink, frame)
            return counted(records, stage.dead_letters).writeStream.format(NAME).options(**told).outputMode(mode)
        case ToFormat(kind, options, mode, partition_by):
            writer = counted(frame, None).writeStream.format(kind).options(**dict(options)).outputMode(mode)
            return writer.partitionBy(*partition_by) if partition_by else writer
        case ToBatches(write, mode):
            return counted(frame, None).writeStream.foreachBatch(lambda batch, number: write(batch, number, context)).outputMode(mode)
        case _:
            assert_never(stage.sink)


def as_records(stage: Stage, sink: ToTopic, frame: DataFrame) -> DataFrame:
    """The columns that the sink takes, each row with the topic that it goes to."""
    if "value" not in frame.columns:
        has = ", ".join(frame.columns)
        problem = f"stage {stage.name!r} writes to {sink.topic!r}, and its rows have no value but {has}"
        raise PipelineComplaint(problem, "let the step give back a column `value`")
    columns: dict[str, Column] = {name: F.col(name) for name in ("key", "value", "headers") if name in frame.columns}
    columns["topic"] = F.lit(sink.topic)
    if sink.topic_column is not None:
        columns["topic"] = F.coalesce(F.col(sink.topic_column), F.lit(sink.topic))
    if sink.partition_column is not None:
        columns["partition"] = F.col(sink.partition_column).cast("int")
    if REASON in frame.columns:
        columns |= _buried(stage, columns, has_origin=ORIGIN in frame.columns)
    return frame.select(*(column.alias(name) for name, column in columns.items()))


def counted(frame: DataFrame, dead_letters: str | None) -> DataFrame:
    """The same frame; how many rows pass, and how many of them to the dead letters, is told with each batch."""
    is_dead = F.col("topic") == dead_letters if dead_letters is not None else F.lit(False)
    return frame.observe(OBSERVED, F.count(F.lit(1)).alias("rows"), F.count(F.when(is_dead, 1)).alias("dead_letters"))


def _buried(stage: Stage, columns: Mapping[str, Column], *, has_origin: bool) -> dict[str, Column]:
    """What is different in a row with a reason: where it goes, and the headers, which say why and where it comes from."""
    if stage.dead_letters is None:
        raise PipelineComplaint(f"stage {stage.name!r} finds dead letters and has no topic for them", "give the stage dead_letters=…")
    is_dead = F.col(REASON).isNotNull()
    told = {"reason": F.col(REASON), "stage": F.lit(stage.name)}
    if has_origin:
        told |= {name: F.col(f"{ORIGIN}.{name}") for name in ("topic", "partition", "offset")}
    own = F.array(
        *(F.struct(F.lit(HEADER + name).alias("key"), text.cast("string").cast("binary").alias("value")) for name, text in told.items())
    )
    before = columns.get("headers", F.lit(None)).cast(HEADERS)
    changed = {
        "topic": F.when(is_dead, F.lit(stage.dead_letters)).otherwise(columns["topic"]),
        "headers": F.when(is_dead, F.concat(F.coalesce(before, F.array().cast(HEADERS)), own)).otherwise(before),
    }
    if "partition" in columns:  # That of the good topic says nothing about this one.
        changed["partition"] = F.when(~is_dead, columns["partition"])
    return changed
