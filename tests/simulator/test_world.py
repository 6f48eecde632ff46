"""A world ties hosts, disks and clocks together: processes come and go, their disks stay, and the same seed is the same world."""

import asyncio
from collections.abc import Iterator

import pytest

from penstock.env import Env
from penstock.errors import DiskFailed
from penstock.simulator.disk import PowerCut
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.env import SimEnv
from penstock.simulator.platter import Loss
from penstock.simulator.world import World


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1) as made:
        yield made


async def idle(env: SimEnv) -> None:
    await asyncio.sleep(1e9)


def test_a_flush_takes_virtual_time_and_covers_what_was_appended_before_it() -> None:
    async def append_while_flushing(env: SimEnv) -> float:
        file = env.disk.open("a", create=True)
        env.disk.append(file, [b"before"])
        began = env.now()
        flush = asyncio.create_task(env.disk.sync([file], [""]))
        await asyncio.sleep(0.5)
        env.disk.append(file, [b"during"])
        assert await flush == []
        return env.now() - began

    with World(1, disk_faults=DiskFaults(sync_seconds_min=1, sync_seconds_max=2)) as world:
        world.start("a", idle)
        assert 1 <= world.call("a", append_while_flushing) <= 2
        world.power_cut("a", Loss.ALL)
        assert world.host("a").disk.snapshot("a") == b"before"


def test_a_disk_outlives_the_processes_of_its_host(world: World) -> None:
    async def write(env: SimEnv) -> None:
        assert env.disk.lock("lock")
        file = env.disk.open(f"file-{env.now()}", create=True)
        env.disk.append(file, [b"x"])
        await env.disk.sync([file], [""])

    for _ in range(3):
        world.start("a", write)
        world.run_for(1)
    assert world.hosts["a"].endings == ["returned"] * 3
    assert len(world.hosts["a"].disk.files()) == 3


def test_a_process_can_be_cut_at_its_nth_change_and_runs_nothing_after_it(world: World) -> None:
    said: list[str] = []

    async def write_often(env: SimEnv) -> None:
        file = env.disk.open("a", create=True)
        try:
            for number in range(100):
                env.disk.append(file, [b"x"])
                said.append(str(number))
                await asyncio.sleep(0.1)
        finally:
            await asyncio.sleep(0)
            said.append("went on")

    world.host("a").disk.crash_at(4)
    world.start("a", write_often)
    world.run_for(60)
    assert said == ["0", "1"]  # Linking the name, two appends; the third is the fourth change.
    assert world.hosts["a"].endings == ["power cut"]
    world.start("a", idle)
    assert world.is_running("a")


def test_the_same_host_runs_one_process_at_a_time(world: World) -> None:
    world.start("a", idle)
    with pytest.raises(ValueError, match="running"):
        world.start("a", idle)


def test_calling_a_host_that_dies_says_so(world: World) -> None:
    async def wait(env: SimEnv) -> None:
        await asyncio.sleep(10)

    world.start("a", idle)
    world.at(5, lambda: world.kill("a"))
    with pytest.raises(PowerCut):
        world.call("a", wait)


def test_wall_clocks_jump_and_drift_while_the_loop_does_not(world: World) -> None:
    async def read_clocks(env: Env) -> tuple[float, int]:
        return env.now(), env.wall_ms()

    world.start("a", idle)
    first = world.call("a", read_clocks)
    world.jump_clock("a", -3600)
    world.drift_clock("a", 2.0)
    world.run_for(10)
    second = world.call("a", read_clocks)
    elapsed = second[0] - first[0]
    assert second[1] - first[1] == pytest.approx(-3_600_000 + elapsed * 2_000, abs=50)


def test_offloaded_work_answers_later_and_raises_what_it_raised(world: World) -> None:
    async def work(env: Env) -> float:
        began = env.now()
        assert await env.offload(lambda content: content.upper(), b"abc") == b"ABC"
        with pytest.raises(DiskFailed):
            await env.offload(_fail)
        return env.now() - began

    world.start("a", idle)
    assert world.call("a", work) > 0


def test_chance_is_the_hosts_own_and_new_in_each_process() -> None:
    def draws(seed: int, hosts: str) -> dict[str, list[float]]:
        with World(seed) as world:
            first = {name: [world.start(name, idle).rng.random()] for name in hosts}
            for name in hosts:
                world.kill(name)
                first[name].append(world.start(name, idle).rng.random())
            return first

    assert draws(1, "ab")["a"] == draws(1, "a")["a"]
    assert len({number for numbers in draws(1, "ab").values() for number in numbers}) == 4
    assert draws(1, "a") != draws(2, "a")


def test_faults_are_counted_by_kind(world: World) -> None:
    world.start("a", idle)
    world.pause("a")
    world.resume("a")
    world.slow("a", 0.1)
    world.slow("a", 0)
    world.jump_clock("a", 5)
    world.network.cut("a", "b")
    world.network.stall("a", "b", 1)
    world.kill("a")
    world.power_cut("a")
    assert world.fired() == {
        **{"pause": 1, "slow host": 1, "clock jump": 1, "one-way cut": 1, "stall": 1, "kill": 1, "power cut": 1},
    }


def _fail() -> None:
    raise DiskFailed("no")
