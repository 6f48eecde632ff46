"""Wall time and CPU time of the same stretch: the generator's own, and the broker's where the system shows it."""

import os
import time
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Lap(NamedTuple):
    seconds: float
    own_cpu_s: float
    broker_cpu_s: float


NO_LAP = Lap(0.0, 0.0, 0.0)


class Stopwatch:
    """Runs from when it is made. `broker_pid` 0: the broker's process is not known."""

    def __init__(self, broker_pid: int) -> None:
        self._broker_pid = broker_pid
        self.began_s = time.perf_counter()
        self._own_s = time.process_time()
        self._broker_s = cpu_s(broker_pid)

    def lap(self) -> Lap:
        return Lap(time.perf_counter() - self.began_s, time.process_time() - self._own_s, cpu_s(self._broker_pid) - self._broker_s)


def cpu_s(pid: int) -> float:
    """User and system time of a process so far; 0 where there is no /proc to ask."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
