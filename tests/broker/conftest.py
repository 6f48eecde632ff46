"""Tests of the broker are coroutines: each runs on an event loop of its own, which must end without a complaint.

Where sockets are the point a module says `BOTH_LOOPS = True`, and its tests run on asyncio's loop and on uvloop's.
`serving` is a node's data directory; whatever a test leaves running there is stopped after it, on the same loop.
"""

import inspect
import logging
from pathlib import Path
from typing import Any

import pytest
from loops import on_both_loops, run_coroutine
from serving import Serving

SECONDS_MAX = 60.0


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "expects_failure: the node reports an error in this test, which is its point")


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    return Serving(tmp_path / "data")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if getattr(metafunc.module, "BOTH_LOOPS", False) and inspect.iscoroutinefunction(metafunc.function):
        on_both_loops(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine(pyfuncitem, SECONDS_MAX, afterwards=_close)


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
