"""The real Env: its clocks run, and work leaves the loop's thread."""

import asyncio
import ctypes
import subprocess
import sys
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
    async def read():
        loop = asyncio.get_running_loop()
        return loop.time(), env.now(), loop.time()

    before, now, after = asyncio.run(read())
    assert before <= now <= after


def test_wall_clock_counts_milliseconds_since_1970(env):
    assert time.time_ns() // 1_000_000 <= env.wall_ms() <= time.time_ns() // 1_000_000


def test_offloaded_work_runs_in_another_thread_and_answers(env):
    def work(prefix, number):
        return prefix * number, threading.get_ident()

    answer, thread = asyncio.run(env.offload(work, b"ab", 2))
    assert answer == b"abab"
    assert thread != threading.get_ident()


def test_what_offloaded_work_raises_reaches_the_caller(env):
    with pytest.raises(ZeroDivisionError):
        asyncio.run(env.offload(lambda: 1 // 0))


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="only with glibc's allocator")
def test_memory_of_large_reads_is_used_again_instead_of_being_faulted_in_anew(tmp_path):
    """A fetch reply is a few megabytes, read and forgotten over and over."""
    program = """
import resource, sys
from penstock.server.env import RealEnv
env = RealEnv(sys.argv[1])
file = env.disk.open("log", create=True)
for _ in range(6):
    env.disk.append(file, [bytes(1 << 20)])
def reply():
    return [env.disk.read_now(file, part << 20, 1 << 20) or env.disk.read_at(file, part << 20, 1 << 20) for part in range(6)]
reply()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    assert all(reply())
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    ran = subprocess.run([sys.executable, "-c", program, str(tmp_path)], env={"PYTHONPATH": "src"}, capture_output=True, check=True)
    assert int(ran.stdout) < 10_000, "of the 76,800 pages that were read"


def test_two_envs_do_not_share_their_chance(tmp_path):
    first, second = RealEnv(str(tmp_path / "1")), RealEnv(str(tmp_path / "2"))
    assert first.rng.getrandbits(128) != second.rng.getrandbits(128)
    first.shut()
    second.shut()
