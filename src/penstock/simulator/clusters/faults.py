"""Kinds of trouble that need several nodes, beside those that a single one knows (simulator/faults.py).

None of them takes what was promised. Links between nodes are cut with or without the clients': a node that only its clients still hear is
where a leader goes on that is none any more. Whoever died is started again by the nemesis.
"""

from collections.abc import Callable, Sequence
from itertools import combinations

from penstock.simulator.clusters import budget
from penstock.simulator.clusters.members import Cluster
from penstock.simulator.clusters.operations import Operation
from penstock.simulator.clusters.replacing import Replacement
from penstock.simulator.faults import Fault, Field, Strike

_EVEN = 0.5
_LOOKED_SECONDS = 0.05
_LOOKS_FOR_A_LOSS = 80
_MADE_GOOD_SECONDS = 0.3


def strikes(cluster: Cluster) -> dict[str, Strike]:
    return {
        "power cut of some": power_cut_of_some,
        "kill of all": kill_of_all,
        "one node alone": one_node_alone,
        "halves": halves,
        "ring": ring,
        "bridge": bridge,
        "stalled node": stalled_node,
        "long pause": long_pause,
        "rolling restart": lambda field, fault: RollingRestart(cluster, field, fault).go_on(),
        "lost disk": lambda field, fault: DiskLoss(cluster, field).begin() if cluster.is_sound() else None,
    }


def power_cut_of_some(field: Field, fault: Fault) -> None:
    for node in field.rng.sample(field.nodes, field.rng.randint(1, len(field.nodes))):
        field.world.power_cut(node)


def kill_of_all(field: Field, fault: Fault) -> None:
    for node in field.nodes:
        field.world.kill(node)


def one_node_alone(field: Field, fault: Fault) -> None:
    alone = field.node()
    isolate(field, alone, fault.seconds)


def isolate(field: Field, alone: str, seconds: float) -> None:
    """From the other nodes, both ways or one; its clients may hear it still."""
    others = [node for node in field.nodes if node != alone]
    if field.rng.random() < _EVEN:
        others += field.clients
    ways = field.rng.choice(("both", "both", "in", "out"))
    out = [(alone, other) for other in others] if ways != "in" else []
    into = [(other, alone) for other in others] if ways != "out" else []
    cut_for_a_while(field, out + into, seconds)


def halves(field: Field, fault: Fault) -> None:
    nodes = _shuffled(field)
    middle = field.rng.randint(1, max(1, len(nodes) - 1))
    cut_for_a_while(field, _between(nodes[:middle], nodes[middle:]), fault.seconds)


def ring(field: Field, fault: Fault) -> None:
    """Each node hears its two neighbours: everybody is in a majority, and no two of them in the same."""
    nodes = _shuffled(field)
    count = len(nodes)
    neighbours = {frozenset((nodes[at], nodes[(at + 1) % count])) for at in range(count)}
    far = [pair for pair in combinations(nodes, 2) if frozenset(pair) not in neighbours]
    cut_for_a_while(field, [way for one, other in far for way in ((one, other), (other, one))], fault.seconds)


def bridge(field: Field, fault: Fault) -> None:
    """Two halves that only one node still hears."""
    _, *rest = _shuffled(field)
    middle = len(rest) // 2
    cut_for_a_while(field, _between(rest[:middle], rest[middle:]), fault.seconds)


def stalled_node(field: Field, fault: Fault) -> None:
    """What it is sent comes late and all at once."""
    slow = field.node()
    for other in field.nodes:
        if other != slow:
            field.world.network.stall(other, slow, fault.seconds)


def long_pause(field: Field, fault: Fault) -> None:
    """Long enough to be taken for dead, with requests that wait for it to wake."""
    pause(field, field.node(), fault.seconds + field.rng.uniform(1.0, 4.0))


def pause(field: Field, host: str, seconds: float) -> None:
    field.world.pause(host)
    field.world.at(seconds, lambda: field.world.resume(host))


class DiskLoss:
    """A machine goes with its disk, at once where that is promised to be borne, else as soon as the others go on without it."""

    def __init__(self, cluster: Cluster, field: Field) -> None:
        self._cluster = cluster
        self._field = field
        self._host = ""
        self._looks_left = _LOOKS_FOR_A_LOSS

    def begin(self) -> None:
        cluster = self._cluster
        candidates = [host for host in cluster.hosts if host not in cluster.held_down and budget.may_lose_disk(cluster, host)]
        if not candidates or cluster.held_down or not budget.is_made_good(cluster):
            return
        self._host = self._field.rng.choice(candidates)
        if not budget.must_be_known_first(cluster, self._host):
            self._lose()
            return
        self._field.world.power_cut(self._host)
        cluster.held_down[self._host] = None
        self._wait()

    def _wait(self) -> None:
        if budget.is_known_to_be_away(self._cluster, self._host):
            del self._cluster.held_down[self._host]
            self._lose()
        elif self._looks_left == 0 or self._field.is_calm:
            del self._cluster.held_down[self._host]
        else:
            self._looks_left -= 1
            self._field.world.at(_LOOKED_SECONDS, self._wait)

    def _lose(self) -> None:
        operations = self._cluster.operations
        operation = operations.begin("node replaced", self._cluster.world.now())
        self._cluster.lose_disk(self._host)
        Replacement(self._cluster, self._host)
        self._look(operation)

    def _look(self, operation: Operation) -> None:
        """The node is replaced when it votes again and every replica is in sync."""
        if budget.is_made_good(self._cluster):
            self._cluster.operations.complete(operation, self._cluster.world.now())
        else:
            self._cluster.world.at(_MADE_GOOD_SECONDS, lambda: self._look(operation))


class RollingRestart:
    """One node after the other is asked to end in order, each when the one before is back."""

    def __init__(self, cluster: Cluster, field: Field, fault: Fault) -> None:
        self._cluster = cluster
        self._field = field
        self._left = _shuffled(field)
        self._pause = max(0.05, min(1.0, fault.seconds))

    def go_on(self) -> None:
        if self._left and self._cluster.all_serve():
            self._field.world.terminate(self._left.pop())
        if self._left:
            self._field.strike_later(self._pause, self.go_on)


def cut_for_a_while(field: Field, ways: Sequence[tuple[str, str]], seconds: float) -> None:
    network = field.world.network
    for source, target in ways:
        network.cut(source, target)

    def mend() -> None:
        for source, target in ways:
            network.mend(source, target)

    field.world.at(seconds, mend)


def _between(one: Sequence[str], other: Sequence[str]) -> list[tuple[str, str]]:
    return [way for here in one for there in other for way in ((here, there), (there, here))]


def _shuffled(field: Field) -> list[str]:
    nodes = list(field.nodes)
    field.rng.shuffle(nodes)
    return nodes


Blow = Callable[[Field, str, float], None]


def kill(field: Field, host: str, seconds: float) -> None:
    field.world.kill(host)


def power_cut(field: Field, host: str, seconds: float) -> None:
    field.world.power_cut(host)


def clean_stop(field: Field, host: str, seconds: float) -> None:
    field.world.terminate(host)


def power_cut_soon(field: Field, host: str, seconds: float) -> None:
    """At one of the next changes of its disk."""
    field.world.hosts[host].disk.crash_at(field.rng.randint(1, 10))


BLOWS: dict[str, Blow] = {
    "kill": kill,
    "power cut": power_cut,
    "power cut soon": power_cut_soon,
    "pause": pause,
    "isolate": isolate,
    "clean stop": clean_stop,
}
