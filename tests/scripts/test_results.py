"""scripts/results.py refuses a result file that does not say where its figures come from, and one that the summary does not link."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "results.py"
NAME = "2026-11-16-queues.md"
PAGE = """# Queues

| | |
|---|---|
| date | 2026-11-16 16:47 UTC |
| commit | 96c1a72 |
| machine | 2 cores |
| command | `python -m benchmarks.queues` |
| measured | messages a second |

| date | a table that is not the header |
|---|---|
| commit | 0000000 |
"""


def check(directory: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, str(SCRIPT), str(directory)], capture_output=True, text=True, check=False)


def write(directory: Path, page: str = PAGE, name: str = NAME, summary: str | None = None) -> None:
    (directory / name).write_text(page)
    (directory / "README.md").write_text(f"[queues]({name})" if summary is None else summary)


def assert_refused(directory: Path, reason: str) -> None:
    ended = check(directory)
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [f"{directory / NAME}: {reason}"]


def test_a_complete_file_that_is_linked_passes(tmp_path: Path) -> None:
    write(tmp_path)
    ended = check(tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("field", ["date", "commit", "machine", "command"])
def test_a_missing_or_empty_field_of_the_header_is_refused(tmp_path: Path, field: str) -> None:
    lines = PAGE.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(f"| {field} |"))
    write(tmp_path, "\n".join([*lines[:at], *lines[at + 1 :]]))
    assert_refused(tmp_path, f"the header has no {field}")
    write(tmp_path, "\n".join([*lines[:at], f"| {field} | |", *lines[at + 1 :]]))
    assert_refused(tmp_path, f"the header has no {field}")


def test_a_commit_without_a_hash_is_refused(tmp_path: Path) -> None:
    write(tmp_path, PAGE.replace("96c1a72", "unknown"))
    assert_refused(tmp_path, "the header names no hash of a commit: unknown")


@pytest.mark.parametrize("date", ["2026-11-15", "2026-11", "2026-11-16"])
def test_the_name_starts_with_the_date_of_the_header(tmp_path: Path, date: str) -> None:
    write(tmp_path, PAGE.replace("2026-11-16 16:47 UTC", date))
    if date == "2026-11-16":
        assert check(tmp_path).returncode == 0
    else:
        assert_refused(tmp_path, f"the name does not start with the date in the header: {date}")


def test_a_month_is_enough_where_the_day_is_not_known(tmp_path: Path) -> None:
    write(tmp_path, PAGE.replace("2026-11-16 16:47 UTC", "2026-11"), "2026-11-queues.md")
    assert check(tmp_path).returncode == 0


def test_a_name_without_a_date_is_refused(tmp_path: Path) -> None:
    write(tmp_path, name="queues.md")
    ended = check(tmp_path)
    assert ended.returncode == 1 and "the name does not start with a date and a topic" in ended.stderr


@pytest.mark.parametrize("summary", ["", f"{NAME} is named, not linked"])
def test_a_file_that_the_summary_does_not_link_is_refused(tmp_path: Path, summary: str) -> None:
    write(tmp_path, summary=summary)
    assert_refused(tmp_path, "README.md does not link it")


def test_a_directory_without_results_is_refused(tmp_path: Path) -> None:
    assert check(tmp_path).returncode == 1


def test_the_results_of_this_repository_pass() -> None:
    ended = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
