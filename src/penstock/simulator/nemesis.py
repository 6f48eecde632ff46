"""Draws from a seed what will go wrong, and makes it go wrong.

Each seed draws its own mix (swarm testing): which kinds, how often, how long, what the links and disks are like on a usual day, and the
node's own tuning knobs. A seed with everything at once rarely gets far enough to find what a seed with two kinds finds.

A `Plan` is plain data: the same plan over the same world does the same, and a plan with fewer faults can be tried to see which ones matter.
Faults can also come when a workload says that the moment is tender (`provoke`): right after an acknowledgement, in the middle of a roll.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from penstock.simulator.disk_faults import HONEST, DiskFaults
from penstock.simulator.faults import HARMLESS, KINDS, Fault, Field, Strike
from penstock.simulator.links import GOOD, LinkQuality
from penstock.simulator.world import World

_WATCH_SECONDS = 0.05
_KNOB_CHANGED = 0.6  # A knob that keeps its usual value now and then lets the others show what they do alone.


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    seconds: float
    kinds: tuple[str, ...]
    faults: tuple[Fault, ...]
    disk: DiskFaults = HONEST
    links: LinkQuality = GOOD
    restart_seconds_max: float = 1.0
    provoked: float = 0.0  # Probability that a tender moment is answered with a fault.
    knobs: Mapping[str, object] = field(default_factory=dict)

    def without(self, *numbers: int) -> "Plan":
        """The same plan with some faults left out."""
        return replace(self, faults=tuple(fault for number, fault in enumerate(self.faults) if number not in numbers))


def draw_plan(
    seed: int, seconds: float, *,
    kinds: Sequence[str] = tuple(HARMLESS), knobs: Mapping[str, Sequence[object]] | None = None, often_seconds: float = 0.1,
) -> Plan:  # fmt: skip
    """`knobs` names for each knob of the node its usual value first, then the others that are worth a try. Where trouble comes most often,
    it comes every `often_seconds`."""
    rng = Random(f"{seed}/plan")
    chosen = tuple(kind for kind in kinds if rng.random() < 0.4) or (rng.choice(tuple(kinds)),)
    weights = [rng.expovariate(1.0) for _ in chosen]
    pause_mean, lasting = _between(rng, often_seconds, 5.0), _between(rng, 0.02, 10.0)
    faults: list[Fault] = []
    at = rng.random() * min(pause_mean, seconds)  # A plan without any fault would tell nothing.
    while at < seconds:
        (kind,) = rng.choices(chosen, weights)
        faults.append(Fault(at, kind, rng.expovariate(1 / lasting)))
        at += rng.expovariate(1 / pause_mean)
    return Plan(
        seed=seed,
        seconds=seconds,
        kinds=chosen,
        faults=tuple(faults),
        disk=_draw_disk(rng),
        links=_draw_links(rng),
        restart_seconds_max=_between(rng, 0.05, 5.0),
        provoked=rng.choice((0.0, 0.0, 0.01, 0.1)),
        knobs=_draw_knobs(rng, knobs or {}),
    )


class Nemesis:
    """Carries out a plan. Also the one who starts the nodes again: whatever ended them, it is done after a drawn while."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        *,
        nodes: Sequence[str],
        clients: Sequence[str],
        start: Callable[[str], object],
        special: Mapping[str, Strike] | None = None,  # Kinds that only this run knows how to fire.
    ) -> None:
        self.plan = plan
        self._kinds = {**KINDS, **(special or {})}
        self.struck: list[tuple[float, Fault]] = []  # What was fired, and when.
        self._start = start
        self._rng = Random(f"{plan.seed}/nemesis")
        self.field = Field(world, list(nodes), list(clients), self._rng, plan.disk, plan.links)
        self._world = world
        self._due: dict[str, float] = {}  # When a node that is down will be started.

    def unleash(self) -> None:
        self.field.is_calm = False
        self._world.network.shape(self.plan.links)
        for node in self.field.nodes:
            self._world.host(node).disk.faults = self.plan.disk
        for fault in self.plan.faults:
            self._world.at(fault.at, lambda fault=fault: self.strike(fault))  # type: ignore[misc]
        self._watch()

    def strike(self, fault: Fault) -> None:
        if not self.field.is_calm:
            self.struck.append((self._world.now(), fault))
            self._world.trace.note(self._world.now(), 0, f"fault {fault.kind}")
            self._kinds[fault.kind](self.field, fault)

    def provoke(self) -> None:
        """A workload says that now would hurt."""
        if not self.field.is_calm and self.plan.provoked and self._rng.random() < self.plan.provoked:
            fault = Fault(0.0, self._rng.choice(self.plan.kinds), self._rng.uniform(0.01, 2.0))
            self._world.at(self._rng.choice((0.0, 0.000_1, 0.002)), lambda: self.strike(fault))

    def calm(self) -> None:
        """Ends all trouble: every link mended, every node running on an honest disk with room. What was promised must now be there."""
        self.field.is_calm = True
        self.field.usual_disk, self.field.usual_links = HONEST, GOOD
        self.field.at_next_start.clear()
        self._world.network.heal()
        self._world.network.shape(GOOD)
        for host in self._world.hosts.values():
            host.disk.pacify()
        for name in (*self.field.nodes, *self.field.clients):
            self._world.resume(name)
            self._world.slow(name, 0.0)

    def _watch(self) -> None:
        """Goes on in the calm too: a fault that is still on its way may yet end a node."""
        now = self._world.now()
        for node in self.field.nodes:
            if self._world.is_running(node):
                self._due.pop(node, None)
            elif now >= self._due.setdefault(node, now + self._rng.random() * self.plan.restart_seconds_max):
                del self._due[node]
                self._start(node)
                for event in self.field.at_next_start.pop(node, ()):
                    event()
        self._world.at(_WATCH_SECONDS, self._watch)


def _between(rng: Random, low: float, high: float) -> float:
    """Evenly over the orders of magnitude: short and long are as likely."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _draw_disk(rng: Random) -> DiskFaults:
    slowest = _between(rng, 0.000_2, 0.05)
    return DiskFaults(
        sync_seconds_min=slowest * rng.random(),
        sync_seconds_max=slowest,
        slow_sync=rng.choice((0.0, 0.0, 0.01)),
        cold_read=rng.choice((0.0, 0.1, 0.9)),
    )


def _draw_links(rng: Random) -> LinkQuality:
    delay = _between(rng, 0.000_05, 0.05)
    return LinkQuality(
        delay_seconds=delay,
        jitter_seconds=delay * rng.choice((0.1, 1.0, 5.0)),
        bytes_per_second=rng.choice((math.inf, math.inf, _between(rng, 1e6, 1e8))),
        split=rng.choice((0.0, 0.05, 0.5)),
        reset=rng.choice((0.0, 0.0, 0.000_5, 0.01)),
        window_bytes=rng.choice((16_384, 65_536, 262_144)),
    )


def _draw_knobs(rng: Random, menu: Mapping[str, Sequence[object]]) -> dict[str, object]:
    return {name: rng.choice(list(choices)) if rng.random() < _KNOB_CHANGED else choices[0] for name, choices in menu.items()}
