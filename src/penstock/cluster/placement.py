"""Which nodes hold a new topic's partitions.

The first replica of each partition goes to the node that is first for the fewest, so that leaders are spread evenly over all topics. Each
further one goes to the rack that holds the fewest of this partition, and there to the node that holds the fewest replicas: the loss of a
rack takes as few of them as can be. Nodes whose disks are nearly full come after all others, whatever their rack. Only brokers that are up
get any, unless the caller names others to fill up with: these come last in each partition, are not in sync yet, and take turns. Nodes that
were told no rack stand in one together.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.cluster.image import Load, NodeState
from penstock.cluster.records import Placement
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NodeId


class Placer:
    """Places partition after partition; each counts for the next."""

    def __init__(self, brokers: Sequence[NodeState], loads: Mapping[NodeId, Load]) -> None:
        """`brokers`: those that may be given replicas, by number."""
        self._ring = [broker.node_id for broker in brokers]
        self._rack_of = {broker.node_id: broker.rack for broker in brokers}
        self._is_full = {broker.node_id: broker.is_disk_full for broker in brokers}
        self._firsts = {node: loads.get(node, Load()).firsts for node in self._ring}
        self._held = {node: loads.get(node, Load()).replicas for node in self._ring}

    def place(self, partitions: int, replication_factor: int, away: Sequence[NodeId] = ()) -> tuple[Placement, ...]:
        """Where there are fewer brokers than replicas, `away` must have the rest of them."""
        up = min(replication_factor, len(self._ring))
        placed = tuple(self._place_one(up) for _ in range(partitions))
        missing = replication_factor - up
        return tuple(_filled_up(placement, away, index, missing) for index, placement in enumerate(placed)) if missing else placed

    def _place_one(self, replication_factor: int) -> Placement:
        first = min(self._ring, key=lambda node: (self._is_full[node], self._firsts[node], node))
        self._firsts[first] += 1
        at = self._ring.index(first)
        others = self._ring[at + 1 :] + self._ring[:at]
        chosen = [first]
        racks = Counter([self._rack_of[first]])
        for _ in range(replication_factor - 1):
            left = [node for node in others if node not in chosen]
            best = min(left, key=lambda node: (self._is_full[node], racks[self._rack_of[node]], self._held[node]))
            chosen.append(best)
            racks[self._rack_of[best]] += 1
        for node in chosen:
            self._held[node] += 1
        return Placement(tuple(chosen), tuple(chosen), first)


def _filled_up(placement: Placement, away: Sequence[NodeId], turn: int, missing: int) -> Placement:
    others = tuple(away[(turn + place) % len(away)] for place in range(missing))
    return replace(placement, replicas=placement.replicas + others)


def as_assigned(assignments: Sequence[tuple[int, Sequence[int]]], nodes: Mapping[NodeId, NodeState]) -> tuple[Placement, ...]:
    """The placement that a client spells out: (partition, its replicas, the first of them that is up and has room to lead)."""
    by_partition = dict(assignments)
    if len(by_partition) != len(assignments) or sorted(by_partition) != list(range(len(assignments))):
        raise _no("partitions must be numbered 0, 1, 2 … without gaps, each once")
    return tuple(_assigned(index, [NodeId(node) for node in by_partition[index]], nodes) for index in range(len(assignments)))


def _assigned(partition: int, replicas: Sequence[NodeId], nodes: Mapping[NodeId, NodeState]) -> Placement:
    if not replicas or len(set(replicas)) != len(replicas):
        raise _no(f"partition {partition} needs replicas, each node once")
    for node in replicas:
        if node not in nodes:
            raise _no(f"partition {partition} names node {node}, which is not in the cluster")
        if not nodes[node].is_broker:
            raise _no(f"partition {partition} names node {node}, which is a controller only and holds no partitions")
    up = tuple(node for node in replicas if nodes[node].is_live and not nodes[node].is_stopping)
    if not up:
        raise _no(f"partition {partition}: none of its replicas is up ({', '.join(map(str, replicas))})")
    return Placement(tuple(replicas), up, next((node for node in up if nodes[node].may_take_more), up[0]))


def _no(reason: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
