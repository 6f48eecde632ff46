"""Tests of the broker are coroutines: each runs on an event loop of its own, which must end without a complaint.

A module says on which:
- `ALL_LOOPS = True`: the simulator's, with its network and its disk; in `make test-slow` uvloop's and asyncio's, too, on real sockets and
  a real disk. In virtual time what is waited for comes at once, and nothing depends on the machine. Most modules do.
- `UVLOOP_TOO = True`: the same without asyncio's. For modules that take seconds on a real clock.
- `BOTH_LOOPS = True`: uvloop's, and asyncio's in `make test-slow`. For modules about sockets.
- `VIRTUAL_TIME = True`: the simulator's only.
- Otherwise asyncio's. For modules about files and processes.

On real loops the node's own deadlines are longer than a test waits: what happens when one expires is shown in virtual time.

Tests that move time by hand, or count what happens in some of it, or need a disk that fails when it is told to, stay in virtual time: in a
module that runs on real loops, too, they say `@pytest.mark.virtual_time("why")`.

`serving` is a node's data directory; whatever a test leaves running there is stopped after it, on the same loop.
"""

import inspect
import logging
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from all_loops import ALL, once_here, without_deadlines
from loops import run_coroutine, run_virtually
from serving import Serving, VirtualServing
from waiting import PATIENCE_S

# By what a module says: where its tests run, in `make test` only on the first.
LOOPS = {"ALL_LOOPS": ALL, "UVLOOP_TOO": ("virtual", "uvloop"), "BOTH_LOOPS": ("uvloop", "asyncio")}
VIRTUAL_SECONDS_MAX = 60.0  # Of virtual time: a request that is parked for long and should not be fails its test.


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "expects_failure: the node reports an error in this test, which is its point")


@pytest.fixture
def serving(request: pytest.FixtureRequest) -> Serving:
    if is_virtual(request.node):
        return VirtualServing()
    tmp_path: Path = request.getfixturevalue("tmp_path")
    return Serving(tmp_path / "data")


@pytest.fixture(autouse=True)
def unhurried(request: pytest.FixtureRequest) -> Iterator[None]:
    """On real loops lets no deadline of the node expire."""
    is_real = inspect.iscoroutinefunction(request.function) and not is_virtual(request.node)
    with without_deadlines() if is_real else nullcontext():
        yield


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    kinds = [kind for name in LOOPS if getattr(metafunc.module, name, False) for kind in LOOPS[name]]
    is_virtual_only = metafunc.definition.get_closest_marker("virtual_time") is not None
    if kinds and not is_virtual_only and inspect.iscoroutinefunction(metafunc.function):
        metafunc.fixturenames.append("loop_kind")
        metafunc.parametrize("loop_kind", once_here(metafunc, tuple(kinds)))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if is_virtual(pyfuncitem):
        return run_virtually(pyfuncitem, VIRTUAL_SECONDS_MAX, afterwards=_close)
    return run_coroutine(pyfuncitem, PATIENCE_S, afterwards=_close)


def is_virtual(item: pytest.Function) -> bool:
    if getattr(item.module, "VIRTUAL_TIME", False) or item.get_closest_marker("virtual_time") is not None:
        return True
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.params.get("loop_kind") == "virtual"


async def _close(arguments: dict[str, Any]) -> None:
    serving = arguments.get("serving")
    if isinstance(serving, Serving):
        await serving.close()


@pytest.fixture(autouse=True)
def no_task_failed(caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest) -> Any:
    """A task of the node that failed is a defect, whatever the client saw; `@pytest.mark.expects_failure` says that it is the point."""
    yield
    failures = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    if request.node.get_closest_marker("expects_failure") is None:
        assert [record.getMessage() for record in failures] == []
