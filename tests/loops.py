"""Tests that are coroutines: each runs on an event loop of its own, which must end without a complaint.

`run_coroutine` takes asyncio's loop, or uvloop's; `run_virtually` the simulator's, whose clock jumps to whatever happens next.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest
import uvloop

from penstock.simulator.env import SimEnv
from penstock.simulator.world import World

T = TypeVar("T")
Arguments = dict[str, Any]
Afterwards = Callable[[Arguments], Awaitable[None]]
SEED = 1


def on_both_loops(metafunc: pytest.Metafunc) -> None:
    metafunc.fixturenames.append("loop_kind")
    metafunc.parametrize("loop_kind", ["asyncio", "uvloop"])


def run_coroutine(function: pytest.Function, seconds_max: float, afterwards: Afterwards | None = None) -> bool | None:
    """For `pytest_pyfunc_call`. `afterwards` runs on the same loop, however the test ends."""
    if not inspect.iscoroutinefunction(function.obj):
        return None
    arguments = {name: function.funcargs[name] for name in function._fixtureinfo.argnames}
    callspec = getattr(function, "callspec", None)

    async def run() -> None:
        try:
            await function.obj(**arguments)
        finally:
            if afterwards is not None:
                await afterwards(arguments)

    run_really(run(), seconds_max, is_uvloop=callspec is not None and callspec.params.get("loop_kind") == "uvloop")
    return True


def run_really(main: Coroutine[Any, Any, T], seconds_max: float, *, is_uvloop: bool) -> T:
    """Runs a coroutine on a new loop of asyncio's or uvloop's. What nobody caught fails the test."""
    complaints: list[str] = []

    async def run() -> T:
        def complain(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            complaints.append(f"{context['message']}: {context.get('exception')!r}")

        asyncio.get_running_loop().set_exception_handler(complain)
        async with asyncio.timeout(seconds_max):
            return await main

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if is_uvloop else None) as runner:
        value = runner.run(run())
    assert complaints == [], "the loop complained"
    return value


def run_virtually(function: pytest.Function, seconds_max: float, afterwards: Afterwards | None = None) -> bool | None:
    """For `pytest_pyfunc_call`: the same in virtual time, in a single process of a simulated world. A wait costs nothing there."""
    if not inspect.iscoroutinefunction(function.obj):
        return None
    arguments = {name: function.funcargs[name] for name in function._fixtureinfo.argnames}

    async def run(_: SimEnv) -> None:
        try:
            async with asyncio.timeout(seconds_max):
                await function.obj(**arguments)
        finally:
            if afterwards is not None:
                await afterwards(arguments)

    with World(SEED) as world:
        world.start("test", run)
        main = world.hosts["test"].main
        assert main is not None
        main.add_done_callback(lambda _: world.loop.stop())
        world.loop.run_forever()
        main.result()
        assert world.complaints() == [], "the loop complained"
    return True
