"""What the whole suite shares: which tests run, what a machine must have for one, and an account of what was skipped.

`@pytest.mark.needs("fuse")` skips a test where the machine has no FUSE, with the reason; `PENSTOCK_REQUIRE=fuse,netns` turns such
a skip into a failure, so that a machine that should have it cannot quietly stop testing it. A skip for any other reason is a failure,
unless that begins with `only`: "only on Linux". PENSTOCK_REQUIRE goes for every skip whose reason begins with `needs fuse: `, as of a file
that cannot be imported: `pytest.importorskip("pyspark", reason="needs spark: not installed")`.
`--tier` chooses among four: `test` is everything but `@pytest.mark.slow` and `@pytest.mark.soak`, which are tiers of their own; `fast` is
what of `test` takes a moment only and starts no JVM and no cluster. `@pytest.mark.repeats` runs a test in `slow` too, with more seeds,
rounds or examples (tiers.py). A test that is named with its `::` runs whatever its tier.
Not here: fixtures of one package, which are beside that package's tests; the order of files (schedule.py).
"""

import gc
import os
import re
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import hypothesis
import pytest
import whole_files
from account import Account, skip_reason
from machine import PROBES, missing
from schedule import durations
from tier_marks import problems_of
from tiers import TIER

ABSENT = Path(__file__).parent / "absent"  # What processes of users do not have.
NEEDED = re.compile(r"needs (.+?): (.*)", re.DOTALL)  # The reason of a skip for something that the machine lacks.
ELSEWHERE = "only "  # How the reason of a skip begins where no installation helps.
pytest_plugins = ["all_loops"]
CPU_BEFORE = pytest.StashKey[float]()
TIERS = ("fast", "test", "slow", "soak")
# Programs that are not Python, clusters and machines: not in `fast`, whatever they take.
NOT_FAST = frozenset({"spark", "paired"})
NOT_FAST_NEEDS = frozenset({"java", "fuse", "netns", "browser", "cc"})

hypothesis.settings.register_profile("suite", deadline=None)  # Its own is 200 ms for an example: a busy machine would fail tests.
hypothesis.settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, default="test", help="which tests: of `make test-fast`, `test`, `test-slow` or `soak`")


def pytest_configure(config: pytest.Config) -> None:
    os.environ[TIER] = config.getoption("--tier")
    account = os.environ.get("PENSTOCK_SUITE_ACCOUNT")
    for number in (signal.SIGTERM, *([signal.SIGINT] if account else [])):
        signal.signal(number, interrupt_once)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    if account and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Account(Path(account)))
    elif account and whole_files.may_be_used(config):
        config.pluginmanager.register(whole_files.WholeFiles())
    unknown = sorted(required_here() - set(PROBES))
    if unknown:
        raise pytest.UsageError(f"PENSTOCK_REQUIRE names {', '.join(unknown)}; known are {', '.join(sorted(PROBES))}")


def interrupt_once(*_: object) -> NoReturn:
    """Ends the tests as Ctrl-C does: what they have started is taken down. The same signal may come from a terminal and from suite.py."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # Not SIG_IGN, which processes that are started now would inherit.
    raise KeyboardInterrupt


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> whole_files.OneTry:
    return whole_files.OneTry(config, log)


def required_here() -> set[str]:
    return {name.strip() for name in os.environ.get("PENSTOCK_REQUIRE", "").split(",") if name.strip()}


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Prints why a worker cannot collect, such as that there is no test of a name: xdist keeps it to itself."""
    try:
        return (yield)
    except pytest.UsageError as error:
        if hasattr(session.config, "workerinput"):
            print(*error.args, sep="\n", file=sys.stderr)
        raise


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted, named = config.getoption("--tier"), named_tests(config)
    tiers = {item: tier_of(item) for item in items if not isinstance(item, whole_files.Part)}
    part = {path for path, _ in named}
    files = {item.nodeid.partition("::")[0] for item in tiers if item.path.resolve() not in part}
    is_all = not part and any(Path(argument).resolve() == config.rootpath / "tests" for argument in config.args) and bool(tiers)
    is_all = is_all and not any(isinstance(item, whole_files.Part) for item in items) and len(files) > 1
    problems = list(problems_of(tiers, lambda path: is_all or path in files))
    if problems:
        raise pytest.UsageError("\n".join(problems))
    left_out = {item for item in items if not is_in(item, wanted) and not any(is_of(item, *test) for test in named)}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def named_tests(config: pytest.Config) -> list[tuple[Path, str]]:
    """Returns the file, and the class or test in it, of each argument with `::`."""
    parts = [argument.partition("::") for argument in config.args]
    return [((config.invocation_params.dir / path).resolve(), name) for path, _, name in parts if name]


