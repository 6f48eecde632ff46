"""A report as one HTML file: no script, no font, no picture from elsewhere, so that it can be mailed and opened anywhere.

Titles are texts and are escaped here; bodies and the cells of tables are HTML already, made by whoever knows what in them is a stranger's.
"""

from collections.abc import Sequence
from html import escape

from penstock.pipeline.reports.plots import clock

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


def whole_page(title: str, *, source: str, made_at_s: float, body: Sequence[str]) -> str:
    made = clock(made_at_s, "%Y-%m-%d %H:%M:%S UTC")
    title = escape(title)
    top = f'<h1>{title}</h1><p class="s">{escape(source)}, {made}. All times are UTC.</p>'
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{top}{"".join(body)}</body></html>\n'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1) -> str:
    """Cells are HTML already. The first `texts` columns are words, the others figures."""
    head = "".join(f"<th{_look(number, texts)}>{escape(text)}</th>" for number, text in enumerate(heads))
    body = "".join("<tr>" + "".join(f"<td{_look(number, texts)}>{cell}</td>" for number, cell in enumerate(row)) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _look(column: int, texts: int) -> str:
    return ' class="n"' if column >= texts else ""
