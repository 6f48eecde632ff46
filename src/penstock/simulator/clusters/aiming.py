"""Whom it hurts most just now: a nemesis that looks at the state of the cluster before it strikes.

Blind trouble hits the controller one time in three and the last in-sync replica hardly ever. Each aim here names hosts by what they are at
this moment, as decided and as they believe themselves; where nobody is that, nothing is hit.
"""

from collections.abc import Callable, Iterable

from penstock.simulator.clusters.faults import BLOWS, cut_for_a_while
from penstock.simulator.clusters.members import Cluster
from penstock.simulator.faults import Fault, Field, Strike
from penstock.vocabulary import NodeId

Aim = Callable[[Cluster], list[str]]


def controller(cluster: Cluster) -> list[str]:
    host = cluster.controller()
    return [] if host is None else [host]


def leaders(cluster: Cluster) -> list[str]:
    return _hosts(cluster, (state.leader for _, _, state in cluster.states()))


def last_in_sync(cluster: Cluster) -> list[str]:
    """Alone in a set that should have more."""
    return _hosts(cluster, (state.in_sync[0] for _, _, state in cluster.states() if len(state.in_sync) == 1 < len(state.replicas)))


def left_behind(cluster: Cluster) -> list[str]:
    """A replica that lives and is not in sync: it catches up, and is about to join."""
    return _hosts(cluster, (node for _, _, state in cluster.states() for node in state.replicas if node not in state.in_sync))


def followers(cluster: Cluster) -> list[str]:
    return _hosts(cluster, (node for _, _, state in cluster.states() for node in state.in_sync if node != state.leader))


def believers(cluster: Cluster) -> list[str]:
    """Those that lead what others were given since."""
    found = []
    for host, node in cluster.living():
        for partition in node.partitions:
            state = cluster.state(partition.topic, partition.index)
            if partition.leader is not None and state is not None and state.leader_epoch > partition.leader.epoch:
                found.append(host)
    return list(dict.fromkeys(found))


AIMS: dict[str, Aim] = {
    "controller": controller,
    "leader": leaders,
    "last in sync": last_in_sync,
    "left behind": left_behind,
    "follower": followers,
    "believer": believers,
}


def strikes(cluster: Cluster) -> dict[str, Strike]:
    aimed: dict[str, Strike] = {
        f"aimed at the {name}": lambda field, fault, aim=aim: strike(cluster, field, fault, aim)  # type: ignore[misc]
        for name, aim in AIMS.items()
    }
    return {**aimed, "cut from the controller": lambda field, fault: cut_from_controller(cluster, field, fault)}


def strike(cluster: Cluster, field: Field, fault: Fault, aim: Aim) -> None:
    hosts = [host for host in aim(cluster) if cluster.world.is_running(host)]
    if hosts:
        BLOWS[field.rng.choice(list(BLOWS))](field, field.rng.choice(hosts), fault.seconds)


def cut_from_controller(cluster: Cluster, field: Field, fault: Fault) -> None:
    """A leader that its followers and clients hear, but not the one who decides."""
    decides = cluster.controller()
    others = [host for host in leaders(cluster) if host != decides]
    if decides is not None and others:
        other = field.rng.choice(others)
        cut_for_a_while(field, [(decides, other), (other, decides)], fault.seconds)


def _hosts(cluster: Cluster, nodes: Iterable[NodeId]) -> list[str]:
    return list(dict.fromkeys(cluster.host_of(node) for node in nodes if node >= 0))
