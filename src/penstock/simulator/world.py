"""A world from one seed: hosts with disks and clocks, the network between them, and virtual time over all.

    with World(seed=7) as world:
        world.start("node-1", serve)            # serve(env) is a coroutine function, as main is to asyncio.run
        world.start("client", produce_some)
        world.run_for(10)
        world.power_cut("node-1")
        world.start("node-1", serve)
        world.run_until(lambda: world.has_ended("client"), within=60)

Rules:
- A host has at most one living process, and keeps its disk, its wall clock and its address from one to the next.
- A process ends when its main coroutine returns or raises, by `kill` (what it wrote stays written) or by `power_cut` (what was not flushed
  meets its fate). Nothing of it runs after that.
- Equal seeds and equal calls give equal trace hashes, in any process of any machine.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from types import TracebackType
from typing import Any, TypeVar

from penstock.simulator.disk import PowerCut, SimDisk
from penstock.simulator.disk_faults import HONEST, DiskFaults
from penstock.simulator.env import SimEnv, WallClock
from penstock.simulator.links import GOOD, LinkQuality
from penstock.simulator.loop import SimLoop, Stuck
from penstock.simulator.network import Network
from penstock.simulator.platter import Loss
from penstock.simulator.process import Process
from penstock.simulator.trace import Trace

T = TypeVar("T")
Main = Callable[[SimEnv], Coroutine[Any, Any, object]]

_CLAIM_CHECKED_SECONDS = 0.01


class Host:
    __slots__ = ("disk", "ended_at", "endings", "env", "main", "name", "process", "starts", "wall")

    def __init__(self, name: str, disk: SimDisk, wall: WallClock) -> None:
        self.name = name
        self.disk = disk
        self.wall = wall
        self.process: Process | None = None  # The living one.
        self.env: SimEnv | None = None
        self.main: asyncio.Task[object] | None = None
        self.starts = 0
        self.ended_at: list[float] = []
        self.endings: list[str] = []  # How each process ended: "killed", "power cut", "returned", or what it raised.


class World:
    def __init__(
        self,
        seed: int,
        *,
        disk_faults: DiskFaults = HONEST,
        link_quality: LinkQuality = GOOD,
        capacity_bytes: int = 1 << 50,
        record: bool = False,
    ) -> None:
        self.seed = seed
        self.rng = Random(f"{seed}/world")  # For faults and workloads; processes have their own.
        self.trace = Trace(record=record)
        self.loop = SimLoop(Random(f"{seed}/loop"), self.trace)
        self.network = self.loop.network = Network(self.loop, Random(f"{seed}/network"), link_quality)
        self.hosts: dict[str, Host] = {}
        self._disk_faults = disk_faults
        self._capacity_bytes = capacity_bytes
        self.power_cuts: list[tuple[float, str]] = []  # When, and whose.
        self._fired: Counter[str] = Counter()
        self._processes = 0
        self._ended: list[Process] = []  # Kept, so that nothing of them is finalized while the world runs.

    # Hosts and their processes.

    def host(self, name: str) -> Host:
        if name not in self.hosts:
            self.network.machine(name)
            disk = self._new_disk(name, len(self.hosts), f"{self.seed}/{name}")
            self.hosts[name] = Host(name, disk, WallClock(self.loop))
        return self.hosts[name]

    def _new_disk(self, name: str, index: int, seed: str) -> SimDisk:
        return SimDisk(
            seed,
            self._disk_faults,
            capacity_bytes=self._capacity_bytes,
            sleep=asyncio.sleep,
            tell=lambda operation, path, size: self.trace.note(self.now(), index, f"{operation} {path}", size),
            went_dark=lambda: self._went_dark(self.hosts[name]),
        )

    def start(self, name: str, main: Main) -> SimEnv:
        host = self.host(name)
        if host.process is not None:
            raise ValueError(f"{name} is running")
        if host.disk.is_dark:
            host.disk.power_cut()
        self.network.booted(name)
        host.starts += 1
        self._processes += 1
        process = host.process = Process(name, self._processes)
        host.env = SimEnv(self.loop, Random(f"{self.seed}/{name}/{host.starts}"), host.disk, host.wall)
        self.trace.note(self.now(), process.index, f"start {name}")
        host.main = self.loop.create_task(main(host.env), context=process.context.copy())
        host.main.add_done_callback(lambda task: self._ended_by_itself(host, process, task), context=process.context)
        return host.env

    def kill(self, name: str) -> None:
        """As kill -9: the kernel lives, closes the sockets and keeps what was written."""
        host = self.hosts[name]
        if (process := self._bury(host, "killed")) is not None:
            self.network.killed(process)
            host.disk.kill()
            self._fired["kill"] += 1

    def terminate(self, name: str) -> None:
        """As SIGTERM: the process is asked to end. One that does not listen (`SimEnv.terminated`) goes on."""
        host = self.hosts[name]
        if host.process is not None and host.env is not None:
            self.trace.note(self.now(), host.process.index, "asked to end")
            host.env.terminated.set()
            self._fired["terminate"] += 1

    def power_cut(self, name: str, loss: Loss | None = None) -> None:
        host = self.hosts[name]
        if (process := self._bury(host, "power cut")) is not None:
            self.network.lost_power(process)
        self.power_cuts.append((self.now(), name))
        host.disk.power_cut(loss)

    def replace_disk(self, name: str) -> None:
        """The machine stops at once and gets an empty disk: whatever the old one held is gone for good."""
        host = self.hosts[name]
        if (process := self._bury(host, "disk lost")) is not None:
            self.network.lost_power(process)
        self._fired["disk lost"] += 1
        faults, old = host.disk.faults, host.disk
        host.disk = self._new_disk(name, list(self.hosts).index(name), f"{self.seed}/{name}/{host.starts}")
        host.disk.faults, host.disk.operations, host.disk.fired = faults, old.operations, old.fired
        self.trace.note(self.now(), 0, f"a new disk for {name}")

    def pause(self, name: str) -> None:
        """As SIGSTOP: bytes arrive and timers lapse, but nothing runs until `resume`."""
        process = self.hosts[name].process
        if process is not None and not process.is_paused:
            process.is_paused = True
            if process.is_queued:
                self.loop.unqueue(process)
            self._fired["pause"] += 1

    def resume(self, name: str) -> None:
        process = self.hosts[name].process
        if process is not None:
            process.is_paused = False
            self.loop.resume(process)

    def slow(self, name: str, turn_seconds: float) -> None:
        """Every turn of the host's loop takes this long from now on."""
        process = self.hosts[name].process
        if process is not None:
            process.turn_seconds = turn_seconds
            self._fired["slow host"] += turn_seconds > 0

    def jump_clock(self, name: str, seconds: float) -> None:
        self.hosts[name].wall.jump(seconds)
        self._fired["clock jump"] += 1

    def drift_clock(self, name: str, rate: float) -> None:
        self.hosts[name].wall.drift(rate)
        self._fired["clock drift"] += 1

    def is_running(self, name: str) -> bool:
        return name in self.hosts and self.hosts[name].process is not None

    def has_ended(self, name: str) -> bool:
        return not self.is_running(name)

    # Time.

    def now(self) -> float:
        return self.loop.now

    def at(self, seconds: float, event: Callable[[], object]) -> None:
        """Does something to the world, this many seconds from now."""
        self.loop.happen_at(self.now() + seconds, event)

    def run_for(self, seconds: float) -> None:
        self.loop.run_for(seconds)

    def run_until(self, claim: Callable[[], bool], within: float) -> None:
        """Runs until the claim holds; `Stuck` if it does not hold in time."""
        deadline = self.now() + within
        holds = False

        def check() -> None:
            nonlocal holds
            holds = claim()
            if holds or self.now() >= deadline:
                self.loop.stop()
            else:
                self.at(_CLAIM_CHECKED_SECONDS, check)

        check()
        self.loop.run_forever()
        if not holds:
            raise Stuck(f"waited {within} s in vain")

    def call(self, name: str, work: Callable[[SimEnv], Coroutine[Any, Any, T]], within: float = 60.0) -> T:
        """Runs a coroutine inside the host's living process until it ends, and returns its result."""
        host = self.hosts[name]
        if host.process is None or host.env is None:
            raise PowerCut(f"{name} is not running")
        process = host.process
        task = self.loop.create_task(work(host.env), context=process.context.copy())
        self.run_until(lambda: task.done() or process.is_dead, within)
        if not task.done():
            raise PowerCut(f"{name} died meanwhile")
        return task.result()

    # What happened.

    def trace_hash(self) -> str:
        return self.trace.digest()

    def fired(self) -> Counter[str]:
        """Faults by kind, over the network, all disks and all processes."""
        total = self._fired + self.network.fired
        for host in self.hosts.values():
            total += host.disk.fired
        return total

    def complaints(self) -> list[str]:
        """What no code caught, in order: never part of the trace."""
        return self.loop.complaints

    def close(self) -> None:
        """Ends every process. Disks stay as they are, to be looked at; nothing can use them any more."""
        if self.loop.is_closed():
            return
        for host in self.hosts.values():
            self._bury(host, "closed")
            host.disk.is_dark = True
        self.loop.outside.die()
        self.loop.close()
        logging.disable(logging.CRITICAL)  # What a node has to say about being torn open after its end is nothing to anybody.
        try:
            for process in (*self._ended, self.loop.outside):
                process.decompose()
        finally:
            logging.disable(logging.NOTSET)

    def __enter__(self) -> "World":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _bury(self, host: Host, ending: str) -> Process | None:
        process, host.process = host.process, None
        if process is None:
            return None
        if process.is_queued:
            self.loop.unqueue(process)
        process.die()
        self._ended.append(process)
        host.endings.append(ending)
        host.ended_at.append(self.now())
        self.trace.note(self.now(), process.index, ending)
        return process

    def _went_dark(self, host: Host) -> None:
        """The disk was told to stop at this very operation: the rest of the host stops with it."""
        self.power_cuts.append((self.now(), host.name))
        if (process := self._bury(host, "power cut")) is not None:
            self.network.lost_power(process)

    def _ended_by_itself(self, host: Host, process: Process, task: "asyncio.Task[object]") -> None:
        if host.process is not process:
            return
        error = None if task.cancelled() else task.exception()
        self._bury(host, "returned" if error is None else repr(error))
        self.network.killed(process)
        host.disk.kill()
