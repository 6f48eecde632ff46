"""What a node of a cluster says while it starts and waits for the others: a line every few seconds, so that nobody has to guess."""

import asyncio
import logging

from penstock.broker.node import Node
from penstock.server.cluster_configuration import ClusterConfiguration
from penstock.vocabulary import NodeId

EVERY_SECONDS = 3.0

log = logging.getLogger("penstock")


async def tell_what_it_waits_for(node: Node, cluster: ClusterConfiguration) -> None:
    """Until it is cancelled."""
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        log.info("%s", sentence(node, cluster))


def sentence(node: Node, cluster: ClusterConfiguration) -> str:
    controller = node.controller_node()
    if controller is not None:
        return f"not ready yet: {node.health().reason} (the controller is node {controller})"
    silent = [f"{voter}@{address}" for voter, address in cluster.voters.items() if not _answers(node, voter)]
    count, answering = len(cluster.voters), len(cluster.voters) - len(silent)
    who = "" if not silent else f" ({', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not)"
    return f"waiting for a controller: {answering} of {count} voters answer{who}"


def _answers(node: Node, voter: NodeId) -> bool:
    return voter == node.settings.node_id or node.is_in_contact_with(voter)
