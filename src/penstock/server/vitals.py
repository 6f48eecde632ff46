"""What the operating system knows about this process, under the names that Prometheus clients of every language use."""

import os
import resource
import time
from collections.abc import Iterator

from penstock import __version__
from penstock.broker.metrics import Sample

_PAGE_BYTES = resource.getpagesize()
_STARTED = time.time()


def vitals() -> Iterator[Sample]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield Sample("process_cpu_seconds_total", "counter", "CPU time of the process.", (), used.ru_utime + used.ru_stime)
    yield Sample("process_start_time_seconds", "gauge", "When the process started, in seconds since 1970.", (), _STARTED)
    yield Sample("process_max_fds", "gauge", "The most files it may have open.", (), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield Sample("penstock_build_info", "gauge", "Always 1; the label says what runs.", (("version", __version__),), 1)
    if os.path.exists("/proc/self/statm"):
        yield Sample("process_resident_memory_bytes", "gauge", "Memory that the process holds.", (), _resident_bytes())
        yield Sample("process_open_fds", "gauge", "Files it has open.", (), len(os.listdir("/proc/self/fd")))


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
