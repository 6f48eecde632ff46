"""The Spark session that is measured, and what its processes cost: the JVM, its Python workers, the broker."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.load.stopwatch import cpu_s
from benchmarks.subjects import LoadFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUE_BYTES_MAX = 4 << 10  # The largest value here, so that Spark hands over as many rows at a time as do any good.


@contextmanager
def spark_session(jars: Sequence[Path]) -> Iterator["SparkSession"]:
    """One for the whole run, with the settings that ship; the connector's jars change nothing for our side."""
    from penstock.pipeline.session import session

    settings = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "2g"}
    settings["spark.sql.streaming.numRecentProgressUpdates"] = "1000"
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    running = session("penstock-bench", master="local[2]", value_bytes_max=VALUE_BYTES_MAX, settings=settings)
    try:
        yield running
    finally:
        running.stop()


@dataclass(frozen=True, slots=True)
class Cost:
    seconds: float
    jvm_s: float
    python_s: float  # Of Spark's Python workers, and of this process: plain loops run in it.
    broker_s: float


class Meter:
    """Wall time and CPU time of one stretch."""

    def __init__(self, spark: "SparkSession", broker_pid: int) -> None:
        self._jvm_pid: int = spark.sparkContext._gateway.proc.pid
        self._broker_pid = broker_pid

    def measure(self, act: Callable[[], object]) -> Cost:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        before = self._cpu_s()
        began = time.perf_counter()
        try:
            act()
        except (PySparkException, Py4JError) as failure:
            raise LoadFailed(str(failure).strip()[:500]) from failure
        seconds = time.perf_counter() - began
        jvm_s, python_s, broker_s = (now - then for now, then in zip(self._cpu_s(), before, strict=True))
        return Cost(seconds, jvm_s, max(0.0, python_s), broker_s)

    def worker_memory_peak_bytes(self) -> int:
        """The most that any one of Spark's Python workers has ever had."""
        return max((_peak_bytes(pid) for pid in descendants(self._jvm_pid)), default=0)

    def _cpu_s(self) -> tuple[float, float, float]:
        """Workers that ended meanwhile are missed; Spark keeps them for the next task."""
        workers_s = sum(map(cpu_s, descendants(self._jvm_pid)))
        return cpu_s(self._jvm_pid), workers_s + time.process_time(), cpu_s(self._broker_pid)


def descendants(pid: int) -> list[int]:
    """Every process below this one; none where there is no /proc to ask."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(status.parent.name))
    found, ahead = [], [pid]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def _peak_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)


def why_not() -> str | None:
    """What this machine lacks to run Spark, as a sentence."""
    if not sys.platform.startswith("linux"):
        return "the processes of Spark are looked at through /proc, which only Linux has"
    try:
        from penstock.pipeline.complaints import PipelineComplaint
        from penstock.pipeline.session import require_spark
    except ImportError as missing:
        return str(missing)
    try:
        require_spark()
    except PipelineComplaint as complaint:
        return str(complaint)
    return None
