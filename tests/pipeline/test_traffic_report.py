"""Traffic's report: one file that needs nothing else, says what was found, and shows nothing of a stranger's that could run."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pipeline.traffic_example import START, WINDOW_S, findings

from penstock.pipeline.reports.plots import Curve, bars, clock, curves
from penstock.pipeline.traffic.findings import WINDOWS_MAX, Findings, LagRow, WindowRow, all_starts, topic_findings
from penstock.pipeline.traffic.page import page
from penstock.pipeline.traffic.skew import judge


def test_the_report_stands_alone_and_tells_what_was_found() -> None:
    html = page(findings())
    assert not re.search(r"https?://|<script|<link|@import|src=", html), "it needs nothing from elsewhere"
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert html.count("<svg") == 5
    for drawing in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(drawing)
    salt = "salt the heavy keys (&#x27;c-0&#x27; as"
    for told in ("spike", "silence", salt, "until orders.validated has committed it", "Nothing was written."):
        assert told in html, told


def test_windows_without_records_count_as_nothing_and_the_cut_off_ones_are_not_judged() -> None:
    counts = {n: 100 if 0 < n < 40 else 3 for n in range(41) if n != 20}
    windows = [WindowRow("t", partition, START + n * 10, count, 1_000) for n, count in counts.items() for partition in (0, 1)]
    lags = {"g": [LagRow(START, 5), LagRow(START + 30, 7)]}
    found = topic_findings("t", 10, windows, skew=judge([1, 1], [], {2: [1, 1]}), lags=lags, delays={})
    assert len(found.starts) == len(found.records) == len(found.expected) == 41
    assert found.records[20] == 0
    assert [(one.first, one.end, one.oddity.value) for one in found.anomalies] == [(20, 21, "silence")]
    assert found.lags["g"][:5] == [5, 5, 5, 7, None]
    assert found.last_lags == {"g": 7}
    long_after = {"g": [LagRow(START + 10**7, 5)]}
    late = topic_findings("t", 10, windows, skew=judge([1, 1], [], {2: [1, 1]}), lags=long_after, delays={})
    assert (len(late.starts), late.last_lags) == (41, {"g": 5}), "a look long after the last record does not push it out of sight"
    given = topic_findings("t", 10, windows, skew=judge([1, 1], [], {2: [1, 1]}), lags=lags, delays={}, expected_rate=40.0)
    assert [(one.first, one.end, one.oddity.value) for one in given.anomalies] == [(1, 20, "drop"), (20, 21, "silence"), (21, 40, "drop")]


def test_times_that_cannot_be_are_counted_apart() -> None:
    wild = [-(2**63) // 10**6, -1, START + 10**9, 2**63 // 10**6]
    windows = [WindowRow("t", 0, start, 5, 1_000) for start in [*wild, START, START + 10]]
    found = topic_findings("t", 10, windows, skew=judge([1], [], {1: [1]}), lags={}, delays={}, now_s=START + 60.0)
    assert (found.starts, found.records, found.strays) == ([START, START + 10], [5, 5], 20)
    assert "20 records have a time before 1970 or in the future" in page(Findings("here", START + 60.0, [found]))


def test_the_newest_windows_are_told_however_long_ago_the_first_was() -> None:
    starts = all_starts([0, 10 * 10**12], [], 1)  # To list them all would take more memory than there is.
    assert (len(starts), starts[-1]) == (WINDOWS_MAX, 10 * 10**12)
    assert all_starts([20, 0], [30], 10) == [0, 10, 20, 30]
    assert all_starts([], [], 10) == []
    assert clock(0) == "00:00:00" and clock(253_402_300_800) == "253402300800 s" and clock(-62_135_596_801).endswith(" s")


def test_a_curve_has_gaps_where_nothing_is_known_and_names_are_escaped() -> None:
    drawn = curves("a & b", [0, 10, 20, 30], [Curve("<x>", [1.0, None, 2.0, 3.0]), Curve("y", [None] * 4)])
    assert drawn.count("M") - drawn.count('stroke="#d5dce4"') == 2, "two runs"
    assert "&lt;x&gt;" in drawn and "<x>" not in drawn
    assert "a &amp; b" in drawn
    assert 'fill="#b3453b"' in bars("loads", [10.0, 100.0], names=["0", "1"], line=55.0)


@pytest.mark.needs("browser")
def test_a_real_browser_draws_every_plot_and_complains_of_nothing(tmp_path: Path) -> None:
    from browser import Browser

    file = tmp_path / "report.html"
    file.write_text(page(findings()))
    with Browser(tmp_path / "profile") as browser:
        browser.open(file.as_uri())
        sizes = browser.evaluate("[...document.querySelectorAll('svg')].map(svg => [svg.clientWidth, svg.clientHeight])")
        assert len(sizes) == 5
        assert all(width > 300 and height > 50 for width, height in sizes)
        assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "nothing sticks out"
        assert browser.complaints == []
        assert WINDOW_S == 30 and "windows of 30 s" in browser.text()
