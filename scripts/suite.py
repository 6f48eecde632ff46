"""Runs the tests of one tier and prints an account: where the time went, what was skipped and why, and how to run a failed test alone.

    python scripts/suite.py [--tier fast|test|slow|soak] [--workers N] [--record] [paths...]

Several workers run whole files side by side (tests/schedule.py says in which order). What client libraries print to the standard error of a
worker outside of a test is kept in a file, whose end is shown only if a worker or pytest itself fails; what they print during a test is in
its report.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

TESTS_FAILED, INTERRUPTED, NO_TESTS = 1, 2, 5  # pytest's exit codes.
SLOWEST_FILES = UNFINISHED_FILES = 15
FAILURES_SHOWN = 40
WORKERS = 4  # On two cores: many tests wait for processes and clocks.
LAST_LINES = 200
RESTARTS = 16  # Of workers that die, each with another file (tests/whole_files.py): where more die, something else is wrong.
DURATIONS = Path("tests", "durations.json")


@dataclass(frozen=True, slots=True)
class Account:
    """What tests/account.py has written."""

    counts: dict[str, int]
    skips: list[tuple[str, int]]  # Reasons, and how often each.
    failures: list[str]
    deaths: int  # Of workers.
    running: list[str]  # Tests, when the run ended.
    unfinished: list[str]  # Files that did not run, or not to their end.
    file_count: int
    files: dict[str, tuple[float, float]]  # Seconds and processor seconds of each.
    tests: dict[str, float]  # Seconds of those that take more than a moment.


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", default="test", choices=("fast", "test", "slow", "soak"))
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--record", action="store_true", help=f"write {DURATIONS} anew from this run")
    parser.add_argument("paths", nargs="*")
    asked = parser.parse_args()
    absent = [path for path in asked.paths if not Path(path.partition("::")[0]).exists()]
    if absent:
        parser.error(f"there is no {' and no '.join(absent)}")
    if asked.record and (asked.tier != "test" or asked.paths):
        parser.error(f"{DURATIONS} is for all tests of the tier `test`: record it without --tier and without paths")
    began = time.monotonic()
    # One file has a worker, too: a test that ends its process does not end the one that tells of it.
    workers = min(1, asked.workers) if asked.tier == "soak" or is_one_file(asked.paths) else asked.workers
    arguments = [*options_of(asked.tier), *(["-n", str(workers), "--max-worker-restart", str(RESTARTS)] if workers else [])]
    code, account = run_pytest([*arguments, *asked.paths])
    if account is None and code == NO_TESTS:
        return no_tests(asked.tier, asked.paths)
    if account is None:
        print(f"pytest ended with code {code}, and told nothing of what it ran")
        return code or NO_TESTS
    print_account(account, asked.tier, time.monotonic() - began)
    code = code or code_of(account)
    if code == NO_TESTS:
        no_tests(asked.tier, asked.paths)
    if not asked.record:
        return code
    if code != 0 or account.skips:
        print(f"{DURATIONS} is as before: it is recorded only where all tests run and pass")
        return code or TESTS_FAILED
    record(account)
    return 0


def no_tests(tier: str, paths: list[str]) -> int:
    print(f"no test of the tier `{tier}` was found in {' '.join(paths) or 'tests'}")
    return NO_TESTS


def options_of(tier: str) -> list[str]:
    """Returns what pytest needs for the tests of a tier; nothing for those of `test`, which it runs anyway."""
    return [*(["--tier", tier] if tier != "test" else []), *(["--timeout", "7200"] if tier == "soak" else [])]


def is_one_file(paths: list[str]) -> bool:
    return len({path.partition("::")[0] for path in paths}) == 1 and not Path(paths[0].partition("::")[0]).is_dir()


def run_pytest(arguments: list[str]) -> tuple[int, Account | None]:
    """Returns its exit code, and the account, unless it ended before it could write one."""
    with tempfile.TemporaryDirectory(prefix="penstock-suite-") as directory, Path(directory, "errors.txt").open("wb+") as errors:
        file = Path(directory, "account.json")
        environment = os.environ | {"PENSTOCK_SUITE_ACCOUNT": directory}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # Many containers set it; each of a thousand processes would compile all modules.
        command = [sys.executable, "-m", "pytest", "-qq", "-rN", "--no-header", *arguments]
        with subprocess.Popen(command, env=environment, stderr=errors) as pytest:
            pass_on_signals(pytest)
            code = pytest.wait()
        account = Account(**json.loads(file.read_text())) if file.exists() else None
        if account is None or code not in (0, TESTS_FAILED, INTERRUPTED):
            print_end(errors)
        return code, account


def code_of(account: Account) -> int:
    """Returns the exit code of a run that is well to pytest, which does not see all that it did not run."""
    if account.failures or account.deaths or account.unfinished:
        return TESTS_FAILED
    return 0 if any(account.counts.values()) else NO_TESTS


def pass_on_signals(pytest: "subprocess.Popen[bytes]") -> None:
    """Has pytest take down what its tests have started, and tell of them, when this run is interrupted; a second Ctrl-C does not wait.

    Ctrl-C comes from the terminal to all of these processes, and from elsewhere to this one only: tests/conftest.py counts it once.
    """

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGINT, lambda *_: pytest.kill())
        print("\nwaiting until the tests have taken down what they started; Ctrl-C again does not wait", flush=True)
        pytest.terminate()

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)


def print_end(errors: IO[bytes]) -> None:
    errors.seek(0)
    print(*errors.read().decode(errors="replace").splitlines()[-LAST_LINES:], sep="\n")


def print_account(account: Account, tier: str, took_s: float) -> None:
    print("\nseconds, and where")
    for file, (seconds, _) in sorted(account.files.items(), key=lambda row: -row[1][0])[:SLOWEST_FILES]:
        print(f"{seconds:5.0f}  {file}")
    print("\nskipped, and why" if account.skips else "\nnothing was skipped")
    for reason, count in account.skips:
        print(f"{count:5}  {reason}")
    if account.failures:
        print("\nfailed; one alone:")
        options = "" if tier == "fast" else "".join(f"{option} " for option in options_of(tier))
        for nodeid in account.failures[:FAILURES_SHOWN]:
            print(f"  .venv/bin/pytest {options}{shlex.quote(nodeid)}")
        if len(account.failures) > FAILURES_SHOWN:
            print(f"  … and {len(account.failures) - FAILURES_SHOWN:,} more")
    if account.running:
        print("\nwas running:")
        for nodeid in account.running:
            print(f"  {nodeid}")
    if account.unfinished:
        print(f"\n{len(account.unfinished)} of {account.file_count} files did not run, or not to their end:")
        for file in account.unfinished[:UNFINISHED_FILES]:
            print(f"  {file}")
        if len(account.unfinished) > UNFINISHED_FILES:
            print("  …")
    minutes, seconds = divmod(round(took_s), 60)
    print(f"\n{minutes} min {seconds} s")
    print(", ".join(f"{count} {kind}" for kind, count in account.counts.items()))


def record(account: Account) -> None:
    rows = {"files": dict(sorted(account.files.items())), "tests": dict(sorted(account.tests.items()))}
    DURATIONS.write_text(json.dumps(rows, indent=0) + "\n")


if __name__ == "__main__":
    sys.exit(main())
