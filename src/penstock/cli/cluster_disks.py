"""What the nodes of a cluster tell of their disks. All are asked at once; one that does not answer in time is named and holds up nobody."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure
from penstock.peers.log_dirs import NodeDisk, describe_disk
from penstock.vocabulary import TopicPartition

ASK_SECONDS = 5.0


class Disks(NamedTuple):
    told: dict[int, NodeDisk]
    silent: dict[int, str]  # Nodes that could not be asked, and why.

    def size(self, where: TopicPartition, nodes: Sequence[int]) -> int | None:
        """Of the largest copy on these nodes; None where none of them could be asked."""
        return max((self.told[node].sizes.get(where, 0) for node in nodes if node in self.told), default=None)


async def ask_disks(client: Client, wanted: Mapping[int, Sequence[TopicPartition] | None]) -> Disks:
    """For each node the partitions whose sizes are wanted; None for all that it holds."""
    nodes = list(wanted)
    answers = await asyncio.gather(*[_ask(client, node, wanted[node]) for node in nodes])
    told = {node: answer for node, answer in zip(nodes, answers, strict=True) if isinstance(answer, NodeDisk)}
    return Disks(told, {node: answer for node, answer in zip(nodes, answers, strict=True) if isinstance(answer, str)})


async def _ask(client: Client, node: int, partitions: Sequence[TopicPartition] | None) -> NodeDisk | str:
    try:
        return await describe_disk(client.router, node, partitions, client.router.deadline(ASK_SECONDS))
    except PeerFailure as failure:
        return failure.problem
