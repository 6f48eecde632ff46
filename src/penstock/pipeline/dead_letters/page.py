"""The report on dead letters as one HTML file.

Reasons, workers and names of queues come from strangers: every text is escaped.
Not here: what the figures are (findings.py), what pages of all reports have in common and how curves are drawn (reports/).
"""

from html import escape

from penstock.pipeline.dead_letters.findings import Findings, KindRow, QueueFindings
from penstock.pipeline.reports.pages import table, whole_page
from penstock.pipeline.reports.plots import COLOURS, Curve, bars, clock, curves, short

WORKERS_DRAWN = 20
TEXT_CHARACTERS_MAX = 200
NAME_CHARACTERS_MAX = 14  # Below a bar.


def page(findings: Findings) -> str:
    names = ", ".join(findings.dead_letter_queues)
    body = [_overview(findings), *(_queue(queue, number, findings) for number, queue in enumerate(findings.queues))]
    return whole_page(f"Dead letters in {names}", source=findings.source, made_at_s=findings.made_at_s, body=body)


def _overview(findings: Findings) -> str:
    if not findings.queues:
        return "<p>There are no dead letters.</p>" + _strangers(findings)
    rows = [
        [
            f"<a href='#q{number}'>{escape(queue.queue)}</a>", short(queue.letters), str(len(queue.kinds) + queue.kinds_left),
            str(len(queue.workers) + queue.workers_left), _moment(min(row.first_ms for row in queue.kinds)),
            _moment(max(row.last_ms for row in queue.kinds)),
        ]
        for number, queue in enumerate(findings.queues)
    ]  # fmt: skip
    told = f"<p>{findings.listed} of them are on the list of what to send back.</p>" if findings.listed else ""
    return table(["they came from", "dead letters", "kinds of failure", "workers", "first", "last"], rows) + told + _strangers(findings)


def _strangers(findings: Findings) -> str:
    if not findings.strangers:
        return ""
    return f"<p class='s'>{findings.strangers} other records lie there that no queue has buried; they are not counted.</p>"


def _queue(queue: QueueFindings, number: int, findings: Findings) -> str:
    return "".join([f"<h2 id='q{number}'>{escape(queue.queue)}</h2>", _times(queue, findings.window_s), _kinds(queue), _workers(queue)])


def _times(queue: QueueFindings, window_s: int) -> str:
    lines = [
        Curve(_cut(kind), [float(count) for count in series], COLOURS[number % len(COLOURS)])
        for number, (kind, series) in enumerate(queue.series.items())
    ]
    plot = curves(f"Dead letters of {queue.queue}", queue.starts, lines)
    only = f" All of them: {escape(_cut(next(iter(queue.series))))}." if len(lines) == 1 else ""
    return f"<h3>When</h3><p class='s'>Dead letters by their last failure, in windows of {window_s} s.{only}</p>{plot}"


def _kinds(queue: QueueFindings) -> str:
    rows = [_kind(row, queue.letters) for row in queue.kinds]
    left = f"<p class='s'>{queue.letters_left} more of {queue.kinds_left} other kinds.</p>" if queue.kinds_left else ""
    heads = ["kind of failure, and the newest reason", "letters", "share", "workers", "attempts", "first", "last"]
    return f"<h3>Why</h3>{table(heads, rows)}{left}"


def _kind(row: KindRow, total: int) -> list[str]:
    example = "" if row.example in ("", row.kind) else f"<br><span class='s'>{escape(_cut(row.example))}</span>"
    id = f"<br><code>{escape(_cut(row.example_id))}</code>" if row.example_id else ""
    figures = [short(row.letters), f"{row.letters / max(total, 1):.1%}", str(row.workers), f"{row.attempts:.3g}"]
    return [f"<code>{escape(row.kind)}</code>{example}{id}", *figures, _moment(row.first_ms), _moment(row.last_ms)]


def _workers(queue: QueueFindings) -> str:
    if not queue.workers:
        return "<h3>Who</h3><p class='s'>Nobody had them: they expired, or were buried by hand.</p>"
    drawn = queue.workers[:WORKERS_DRAWN]
    plot = bars(
        "Failures by worker", [float(row.failures) for row in drawn], names=[_cut(row.worker, NAME_CHARACTERS_MAX) for row in drawn]
    )
    rows = [
        [
            f"<code>{escape(_cut(row.worker))}</code>", short(row.failures), short(row.letters), str(row.kinds),
            f"{short(row.held_p50_ms / 1000)} s", f"{short(row.held_max_ms / 1000)} s",
        ]
        for row in queue.workers
    ]  # fmt: skip
    left = f"<p class='s'>And {queue.workers_left} others.</p>" if queue.workers_left else ""
    heads = ["worker", "failures", "of letters", "kinds", "held for, median", "longest"]
    intro = "<p class='s'>Every attempt that failed before the letter was buried, by who had it then.</p>"
    return f"<h3>Who</h3>{intro}{plot}{table(heads, rows)}{left}"


def _moment(wall_ms: int) -> str:
    return clock(wall_ms / 1000, "%d %b %H:%M:%S")


def _cut(text: str, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"
