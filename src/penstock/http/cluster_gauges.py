"""The cluster at this moment, for /metrics, as this node has heard of it: every node tells the same, so take the greatest.

A node that is not ready has heard of nothing yet.
"""

from penstock.broker.cluster_views import ills
from penstock.broker.metrics import Sample
from penstock.broker.node import Node


async def cluster_gauges(node: Node) -> list[Sample]:
    if not node.health().is_ready:
        return _at_the_door(node)
    found, nodes, quorum = await ills(node), node.image.nodes.values(), node.quorum
    values: list[tuple[str, float, str]] = [
        ("is_controller", quorum.is_leading, "1 on the node that decides for the cluster."),
        ("quorum_term", quorum.term, "The term of the metadata quorum: it grows with each election."),
        ("metadata_end_offset", quorum.applied_end, "Up to where this node has replayed the cluster's metadata."),
        ("cluster_nodes", len(nodes), "Nodes that have registered."),
        ("cluster_nodes_fenced", sum(each.is_fenced for each in nodes), "Nodes that are away."),
        ("cluster_partitions_under_replicated", found.under_replicated, "Partitions that lack replicas in sync."),
        ("cluster_partitions_below_min_in_sync", found.below_min_in_sync, "Partitions that refuse acks=all."),
        ("cluster_partitions_leaderless", found.leaderless, "Partitions that nobody leads."),
        ("cluster_partitions_reassigning", found.reassigning, "Partitions on their way to other nodes."),
    ]
    return [Sample(f"penstock_{name}", "gauge", reason, (), value) for name, value, reason in values] + _at_the_door(node)


def _at_the_door(node: Node) -> list[Sample]:
    if node.neighbours is None:
        return []
    reason = "Callers that were not let in at the nodes' own listener, by reason."
    turned_away = sorted(node.neighbours.door.turned_away.items())
    return [Sample("penstock_peers_turned_away_total", "counter", reason, (("reason", why),), count) for why, count in turned_away]
