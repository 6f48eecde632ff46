"""Tests that are coroutines: each runs on an event loop of its own, which must end without a complaint.

`run_coroutine` takes asyncio's loop, or uvloop's; `run_virtually` the simulator's, whose clock jumps to whatever happens next.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from penstock.simulator.env import SimEnv
from penstock.simulator.world import World

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
    complaints: list[str] = []
    callspec = getattr(function, "callspec", None)
    is_fast = callspec is not None and callspec.params.get("loop_kind") == "uvloop"

    async def run() -> None:
        def complain(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            complaints.append(f"{context['message']}: {context.get('exception')!r}")

        asyncio.get_running_loop().set_exception_handler(complain)
        try:
            async with asyncio.timeout(seconds_max):
                await function.obj(**arguments)
        finally:
            if afterwards is not None:
                await afterwards(arguments)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if is_fast else None) as runner:
        runner.run(run())
    assert complaints == [], "the loop complained"
    return True


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
