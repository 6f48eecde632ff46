"""Tests over real sockets are coroutines: each runs on asyncio's loop and on uvloop's, which must end without a complaint."""

import asyncio
import inspect
from typing import Any

import pytest
import uvloop

SECONDS_MAX = 30.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if inspect.iscoroutinefunction(metafunc.function):
        metafunc.fixturenames.append("loop_kind")
        metafunc.parametrize("loop_kind", ["asyncio", "uvloop"])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    complaints: list[str] = []
    is_fast = pyfuncitem.callspec.params["loop_kind"] == "uvloop"
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if is_fast else None) as runner:
        runner.run(_run(pyfuncitem.obj, arguments, complaints))
    assert complaints == [], "the loop complained"
    return True


async def _run(test: Any, arguments: dict[str, Any], complaints: list[str]) -> None:
    def complain(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        complaints.append(f"{context['message']}: {context.get('exception')!r}")

    asyncio.get_running_loop().set_exception_handler(complain)
    async with asyncio.timeout(SECONDS_MAX):
        await test(**arguments)
