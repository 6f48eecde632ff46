"""A plan that evens out replicas and preferred leaders over nodes, and moves as little as it can. Pure.

The load of a node is how many logs it holds, and how many of them it is to lead. A queue's partition and the ledger beside it are one unit
of two logs, because they always have the same replicas. The plan is made in steps, each of which makes the loads more even:

1. A replica moves from a node to one that holds at least two fewer logs. That alone decides how many replicas move.
2. Another replica of a unit becomes the preferred leader, which moves nothing. Where no single change helps a chain of them may: node 1
   hands a partition to node 2, and node 2 another to node 3.
3. Where only that is left, two nodes swap replicas, or one moves between two that differ by one log, for the sake of preferred leaders.

No step lets a partition span fewer racks. When no step helps any more the plan is done, so a plan for what it made is empty.
Topics of which a node has more than their share give first, and of each the smallest partitions.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.cli.reassignment_plans import Plan, Racks
from penstock.cluster.topic_names import companion_name, is_companion
from penstock.peers.cluster import TopicDescription
from penstock.peers.topics import NO_LEADER
from penstock.vocabulary import TopicPartition

WEIGHTS = (2, 1)  # A partition with a ledger; one without.


@dataclass(eq=False, slots=True)
class Unit:
    where: TopicPartition
    replicas: list[int]
    weight: int  # How many logs it is.
    bytes: int
    is_fixed: bool  # Its load counts, and it stays where it is.


def rebalanced(
    topics: Iterable[TopicDescription], nodes: Sequence[int], racks: Racks,
    *, sizes: Mapping[TopicPartition, int], fixed: Collection[TopicPartition] = (), is_internal_fixed: bool = False,
) -> Plan:  # fmt: skip
    """Only these nodes give and take. A partition without a leader is fixed too: its move could not end."""
    topics = list(topics)
    companions = {topic.name: topic for topic in topics if is_companion(topic.name)}
    units = []
    for topic in topics:
        if is_companion(topic.name):
            continue
        companion = companions.get(companion_name(topic.topic_id))
        for state in topic.partitions:
            where = TopicPartition(topic.name, state.partition)
            logs = [where] if companion is None else [where, TopicPartition(companion.name, state.partition)]
            is_fixed = where in fixed or state.leader == NO_LEADER or (is_internal_fixed and topic.is_internal)
            units.append(Unit(where, list(state.replicas), len(logs), sum(sizes.get(log, 0) for log in logs), is_fixed))
    before = {unit: list(unit.replicas) for unit in units}
    _Balance(units, nodes, racks).even_out()
    return {unit.where: tuple(unit.replicas) for unit in units if _has_changed(before[unit], unit.replicas)}


def _has_changed(before: Sequence[int], after: Sequence[int]) -> bool:
    """The order matters only for who is preferred."""
    return set(before) != set(after) or before[0] != after[0]


class _Balance:
    def __init__(self, units: Sequence[Unit], nodes: Sequence[int], racks: Racks) -> None:
        self._nodes = sorted(nodes)
        self._racks = racks
        self._held = dict.fromkeys(self._nodes, 0)  # Logs.
        self._firsts = dict.fromkeys(self._nodes, 0)  # Logs of which it is the preferred leader.
        self._movable: dict[tuple[int, int], list[Unit]] = {(node, weight): [] for node in self._nodes for weight in WEIGHTS}
        self._heirs: dict[tuple[int, int, int], dict[Unit, None]] = {}  # By weight, the first replica, and one that could be.
        for unit in units:
            for node in unit.replicas:
                if node in self._held:
                    self._held[node] += unit.weight
                    if not unit.is_fixed:
                        self._movable[node, unit.weight].append(unit)
            if unit.replicas[0] in self._firsts:
                self._firsts[unit.replicas[0]] += unit.weight
            self._note_heirs(unit)
        self._order_by_share(units)

    def even_out(self) -> None:
        has_changed = True
        while has_changed:
            has_changed = self._step_by_pairs(self._held, self._move_one)
            while self._hand_over() or self._step_by_pairs(self._firsts, self._move_first, is_once=True):
                has_changed = True

    def _order_by_share(self, units: Sequence[Unit]) -> None:
        """What should leave a node first stands last: that of which the node has most above its share, and of each topic the smallest."""
        replicas = Counter(unit.where.topic for unit in units for node in unit.replicas if node in self._held)
        for movable in self._movable.values():
            ranks: Counter[str] = Counter()
            excess: dict[Unit, float] = {}
            for unit in sorted(movable, key=lambda unit: (-unit.bytes, unit.where)):
                share = replicas[unit.where.topic] / len(self._nodes)
                ranks[unit.where.topic] += 1
                excess[unit] = (ranks[unit.where.topic] - share) / max(share, 1)
            movable.sort(key=lambda unit: (excess[unit], -unit.bytes, unit.where))

    def _step_by_pairs(self, loads: Mapping[int, int], step: Callable[[int, int], bool], *, is_once: bool = False) -> bool:
        """Steps from the highest to the lowest load that can, until none can."""
        stuck: set[tuple[int, int]] = set()
        has_stepped = False
        while (pair := self._next_pair(loads, stuck)) is not None:
            if not step(*pair):
                stuck.add(pair)
                continue
            has_stepped = True
            if is_once:
                return True
        return has_stepped

    def _next_pair(self, loads: Mapping[int, int], stuck: Collection[tuple[int, int]]) -> tuple[int, int] | None:
        rising = sorted(self._nodes, key=lambda node: (loads[node], node))
        for high in reversed(rising):
            for low in rising:
                if loads[high] - loads[low] < 2:
                    break
                if (high, low) not in stuck:
                    return high, low
        return None

    # Replicas

    def _move_one(self, high: int, low: int) -> bool:
        gap = self._held[high] - self._held[low]
        for weight in WEIGHTS:
            if weight < gap and (unit := self._find(high, low, weight)) is not None:
                self._move(unit, high, low)
                return True
        heavy, light = self._find(high, low, 2), self._find(low, high, 1)
        if heavy is None or light is None:
            return False
        self._move(heavy, high, low)
        self._move(light, low, high)
        return True

    def _move_first(self, high: int, low: int) -> bool:
        """The higher is preferred for more logs: one of those goes to the lower, and another comes back unless that holds one fewer."""
        for weight in WEIGHTS:
            if self._firsts[high] - self._firsts[low] <= weight:
                continue
            given = self._find(high, low, weight, is_first=True)
            if given is None:
                continue
            if self._held[high] - self._held[low] == weight:
                self._move(given, high, low)
                return True
            taken = self._find(low, high, weight, is_first=False)
            if taken is not None:
                self._move(given, high, low)
                self._move(taken, low, high)
                return True
        return False

    def _find(self, source: int, target: int, weight: int, *, is_first: bool | None = None) -> Unit | None:
        for unit in reversed(self._movable[source, weight]):
            fits = is_first is None or (unit.replicas[0] == source) == is_first
            if fits and target not in unit.replicas and self._keeps_racks(unit, source, target):
                return unit
        return None

    def _keeps_racks(self, unit: Unit, source: int, target: int) -> bool:
        used = {self._racks.get(node) for node in unit.replicas if node != source} | {None}
        return self._racks.get(target) not in used or self._racks.get(source) in used

    def _move(self, unit: Unit, source: int, target: int) -> None:
        self._forget_heirs(unit)
        if unit.replicas[0] == source:
            self._firsts[source] -= unit.weight
            self._firsts[target] += unit.weight
        unit.replicas[unit.replicas.index(source)] = target
        self._held[source] -= unit.weight
        self._held[target] += unit.weight
        self._movable[source, unit.weight].remove(unit)
        self._movable[target, unit.weight].append(unit)  # Should it move on, that costs nothing more.
        self._note_heirs(unit)

    # Preferred leaders

    def _hand_over(self) -> bool:
        """One chain, the shortest that there is, from the node that is preferred most and can hand over."""
        for high in sorted(self._nodes, key=lambda node: (-self._firsts[node], node)):
            for weight in WEIGHTS:
                if (chain := self._chain(high, weight)) is not None:
                    for giver, heir in chain:
                        self._prefer(next(reversed(self._heirs[weight, giver, heir])), giver, heir)
                    return True
        return False

    def _chain(self, high: int, weight: int) -> list[tuple[int, int]] | None:
        came_from: dict[int, int] = {high: high}
        waiting = deque([high])
        while waiting:
            giver = waiting.popleft()
            for heir in self._nodes:
                if heir in came_from or not self._heirs.get((weight, giver, heir)):
                    continue
                came_from[heir] = giver
                if self._firsts[high] - self._firsts[heir] > weight:
                    return list(_back(came_from, heir, high))
                waiting.append(heir)
        return None

    def _prefer(self, unit: Unit, giver: int, heir: int) -> None:
        self._forget_heirs(unit)
        unit.replicas.remove(heir)
        unit.replicas.insert(0, heir)
        self._firsts[giver] -= unit.weight
        self._firsts[heir] += unit.weight
        self._note_heirs(unit)

    def _note_heirs(self, unit: Unit) -> None:
        for key in self._heir_keys(unit):
            self._heirs.setdefault(key, {})[unit] = None

    def _forget_heirs(self, unit: Unit) -> None:
        for key in self._heir_keys(unit):
            del self._heirs[key][unit]

    def _heir_keys(self, unit: Unit) -> list[tuple[int, int, int]]:
        first = unit.replicas[0]
        if unit.is_fixed or first not in self._firsts:
            return []
        return [(unit.weight, first, node) for node in unit.replicas[1:] if node in self._firsts]


def _back(came_from: Mapping[int, int], last: int, first: int) -> Iterator[tuple[int, int]]:
    """The links of a chain, from its end: each node gives before it is given, so that the chosen partitions are still there."""
    while last != first:
        yield came_from[last], last
        last = came_from[last]
