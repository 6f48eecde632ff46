"""The report on traffic as one HTML file.

Names of topics and groups and keys of records come from strangers: every text is escaped.
Not here: what the figures are (findings.py), what pages of all reports have in common and how curves are drawn (reports/).
"""

from collections.abc import Sequence
from html import escape

from penstock.pipeline.reports.pages import table, whole_page
from penstock.pipeline.reports.plots import COLOURS, Curve, Span, bars, clock, curves, short
from penstock.pipeline.traffic.findings import Delays, Findings, TopicFindings

KEY_CHARACTERS_MAX = 60


def page(findings: Findings) -> str:
    names = ", ".join(topic.topic for topic in findings.topics)
    body = [_overview(findings.topics), *(_topic(topic, number) for number, topic in enumerate(findings.topics))]
    return whole_page(f"Traffic of {names}", source=findings.source, made_at_s=findings.made_at_s, body=body)


def _overview(topics: Sequence[TopicFindings]) -> str:
    rows = [
        [
            f"<a href='#t{number}'>{escape(topic.topic)}</a>", short(topic.record_count), short(topic.record_count / max(topic.seconds, 1)),
            short(topic.byte_count) + "B", short(topic.byte_count / max(topic.record_count, 1)) + "B", str(len(topic.skew.loads)),
            f"{topic.skew.ratio:.2f}", str(len(topic.anomalies)),
        ]
        for number, topic in enumerate(topics)
    ]  # fmt: skip
    heads = ["topic", "records", "a second", "bytes", "a record", "partitions", "fullest ÷ fair", "oddities"]
    return table(heads, rows)


def _topic(topic: TopicFindings, number: int) -> str:
    parts = [f"<h2 id='t{number}'>{escape(topic.topic)}</h2>"]
    if topic.strays:
        parts.append(f"<p class='s'>{topic.strays} records have a time before 1970 or in the future, and are in no plot.</p>")
    if not topic.starts:
        return "".join(parts) if topic.strays else "".join([*parts, "<p>Nothing was written.</p>"])
    parts += [_rate(topic), _oddities(topic), _sizes(topic), _lags(topic)]
    parts += [_delays(f"Until {group} has committed it", topic, delays) for group, delays in topic.delays.items()]
    if topic.ages is not None:
        parts.append(_delays("From what it tells of to the record", topic, topic.ages))
    return "".join([*parts, _balance(topic)])


def _rate(topic: TopicFindings) -> str:
    per_second = [count / topic.window_s for count in topic.records]
    low = [None if one.count is None else one.low / topic.window_s for one in topic.expected]
    high = [None if one.count is None else one.high / topic.window_s for one in topic.expected]
    spans = [Span(one.first, one.end, f"{one.oddity.value}: {one.count} records, {one.expected:.0f} expected") for one in topic.anomalies]
    plot = curves("Records a second", topic.starts, [Curve("records a second", per_second)], unit="/s", band=(low, high), spans=spans)
    return f"<h3>Rate</h3><p class='s'>Records a second in windows of {topic.window_s} s; shaded: what was to be expected.</p>{plot}"


def _oddities(topic: TopicFindings) -> str:
    rows = []
    for one in topic.anomalies:
        lasted = f"{(one.end - one.first) * topic.window_s} s"
        rows.append([clock(topic.starts[one.first]), lasted, one.oddity.value, str(one.count), f"{one.expected:.0f}"])
    return table(["from", "for", "oddity", "records", "expected"], rows) if rows else ""


def _sizes(topic: TopicFindings) -> str:
    plot = curves("Bytes a second", topic.starts, [Curve("bytes a second", [size / topic.window_s for size in topic.bytes])], unit="B/s")
    return f"<h3>Size</h3>{plot}"


def _lags(topic: TopicFindings) -> str:
    if not topic.lags:
        return "<h3>Lag</h3><p class='s'>No group was looked at: run it with watch=60s while the groups read.</p>"
    lines = [Curve(group, lag, _colour(number)) for number, (group, lag) in enumerate(topic.lags.items())]
    last = ", ".join(f"{escape(group)} {lag}" for group, lag in topic.last_lags.items())
    is_seen = any(lag is not None for line in lines for lag in line.values)  # Else the looks came long after the records.
    plot = curves("Lag in records", topic.starts, lines) if is_seen else ""
    return f"<h3>Lag</h3><p class='s'>Records; at the last look: {last}.</p>{plot}"


def _delays(title: str, topic: TopicFindings, delays: Delays) -> str:
    is_long = max((value for value in delays.max_ms if value is not None), default=0.0) >= 10_000
    scale, unit = (1_000, " s") if is_long else (1, " ms")
    series = {"median": delays.p50_ms, "99 of 100": delays.p99_ms, "longest": delays.max_ms}
    lines = [
        Curve(name, [None if value is None else value / scale for value in values], colour, is_dashed=name == "longest")
        for (name, values), colour in zip(series.items(), COLOURS, strict=False)
    ]
    return f"<h3>Latency: {escape(title[0].lower() + title[1:])}</h3>{curves(title, topic.starts, lines, unit=unit)}"


def _balance(topic: TopicFindings) -> str:
    skew = topic.skew
    fair = sum(skew.loads) / max(len(skew.loads), 1)
    names = [str(partition) for partition in range(len(skew.loads))]
    plot = bars("Records of each partition", [float(load) for load in skew.loads], names=names, line=fair)
    fine = " fine" if skew.ratio <= 1.5 else ""
    rows = []
    for key in skew.heavy:
        salt = f"{key.salt} keys" if key.salt > 1 else ""
        size, name = short(key.bytes) + "B", f"<code>{_key(key.key)}</code>"
        rows.append([name, str(key.records), f"{key.share:.1%}", size, str(key.partition), salt])
    keys = table(["key", "records", "share", "bytes", "partition", "write it as"], rows) if rows else ""
    return f"<h3>Partitions and keys</h3>{plot}<p class='advice{fine}'>{escape(skew.advice.text)}</p>{keys}"


def _key(key: bytes) -> str:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = "0x" + key.hex()
    text = text if text.isprintable() else repr(text)
    return escape(text if len(text) <= KEY_CHARACTERS_MAX else text[:KEY_CHARACTERS_MAX] + "…")


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
