"""Tests of the broker are coroutines: each runs on an event loop of its own, which must end without a complaint.

A module says on which:
- `VIRTUAL_TIME = True`: the simulator's, with its network and its disk. What is waited for comes at once, and nothing depends on the
  machine. Most modules do.
- `BOTH_LOOPS = True`: uvloop's, and asyncio's in `make test-slow`. For modules about sockets.
- `ALL_LOOPS = True`: the simulator's, and the other two in `make test-slow`.
- Otherwise asyncio's. For modules about files and processes.

`serving` is a node's data directory; whatever a test leaves running there is stopped after it, on the same loop.
"""

import inspect
import logging
from pathlib import Path
from typing import Any

import pytest
from loops import run_coroutine, run_virtually
from serving import Serving, VirtualServing
from waiting import PATIENCE_S

VIRTUAL_SECONDS_MAX = 60.0  # Of virtual time: a request that is parked for long and should not be fails its test.


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "expects_failure: the node reports an error in this test, which is its point")


@pytest.fixture
def serving(request: pytest.FixtureRequest) -> Serving:
    if is_virtual(request.node):
        return VirtualServing()
    tmp_path: Path = request.getfixturevalue("tmp_path")
    return Serving(tmp_path / "data")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    first = {"ALL_LOOPS": "virtual", "BOTH_LOOPS": "uvloop"}
    chosen = [first[name] for name in first if getattr(metafunc.module, name, False)]
    if chosen and inspect.iscoroutinefunction(metafunc.function):
        others = [kind for kind in ("uvloop", "asyncio") if kind not in chosen]
        again = pytest.mark.slow(stays=f"{metafunc.definition.nodeid}")
        metafunc.fixturenames.append("loop_kind")
        metafunc.parametrize("loop_kind", [*chosen, *(pytest.param(kind, marks=again) for kind in others)])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if is_virtual(pyfuncitem):
        return run_virtually(pyfuncitem, VIRTUAL_SECONDS_MAX, afterwards=_close)
    return run_coroutine(pyfuncitem, PATIENCE_S, afterwards=_close)


def is_virtual(item: pytest.Function) -> bool:
    callspec = getattr(item, "callspec", None)
    return getattr(item.module, "VIRTUAL_TIME", False) or (callspec is not None and callspec.params.get("loop_kind") == "virtual")


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
