"""The whole suite: first what can run side by side, then what needs some room, then what wants the machine to itself; then an account.

    python scripts/suite.py [--soak] [paths...]

Parallel workers would spoil measurements and tests that count processes, so those carry the marker `serial` and run last, one by one.
Clusters of processes, which time out on a machine that is too busy, carry the marker `paired` and run before them, two files at a time.
Tests on Spark carry the marker `spark` and run in one process: they share a session, which takes both cores anyway.
The closing lines say which files took longest, what was skipped and why, over all parts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

NO_TESTS = 5  # pytest's exit code for "nothing was collected", which is fine for one of several parts.
SLOWEST_FILES = 40
WORKERS = "3"  # On two cores: many tests wait for clients and clocks.


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("paths", nargs="*")
    asked = parser.parse_args()
    parts = [
        (["-n", WORKERS, "--dist", "worksteal", "-m", "not serial and not paired and not spark"], asked.paths),
        (["-n", "2", "--dist", "loadfile", "-m", "paired"], files_with("paired", asked.paths)),
        (["-m", "spark and not serial"], files_with("spark", asked.paths)),
        (["-m", "serial"], files_with("serial", asked.paths)),
    ]
    if asked.soak:
        parts = [(["--soak", "--timeout", "7200"], asked.paths)]
    counts: Counter[str] = Counter()
    skips: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    codes = [NO_TESTS if paths is None else run_part([*part, *paths], counts, skips, seconds) for part, paths in parts]
    print_account(counts, skips, seconds)
    if all(code == NO_TESTS for code in codes):
        return NO_TESTS
    return max((code for code in codes if code != NO_TESTS), default=0)


def files_with(marker: str, paths: list[str]) -> list[str] | None:
    """The files with such tests, so that no worker collects thousands of others to leave them out; None where there are none.

    Where single tests are asked for, whoever asked knows best."""
    if any("::" in path for path in paths):
        return paths
    files = [file for path in map(Path, paths or ["tests"]) for file in ([path] if path.is_file() else sorted(path.rglob("test_*.py")))]
    return [str(file) for file in files if f"mark.{marker}" in file.read_text()] or None


def run_part(arguments: list[str], counts: Counter[str], skips: Counter[str], seconds: Counter[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-suite-") as directory:
        account = Path(directory, "account.json")
        environment = os.environ | {"PENSTOCK_SUITE_ACCOUNT": str(account)}
        command = [sys.executable, "-m", "pytest", "-q", *arguments]
        code = subprocess.run(command, env=environment, check=False).returncode
        if account.exists():
            told = json.loads(account.read_text())
            counts.update(told["counts"])
            skips.update(told["skips"])
            seconds.update(told["seconds"])
        return code


def print_account(counts: Counter[str], skips: Counter[str], seconds: Counter[str]) -> None:
    print("\nseconds, and where")
    for file, took in seconds.most_common(SLOWEST_FILES):
        print(f"{took:5.0f}  {file}")
    print("\nskipped, and why" if skips else "\nnothing was skipped")
    for reason, count in skips.most_common():
        print(f"{count:5}  {reason}")
    print(f"\n{counts['passed']} passed, {counts['failed'] + counts['error']} failed, {counts['skipped']} skipped")


if __name__ == "__main__":
    sys.exit(main())
