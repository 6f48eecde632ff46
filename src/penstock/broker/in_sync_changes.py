"""What leaders here wish of their in-sync sets, put to the controller: many partitions in one command.

A leader has one wish under way at a time. What the controller grants comes back through the image, like every other change; only a refusal
is told to the leader directly, which then wishes anew if it still has reason to. A wish whose answer is lost is the leader's to repeat: the
partition epoch in it keeps a late one from undoing what was decided since.
"""

import asyncio
from typing import TYPE_CHECKING

from penstock.cluster.commands import ChangeInSync, InSyncWish
from penstock.errors import Refusal
from penstock.partition.leader import ProposalLost, ProposalRefused, ProposeInSync
from penstock.partition.partition import Partition
from penstock.vocabulary import NodeId

if TYPE_CHECKING:
    from penstock.broker.node import Node

WISHES_MAX = 1_000  # In one command.


class InSyncChanges:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._wishes: dict[Partition, ProposeInSync] = {}
        self._is_asking = False

    def propose(self, partition: Partition, proposal: ProposeInSync) -> None:
        self._wishes[partition] = proposal
        if not self._is_asking:
            self._is_asking = True
            self._node.spawn(self._ask())

    async def _ask(self) -> None:
        try:
            await asyncio.sleep(0)  # What is wished for in the same turn travels together.
            while self._wishes:
                taken = list(self._wishes.items())[:WISHES_MAX]
                for partition, _ in taken:
                    del self._wishes[partition]
                await self._put([(partition, proposal) for partition, proposal in taken if _still_leads(partition, proposal)])
        finally:
            self._is_asking = False

    async def _put(self, wished: list[tuple[Partition, ProposeInSync]]) -> None:
        node = self._node
        if not wished:
            return
        wishes = tuple(
            InSyncWish(partition.topic_id, partition.index, partition.epoch, proposal.partition_epoch, proposal.members)
            for partition, proposal in wished
        )
        try:
            replies = await node.submit(ChangeInSync(NodeId(node.settings.node_id), node.membership.node_epoch, wishes))
        except Refusal as refusal:
            node.report(f"in-sync sets cannot be changed now: {refusal.reason}")
            for partition, proposal in wished:
                self._tell(partition, proposal, ProposalLost(proposal.partition_epoch))
            return
        for (partition, proposal), reply in zip(wished, replies, strict=True):
            if isinstance(reply, Refusal):
                self._tell(partition, proposal, ProposalRefused(proposal.partition_epoch))

    def _tell(self, partition: Partition, proposal: ProposeInSync, outcome: ProposalLost | ProposalRefused) -> None:
        if partition.leader is not None and _still_leads(partition, proposal):
            self._node.carry_out(partition, partition.leader.step(outcome, self._node.env.now()))


def _still_leads(partition: Partition, proposal: ProposeInSync) -> bool:
    return not partition.is_deleted and partition.leader is not None and partition.leader.partition_epoch == proposal.partition_epoch
