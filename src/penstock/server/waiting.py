"""What a node of a cluster says while it starts and waits for the others: a line every few seconds, so that nobody has to guess."""

import asyncio
import logging

from penstock.broker.node import Node
from penstock.server.cluster_configuration import ClusterConfiguration

EVERY_SECONDS = 3.0

log = logging.getLogger("penstock")


async def tell_what_it_waits_for(node: Node, cluster: ClusterConfiguration) -> None:
    """Until it is cancelled."""
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        log.info("%s", sentence(node, cluster))


def sentence(node: Node, cluster: ClusterConfiguration) -> str:
    return f"not ready yet: {node.health().reason}"
