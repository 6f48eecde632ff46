"""The line that tells how a long transfer comes along, and the words that times are told in."""

import io
import os
import pty
import select

import pytest
from cli.running import penstock, started
from system import harness
from waiting import ASK_S, PATIENCE_S, until

from penstock.cli.progress import Progress
from penstock.cli.times import parse_time, spoken


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_short_transfer_shows_no_line() -> None:
    shown, clock = io.StringIO(), Clock()
    progress = Progress(is_shown=True, stream=shown, clock=clock)
    progress.add(100, 1_000)
    progress.end()
    assert shown.getvalue() == ""


def test_a_long_one_is_counted_over_itself_and_ends_on_its_own_line() -> None:
    shown, clock = io.StringIO(), Clock()
    progress = Progress(is_shown=True, stream=shown, clock=clock)
    for _ in range(40):
        clock.seconds += 0.1
        progress.add(1_000, 512 * 1024)
    progress.end()
    written = shown.getvalue().split("\r\x1b[K")
    assert 5 <= len(written) <= 9, "twice a second, after the first"
    assert written[-1] == "40,000 records, 20.0 MiB, 10,000 records/s, 4 s\n"
    assert all("\n" not in line for line in written[:-1])


def test_nothing_is_shown_where_nobody_looks() -> None:
    shown, clock = io.StringIO(), Clock()
    progress = Progress(is_shown=False, stream=shown, clock=clock)
    clock.seconds = 100
    progress.add(1, 1)
    progress.end()
    assert (shown.getvalue(), progress.records) == ("", 1)


def test_a_pipe_sees_no_line_and_a_terminal_does(node: harness.Node) -> None:
    """The producer's input pauses for longer than a short transfer takes, so that the line is due."""
    leader, follower = pty.openpty()
    told = b""

    def is_told() -> bool:
        nonlocal told
        producer.given.write("a record\n")
        producer.given.flush()
        if select.select([leader], [], [], ASK_S)[0]:
            told += os.read(leader, 4096)
        return b"records/s" in told

    with started("produce", "paced", "--bootstrap", node.bootstrap, errors=follower) as producer:
        until(is_told)
        producer.given.close()
        assert "written to paced" in producer.out.read()
        assert producer.process.wait(PATIENCE_S) == 0
    os.close(follower)
    os.close(leader)
    piped = penstock("consume", "paced", "--bootstrap", node.bootstrap)
    assert (piped.code, piped.err) == (0, "")


@pytest.mark.parametrize(
    ("span_ms", "words"),
    [
        (None, None), (0, "0 s"), (400, "0.4 s"), (9_999, "10.0 s"), (10_000, "10 s"), (65_000, "1 min 5 s"), (3_600_000, "1 h 0 min"),
        (90_061_000, "1 d 1 h"),
    ],
)  # fmt: skip
def test_a_span_is_told_in_its_two_largest_units(span_ms: int | None, words: str | None) -> None:
    assert spoken(span_ms) == words


def test_times_are_read_as_people_write_them() -> None:
    assert parse_time("@1700000000123") == 1_700_000_000_123
    assert parse_time("2023-11-14T22:13:20Z") == parse_time("2023-11-14T23:13:20+01:00") == 1_700_000_000_000
    assert parse_time("2023-11-14T22:13:20") == 1_700_000_000_000
    assert [parse_time(text) for text in ("soon", "@", "@x", "")] == [None] * 4
