"""The whole suite: first what can run side by side, then what needs some room, then what wants the machine to itself; then an account.

    python scripts/suite.py [--soak] [paths...]

What runs side by side is dealt out by whole files, because tests of a file share a node or a JVM: three workers with a part of it
each would start three. The files of all rooms come in turn, so that those that wait run beside those that reckon.
Parallel workers would spoil measurements and tests that count processes, so those carry the marker `serial` and run last, one by one.
Clusters of processes, which time out on a machine that is too busy, carry the marker `paired` and run before them, two files at a time.
Tests on Spark carry the marker `spark` and run in one process, because they share a session, which takes seconds to start; clusters wait
beside them, rather than alone. A second session would save a minute, and leave clusters no room: they run out of time.
The closing lines say which files took longest, what was skipped and why, over all parts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import IO

NO_TESTS = 5  # pytest's exit code for "nothing was collected", which is fine for one of several parts.
SLOWEST_FILES = 15
WORKERS = "3"  # On two cores: many tests wait for clients and clocks. A fourth saves a minute, and some clients run out of time.
# In the order given: those with many tests first, as xdist would have it, leaves those with one long test for the end.
FILE_BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")


Part = tuple[list[str], list[str] | None]  # Arguments, and the paths; None where there is nothing to run.


@dataclass
class Account:
    counts: Counter[str] = field(default_factory=Counter)
    skips: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("paths", nargs="*")
    asked = parser.parse_args()
    rounds: list[list[Part]] = [
        [(["-n", WORKERS, *FILE_BY_FILE, "-m", "not serial and not paired and not spark"], files(asked.paths))],
        [
            (["-m", "spark and not serial"], files(asked.paths, "spark")),
            (["-n", "2", *FILE_BY_FILE, "-m", "paired"], files(asked.paths, "paired")),
        ],
        [(["-m", "serial"], files(asked.paths, "serial"))],
    ]
    if asked.soak:
        rounds = [[(["--soak", "--timeout", "7200"], asked.paths)]]
    account = Account()
    codes = [code for parts in rounds for code in run_round(parts, account)]
    print_account(account)
    if all(code == NO_TESTS for code in codes):
        return NO_TESTS
    return max((code for code in codes if code != NO_TESTS), default=0)


def files(paths: list[str], marker: str = "") -> list[str] | None:
    """All of them, one of each room after the other, until the largest room is through; None where there are none.

    With a marker those that have such tests, so that no worker collects thousands of others to leave them out. Where single tests are asked
    for, whoever asked knows best."""
    if any("::" in path for path in paths):
        return paths
    rooms: dict[Path, list[str]] = {}
    for path in map(Path, paths or ["tests"]):
        for file in [path] if path.is_file() else sorted(path.rglob("test_*.py")):
            if not marker or f"mark.{marker}" in file.read_text():
                rooms.setdefault(file.parent, []).append(str(file))
    return [file for turn in zip_longest(*rooms.values()) for file in turn if file is not None] or None


def run_round(parts: list[Part], account: Account) -> list[int]:
    """Side by side; what the second says is shown when the first is over."""
    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        outs = [None, *(stack.enter_context(tempfile.TemporaryFile("w+")) for _ in parts[1:])]
        asked = [([*arguments, *paths], out) for (arguments, paths), out in zip(parts, outs, strict=True) if paths is not None]
        codes = list(pool.map(lambda one: run_part(one[0], account, one[1]), asked))
        for out in filter(None, outs):
            out.seek(0)
            print(out.read(), end="", flush=True)
    return codes


def run_part(arguments: list[str], account: Account, out: IO[str] | None) -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-suite-") as directory:
        told_in = Path(directory, "account.json")
        environment = os.environ | {"PENSTOCK_SUITE_ACCOUNT": str(told_in)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # Many containers set it; each of a thousand processes would compile all modules.
        command = [sys.executable, "-m", "pytest", "-q", *arguments]
        code = subprocess.run(command, env=environment, check=False, stdout=out, stderr=out and subprocess.STDOUT).returncode
        if told_in.exists():
            told = json.loads(told_in.read_text())
            account.counts.update(told["counts"])
            account.skips.update(told["skips"])
            account.seconds.update(told["seconds"])
        return code


def print_account(account: Account) -> None:
    print("\nseconds, and where")
    for file, took in account.seconds.most_common(SLOWEST_FILES):
        print(f"{took:5.0f}  {file}")
    print("\nskipped, and why" if account.skips else "\nnothing was skipped")
    for reason, count in account.skips.most_common():
        print(f"{count:5}  {reason}")
    counts = account.counts
    print(f"\n{counts['passed']} passed, {counts['failed'] + counts['error']} failed, {counts['skipped']} skipped")


if __name__ == "__main__":
    sys.exit(main())
