"""Which nodes hold a new topic's partitions.

Replicas go round the live nodes, each partition beginning one node further, so that leaders spread evenly. Racks come with the cluster.
"""

from collections.abc import Sequence

from penstock.cluster.records import Placement
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NodeId


def place(partitions: int, replication_factor: int, nodes: Sequence[NodeId], *, first: int = 0) -> tuple[Placement, ...]:
    """Partitions from the number `first` on."""
    if replication_factor > len(nodes):
        names = ", ".join(str(node) for node in nodes)
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{replication_factor} replicas need as many nodes, and {len(nodes)} is up ({names}); use a replication factor of {len(nodes)}",
        )
    return tuple(_beginning_at(index, replication_factor, nodes) for index in range(first, first + partitions))


def as_assigned(assignments: Sequence[tuple[int, Sequence[int]]], nodes: Sequence[NodeId]) -> tuple[Placement, ...]:
    """The placement that a client spells out: (partition, its replicas, the first of them to lead)."""
    by_partition = dict(assignments)
    if len(by_partition) != len(assignments) or sorted(by_partition) != list(range(len(assignments))):
        raise _no("partitions must be numbered 0, 1, 2 … without gaps, each once")
    for partition, replicas in by_partition.items():
        if not replicas or len(set(replicas)) != len(replicas):
            raise _no(f"partition {partition} needs replicas, each node once")
        for node in replicas:
            if node not in nodes:
                raise _no(f"partition {partition} names node {node}, which is not in the cluster")
    return tuple(_of([NodeId(node) for node in by_partition[index]]) for index in range(len(assignments)))


def _beginning_at(index: int, replication_factor: int, nodes: Sequence[NodeId]) -> Placement:
    return _of([nodes[(index + step) % len(nodes)] for step in range(replication_factor)])


def _of(replicas: Sequence[NodeId]) -> Placement:
    return Placement(tuple(replicas), tuple(replicas), replicas[0])


def _no(reason: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
