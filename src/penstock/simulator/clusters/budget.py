"""What the configuration is promised to bear. Trouble never takes more than that, so whatever is lost is a fault of the nodes.

Processes may die and machines lose their power in any number, all at once too: acknowledgements wait for flushes. Links and clocks may do
as they like. Disks are different: what a lost disk held is gone, so one is taken only where every partition has another replica that has
all that was acknowledged, where a majority of voters keeps its disks, and where the last loss has been made good.
Nor may others fall silent before anybody knows of the loss: where one replica may acknowledge alone (min.insync.replicas 1), the lost one
would be waited for, since nobody else is known to have everything. There a machine first goes, and its disk when the others go on. The
same holds where acknowledgements do not wait for flushes: a member that has lost its power may be none any more when it is back. And
there the machine must not be counted on as eligible either: that is, to lead when the others come back from a power cut.
"""

from collections.abc import Iterator

from penstock.broker.node import Node
from penstock.cluster.image import PartitionState
from penstock.simulator.clusters.members import Cluster
from penstock.simulator.clusters.recovering import not_voting
from penstock.vocabulary import NodeId


def may_lose_disk(cluster: Cluster, host: str) -> bool:
    """By what is decided now: the in-sync set, or those eligible where it is empty, has every acknowledged record on each member."""
    node_id, controller = NodeId(cluster.processes[host].plan.node_id), cluster.deciding()
    if controller is None or (host in cluster.voters and len(cluster.voters) < 3):
        return False  # What is decided cannot be seen, or a majority would be lost.
    return all(has_another(state.in_sync or state.eligible, node_id) for _, state in _held(controller, node_id))


def must_be_known_first(cluster: Cluster, host: str) -> bool:
    """Whether some partition could be left to the host alone before anybody knows that its disk is gone."""
    node_id, controller = NodeId(cluster.processes[host].plan.node_id), cluster.deciding()
    return any(least < 2 and node_id in state.in_sync for least, state in _held(controller, node_id)) if controller is not None else True


def is_known_to_be_away(cluster: Cluster, host: str) -> bool:
    node_id, controller = NodeId(cluster.processes[host].plan.node_id), cluster.deciding()
    return controller is not None and all(_is_spared(least, state, node_id) for least, state in _held(controller, node_id))


def _is_spared(least: int, state: PartitionState, node_id: NodeId) -> bool:
    if node_id in state.in_sync or (least < 2 and node_id in state.eligible):
        return False
    return has_another(state.in_sync or state.eligible, node_id)


def _held(controller: Node, node_id: NodeId) -> Iterator[tuple[int, PartitionState]]:
    """What the node holds, each with how many are sure to have what was acknowledged."""
    for topic, _, state in controller.image.each_partition():
        if node_id in state.replicas:
            config = controller.controller.config_of(topic)
            yield min(config.min_insync_replicas, len(state.replicas)) if config.acknowledges_after_flush else 1, state


def has_another(members: tuple[NodeId, ...], node_id: NodeId) -> bool:
    return any(member != node_id for member in members)


def is_made_good(cluster: Cluster) -> bool:
    """Of the disks that were lost: every replica of every partition is in sync again, and every voter votes."""
    if not cluster.lost_disks:
        return True
    if not cluster.all_serve():
        return False
    return next(not_voting(cluster), None) is None and all(set(state.in_sync) == set(state.replicas) for _, _, state in cluster.states())
