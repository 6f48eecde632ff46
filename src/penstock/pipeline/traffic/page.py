"""The report as one HTML file: no script, no font, no picture from elsewhere, so that it can be mailed and opened anywhere.

Names of topics and groups and keys of records come from strangers: every text is escaped.
Not here: what the figures are (findings.py) and how curves are drawn (plots.py).
"""

from collections.abc import Sequence
from html import escape

from penstock.pipeline.traffic.findings import Delays, Findings, TopicFindings
from penstock.pipeline.traffic.plots import COLOURS, Curve, Span, bars, clock, curves, short

KEY_CHARACTERS_MAX = 60

STYLE = """
body { font: 15px/1.5 ui-sans-serif, system-ui, sans-serif; color: #1d2b3a; background: #fff; }
body { max-width: 900px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #d5dce4; }
h3 { margin: 1.4rem 0 .2rem; font-size: 1rem; }
svg { width: 100%; height: auto; font-size: 11px; }
svg text { fill: #5a6b7c; }
table { border-collapse: collapse; width: 100%; margin: .6rem 0; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #e6ebf0; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
code { font-size: .92em; overflow-wrap: anywhere; }
p.advice { background: #fdf6e7; border-left: 3px solid #b07d2b; padding: .4rem .8rem; }
p.fine { border-color: #4b8b5a; background: #eef7ee; }
.s { color: #5a6b7c; margin: 0; }
ul.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 1.2rem; padding: 0 0 0 64px; margin: 0; font-size: .85rem; }
ul.legend i { display: inline-block; width: 14px; height: 3px; margin-right: .4rem; vertical-align: middle; }
"""


def page(findings: Findings) -> str:
    made = clock(findings.made_at_s, "%Y-%m-%d %H:%M:%S UTC")
    names = ", ".join(topic.topic for topic in findings.topics)
    body = [f"<h1>Traffic of {escape(names)}</h1>", f'<p class="s">{escape(findings.source)}, {made}. All times are UTC.</p>']
    body.append(_overview(findings.topics))
    body.extend(_topic(topic, number) for number, topic in enumerate(findings.topics))
    title = f"Traffic of {escape(names)}"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{"".join(body)}</body></html>\n'


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
    return _table(heads, rows)


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
    return _table(["from", "for", "oddity", "records", "expected"], rows) if rows else ""


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
    table = _table(["key", "records", "share", "bytes", "partition", "write it as"], rows) if rows else ""
    return f"<h3>Partitions and keys</h3>{plot}<p class='advice{fine}'>{escape(skew.advice.text)}</p>{table}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML already."""
    head = "".join(f"<th{_numeric(number)}>{escape(text)}</th>" for number, text in enumerate(heads))
    body = "".join("<tr>" + "".join(f"<td{_numeric(number)}>{cell}</td>" for number, cell in enumerate(row)) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _numeric(column: int) -> str:
    return ' class="n"' if column else ""


def _key(key: bytes) -> str:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = "0x" + key.hex()
    text = text if text.isprintable() else repr(text)
    return escape(text if len(text) <= KEY_CHARACTERS_MAX else text[:KEY_CHARACTERS_MAX] + "…")


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
