"""`archive`: topics → files by topic and date, each record exactly once, as plain Parquet or as a Delta table.

    topics ─ rows with their date ─► staged files ─ one commit (query, batch) ─► topic=…/date=…/*.parquet
                                                       └ every so often: small files become one

Every column of a record is kept (key, value, partition, offset, timestamp, timestampType, headers), so that `replay` can bring it back.
The date is that of the record's timestamp in the time zone asked for, UTC by default; it does not depend on where the job runs. Timestamps
before the year 1 and after 9999, which brokers take as well, are kept as they are under the first and the last date that there is.
A job whose checkpoint was lost goes on after the last offset that the archive holds: no record comes twice, and none is left out.
Not here: how files come to count once (lake/), and reading them back (jobs/replay.py).
"""

import json
import os
from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.options import Options
from penstock.pipeline.pipeline import Job, JobOption, Pipeline
from penstock.pipeline.stage import Context, FromFrame, Stage, ToFormat

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.peers.topics import TopicView

STAGE = "files"
DAY_US = 86_400_000_000
FIRST_DAY, LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))  # No other date has a text that all readers know.
MEBIBYTE = 2**20
STARTS = {"earliest": -2, "latest": -1}  # As the source writes them in offsets by partition.
COLUMNS = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers", "topic", "date")
PARTITION_BY = ("topic", "date")


def pipeline(options: Mapping[str, str]) -> Pipeline:
    from penstock.pipeline.lake.table import retain_of

    told = Options(options)
    _check_zone(options["time-zone"])
    told.choice("starting", "earliest", tuple(STARTS))
    told.whole("rows", None, low=1)
    retain_of(told)
    table = {
        "path": options["to"],
        "tableFormat": told.choice("format", "parquet", ("parquet", "delta")),
        "partitionBy": ",".join(PARTITION_BY),
        "fileBytes": str(told.whole("file-mb", 128, low=1) * MEBIBYTE),
        "compactEvery": str(told.whole("compact-every", 50)),
        "retain": options["retain"],
    }
    return Pipeline(
        "archive",
        [Stage(STAGE, FromFrame(records), dated, ToFormat("penstock-lake", table), trigger=options["every"])],
        summary=JOB.summary,
    )


def records(context: Context) -> "DataFrame":
    """The topics as a stream: from the checkpoint where there is one, else after what the archive holds."""
    told = {
        "kafka.bootstrap.servers": context.bootstrap,
        "subscribe": context.options["topics"],
        "startingOffsets": context.options["starting"],
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": context.options["rows"],
        "groupId": f"{context.pipeline}.{context.stage}",
    }
    if not has_begun(context.checkpoint):
        told |= _after_what_is_held(context)
    return context.spark.readStream.format("penstock").options(**told).load()


def dated(frame: "DataFrame", context: Context) -> "DataFrame":
    """The records with their date in the wanted zone, reckoned from the timestamp alone: the session's own zone has no say."""
    from pyspark.sql import functions as F

    # A producer may write any 64 bits as a timestamp. Java cannot shift the extreme ones to a zone, so they are bounded before and after.
    bounded = F.timestamp_micros(_between(F.unix_micros("timestamp"), FIRST_DAY * DAY_US, (LAST_DAY + 1) * DAY_US - 1))
    local_us = F.unix_micros(F.from_utc_timestamp(bounded, context.options["time-zone"]))
    day = F.date_from_unix_date(_between(F.floor(local_us / DAY_US), FIRST_DAY, LAST_DAY).cast("int"))
    return frame.withColumn("date", F.when(F.col("timestamp").isNotNull(), day)).select(*COLUMNS)


def _between(number: "Column", low: int, high: int) -> "Column":
    from pyspark.sql import functions as F

    return F.greatest(F.lit(low), F.least(F.lit(high), number))


def has_begun(checkpoint: str) -> bool:
    """Whether Spark has noted offsets there and goes by them. It makes the directory first: one that is empty says nothing.

    Of a checkpoint at an address (hdfs://…) nothing is known here; asking the archive is never wrong, since Spark goes by its notes anyway.
    """
    directory = os.path.join(checkpoint, "offsets")
    return os.path.isdir(directory) and any(name.isdigit() for name in os.listdir(directory))


def _after_what_is_held(context: Context) -> dict[str, str]:
    """Where to begin without a checkpoint: each partition after its last archived record. Nothing where the archive holds none of them."""
    from penstock.pipeline.brokers import brokers
    from penstock.pipeline.lake.positions import ends_of
    from penstock.pipeline.lake.table import open_table

    topics = [name.strip() for name in context.options["topics"].split(",")]
    ends = ends_of(open_table(context.options["to"], context.options["format"], partition_by=PARTITION_BY).snapshot(), topics)
    if not any(ends.values()):
        return {}
    broker = brokers({"kafka.bootstrap.servers": context.bootstrap})
    fresh = STARTS[context.options["starting"]]
    starts = {topic: _starts(broker.run(broker.client.describe(topic)), known, fresh) for topic, known in ends.items()}
    return {"startingOffsets": json.dumps(starts)}


def _starts(topic: "TopicView", ends: Mapping[int, int], fresh: int) -> dict[str, int]:
    return {str(one.partition): ends.get(one.partition, fresh) for one in topic.partitions}


def _check_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise PipelineComplaint(f"there is no time zone {name!r}", "write one like UTC or Europe/Vienna") from None


JOB = Job(
    "archive",
    "Topics into files by topic and date, exactly once: plain Parquet, or a Delta table.",
    options=(
        JobOption("topics", "the topics, with commas between"),
        JobOption("to", "the directory of the archive; on a cluster, one that all machines reach"),
        JobOption("format", "parquet, or delta (needs penstock[lake])", "parquet"),
        JobOption("time-zone", "whose calendar the dates are of", "UTC"),
        JobOption("starting", "earliest or latest: where a new archive begins", "earliest"),
        JobOption("every", "how often what has come is written; longer makes fewer and larger files", "10 seconds"),
        JobOption("rows", "the most rows of one batch", "1000000"),
        JobOption("file-mb", "the size to which small files are joined, and at which a file is finished", "128"),
        JobOption("compact-every", "join small files after so many batches; 0 never does", "50"),
        JobOption("retain", "how long files that no longer count stay for those who read them", "24h"),
    ),
    build=pipeline,
)
