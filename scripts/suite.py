"""Runs the tests of one tier and prints an account: where the time went, what was skipped and why, and how to run a failed test alone.

    python scripts/suite.py [--tier fast|test|slow|soak] [--workers N] [--record] [paths...]

Several workers run whole files side by side (tests/schedule.py says in which order). What client libraries print to the standard error of a
worker outside of a test is kept in a file, which is shown only if pytest itself fails; what they print during a test is in its report.
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
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

NO_TESTS = 5  # pytest's exit code for "nothing was collected".
TESTS_FAILED = 1
INTERRUPTED = 2
SLOWEST_FILES = 15
WORKERS = 4  # On two cores: many tests wait for processes and clocks.
LAST_LINES = 40
RESTARTS = 16  # Of workers that die, each with another file (tests/whole_files.py): where more die, something else is wrong.
DURATIONS = Path("tests", "durations.json")


@dataclass
class Account:
    counts: Counter[str] = field(default_factory=Counter)
    skips: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    files: dict[str, list[float]] = field(default_factory=dict)  # Seconds and processor seconds of each.
    tests: dict[str, float] = field(default_factory=dict)  # Seconds of those that take more than a moment.


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", default="test", choices=("fast", "test", "slow", "soak"))
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--record", action="store_true", help=f"write {DURATIONS} anew from this run")
    parser.add_argument("paths", nargs="*")
    asked = parser.parse_args()
    if asked.record and (asked.tier != "test" or asked.paths):
        parser.error(f"{DURATIONS} is for all tests of the tier `test`: record it without --tier and without paths")
    began = time.monotonic()
    workers = 0 if asked.tier == "soak" or is_one_file(asked.paths) else asked.workers
    arguments = [*options_of(asked.tier), *(["-n", str(workers), "--max-worker-restart", str(RESTARTS)] if workers else [])]
    account = Account()
    code = run_pytest([*arguments, *asked.paths], account)
    print_account(account, asked.tier, time.monotonic() - began)
    if not asked.record:
        return code
    if code != 0 or account.skips:
        print(f"{DURATIONS} is as before: it is recorded only where all tests run and pass")
        return code or TESTS_FAILED
    record(account)
    return 0


def options_of(tier: str) -> list[str]:
    """Returns what pytest needs for the tests of a tier; nothing for those of `test`, which it runs anyway."""
    return [*(["--tier", tier] if tier != "test" else []), *(["--timeout", "7200"] if tier == "soak" else [])]


def is_one_file(paths: list[str]) -> bool:
    return len({path.partition("::")[0] for path in paths}) == 1 and not Path(paths[0].partition("::")[0]).is_dir()


def run_pytest(arguments: list[str], account: Account) -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-suite-") as directory, Path(directory, "errors.txt").open("w+") as errors:
        file = Path(directory, "account.json")
        environment = os.environ | {"PENSTOCK_SUITE_ACCOUNT": str(file)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # Many containers set it; each of a thousand processes would compile all modules.
        command = [sys.executable, "-m", "pytest", "-qq", "--no-header", *arguments]
        with subprocess.Popen(command, env=environment, stderr=errors) as pytest:
            pass_on_signals(pytest)
            code = pytest.wait()
        if file.exists():
            account.__dict__.update(json.loads(file.read_text()))
            account.counts, account.skips = Counter(account.counts), Counter(account.skips)
        if code not in (0, TESTS_FAILED, INTERRUPTED):
            print_end(errors)
        return code or (0 if account.counts else NO_TESTS)


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


def print_end(errors: IO[str]) -> None:
    errors.seek(0)
    print(*errors.read().splitlines()[-LAST_LINES:], sep="\n")


def print_account(account: Account, tier: str, took_s: float) -> None:
    print("\nseconds, and where")
    for file, (seconds, _) in sorted(account.files.items(), key=lambda row: -row[1][0])[:SLOWEST_FILES]:
        print(f"{seconds:5.0f}  {file}")
    print("\nskipped, and why" if account.skips else "\nnothing was skipped")
    for reason, count in account.skips.most_common():
        print(f"{count:5}  {reason}")
    if account.failures:
        print("\nfailed; one alone:")
        options = "" if tier == "fast" else "".join(f"{option} " for option in options_of(tier))
        for nodeid in account.failures:
            print(f"  .venv/bin/pytest {options}{shlex.quote(nodeid)}")
    minutes, seconds = divmod(round(took_s), 60)
    print(f"\n{minutes} min {seconds} s")
    counts = account.counts
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")


def record(account: Account) -> None:
    rows = {"files": dict(sorted(account.files.items())), "tests": dict(sorted(account.tests.items()))}
    DURATIONS.write_text(json.dumps(rows, indent=0) + "\n")


if __name__ == "__main__":
    sys.exit(main())
