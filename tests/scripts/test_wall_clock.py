"""The check that no verdict depends on the speed of the machine: what it finds, and what it lets pass."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def check(project: Path, source: str, exceptions: str = "total 0\n") -> list[str]:
    (project / "tests").mkdir(exist_ok=True)
    (project / "scripts").mkdir(exist_ok=True)
    (project / "tests" / "test_it.py").write_text(source)
    (project / "tests" / "wall_clock.txt").write_text(exceptions)
    script = project / "scripts" / "wall_clock.py"
    script.write_text((ROOT / "scripts" / "wall_clock.py").read_text())
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert ended.returncode == int(bool(ended.stdout)), ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("await asyncio.sleep(0.1)", "sleep"),
        ("time.sleep(pause)", "sleep"),
        ("async with asyncio.timeout(5): pass", "deadline"),
        ("process.wait(20)", "deadline"),
        ("future.result(timeout=10)", "deadline"),
        ("client.produce(deadline_s=0.2)", "deadline"),
        ("fetch(timeout_ms=29_999)", "deadline"),
        ("PATIENCE_S = 2 * 10", "deadline"),
        ("def until(claim, seconds: float = 5.0): pass", "deadline"),
        ("def until(claim, *, within=5.0): pass", "deadline"),
        ("assert time.monotonic() - began < 2", "clock"),
    ],
)
def test_a_place_where_the_real_clock_could_decide_is_found(tmp_path: Path, source: str, kind: str):
    (line,) = check(tmp_path, f"async def test_it():\n    {source}\n")
    assert line.startswith("tests/test_it.py:2 test_it") and f": {kind}: " in line


@pytest.mark.parametrize(
    "source",
    ["await asyncio.sleep(0)", "process.wait(PATIENCE_S)", "future.result(timeout=30)", "fetch(timeout_ms=30_000)", "poll(max_records=5)"],
)
def test_waits_of_thirty_seconds_and_more_are_let_pass(tmp_path: Path, source: str):
    assert check(tmp_path, f"async def test_it():\n    {source}\n") == []


SLEEPS = "async def test_it():\n    await asyncio.sleep(1)\n"


def test_an_exception_needs_its_reason_and_its_count(tmp_path: Path):
    assert check(tmp_path, SLEEPS, "total 1\ntests/test_it.py | test_it | sleep | 1 | the pause is the point\n") == []
    assert len(check(tmp_path, SLEEPS + "    await asyncio.sleep(1)\n", "total 1\ntests/test_it.py | test_it | sleep | 1 | once\n")) == 2


def test_a_file_in_virtual_time_is_let_pass(tmp_path: Path):
    assert check(tmp_path, SLEEPS, "total 1\ntests/ | virtual | the loop of the simulator\n") == []


def test_coroutines_of_a_file_in_virtual_time_are_let_pass_and_nothing_else(tmp_path: Path):
    assert check(tmp_path, "VIRTUAL_TIME = True\n" + SLEEPS) == []
    assert len(check(tmp_path, "VIRTUAL_TIME = False\n" + SLEEPS)) == 1
    assert len(check(tmp_path, "VIRTUAL_TIME = True\ndef test_it():\n    time.sleep(1)\n")) == 1


@pytest.mark.parametrize(
    ("exceptions", "told"),
    [
        ("total 1\ntests/test_it.py | test_it | sleep | 1 | gone by now\n", "lower or remove the entry"),
        ("total 1\ntests/test_it.py | virtual | gone by now\n", "remove the entry"),
        ("total 3\n", "`total 3` must be `total 0`; the list may only shrink"),
    ],
)
def test_the_list_of_exceptions_shrinks_with_the_tests(tmp_path: Path, exceptions: str, told: str):
    (line,) = check(tmp_path, "def test_it(): pass\n", exceptions)
    assert told in line
