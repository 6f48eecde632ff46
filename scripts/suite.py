"""The whole suite: first what can run side by side, then what needs some room, then what wants the machine to itself; then an account.

    python scripts/suite.py [--soak] [paths...]

Parallel workers would spoil measurements and tests that count processes, so those carry the marker `serial` and run last, one by one.
Clusters of processes, which time out on a machine that is too busy, carry the marker `paired` and run before them, two files at a time.
The closing lines say what was skipped and why, over all parts.
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
WORKERS = "3"  # On two cores: many tests wait for clients and clocks.


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("paths", nargs="*")
    asked = parser.parse_args()
    parts = [
        ["-n", WORKERS, "--dist", "worksteal", "-m", "not serial and not paired"],
        ["-n", "2", "--dist", "loadfile", "-m", "paired"],
        ["-m", "serial"],
    ]
    if asked.soak:
        parts = [["--soak", "--timeout", "7200"]]
    counts: Counter[str] = Counter()
    skips: Counter[str] = Counter()
    codes = [run_part([*part, *asked.paths], counts, skips) for part in parts]
    print_account(counts, skips)
    if all(code == NO_TESTS for code in codes):
        return NO_TESTS
    return max((code for code in codes if code != NO_TESTS), default=0)


def run_part(arguments: list[str], counts: Counter[str], skips: Counter[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-suite-") as directory:
        account = Path(directory, "account.json")
        environment = os.environ | {"PENSTOCK_SUITE_ACCOUNT": str(account)}
        command = [sys.executable, "-m", "pytest", "-q", "--durations=5", *arguments]
        code = subprocess.run(command, env=environment, check=False).returncode
        if account.exists():
            told = json.loads(account.read_text())
            counts.update(told["counts"])
            skips.update(told["skips"])
        return code


def print_account(counts: Counter[str], skips: Counter[str]) -> None:
    print("\nskipped, and why" if skips else "\nnothing was skipped")
    for reason, count in skips.most_common():
        print(f"{count:5}  {reason}")
    print(f"\n{counts['passed']} passed, {counts['failed'] + counts['error']} failed, {counts['skipped']} skipped")


if __name__ == "__main__":
    sys.exit(main())
