"""`dead-letters`: a report on what queues have buried, and a list of what is to be sent back.

    queues of dead letters ─► letters ─► by kind, window, worker ─► findings ─► dead-letters.html
                                  └────► those that are chosen ───────────────► redrive.txt ─► penstock queues redrive

It only looks: no message is taken, finished or moved by it. It tells of all dead letters that are in the log; those that were sent back or
done since are among them as long as the log has them, and a redrive skips those.
Not here: the steps (steps/dead_letters.py), and what the figures mean (dead_letters/).
"""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipeline.pipeline import BatchContext, Job, JobOption
from penstock.pipeline.reports.windows import window_that_fits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.pipeline.dead_letters.findings import Findings
    from penstock.pipeline.dead_letters.wishes import Wishes

COLUMNS = "topic string, partition int, offset long, timestamp timestamp, headers array<struct<key: string, value: binary>>"


def run(context: BatchContext) -> None:
    from penstock.pipeline.dead_letters.page import page
    from penstock.pipeline.dead_letters.wishes import wishes
    from penstock.pipeline.steps.dead_letters import letters

    wanted = wishes(context.options)
    records = _records(context, wanted)
    found = letters(records).cache()
    try:
        listed = _list(context, found, wanted) if wanted.redrive else 0
        told = findings(context, found, wanted, strangers=records.count() - found.count(), listed=listed)
    finally:
        found.unpersist()
    file = Path(wanted.report)
    file.write_text(page(told))
    for queue in told.queues:
        context.count("rows", queue.letters)
        first = queue.kinds[0]
        context.say(f"{queue.queue}: {queue.letters} dead letters, {first.letters} of them: {first.kind}")
    if not told.queues:
        context.say("there are no dead letters")
    context.say(f"the report stands in {file.absolute()}")


def findings(context: BatchContext, found: "DataFrame", wanted: "Wishes", *, strangers: int, listed: int) -> "Findings":
    """Everything that the report tells."""
    from penstock.pipeline.dead_letters.findings import Findings, KindRow, WindowRow, WorkerRow, queue_findings
    from penstock.pipeline.steps import dead_letters as steps

    kinds = [KindRow(*(row[name] for name in KindRow._fields)) for row in steps.by_kind(found).collect()]
    span_s = (max(row.last_ms for row in kinds) - min(row.first_ms for row in kinds)) / 1000 if kinds else 0
    window_s = wanted.window_s or window_that_fits(span_s)
    windows = [WindowRow(row.queue, row.kind, row.start, row.letters) for row in steps.by_window(found, window_s).collect()]
    workers = [WorkerRow(*(row[name] for name in WorkerRow._fields)) for row in steps.by_worker(found).collect()]
    told = queue_findings(window_s, kinds, windows, workers)
    return Findings(context.bootstrap, time.time(), wanted.queues, window_s, told, strangers, listed)


def _records(context: BatchContext, wanted: "Wishes") -> "DataFrame":
    from pyspark.sql import functions as F

    told = {"kafka.bootstrap.servers": context.bootstrap, "subscribe": ",".join(wanted.queues), "includeHeaders": "true"}
    records = context.spark.read.format("penstock").schema(COLUMNS).options(**told).load()
    if wanted.last_s is None:
        return records
    return records.where(F.col("timestamp") >= F.lit(datetime.fromtimestamp(time.time() - wanted.last_s, UTC)))


def _list(context: BatchContext, found: "DataFrame", wanted: "Wishes") -> int:
    from penstock.pipeline.dead_letters.redrive_list import Listed, write_list
    from penstock.pipeline.steps.dead_letters import redrivable

    choice = wanted.choice
    fitting = redrivable(
        found, queue=choice.queue, reason=choice.reason, kind=choice.kind, worker=choice.worker,
        after_ms=choice.after_ms, before_ms=choice.before_ms,
    )  # fmt: skip
    rows = fitting.orderBy("failed_at", "id").limit(wanted.limit + 1).collect()
    chosen = [Listed(row.topic, row.id, row.queue, row.kind) for row in rows[: wanted.limit]]
    file = Path(wanted.redrive)
    listed = write_list(file, chosen, is_cut=len(rows) > wanted.limit)
    context.say(f"{listed} to be sent back are listed in {file.absolute()}")
    return listed


JOB = Job(
    "dead-letters",
    "A report on what queues have buried and why, and a list of what to send back.",
    options=(
        JobOption("queues", "the queues that hold the dead letters, with commas between"),
        JobOption("report", "the file that is written", "dead-letters.html"),
        JobOption("redrive", "the file for the list of what to send back; none where no name is given", ""),
        JobOption("source", "on the list: only those that came from this queue", ""),
        JobOption("reason", "on the list: only those with this text in the last reason", ""),
        JobOption("kind", "on the list: only those with this text in the kind of failure, as the report shows it", ""),
        JobOption("worker", "on the list: only those that failed in this worker's hands", ""),
        JobOption("failed-after", "on the list: only those that failed at this time (2026-01-31T12:00:00Z) or later", ""),
        JobOption("failed-before", "on the list: only those that failed before this time", ""),
        JobOption("limit", "the most ids on the list, the oldest failures first", "100000"),
        JobOption("window", "how long a window is (60s, 5m); one that suits the time span where none is given", ""),
        JobOption("last", "only dead letters of the last time (1h, 7d); all where nothing is said", ""),
    ),
    run=run,
)
