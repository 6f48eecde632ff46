"""Tests that run in virtual time, and in `make test-slow` on uvloop's and asyncio's loops, too: real sockets, a real clock, real files.

- A test that is a scenario takes the fixture `on_loop` and plays it there: `on_loop(on_node(story))`. Where it calls `virtually` instead
  it runs in virtual time only, and says why by `@pytest.mark.virtual_time("why")`: it moves time by hand, or a deadline must expire.
- A test that is a coroutine is for the conftest.py of its package: what broker/conftest.py says of a module is built from the same parts.

On real loops the deadlines of the product are longer than a test waits: what happens when one expires is shown in virtual time.
A plugin of the whole suite (conftest.py).
"""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import pytest
from waiting import NEVER_S, PATIENCE_S

ALL = ("virtual", "uvloop", "asyncio")
Scenario = Callable[[Any, Any], Coroutine[Any, Any, Any]]
OnLoop = Callable[[Scenario], Any]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "virtual_time(why): runs in virtual time only, though others like it run on all loops")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "on_loop" in metafunc.fixturenames:
        metafunc.parametrize("on_loop", once_here(metafunc, ALL), indirect=True)


def once_here(metafunc: pytest.Metafunc, kinds: tuple[str, ...]) -> list[Any]:
    """Returns parameters of which the first is in `make test` and the others are in `make test-slow`."""
    again = pytest.mark.slow(stays=metafunc.definition.nodeid)
    return [kinds[0], *(pytest.param(kind, marks=again) for kind in kinds[1:])]


@pytest.fixture
def on_loop(request: pytest.FixtureRequest) -> OnLoop:
    """Plays a scenario, which is given a world and an environment: in virtual time as `virtually` does, else no world."""
    from loops import run_really
    from serving import RealDoorEnv, virtually  # The node, which most of the suite does without.

    kind = request.param
    if kind == "virtual":
        return virtually
    directories: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")

    def play(scenario: Scenario) -> Any:
        env = RealDoorEnv(str(directories.mktemp("data")))
        try:
            with without_deadlines():
                return run_really(scenario(None, env), PATIENCE_S, is_uvloop=kind == "uvloop")
        finally:
            env.shut()

    return play


@contextmanager
def without_deadlines() -> Iterator[None]:
    """Lets the product wait for longer than a machine may stall where it waits for less: on real loops no test depends on these."""
    from penstock.broker import coordinator_waiting, marker_writing
    from penstock.broker.queues import durable, sending
    from penstock.broker.shares import beginning, gathering, shares
    from penstock.http import door
    from penstock.simulator.knobs import replaced

    deadlines: list[tuple[Any, str, Any]] = [
        (beginning, "LOOKED_FOR_SECONDS", NEVER_S),
        (coordinator_waiting, "SECONDS_MAX", NEVER_S),
        (door, "HEAD_SECONDS", NEVER_S),
        (durable, "DURABLE_SECONDS", NEVER_S),
        (gathering, "LEADER_LOOKED_FOR_SECONDS", NEVER_S),
        (marker_writing, "DURABLE_SECONDS", NEVER_S),
        (sending, "ROOM_SECONDS", NEVER_S),
        (shares, "LEADER_LOOKED_FOR_SECONDS", NEVER_S),
    ]
    with replaced(deadlines):
        yield


def require_reason(metafunc: pytest.Metafunc) -> None:
    """Fails the collection of a scenario that runs in virtual time only and does not say why."""
    is_virtual_only = "virtually" in names_of(metafunc.function.__code__)
    if is_virtual_only and metafunc.definition.get_closest_marker("virtual_time") is None:
        pytest.fail(f'{metafunc.definition.nodeid}: use on_loop, or say why not by @pytest.mark.virtual_time("why")', pytrace=False)


def names_of(code: CodeType) -> set[str]:
    """Returns the names that a function and those inside it take from around it."""
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return set(code.co_names).union(*map(names_of, inner))
