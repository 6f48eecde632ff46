"""The real Env: its clocks run, and work leaves the loop's thread."""

import asyncio
import threading
import time

import pytest

from penstock.server.env import RealEnv


@pytest.fixture
def env(tmp_path):
    env = RealEnv(str(tmp_path))
    yield env
    env.shut()


def test_now_is_the_loops_clock(env):
    async def difference():
        return abs(env.now() - asyncio.get_running_loop().time())

    assert asyncio.run(difference()) < 0.1


def test_wall_clock_counts_milliseconds_since_1970(env):
    assert abs(env.wall_ms() - time.time() * 1000) < 1000


def test_offloaded_work_runs_in_another_thread_and_answers(env):
    def work(prefix, number):
        return prefix * number, threading.get_ident()

    answer, thread = asyncio.run(env.offload(work, b"ab", 2))
    assert answer == b"abab"
    assert thread != threading.get_ident()


def test_what_offloaded_work_raises_reaches_the_caller(env):
    with pytest.raises(ZeroDivisionError):
        asyncio.run(env.offload(lambda: 1 // 0))


def test_two_envs_do_not_share_their_chance(tmp_path):
    first, second = RealEnv(str(tmp_path / "1")), RealEnv(str(tmp_path / "2"))
    assert first.rng.getrandbits(128) != second.rng.getrandbits(128)
    first.shut()
    second.shut()
