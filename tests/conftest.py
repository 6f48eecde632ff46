"""What the whole suite shares: what a machine must have for a test, and an honest account of what was skipped.

`@pytest.mark.needs("fuse")` skips a test where the machine has no FUSE, with the reason; `PENSTOCK_REQUIRE=fuse,netns` turns such
a skip into a failure, so that a machine that should have it cannot quietly stop testing it. `@pytest.mark.soak` tests run with
`--soak` only. The table at the end lists every skip by reason; `scripts/suite.py` collects the tables of its parts.
Not here: fixtures of one room, which live beside that room's tests.
"""

import gc
import json
import os
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
from machine import PROBES, missing

ABSENT = Path(__file__).parent / "absent"  # What processes of users do not have.
SKIPS = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the long versions of the fault tests, and only those")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SKIPS] = Counter()
    unknown = sorted(required_here() - set(PROBES))
    if unknown:
        raise pytest.UsageError(f"PENSTOCK_REQUIRE names {', '.join(unknown)}; known are {', '.join(sorted(PROBES))}")


def required_here() -> set[str]:
    return {name.strip() for name in os.environ.get("PENSTOCK_REQUIRE", "").split(",") if name.strip()}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wants_soak = config.getoption("--soak")
    left_out = [item for item in items if (item.get_closest_marker("soak") is not None) != wants_soak]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def pytest_collection_finish() -> None:
    """Thousands of tests stay until the end: the collector need not look at them again and again. It took a third of a simulated world."""
    gc.collect()
    gc.freeze()
    # From here on processes are started by tests, and no more workers by pytest.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ABSENT), os.environ.get("PYTHONPATH")]))


def pytest_runtest_setup(item: pytest.Item) -> None:
    wanted = [name for marker in item.iter_markers("needs") for name in marker.args]
    if item.get_closest_marker("spark") is not None:
        wanted.append("spark")
    for name in wanted:
        reason = missing(name)
        if reason and name in required_here():
            pytest.fail(f"this machine must have {name} (PENSTOCK_REQUIRE): {reason}", pytrace=False)
        if reason:
            pytest.skip(f"needs {name}: {reason}")


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Clients that hang in the traceback of an error that was expected go with their file, not on asking for a node that is gone."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    stats = terminalreporter.stats
    skips = Counter(skip_reason(report) for report in stats.get("skipped", []))
    if skips:
        terminalreporter.section("skipped, and why")
        for reason, count in skips.most_common():
            terminalreporter.line(f"{count:5}  {reason}")
    account = os.environ.get("PENSTOCK_SUITE_ACCOUNT")
    if account:
        counts = {kind: len(stats.get(kind, [])) for kind in ("passed", "failed", "error", "skipped", "xfailed", "xpassed")}
        Path(account).write_text(json.dumps({"counts": counts, "skips": skips, "seconds": seconds_by_file(stats)}))


def seconds_by_file(stats: dict[str, list[pytest.TestReport]]) -> Counter[str]:
    """Where the time went: what to look at when the suite gets too long."""
    seconds: Counter[str] = Counter()
    for report in chain.from_iterable(stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    return seconds


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    where = report.longrepr
    text = where[2] if isinstance(where, tuple) else str(where)
    return text.removeprefix("Skipped: ")
