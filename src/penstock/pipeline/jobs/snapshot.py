"""`snapshot`: a compacted topic → a table of the latest value of each key, as Parquet or Delta. Keys that were removed are gone.

    topic ─ what came since the last time ─┐
    table ─ what it holds ─────────────────┴► latest for each key ─ without the removed ─► one commit ─► table

A refresh reads on from the offsets that the table was made of, which stand in the same commit as its rows: killed half-way nothing has
changed, and no record counts twice or is missed. Readers see the table before or after, whole.
A tombstone is kept by the topic for a while only (delete.retention.ms, a day by default). A table that was not refreshed for longer could
have missed one for good; so after `rebuild-after` without a refresh, and where the topic was made anew or has lost records that
the table has not seen, it is made from the topic's beginning.
Not here: what latest means (steps/latest.py), and how a commit replaces rows (lake/).
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.options import Options
from penstock.pipeline.pipeline import BatchContext, Job, JobOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.pipeline.lake.layout import Partition
    from penstock.pipeline.lake.table import Table

PARTITION_BY = ("topic",)
LOOK_SECONDS = 0.2
ATTEMPTS = 3  # Others who refresh the same table at the same time may be faster so often.


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where a topic begins and ends, by partition, for readers of committed records; and which topic it is."""

    topic_id: str
    earliest: Mapping[int, int]
    latest: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Refresh:
    """What a refresh reads: these offsets, on top of what the table holds."""

    starts: Mapping[int, int]
    ends: Mapping[int, int]
    rebuilt_why: str | None = None  # Instead of what the table holds, and the reason.

    def marks(self, topic_id: str, seen: Mapping[int, int | None], now_ms: int) -> dict[str, int]:
        """What the commit notes beside the rows. Only what grows: a mark that stands still would say that it was made before."""
        grown = {partition: end for partition, end in self.ends.items() if end > (seen[partition] or 0)}
        return {mark_of(topic_id, partition): end for partition, end in grown.items()} | {refreshed_at(topic_id): now_ms}


def run(context: BatchContext) -> None:
    options = Options(context.options)
    every_s = options.seconds("every", 0.0) if context.options["every"] else 0.0
    is_forced = options.flag("rebuild", False)
    while True:
        refresh_once(context, is_forced=is_forced)
        due = time.monotonic() + every_s
        while every_s and time.monotonic() < due and not context.is_stopping():
            time.sleep(LOOK_SECONDS)
        if not every_s or context.is_stopping():
            return


def refresh_once(context: BatchContext, *, is_forced: bool = False) -> None:
    from penstock.pipeline.lake.table import open_table, retain_of

    told = Options(context.options)
    form = told.choice("format", "parquet", ("parquet", "delta"))
    table = open_table(context.options["to"], form, partition_by=PARTITION_BY)
    for _ in range(ATTEMPTS):
        offsets = offsets_of(context.bootstrap, context.options["topic"])
        seen = {partition: table.mark(mark_of(offsets.topic_id, partition)) for partition in offsets.latest}
        refreshed_ms = table.mark(refreshed_at(offsets.topic_id))
        age_s = _age_s(refreshed_ms)
        refresh = plan(offsets, seen, age_s=age_s, rebuild_after_s=told.seconds("rebuild-after", 0.0), is_forced=is_forced)
        if refresh is None:
            context.say(f"{context.options['topic']}: nothing new")
            return
        marks = refresh.marks(offsets.topic_id, seen, max(int(time.time() * 1000), (refreshed_ms or 0) + 1))
        if _carry_out(refresh, context, table, marks, all_marks(offsets.topic_id, seen, refreshed_ms)):
            table.clean(retain_s=retain_of(told))
            return
    raise PipelineComplaint(f"others refresh {table.path} all the time", "let one job do it")


def plan(
    offsets: Offsets, seen: Mapping[int, int | None], *, age_s: float | None, rebuild_after_s: float, is_forced: bool = False
) -> Refresh | None:
    """What there is to do in view of the offsets that the table has seen, and of how old it is; None where it is as the topic is."""
    for partition, end in seen.items():
        if end is not None and end > offsets.latest[partition]:
            raise PipelineComplaint(
                f"partition {partition} ends at {offsets.latest[partition]}, and the table has seen it up to {end}: records were lost",
                "make the table anew at another path",
            )
    if age_s is None:
        return Refresh(offsets.earliest, offsets.latest, "there is no table of this topic yet")
    if is_forced:
        return Refresh(offsets.earliest, offsets.latest, "asked for")
    if any(end is not None and end < offsets.earliest[partition] for partition, end in seen.items()):
        return Refresh(offsets.earliest, offsets.latest, "the topic has dropped records that the table has not seen")
    if age_s > rebuild_after_s:
        return Refresh(offsets.earliest, offsets.latest, "the last refresh was so long ago that tombstones may have been missed")
    starts = {partition: offsets.earliest[partition] if end is None else end for partition, end in seen.items()}
    return None if starts == dict(offsets.latest) else Refresh(starts, offsets.latest)