def is_of(item: pytest.Item, file: Path, name: str) -> bool:
    """Whether it is the test of that name, or is in the class of that name."""
    own_name = item.nodeid.partition("::")[2]
    return item.path.resolve() == file and (own_name == name or own_name.startswith((f"{name}[", f"{name}::")))


def is_in(item: pytest.Item, tier: str) -> bool:
    if isinstance(item, whole_files.Part):  # Its tests are looked at when they are collected.
        return True
    if tier == "fast":
        return is_fast(item)
    return tier_of(item) == tier or (tier == "slow" and tier_of(item) == "test" and item.get_closest_marker("repeats") is not None)


def tier_of(item: pytest.Item) -> str:
    return next((tier for tier in reversed(TIERS) if item.get_closest_marker(tier) is not None), "test")


def is_fast(item: pytest.Item) -> bool:
    if tier_of(item) != "test" or item.nodeid in durations().tests:
        return False
    needs = {name for marker in item.iter_markers("needs") for name in marker.args}
    return needs.isdisjoint(NOT_FAST_NEEDS) and not any(item.get_closest_marker(name) for name in NOT_FAST)


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
        if reason:
            pytest.skip(f"needs {name}: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    return failed_if_required((yield))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    return failed_if_required((yield))


def failed_if_required(report: Any) -> Any:
    """Turns the report of a skip into one of a failure where the machine must have what was needed, or where that has no probe: nothing
    could require a misspelt name."""
    reason = skip_reason(report) if report.skipped else ELSEWHERE
    needed = NEEDED.fullmatch(reason)
    if needed is None and not reason.startswith(ELSEWHERE):
        told = "must say what is needed, `needs NAME: …`, or where it runs, `only on Linux`; nothing is expected to fail"
        report.outcome, report.longrepr = "failed", f"{report.nodeid}: skipped because {reason!r}: {told}"
        vars(report).pop("wasxfail", None)
    elif needed is not None and needed[1] not in PROBES:
        report.outcome, report.longrepr = "failed", f"{report.nodeid}: needs {needed[1]!r}; known are {', '.join(sorted(PROBES))}"
    elif needed is not None and needed[1] in required_here():
        report.outcome, report.longrepr = "failed", f"{report.nodeid}: this machine must have {needed[1]} (PENSTOCK_REQUIRE): {needed[2]}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.stash[CPU_BEFORE] = cpu_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    try:
        return (yield)
    finally:
        # Clients that hang in the traceback of an error that was expected go with their file: else they keep calling a node that is gone.
        if nextitem is None or nextitem.path != item.path:
            gc.collect()
            gc.freeze()  # What a file has imported stays, too: looked at again after each of some hundred files it cost half a minute.
        item.user_properties.append(("cpu", round(cpu_seconds() - item.stash[CPU_BEFORE], 3)))


def cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skips = Counter(skip_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if skips and "PENSTOCK_SUITE_ACCOUNT" not in os.environ:
        terminalreporter.section("skipped, and why")
        for reason, count in skips.most_common():
            terminalreporter.line(f"{count:5}  {reason}")
