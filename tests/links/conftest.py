"""Tests over real sockets are coroutines: each runs on asyncio's loop and on uvloop's."""

import inspect

import pytest
from loops import on_both_loops, run_coroutine
from waiting import PATIENCE_S


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if inspect.iscoroutinefunction(metafunc.function):
        on_both_loops(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine(pyfuncitem, PATIENCE_S)