def _carry_out(
    refresh: Refresh, context: BatchContext, table: "Table", marks: Mapping[str, int], seen: Mapping[str, int | None]
) -> bool:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    from penstock.pipeline.lake.sink import arrow_schema
    from penstock.pipeline.lake.staging_frames import stage_frame
    from penstock.pipeline.lake.table import landed_after_all
    from penstock.pipeline.steps.latest import standing

    topic, counted = context.options["topic"], Observation()
    within = (("topic", topic),)
    if refresh.rebuilt_why is not None:
        context.say(f"{topic}: made from the topic's beginning: {refresh.rebuilt_why}")
    records = _records(context, refresh).observe(counted, F.count(F.lit(1)).alias("rows"))
    rows = standing(_on_top_of(table, within, records, refresh))
    files = stage_frame(rows, table, within=within)
    schema = arrow_schema(rows.withColumn("topic", F.lit(topic)).schema)
    if not table.commit(files, schema=schema, marks=marks, replace=within, seen=seen) and not landed_after_all(table, files):
        return False
    context.count("rows", counted.get["rows"])
    context.say(f"{topic}: {counted.get['rows']:,} records read, {sum(file.rows for file in files):,} keys")
    return True


def _records(context: BatchContext, refresh: Refresh) -> "DataFrame":
    topic = context.options["topic"]
    told = {
        "kafka.bootstrap.servers": context.bootstrap,
        "subscribe": topic,
        "startingOffsets": _as_json(topic, refresh.starts),
        "endingOffsets": _as_json(topic, refresh.ends),
        "includeHeaders": "true",
    }
    return context.spark.read.format("penstock").options(**told).load()


def _on_top_of(table: "Table", within: "Partition", records: "DataFrame", refresh: Refresh) -> "DataFrame":
    from penstock.pipeline.lake.table import frame_of
    from penstock.pipeline.steps.latest import COLUMNS, latest

    held = table.snapshot(within)
    if refresh.rebuilt_why is not None or not held.files:
        return latest(records)
    return latest(records.select(*COLUMNS).unionByName(frame_of(records.sparkSession, held).select(*COLUMNS)))


def offsets_of(bootstrap: str, topic: str) -> Offsets:
    from penstock.peers.failures import UnknownTopic
    from penstock.peers.offsets import EARLIEST, LATEST
    from penstock.pipeline.brokers import brokers
    from penstock.vocabulary import TopicPartition

    broker = brokers({"kafka.bootstrap.servers": bootstrap})
    try:
        view = broker.run(broker.client.describe(topic))
    except UnknownTopic:
        raise PipelineComplaint(f"there is no topic {topic!r} at {bootstrap}", "check the name; `penstock topics list` shows all") from None
    places = [TopicPartition(topic, one.partition) for one in view.partitions]

    def asked(which: int) -> dict[int, int]:
        found = broker.run(broker.client.list_offsets({place: which for place in places}, is_committed_only=True))
        return {place.partition: each.offset for place, each in sorted(found.items())}

    return Offsets(str(view.topic_id), asked(EARLIEST), asked(LATEST))


def mark_of(topic_id: str, partition: int) -> str:
    """The name under which a table keeps the next offset of a partition. A topic that is made anew has another id, and no marks."""
    return f"snapshot/{topic_id}/{partition}"


def refreshed_at(topic_id: str) -> str:
    return f"snapshot/{topic_id}/refreshed-at-ms"


def all_marks(topic_id: str, seen: Mapping[int, int | None], refreshed_ms: int | None) -> dict[str, int | None]:
    """Everything that a refresh has gone by. Where one of them has changed by its end, another was faster, and may have seen more."""
    return {mark_of(topic_id, partition): end for partition, end in seen.items()} | {refreshed_at(topic_id): refreshed_ms}


def _as_json(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in offsets.items()}})


def _age_s(at_ms: int | None) -> float | None:
    return None if at_ms is None else time.time() - at_ms / 1000


JOB = Job(
    "snapshot",
    "A compacted topic as a table of the latest value of each key; keys that were removed are gone.",
    options=(
        JobOption("topic", "the topic"),
        JobOption("to", "the directory of the table; it may hold the tables of several topics"),
        JobOption("format", "parquet, or delta (needs penstock[lake])", "parquet"),
        JobOption("every", "refresh again and again, so long apart (30s, 5m); once where nothing is said", ""),
        JobOption("rebuild", "true makes it from the topic's beginning", "false"),
        JobOption("rebuild-after", "after so long without a refresh likewise; below the topic's delete.retention.ms", "12h"),
        JobOption("retain", "how long files that no longer count stay for those who read them", "24h"),
    ),
    run=run,
)
