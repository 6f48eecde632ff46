"""Staying awake for a short wait.

An event loop with nothing to do lets its processor sleep. On a virtual machine that hands the processor back to the host, and it comes
again some tens of microseconds late, with nothing in its caches: beside a flush of two hundred that is much, and with few clients every
flush meets a loop that sleeps. So while a flush is under way the loop goes round and round instead, for a moment.
That takes only time which nobody else wants. Whoever has to share the processor shows in time that passed and was not ours; a wait that was
longer than the moment was watched in vain: after either the loop sleeps as others do, for a while that doubles each time, until a watch was
good for something. So it does while threads of ours read or work for somebody, since a loop that never sleeps seldom lets them have the
interpreter.
Hot path: `begin` and `end`, once for each flush.
"""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

PROCESSORS_MIN = 2  # With fewer, whoever is waited for needs the one that we are on.
REST_S, REST_S_MAX = 0.005, 0.64  # By default, a disk that is always slow is watched for a thousandth of the time.
LOST_S_MAX = 0.000_05  # Time that passed in one watch and was not ours. Interrupts take some.


class Vigil:
    """Of one event loop; for its thread alone."""

    __slots__ = (
        "_began_s", "_clock", "_is_turning", "_is_wanted", "_longest_s", "_ours", "_ours_began_s", "_rest_s", "_rests_until_s", "threads",
    )  # fmt: skip

    def __init__(
        self, longest_s: float, *, clock: Callable[[], float] = time.monotonic, ours: Callable[[], float] = time.thread_time
    ) -> None:
        """`longest_s`: of one watch; 0: there is none. `ours` is the time that this thread has had of a processor."""
        self._longest_s = longest_s
        self._clock = clock
        self._ours = ours
        self.threads = 0  # Of ours at work that will want the interpreter, and for which somebody waits.
        self._is_wanted = self._is_turning = False
        self._began_s = self._ours_began_s = self._rests_until_s = 0.0
        self._rest_s = REST_S  # The next one.

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self._clock()
        if self.threads or not self._longest_s or now < self._rests_until_s:
            return
        self._is_wanted, self._began_s, self._ours_began_s = True, now, self._ours()
        if not self._is_turning:
            self._is_turning = True
            loop.call_soon(self._turn, loop)

    def end(self) -> None:
        """What was waited for is there."""
        if self._is_wanted:
            self._is_wanted = False
            now = self._clock()
            if now - self._began_s - (self._ours() - self._ours_began_s) > LOST_S_MAX:
                self._rest(now)
            else:
                self._rest_s = REST_S

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Whoever is called soon keeps the loop from sleeping, and from nothing else."""
        if self._is_wanted and not self.threads:
            now = self._clock()
            if now < self._began_s + self._longest_s:
                loop.call_soon(self._turn, loop)
                return
            self._rest(now)
        self._is_wanted = self._is_turning = False

    def _rest(self, now_s: float) -> None:
        self._rests_until_s = now_s + self._rest_s
        self._rest_s = min(2 * self._rest_s, REST_S_MAX)


def processors() -> float:
    """How many this process may use at a time: those it may run on, or what its container grants, if that is less."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(count, _granted())


def _granted(files: Path = Path("/sys/fs/cgroup"), mine: Path = Path("/proc/self/cgroup")) -> float:
    """By this process's control group and all that it is part of; a container sees its own as the first of them."""
    try:
        path = next((line[3:] for line in mine.read_text().splitlines() if line.startswith("0::")), "/")
        group = files / path.strip("/")
        return min(_quota(each) for each in (group, *group.parents) if each == files or files in each.parents)
    except OSError:
        return float("inf")


def _quota(group: Path) -> float:
    try:
        if (both := group / "cpu.max").exists():
            quota, period = both.read_text().split()
        else:  # As it was before there was one hierarchy.
            quota, period = ((group / "cpu" / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return int(quota) / int(period) if quota not in ("max", "-1") else float("inf")
    except (OSError, ValueError, ZeroDivisionError):
        return float("inf")
