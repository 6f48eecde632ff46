"""Wall time and CPU time of the same stretch: the generator's own, and the brokers' where the system shows it."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Lap(NamedTuple):
    seconds: float
    own_cpu_s: float
    broker_cpu_s: float


NO_LAP = Lap(0.0, 0.0, 0.0)


class Stopwatch:
    """Runs from when it is made. Brokers whose processes are not known count for nothing."""

    def __init__(self, broker_pids: Sequence[int]) -> None:
        self._broker_pids = broker_pids
        self.began_s = time.perf_counter()
        self._own_s = time.process_time()
        self._broker_s = self._brokers_cpu_s()

    def lap(self) -> Lap:
        return Lap(time.perf_counter() - self.began_s, time.process_time() - self._own_s, self._brokers_cpu_s() - self._broker_s)

    def _brokers_cpu_s(self) -> float:
        return sum(map(cpu_s, self._broker_pids))


def cpu_s(pid: int) -> float:
    """User and system time of a process so far; 0 where there is no /proc to ask."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
