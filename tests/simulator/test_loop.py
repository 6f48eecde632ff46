"""Virtual time: the clock jumps, each process keeps asyncio's order, the dead never run, and the real world is out of reach."""

import asyncio
import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from waiting import PATIENCE_S

from penstock.simulator.env import SimEnv
from penstock.simulator.fence import Trespass
from penstock.simulator.loop import FIRST_INSTANT, Refused, Stuck
from penstock.simulator.world import World


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1) as made:
        yield made


async def idle(env: SimEnv) -> None:
    await asyncio.sleep(1000)


def test_a_year_passes_in_no_time(world: World) -> None:
    async def sleep_long(env: SimEnv) -> None:
        await asyncio.sleep(365 * 86_400)

    world.start("a", sleep_long)
    began = time.monotonic()
    world.run_for(365 * 86_400)
    assert world.now() == FIRST_INSTANT + 365 * 86_400
    assert time.monotonic() - began < PATIENCE_S


def test_one_process_runs_its_callbacks_in_the_order_they_were_called(world: World) -> None:
    ran: list[tuple[str, int]] = []

    async def call_many(env: SimEnv, name: str) -> None:
        loop = asyncio.get_running_loop()
        for number in range(20):
            loop.call_soon(ran.append, (name, number))
        for number in range(20, 40):
            loop.call_later(0.0, ran.append, (name, number))
        for number in range(40, 60):
            loop.call_later(0.1, ran.append, (name, number))
        await asyncio.sleep(1)

    for name in "abc":
        world.start(name, lambda env, name=name: call_many(env, name))  # type: ignore[misc]
    world.run_for(2)
    for name in "abc":
        assert [number for who, number in ran if who == name] == list(range(60))


def test_the_order_between_processes_follows_the_seed() -> None:
    def order(seed: int) -> str:
        ran: list[str] = []

        async def append_often(env: SimEnv, name: str) -> None:
            for _ in range(3):
                ran.append(name)
                await asyncio.sleep(0)

        with World(seed) as world:
            for name in "abcd":
                world.start(name, lambda env, name=name: append_often(env, name))  # type: ignore[misc]
            world.run_for(1)
        return "".join(ran)

    assert order(3) == order(3)
    assert len({order(seed) for seed in range(10)}) > 5


def test_time_outs_work_and_cancel(world: World) -> None:
    async def wait_in_vain(env: SimEnv) -> float:
        try:
            async with asyncio.timeout(2.5):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            return env.now() - FIRST_INSTANT
        return -1

    world.start("a", idle)
    assert world.call("a", wait_in_vain) == 2.5


def test_a_dead_process_runs_no_finally(world: World) -> None:
    said: list[str] = []

    async def work(env: SimEnv) -> None:
        try:
            await asyncio.sleep(5)
            said.append("slept")
        finally:
            said.append("finally")

    world.start("a", work)
    world.run_for(1)
    world.power_cut("a")
    world.run_for(10)
    assert said == []
    assert world.hosts["a"].endings == ["power cut"]


def test_a_paused_process_wakes_to_everything_it_missed(world: World) -> None:
    seen: list[float] = []

    async def tick(env: SimEnv) -> None:
        while True:
            await asyncio.sleep(1)
            seen.append(env.now() - FIRST_INSTANT)

    world.start("a", tick)
    world.run_for(2.5)
    world.pause("a")
    world.run_for(5)
    world.resume("a")
    world.run_for(1.5)
    assert seen == [1.0, 2.0, 7.5, 8.5]


def test_a_slow_host_takes_its_time_for_each_turn(world: World) -> None:
    async def take_turns(env: SimEnv) -> float:
        began = env.now()
        for _ in range(10):
            await asyncio.sleep(0)
        return env.now() - began

    world.start("a", idle)
    world.run_for(1)
    assert world.call("a", take_turns) == 0
    world.slow("a", 0.01)
    assert 0.09 < world.call("a", take_turns) < 0.12


def test_a_process_that_never_lets_go_of_an_instant_is_found(world: World) -> None:
    async def spin(env: SimEnv) -> None:
        while True:
            await asyncio.sleep(0)

    world.start("a", spin)
    with pytest.raises(Stuck):
        world.run_for(1)


def test_when_nothing_can_happen_any_more_it_says_so(world: World) -> None:
    with pytest.raises(Stuck):
        world.loop.run_forever()


def test_an_error_that_nobody_caught_is_kept_with_its_process(world: World) -> None:
    async def call_badly(env: SimEnv) -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    world.start("a", call_badly)
    world.run_for(2)
    (complaint,) = world.complaints()
    assert "a: " in complaint
    assert "ZeroDivisionError" in complaint


def test_a_main_that_raises_ends_its_process(world: World) -> None:
    async def fail(env: SimEnv) -> None:
        await asyncio.sleep(1)
        raise ValueError("enough")

    world.start("a", fail)
    world.run_for(2)
    assert world.hosts["a"].endings == ["ValueError('enough')"]
    assert not world.is_running("a")


def test_many_cancelled_timers_are_swept_out(world: World) -> None:
    async def cancel_many(env: SimEnv) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(10_000):
            loop.call_later(1_000, print).cancel()
        await asyncio.sleep(1)

    world.start("a", cancel_many)
    world.run_for(0.5)
    assert len(world.loop._events) < 2_000


TRESPASSES: list[tuple[Any, str, tuple[Any, ...]]] = [
    *((time, name, ()) for name in ("time", "monotonic", "perf_counter_ns")),
    (time, "sleep", (0,)),
    (random, "random", ()),
    (random, "shuffle", ([1, 2],)),
    (random, "Random", ()),
    (random.SystemRandom(), "random", ()),
    (os, "urandom", (8,)),
    (uuid, "uuid4", ()),
]


@pytest.mark.parametrize(("owner", "name", "arguments"), TRESPASSES)
def test_the_real_world_is_out_of_reach(world: World, owner: Any, name: str, arguments: tuple[Any, ...]) -> None:
    async def ask(env: SimEnv) -> None:
        getattr(owner, name)(*arguments)

    world.start("a", idle)
    with pytest.raises(Trespass):
        world.call("a", ask)
    getattr(owner, name)(*arguments)  # Outside of a run everything is as it was.


def test_no_thread_starts_in_virtual_time(world: World) -> None:
    async def start_thread(env: SimEnv) -> None:
        threading.Thread(target=print).start()

    world.start("a", idle)
    with pytest.raises(Trespass):
        world.call("a", start_thread)


def test_logging_and_seeded_chance_pass_the_fence(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def work(env: SimEnv) -> float:
        logging.getLogger("here").warning("a word")
        return random.Random(5).random()

    world.start("a", idle)
    assert world.call("a", work) == random.Random(5).random()
    assert "a word" in caplog.text


def test_threads_names_and_real_sockets_are_refused(world: World) -> None:
    async def ask(env: SimEnv) -> int:
        refused = 0
        loop = asyncio.get_running_loop()
        for wish in (lambda: loop.run_in_executor(None, print), lambda: loop.getaddrinfo("x", 1), lambda: loop.add_reader(0, print)):
            try:
                wish()
            except Refused:
                refused += 1
        return refused

    world.start("a", idle)
    assert world.call("a", ask) == 3
