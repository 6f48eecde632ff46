"""What is told of dead letters, the page that tells it, the list of what to send back, and the options of both. No Spark."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pipeline.dead_letters_example import BROKEN, START, TIMEOUT, findings

from penstock.cli.queue_redrive import _ids
from penstock.pipeline.dead_letters.findings import KINDS_DRAWN, KINDS_SHOWN, OTHERS, Findings, WindowRow, _all_starts, queue_findings
from penstock.pipeline.dead_letters.page import page
from penstock.pipeline.dead_letters.redrive_list import Listed, write_list
from penstock.pipeline.dead_letters.wishes import Choice, wishes
from penstock.pipeline.options import WrongOption


def test_queues_and_kinds_that_bury_the_most_come_first_and_the_rest_is_told_together() -> None:
    bills, emails = findings().queues
    assert (bills.queue, bills.letters, emails.queue, emails.letters) == ("bills", sum(range(1, 27)), "emails", 49)
    assert [row.letters for row in bills.kinds] == list(range(26, 26 - KINDS_SHOWN, -1))
    assert (bills.kinds_left, bills.letters_left) == (6, sum(range(1, 7)))
    assert len(bills.series) == KINDS_DRAWN
    assert list(bills.series)[-1] == OTHERS
    assert sum(map(sum, bills.series.values())) == bills.letters, "each letter is drawn once"
    assert len(emails.starts) == 11
    assert emails.series[TIMEOUT][4:7] == [4, 0, 4], "a window without failures is a window"
    assert queue_findings(60, [], [], []) == []


def test_windows_have_a_bound_however_far_apart_failures_are() -> None:
    assert len(_all_starts([0, 10**9 * 60], 60)) == 2_000
    assert _all_starts([0, 10**9 * 60], 60)[-1] == 10**9 * 60
    far = queue_findings(60, findings().queues[1].kinds, [WindowRow("emails", TIMEOUT, start, 1) for start in (0, 10**9 * 60)], [])
    assert sum(map(sum, far[0].series.values())) == 1, "the newest are drawn"


def test_the_report_stands_alone_and_tells_what_was_found() -> None:
    html = page(findings(strangers=3, listed=17))
    assert not re.search(r"https?://|<script|<link|@import|src=|<b>", html), "it needs nothing from elsewhere, and runs nothing"
    for drawing in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(drawing)
    assert html.count("<svg") == 3, "two curves, and one plot of workers"
    for told in (TIMEOUT, "order 4711 timed out after 30 s", "&lt;script&gt;alert(1)", "&lt;b&gt;host-2", "81.6%", "17 of them", "30 s"):
        assert told in html, told
    assert "3 other records lie there" in html
    assert "21 more of 6 other kinds." in html
    assert "Nobody had them" in html
    assert BROKEN not in html


def test_a_queue_without_dead_letters_has_a_report_too() -> None:
    assert "There are no dead letters." in page(Findings("broker:9092", START, ["dead"], 1, [], 0, 0))


def test_the_list_is_what_the_command_reads_and_a_person_understands(tmp_path: Path) -> None:
    file = tmp_path / "redrive.txt"
    ids = [f"00000000-0000-8000-8000-00000000000{number}" for number in range(3)]
    chosen = [
        Listed("dead", ids[1], "emails", "timeout, after\n# s"),
        Listed("bad", ids[2], "bills", ""),
        Listed("dead", ids[0], "emails", "x"),
    ]
    assert write_list(file, chosen, is_cut=True) == 3
    with file.open() as content:
        assert _ids(content) == [ids[2], ids[0], ids[1]]
    text = file.read_text()
    assert "penstock queues redrive dead --ids-from redrive.txt" in text
    assert "There are more: these are the first 3." in text
    assert f"{ids[1]}, emails, timeout, after # s\n" in text
    assert [each.name for each in tmp_path.iterdir()] == ["redrive.txt"]


@pytest.mark.needs("spark")
def test_a_report_is_read_from_its_options() -> None:
    from penstock.pipeline.jobs.dead_letters import JOB

    plain = wishes(JOB.filled({"queues": "a, b,"}))
    assert (plain.queues, plain.report, plain.redrive, plain.choice, plain.limit) == (
        ["a", "b"],
        "dead-letters.html",
        "",
        Choice(),
        100_000,
    )
    told = {"source": "q", "reason": "r", "kind": "k", "worker": "w", "failed-after": "2026-01-01T12:00:00Z", "failed-before": "@5"}
    full = wishes(JOB.filled({"queues": "a", "window": "5m", "last": "7d", "limit": "10", "redrive": "f"} | told))
    assert full.choice == Choice("q", "r", "k", "w", START * 1000, 5)
    assert (full.window_s, full.last_s, full.limit, full.redrive) == (300, 604_800, 10, "f")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"queues": " , "}, "no queue of dead letters was named"),
        ({"window": "60"}, "window is '60', without a unit\n  write 60s"),
        ({"window": "500ms"}, "window is '500ms'\n  write whole seconds"),
        ({"failed-after": "yesterday"}, "failed-after is 'yesterday', not a time"),
        ({"limit": "100001"}, "limit is 100001"),
    ],
)
def test_a_report_that_cannot_be_made_is_refused(wrong: dict[str, str], words: str) -> None:
    with pytest.raises(WrongOption) as refused:
        wishes({"queues": "a"} | wrong)
    assert words in str(refused.value)
