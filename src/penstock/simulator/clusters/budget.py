"""What the configuration is promised to bear. Trouble never takes more than that, so whatever is lost is a fault of the nodes.

Processes may die and machines lose their power in any number, all at once too: acknowledgements wait for flushes. Links and clocks may do
as they like. Disks are different: what a lost disk held is gone, so one is taken only where every partition has another replica that has
all that was acknowledged, where a majority of voters keeps its disks, and where the last loss has been made good.
"""

from penstock.simulator.clusters.members import Cluster
from penstock.vocabulary import NodeId


def may_lose_disk(cluster: Cluster, host: str) -> bool:
    """By what is decided now: the in-sync set, or those eligible where it is empty, has every acknowledged record on each member."""
    node_id = NodeId(cluster.processes[host].plan.node_id)
    if cluster.controller() is None or not cluster.all_serve():
        return False  # What would be decided next cannot be seen.
    if host in cluster.voters and len(cluster.voters) < 3:
        return False
    return all(has_another(state.in_sync or state.eligible, node_id) for _, _, state in cluster.states() if node_id in state.replicas)


def has_another(members: tuple[NodeId, ...], node_id: NodeId) -> bool:
    return any(member != node_id for member in members)


def is_made_good(cluster: Cluster) -> bool:
    """Every replica of every partition is in sync again."""
    return all(set(state.in_sync) == set(state.replicas) for _, _, state in cluster.states())
