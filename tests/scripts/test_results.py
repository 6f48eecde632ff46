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


NEITHER = "the header's commit: it begins neither with a hash nor with `unknown`: "
NO_REASON = "the header's commit: `unknown` needs a reason, or a commit: unknown, recorded in …: "


@pytest.mark.parametrize(
    ("commit", "complaint"),
    [
        ("not recorded; 1000000 seeds", NEITHER),
        ("recorded in 96c1a72", NEITHER),
        ("in the table: 96c1a72", NEITHER),
        ("unknown", NO_REASON),
        ("unknown, ", NO_REASON),
    ],
)
def test_a_commit_is_a_hash_or_unknown_with_a_reason(tmp_path: Path, commit: str, complaint: str) -> None:
    write(tmp_path, PAGE.replace("96c1a72", commit))
    assert_refused(tmp_path, complaint + commit.strip())


@pytest.mark.parametrize(
    "commit", ["96c1a72-dirty", "96c1a72, a846017 in the second run", "unknown, not noted", "unknown, recorded in 96c1a72"]
)
def test_a_commit_may_have_changes_and_a_remark(tmp_path: Path, commit: str) -> None:
    write(tmp_path, PAGE.replace("96c1a72", commit))
    assert (check(tmp_path).returncode, check(tmp_path).stderr) == (0, "")


def git(directory: Path, *arguments: str) -> str:
    command = ["git", "-C", str(directory), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def committed(directory: Path) -> str:
    git(directory, "init", "-q")
    git(directory, "commit", "-q", "--allow-empty", "-m", "x")
    return git(directory, "rev-parse", "--short", "HEAD")


@pytest.mark.parametrize("form", ["{}", "{}-dirty", "unknown, recorded in {}", "{}; unknown: another"])
def test_a_commit_is_in_the_history(tmp_path: Path, form: str) -> None:
    known = committed(tmp_path)
    write(tmp_path, PAGE.replace("96c1a72", form.format(known)))
    assert (check(tmp_path).returncode, check(tmp_path).stderr) == (0, "")
    write(tmp_path, PAGE.replace("96c1a72", form.format("0123456")))
    assert_refused(tmp_path, "the header's commit: no commit in the history is 0123456")


def test_where_git_lacks_the_history_no_commit_is_looked_up(tmp_path: Path) -> None:
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    committed(origin)
    committed(origin)
    git(tmp_path, "clone", "-q", "--depth", "1", origin.as_uri(), str(clone))
    write(clone)
    assert (check(clone).returncode, check(clone).stderr) == (0, "")


ROWS = f"| question | commit | file |\n|---|---|---|\n| sent | {{}} | [queues]({NAME}) |\n| received | {{}} | the same |\n"


@pytest.mark.parametrize(
    ("commit", "complaint"),
    [
        ("several", "it begins neither with a hash nor with `unknown`: several"),
        ("recorded in 96c1a72", "it begins neither with a hash nor with `unknown`: recorded in 96c1a72"),
        ("a846017", f"a846017 is not in {NAME}"),
    ],
)
def test_rows_of_the_summary_say_the_commit_as_their_files_do(tmp_path: Path, commit: str, complaint: str) -> None:
    write(tmp_path, summary=ROWS.format("96c1a72", "unknown, recorded in 96c1a72"))
    assert (check(tmp_path).returncode, check(tmp_path).stderr) == (0, "")
    write(tmp_path, summary=ROWS.format("96c1a72", commit))
    assert check(tmp_path).stderr == f"{tmp_path / 'README.md'}: the row 'received': {complaint}\n"


@pytest.mark.parametrize("page", ["README.md", NAME])
def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path, page: str) -> None:
    write(tmp_path)
    (tmp_path / page).write_text((tmp_path / page).read_text() + "\n[gone](2026-11-15-gone.md#figures) [there](https://example.com/x.md)\n")
    assert check(tmp_path).stderr == f"{tmp_path / page}: 2026-11-15-gone.md is linked and not there\n"


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
