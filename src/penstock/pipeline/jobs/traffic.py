"""`traffic`: a report on topics. Rate, size, lag and latency by the window, oddities, heavy keys and what would spread them.

    topics ──────────► windows, keys, latency ─► findings ─► traffic.html
    groups ─ watch ─► penstock.traffic ┘

Lag and latency over time come from samples of what groups have committed: `watch=60s` looks for a minute before it reports, and samples of
earlier runs count as well. Latency is told as finely as samples were taken, once a second as a rule.
Not here: the steps (steps/traffic.py), and what the figures mean (traffic/).
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipeline.pipeline import BatchContext, Job, JobOption
from penstock.pipeline.reports.windows import window_that_fits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.pipeline.traffic.findings import Findings, WindowRow
    from penstock.pipeline.traffic.skew import Skew
    from penstock.pipeline.traffic.wishes import Wishes


def run(context: BatchContext) -> None:
    from penstock.pipeline.traffic.page import page
    from penstock.pipeline.traffic.sampling import make_samples_topic
    from penstock.pipeline.traffic.wishes import wishes

    wanted = wishes(context.options)
    make_samples_topic(context.bootstrap, wanted.samples)
    if wanted.watch_s:
        _watch(context, wanted)
    found = findings(context, wanted)
    file = Path(wanted.report)
    file.write_text(page(found))
    for topic in found.topics:
        context.count("rows", topic.record_count)
        strays = f" and {topic.strays} of impossible times" if topic.strays else ""
        context.say(f"{topic.topic}: {topic.record_count} records{strays}, {len(topic.anomalies)} oddities; {topic.skew.advice.text}")
    context.say(f"the report stands in {file.absolute()}")


def findings(context: BatchContext, wanted: "Wishes") -> "Findings":
    """Everything that the report tells."""
    from penstock.pipeline.steps import traffic as steps
    from penstock.pipeline.traffic.findings import DelayRow, Findings, LagRow, WindowRow, topic_findings

    raw = _since(_read(context, wanted.topics), wanted.last_s)
    records, samples = steps.measured(raw), _samples(context, wanted)
    now_s = time.time()
    window_s = wanted.window_s or _window_that_fits(records, now_s)
    windows: dict[str, list[WindowRow]] = defaultdict(list)
    for row in steps.by_window(records, window_s).collect():
        windows[row.topic].append(WindowRow(row.topic, row.partition, row.start, row.records, row.bytes))
    lags: dict[str, dict[str, list[LagRow]]] = defaultdict(lambda: defaultdict(list))
    delays: dict[str, dict[str, list[DelayRow]]] = defaultdict(lambda: defaultdict(list))
    for row in steps.lags(samples, window_s).collect():
        lags[row.topic][row.group].append(LagRow(row.start, row.lag))
    if lags:
        for row in steps.delays(records, samples, window_s).collect():
            delays[row.topic][row.group].append(DelayRow(row.start, row.p50_ms, row.p99_ms, row.max_ms))
    ages: dict[str, list[DelayRow]] = defaultdict(list)
    if wanted.event_time:
        for row in steps.ages(raw, wanted.event_time, window_s).collect():
            ages[row.topic].append(DelayRow(row.start, row.p50_ms, row.p99_ms, row.max_ms))
    skews = _skews(context, records, windows, wanted)
    told = [
        topic_findings(
            topic, window_s, windows[topic], skew=skews[topic], lags=lags[topic], delays=delays[topic], ages=ages[topic],
            expected_rate=wanted.expected_rate, now_s=now_s,
        )
        for topic in wanted.topics
    ]  # fmt: skip
    return Findings(context.bootstrap, now_s, told)


def _watch(context: BatchContext, wanted: "Wishes") -> None:
    from penstock.pipeline.traffic.sampling import watch

    context.say(f"looking at {', '.join(wanted.groups) or 'all groups'} for {wanted.watch_s:g} s")
    seen = watch(
        context.bootstrap, wanted.topics, groups=wanted.groups, into=wanted.samples, seconds=wanted.watch_s, every_s=wanted.every_s,
        is_stopping=context.is_stopping,
    )  # fmt: skip
    context.say(f"{seen} samples went to {wanted.samples}")


def _read(context: BatchContext, topics: Sequence[str]) -> "DataFrame":
    told = {"kafka.bootstrap.servers": context.bootstrap, "subscribe": ",".join(topics)}
    return context.spark.read.format("penstock").options(**told).load()


def _since(records: "DataFrame", last_s: float | None) -> "DataFrame":
    from pyspark.sql import functions as F

    if last_s is None:
        return records
    return records.where(F.col("timestamp") >= F.lit(datetime.fromtimestamp(time.time() - last_s, UTC)))


def _samples(context: BatchContext, wanted: "Wishes") -> "DataFrame":
    from pyspark.sql import functions as F

    from penstock.pipeline.steps import traffic as steps

    samples = steps.opened_samples(_since(_read(context, [wanted.samples]), wanted.last_s))
    of_topics = samples.where(F.col("topic").isin(wanted.topics))
    return of_topics.where(F.col("group").isin(wanted.groups)) if wanted.groups else of_topics


def _window_that_fits(records: "DataFrame", now_s: float) -> int:
    from pyspark.sql import functions as F

    from penstock.pipeline.traffic.findings import AHEAD_SECONDS_MAX

    second = F.unix_seconds("timestamp")
    plausible = records.where(second.between(0, int(now_s) + AHEAD_SECONDS_MAX))
    first, last = plausible.agg(F.min(second), F.max(second)).collect()[0]
    return window_that_fits((last - first) if first is not None else 0)


def _skews(
    context: BatchContext, records: "DataFrame", windows: "Mapping[str, Sequence[WindowRow]]", wanted: "Wishes"
) -> "dict[str, Skew]":
    from penstock.pipeline.brokers import brokers
    from penstock.pipeline.steps import traffic as steps
    from penstock.pipeline.traffic.skew import judge, partition_counts

    broker = brokers({"kafka.bootstrap.servers": context.bootstrap})
    partitions = {topic: len(broker.run(broker.client.describe(topic)).partitions) for topic in wanted.topics}
    tried = sorted({count for number in partitions.values() for count in partition_counts(number)})
    keys = steps.by_key(records).cache()
    heaviest: dict[str, list[tuple[bytes, int, int]]] = defaultdict(list)
    for row in steps.heaviest(keys, wanted.keys).orderBy("rank").collect():
        heaviest[row.topic].append((bytes(row.key), row.records, row.bytes))
    placed = {topic: {count: [0] * count for count in partition_counts(number)} for topic, number in partitions.items()}
    for row in steps.placed(keys, tried).collect():
        if row.partitions in placed[row.topic]:
            placed[row.topic][row.partitions][row.partition] += row.records
    keyless = {row.topic: row.records for row in keys.where("key is null").collect()}
    keys.unpersist()
    skews = {}
    for topic, number in partitions.items():
        loads = [0] * number
        for window in windows.get(topic, ()):
            loads[window.partition] += window.records
        skews[topic] = judge(loads, heaviest[topic], placed[topic], keyless=keyless.get(topic, 0))
    return skews


JOB = Job(
    "traffic",
    "A report on rate, size, lag, latency and key skew of topics.",
    options=(
        JobOption("topics", "the topics to report on, with commas between"),
        JobOption("report", "the file that is written", "traffic.html"),
        JobOption("window", "how long a window is (10s, 5m); one that suits the time span where none is given", ""),
        JobOption("last", "only records of the last time (1h, 7d); all where nothing is said", ""),
        JobOption("expected", "records a second that are expected of each topic; learned from the windows before where none is given", ""),
        JobOption("watch", "look for so long (60s) at what groups have committed, before reporting", "0"),
        JobOption("every", "how long from one look to the next", "1s"),
        JobOption("groups", "only these groups, with commas between; all without a name", ""),
        JobOption("samples", "the topic that keeps what was seen of groups", "penstock.traffic"),
        JobOption("event-time", "the field of JSON values that has the time of what they tell of", ""),
        JobOption("keys", "how many heavy keys to tell", "20"),
    ),
    run=run,
)
