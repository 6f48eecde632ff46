"""Every kind of fault that a nemesis can fire, by name: one function each, over a world.

`HARMLESS` kinds take nothing that was promised: a correct node loses no acknowledged record to any of them, in any order. `DAMAGE` kinds
change flushed bytes at rest: a node that holds the only copy may refuse, but must never serve wrong bytes. What a fault broke it mends
itself after `fault.seconds`; processes that died are started again by the nemesis.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.links import LinkQuality
from penstock.simulator.platter import SECTOR_BYTES
from penstock.simulator.world import World

_EVEN = 0.5


@dataclass(frozen=True, slots=True)
class Fault:
    at: float  # Seconds after the nemesis is let loose.
    kind: str
    seconds: float  # How long it lasts, where that means anything.


@dataclass(slots=True)
class Field:
    """Where faults are fired: the world, and who may be hit."""

    world: World
    nodes: list[str]  # Hit by every kind.
    clients: list[str]  # Hit by the network and pauses only.
    rng: Random
    # What disks and links are like when no fault is on.
    usual_disk: DiskFaults
    usual_links: LinkQuality
    at_next_start: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    is_calm: bool = True

    def strike_later(self, seconds: float, blow: Callable[[], None]) -> None:
        """The second blow of a fault: it does not fall once all trouble has ended."""
        self.world.at(seconds, lambda: None if self.is_calm else blow())

    def when_next_started(self, node: str, event: Callable[[], None]) -> None:
        self.at_next_start.setdefault(node, []).append(event)

    def node(self) -> str:
        return self.rng.choice(self.nodes)

    def anyone(self) -> str:
        return self.rng.choice([*self.nodes, *self.clients])

    def two(self) -> tuple[str, str]:
        everyone = [*self.nodes, *self.clients]
        source, target = self.rng.sample(everyone, 2) if len(everyone) > 1 else (everyone[0], everyone[0])
        return source, target

    def file(self, node: str) -> str | None:
        files = self.world.hosts[node].disk.files()
        return self.rng.choice(files) if files else None


Strike = Callable[[Field, Fault], None]


# Processes.


def power_cut(field: Field, fault: Fault) -> None:
    field.world.power_cut(field.node())


def power_cut_of_all(field: Field, fault: Fault) -> None:
    for node in field.nodes:
        field.world.power_cut(node)


def kill(field: Field, fault: Fault) -> None:
    field.world.kill(field.node())


def power_cut_at_a_change(field: Field, fault: Fault) -> None:
    """Not at a moment but at an operation: between any two changes of the disk, however close in time."""
    field.world.hosts[field.node()].disk.crash_at(field.rng.randint(1, 60))


def clean_stop(field: Field, fault: Fault) -> None:
    field.world.terminate(field.node())


def power_cut_while_stopping(field: Field, fault: Fault) -> None:
    node = field.node()
    field.world.terminate(node)
    field.world.hosts[node].disk.crash_at(field.rng.randint(1, 30))


def power_cut_in_recovery(field: Field, fault: Fault) -> None:
    """The power goes, and goes again while the next process is reading what was left."""
    node = field.node()
    if field.rng.random() < _EVEN:
        field.world.kill(node)
    else:
        field.world.power_cut(node)
    field.world.hosts[node].disk.crash_at(field.rng.randint(1, 25))


def kill_in_recovery(field: Field, fault: Fault) -> None:
    """Once, and again as soon as the next process has begun."""
    node = field.node()
    field.world.kill(node)
    field.when_next_started(node, lambda: field.strike_later(field.rng.uniform(0.0, 0.02), lambda: field.world.kill(node)))


def kill_then_power_cut(field: Field, fault: Fault) -> None:
    """What the killed process wrote is in the machine's memory, where the next one finds it; then the machine goes too."""
    node = field.node()
    field.world.kill(node)
    field.when_next_started(node, lambda: field.strike_later(field.rng.choice((0.01, 0.1, 1.0)), lambda: field.world.power_cut(node)))


def pause(field: Field, fault: Fault) -> None:
    host = field.anyone()
    field.world.pause(host)
    field.world.at(fault.seconds, lambda: field.world.resume(host))


def slow_host(field: Field, fault: Fault) -> None:
    host = field.node()
    field.world.slow(host, field.rng.uniform(0.001, 0.02))
    field.world.at(fault.seconds, lambda: field.world.slow(host, 0.0))


# Clocks.


def clock_jump(field: Field, fault: Fault) -> None:
    field.world.jump_clock(field.anyone(), field.rng.choice((-1, 1)) * field.rng.choice((0.1, 10.0, 3_600.0)))


def clock_drift(field: Field, fault: Fault) -> None:
    field.world.drift_clock(field.anyone(), field.rng.uniform(0.9, 1.1))


def clock_strobe(field: Field, fault: Fault) -> None:
    host, jump = field.anyone(), field.rng.uniform(0.1, 60.0)
    for flip in range(10):
        forth = jump if flip % 2 == 0 else -jump
        field.world.at(fault.seconds * flip / 10, lambda forth=forth: field.world.jump_clock(host, forth))  # type: ignore[misc]


# The network.


def one_way_cut(field: Field, fault: Fault) -> None:
    source, target = field.two()
    field.world.network.cut(source, target)
    field.world.at(fault.seconds, lambda: field.world.network.mend(source, target))


