"""Which replica a consumer should read from (KIP-392): one in its own rack, where the node is set to tell (`replica.selector`).

The leader names an in-sync replica on a live node in the reader's rack, and the reader goes there. What it finds is what that replica knows
to be committed, a little later than at the leader. A replica that has not come as far as the reader says OFFSET_NOT_AVAILABLE.
"""

from typing import TYPE_CHECKING

from penstock.partition.partition import Partition
from penstock.vocabulary import NO_NODE, NodeId

if TYPE_CHECKING:
    from penstock.broker.node import Node


def preferred_replica(node: "Node", partition: Partition, rack: str) -> NodeId:
    """NO_NODE: the one that was asked will do."""
    if not rack or node.settings.replica_selector != "rack" or partition.leader is None or node.settings.rack == rack:
        return NO_NODE
    for replica in partition.leader.in_sync:
        known = node.image.nodes.get(replica)
        if known is not None and known.is_live and known.rack == rack:
            return replica
    return NO_NODE
