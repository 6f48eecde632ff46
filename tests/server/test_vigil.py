"""An event loop that stays awake for a flush: for a moment, and where it costs nobody anything."""

import asyncio
import os
import threading

import pytest
from machine import unbuilt
from server.flush_rounds import files_with_bytes, loops

from penstock.server import kernel
from penstock.server import vigil as module
from penstock.server.disk import RealDisk
from penstock.server.env import RealEnv
from penstock.server.flush_threads import FILES_MAX
from penstock.server.vigil import LOST_S_MAX, REST_S, REST_S_MAX, Vigil, processors

LONGEST_S = 0.000_5


class Machine:
    """A loop and a processor whose time passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.ours_s = 1.0
        self.soon: list = []
        self.vigil = Vigil(LONGEST_S, clock=lambda: self.now_s, ours=lambda: self.ours_s)

    def call_soon(self, callback, *arguments) -> None:
        self.soon.append((callback, arguments))

    def turn(self, ours_s=0.000_01, *, others_s=0.0) -> bool:
        """One turn of the loop. False: it would sleep."""
        soon, self.soon = self.soon, []
        for callback, arguments in soon:
            callback(*arguments)
        self.now_s += ours_s + others_s
        self.ours_s += ours_s
        return bool(self.soon)


@pytest.fixture
def machine():
    return Machine()


def test_the_loop_turns_until_what_it_waits_for_is_there(machine):
    assert not machine.turn()
    machine.vigil.begin(machine)
    assert all(machine.turn() for _ in range(20))
    machine.vigil.end()
    assert not machine.turn()


def test_one_flush_after_the_other_takes_one_turn_at_a_time(machine):
    for _ in range(100):
        machine.vigil.begin(machine)
        assert len(machine.soon) == 1 and machine.turn()
        machine.vigil.end()
    assert not machine.turn()


def test_a_long_wait_is_slept_through_and_so_are_those_soon_after(machine):
    machine.vigil.begin(machine)
    turns = 0
    while machine.turn():
        turns += 1
    assert turns == pytest.approx(50, abs=2)
    machine.vigil.end()
    machine.now_s += REST_S / 2
    machine.vigil.begin(machine)
    assert not machine.soon
    machine.vigil.end()
    machine.now_s += REST_S
    machine.vigil.begin(machine)
    assert machine.turn()


def test_rests_double_until_a_watch_was_good_for_something(machine):
    def rest_s():
        """After a watch in vain: how long until the next."""
        machine.vigil.begin(machine)
        while machine.turn():
            pass
        began_s = machine.now_s
        while not machine.soon:
            machine.now_s += REST_S / 4
            machine.vigil.begin(machine)
        return machine.now_s - began_s

    rests = [rest_s() for _ in range(10)]
    assert rests[:4] == pytest.approx([REST_S, 2 * REST_S, 4 * REST_S, 8 * REST_S], abs=REST_S / 2)
    assert rests[-1] == pytest.approx(REST_S_MAX, abs=REST_S / 2)
    machine.vigil.end()
    machine.turn()
    assert rest_s() == pytest.approx(REST_S, abs=REST_S / 2)


@pytest.mark.parametrize(("others_s", "rests"), [(2 * LOST_S_MAX, True), (LOST_S_MAX / 2, False)])
def test_who_has_to_share_the_processor_sleeps(machine, others_s, rests):
    machine.vigil.begin(machine)
    machine.turn(others_s=others_s)
    machine.vigil.end()
    machine.turn()
    machine.vigil.begin(machine)
    assert bool(machine.soon) is not rests


def test_threads_that_want_the_interpreter_are_let_have_it(machine):
    machine.vigil.threads = 1
    machine.vigil.begin(machine)
    assert not machine.soon
    machine.vigil.threads = 0
    machine.vigil.begin(machine)
    assert machine.turn()
    machine.vigil.threads = 1
    assert not machine.turn()
    machine.vigil.threads = 0
    machine.vigil.begin(machine)
    assert machine.turn(), "the next flush is watched again"


def test_there_may_be_none():
    machine = Machine()
    machine.vigil = Vigil(0, clock=lambda: machine.now_s, ours=lambda: machine.ours_s)
    machine.vigil.begin(machine)
    machine.vigil.end()
    assert not machine.soon


@pytest.mark.skipif(FILES_MAX == 0, reason=unbuilt("the threads that flush") if kernel.IS_LINUX else "only on Linux")
@loops
def test_flushes_of_a_disk_are_watched_and_the_loop_sleeps_afterwards(tmp_path, new_loop):
    vigil = Vigil(10.0)
    disk = RealDisk(str(tmp_path), vigil)

    async def scenario():
        (file,) = files_with_bytes(disk, 1)
        flush = disk.sync([file])
        assert vigil._is_turning
        assert await flush == []
        await asyncio.sleep(0)
        assert not vigil._is_turning

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())
    disk.shut()


def test_reads_and_offloaded_work_are_threads_at_work(tmp_path):
    env = RealEnv(str(tmp_path))

    async def scenario():
        (file,) = files_with_bytes(env.disk, 1)
        reading = asyncio.ensure_future(env.disk.read_later(file, 0, 5))
        working = asyncio.ensure_future(env.offload(lambda: env._vigil.threads))
        await asyncio.sleep(0)
        assert env._vigil.threads == 2
        assert await reading == b"dirty"
        assert await working >= 1
        await asyncio.sleep(0)
        assert env._vigil.threads == 0
        with pytest.raises(ZeroDivisionError):
            await env.offload(lambda: 1 / 0)
        assert env._vigil.threads == 0
        may_end = threading.Event()
        nobody_waits = asyncio.ensure_future(env.offload(may_end.wait, 10))
        await asyncio.sleep(0)
        nobody_waits.cancel()
        assert env._vigil.threads == 1
        may_end.set()

    asyncio.run(scenario())
    env.shut()


@pytest.mark.parametrize(
    ("files", "granted"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, float("inf")),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, float("inf")),
        ({"cpu.max": "what is this"}, float("inf")),
        ({}, float("inf")),
    ],
)
def test_what_a_container_grants(tmp_path, files, granted):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    mine = tmp_path / "mine"
    mine.write_text("0::/\n")
    assert module._granted(tmp_path, mine) == granted
    assert module._granted(tmp_path, tmp_path / "nowhere") == float("inf")


def test_what_is_granted_to_a_group_of_groups_holds_for_each(tmp_path):
    mine, service = tmp_path / "mine", tmp_path / "system.slice" / "penstock.service"
    service.mkdir(parents=True)
    mine.write_text("12:cpuset:/\n0::/system.slice/penstock.service\n")
    (service / "cpu.max").write_text("max 100000\n")
    assert module._granted(tmp_path, mine) == float("inf")
    (service.parent / "cpu.max").write_text("100000 100000\n")
    assert module._granted(tmp_path, mine) == 1.0


def test_a_process_that_may_use_one_processor_always_sleeps(tmp_path, monkeypatch):
    assert 0 < processors() <= (os.cpu_count() or 1)
    monkeypatch.setattr(module, "_granted", lambda: 1.0)
    assert processors() == 1.0
    env = RealEnv(str(tmp_path), awake_s=1.0)
    assert env._vigil._longest_s == 0
    env.shut()