def partition(field: Field, fault: Fault) -> None:
    everyone = [*field.nodes, *field.clients]
    field.rng.shuffle(everyone)
    at = field.rng.randint(1, max(1, len(everyone) - 1))
    one, other = everyone[:at], everyone[at:]
    field.world.network.partition(one, other)

    def mend() -> None:
        for here in one:
            for there in other:
                field.world.network.mend(here, there)
                field.world.network.mend(there, here)

    field.world.at(fault.seconds, mend)


def stall(field: Field, fault: Fault) -> None:
    field.world.network.stall(*field.two(), fault.seconds)


def reset(field: Field, fault: Fault) -> None:
    field.world.network.reset_one(field.anyone())


def reset_all(field: Field, fault: Fault) -> None:
    node = field.node()
    while field.world.network.reset_one(node):
        pass


def bad_links(field: Field, fault: Fault) -> None:
    network = field.world.network
    network.fired["bad links"] += 1
    network.shape(LinkQuality(delay_seconds=0.1, jitter_seconds=0.3, bytes_per_second=400_000.0, split=0.5, reset=0.001))
    field.world.at(fault.seconds, lambda: network.shape(field.usual_links))


# Disks.


def disk_full(field: Field, fault: Fault) -> None:
    disk = field.world.hosts[field.node()].disk
    before, disk.capacity_bytes = disk.capacity_bytes, disk.capacity_bytes - disk.free_bytes() + field.rng.choice((0, 1, 100, 5_000))

    def make_room() -> None:
        disk.capacity_bytes = max(before, disk.capacity_bytes)

    field.world.at(fault.seconds, make_room)


def write_failure(field: Field, fault: Fault) -> None:
    field.world.hosts[field.node()].disk.fail_next_write()


def flush_failure(field: Field, fault: Fault) -> None:
    field.world.hosts[field.node()].disk.fail_next_flush()


def read_failure(field: Field, fault: Fault) -> None:
    field.world.hosts[field.node()].disk.fail_next_read()


def slow_disk(field: Field, fault: Fault) -> None:
    disk = field.world.hosts[field.node()].disk
    disk.faults = replace(field.usual_disk, slow_sync=0.5, slow_sync_seconds=min(fault.seconds, 1.0))
    field.world.at(fault.seconds, lambda: setattr(disk, "faults", field.usual_disk))


def cold_cache(field: Field, fault: Fault) -> None:
    disk = field.world.hosts[field.node()].disk
    disk.faults = replace(field.usual_disk, cold_read=1.0)
    field.world.at(fault.seconds, lambda: setattr(disk, "faults", field.usual_disk))


# Bytes at rest.


def bit_rot(field: Field, fault: Fault) -> None:
    node = field.node()
    if (path := field.file(node)) is not None:
        field.world.hosts[node].disk.rot(path, bits=field.rng.choice((1, 1, 8)))


def lost_file(field: Field, fault: Fault) -> None:
    node = field.node()
    if (path := field.file(node)) is not None:
        field.world.hosts[node].disk.lose(path)


def short_file(field: Field, fault: Fault) -> None:
    node = field.node()
    if (path := field.file(node)) is not None:
        disk = field.world.hosts[node].disk
        content = disk.snapshot(path)
        disk.restore(path, content[: field.rng.randint(0, len(content))])


def stale_file(field: Field, fault: Fault) -> None:
    """What the file held some time ago comes back."""
    node = field.node()
    if (path := field.file(node)) is not None:
        disk = field.world.hosts[node].disk
        old = disk.snapshot(path)
        field.world.at(fault.seconds, lambda: disk.restore(path, old) if path in disk.files() else None)


def swapped_files(field: Field, fault: Fault) -> None:
    node = field.node()
    one, other = field.file(node), field.file(node)
    if one is not None and other is not None and one != other:
        disk = field.world.hosts[node].disk
        left, right = disk.snapshot(one), disk.snapshot(other)
        disk.restore(one, right)
        disk.restore(other, left)


def misdirected_write(field: Field, fault: Fault) -> None:
    """A sector of one place lands in another."""
    node = field.node()
    source, target = field.file(node), field.file(node)
    if source is not None and target is not None:
        disk = field.world.hosts[node].disk
        sector = disk.snapshot(source)[:SECTOR_BYTES]
        content = disk.snapshot(target)
        at = field.rng.randint(0, len(content) // SECTOR_BYTES) * SECTOR_BYTES
        disk.restore(target, content[:at] + sector + content[at + len(sector) :])


HARMLESS: dict[str, Strike] = {
    "power cut": power_cut,
    "power cut of all": power_cut_of_all,
    "power cut at a change": power_cut_at_a_change,
    "kill": kill,
    "clean stop": clean_stop,
    "power cut while stopping": power_cut_while_stopping,
    "power cut in recovery": power_cut_in_recovery,
    "kill in recovery": kill_in_recovery,
    "kill, then power cut": kill_then_power_cut,
    "pause": pause,
    "slow host": slow_host,
    "clock jump": clock_jump,
    "clock drift": clock_drift,
    "clock strobe": clock_strobe,
    "one-way cut": one_way_cut,
    "partition": partition,
    "stall": stall,
    "reset": reset,
    "reset of all": reset_all,
    "bad links": bad_links,
    "disk full": disk_full,
    "write failure": write_failure,
    "flush failure": flush_failure,
    "read failure": read_failure,
    "slow disk": slow_disk,
    "cold cache": cold_cache,
}

DAMAGE: dict[str, Strike] = {
    "bit rot": bit_rot,
    "lost file": lost_file,
    "short file": short_file,
    "stale file": stale_file,
    "swapped files": swapped_files,
    "misdirected write": misdirected_write,
}

KINDS: dict[str, Strike] = {**HARMLESS, **DAMAGE}
