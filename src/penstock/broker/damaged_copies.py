"""What becomes of a copy of a partition that lacks records which it had, or holds bytes that have changed and could not be mended.

1. The controller is told first (DistrustCopies), before the node takes part again: the node leaves the in-sync set and is not eligible.
   Until then the copy is neither followed nor reported, so it vouches for nothing.
2. Once another node leads and can be read from, the files are put aside (`<partition>.damaged`) and the copy begins anew, empty. Before
   that the damaged copy may be the best that is left. Until the new one is in sync other replicas can have batches of the one that was put
   aside, to mend their own. A copy that has lost nothing but its end goes on from where it ends.
3. Where no other replica has every committed record, the copy stays as it is: offline for writes, with what can be read of it.
4. If the node is elected all the same, by an operator's order or because the topic allows unclean elections, the copy goes on with what
   can be read from its beginning. So does the only one, if the node was started with `accept.losses`, or in its place the one of which
   most can be read. What that costs is logged.
"""

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.broker.copy_reading import readable_end, serves
from penstock.broker.mending import Mending
from penstock.broker.partitions import log_config, topic_directory
from penstock.cluster.commands import DamagedCopy, DistrustCopies
from penstock.cluster.records import PartitionChange
from penstock.errors import DiskFailed, ErrorCode, Refusal
from penstock.log.compacted_log import CompactedLog
from penstock.log.config import LogIdentity
from penstock.log.recovery import EVERYTHING
from penstock.partition.partition import Partition
from penstock.vocabulary import NO_NODE, NodeId, TopicId

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

PUT_ASIDE = ".damaged"
GOING = ".going"
COPIES_MAX = 1_000  # In one command.
AGAIN_SECONDS = 1.0


class DamagedCopies:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._me = NodeId(node.settings.node_id)
        self.mending = Mending(node, self.found)
        self._telling: dict[Partition, None] = {}
        self._distrusted: dict[Partition, int] = {}  # The controller counts on them no more, from this leader epoch on.
        self._only_ones: dict[Partition, None] = {}  # No other replica has everything: they are still counted on.
        self._replacing: dict[Partition, None] = {}
        self._aside: dict[tuple[TopicId, int], CompactedLog | None] = {}  # Put aside by this process; None: not open.
        self._opening_aside = asyncio.Lock()

    @property
    def count(self) -> int:
        """Of copies that are open, and damaged beyond mending."""
        return sum(partition.is_damaged for partition in self._node.partitions)

    def look_again(self) -> None:
        """Other replicas may have caught up since the controller was told, and new copies since they were begun."""
        self._let_go_what_is_replaced()
        for partition in list(self._only_ones):
            state = self._node.image.partition(partition.topic_id, partition.index)
            if partition.is_deleted or state is None:
                del self._only_ones[partition]
            elif any(node not in (self._me, NO_NODE) for node in state.in_sync):
                self._node.spawn(self._give_up(partition))

    async def tell_controller(self, partitions: list[Partition]) -> None:
        """Repeats it until the controller has answered for all of them. They have `is_damaged` set."""
        telling = [partition for partition in partitions if partition not in self._telling and partition not in self._distrusted]
        self._telling |= dict.fromkeys(telling)
        try:
            for first in range(0, len(telling), COPIES_MAX):
                await self._tell(telling[first : first + COPIES_MAX])
        finally:
            for partition in telling:
                del self._telling[partition]

    async def _tell(self, partitions: list[Partition]) -> None:
        node = self._node
        while partitions := [partition for partition in partitions if not partition.is_deleted]:
            copies = tuple(self._described(partition) for partition in partitions)
            try:
                replies = await node.submit(DistrustCopies(self._me, node.membership.node_epoch, copies))
            except Refusal as refusal:
                replies = (refusal,) * len(partitions)
            left = []
            for partition, reply in zip(partitions, replies, strict=True):
                if isinstance(reply, PartitionChange):
                    self._distrusted[partition] = reply.leader_epoch
                    self._only_ones.pop(partition, None)
                    node.assignments.adopt(partition)
                    if partition.leader is not None:  # The topic allows unclean elections.
                        self.leads(partition)
                elif isinstance(reply, Refusal) and reply.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
                    if self._has_everything(partition):
                        partition.is_damaged = False  # All but the damaged place, and nobody else could take over.
                        node.assignments.adopt(partition)
                        continue
                    self._only_ones[partition] = None
                    if str(partition) in node.settings.accepted_losses.split(","):
                        node.spawn(self._accept_loss(partition))
                        continue
                    node.report(
                        f"{partition} is damaged here, and no other replica has every committed record: what can be "
                        "read is served, nothing can be written (docs/operating.md, When the disk has trouble)"
                    )
                elif isinstance(reply, Refusal) and reply.code is ErrorCode.FENCED_LEADER_EPOCH:
                    left.append(partition)  # The image was behind. It is not any more.
                elif isinstance(reply, Refusal) and reply.code is not ErrorCode.UNKNOWN_TOPIC_ID:
                    node.report(f"the controller does not know yet that {partition} is damaged here: {reply.reason}")
                    left.append(partition)
            partitions = left
            if partitions:
                await asyncio.sleep(AGAIN_SECONDS * (0.5 + node.env.rng.random() / 2))

    def _described(self, partition: Partition, in_favour_of: NodeId = NO_NODE) -> DamagedCopy:
        state = self._node.image.partition(partition.topic_id, partition.index)
        epoch = partition.epoch if state is None else state.leader_epoch
        return DamagedCopy(partition.topic_id, partition.index, epoch, self._has_everything(partition), in_favour_of)

    @staticmethod
    def _has_everything(partition: Partition) -> bool:
        """Whether all that is wrong with it is that some bytes cannot be read."""
        return partition.log.failure is None and not partition.log.owner_is_void

    def found(self, partition: Partition) -> None:
        """A copy that this node has open is damaged, and cannot be mended."""
        if not partition.is_damaged:
            self._let_go_what_is_replaced()
            partition.is_damaged = True
            self._node.replica_fetching.leave(partition)
            self._node.spawn(self._give_up(partition))

    async def _give_up(self, partition: Partition) -> None:
        await self.tell_controller([partition])
        if not partition.is_deleted:
            self._node.assignments.adopt(partition)

    def follows(self, partition: Partition, leader: NodeId) -> None:
        """Another node leads. A damaged copy is replaced as soon as that node serves, if the controller has said that it does not count on
        it. The image alone does not tell: a decision that counts on this copy may be on its way here."""
        if self._may_be_replaced(partition) and partition not in self._replacing:
            self._replacing[partition] = None
            self._node.spawn(self._replace(partition, leader))

    def _may_be_replaced(self, partition: Partition) -> bool:
        state = self._node.image.partition(partition.topic_id, partition.index)
        if partition.is_deleted or partition.leader is not None or state is None or not self._is_distrusted(partition):
            return False
        return self._me not in (*state.in_sync, *state.eligible)

    def _is_distrusted(self, partition: Partition) -> bool:
        """Whether the controller has said so, and this node's image is not older than that."""
        return partition in self._distrusted and partition.epoch >= self._distrusted[partition]

    async def _replace(self, partition: Partition, leader: NodeId) -> None:
        node, epoch = self._node, partition.epoch
        try:
            while not await serves(node, leader, partition):
                await asyncio.sleep(AGAIN_SECONDS * (0.5 + node.env.rng.random() / 2))
                if partition.is_deleted or partition.epoch != epoch:
                    return
            if partition.epoch == epoch and self._may_be_replaced(partition):
                await self._begin_anew(partition, leader)
        finally:
            del self._replacing[partition]
            if not partition.is_deleted:
                node.assignments.adopt(partition)  # Somebody else may lead by now.

    async def _begin_anew(self, partition: Partition, leader: NodeId) -> None:
        node, directory = self._node, topic_directory(partition.topic_id, partition.index)
        known_ends, epoch = node.partitions.known_ends, partition.epoch
        known_end = known_ends.of(partition.topic_id, partition.index)
        stays, is_worse = partition.log.report.is_end_lost, (partition.topic_id, partition.index) in self._aside
        try:
            if not stays:
                await node.env.offload(node.env.disk.unlink, directory + (GOING if is_worse else PUT_ASIDE))
            await known_ends.forget(partition.topic_id, partition.index)
            if partition.epoch != epoch or not self._may_be_replaced(partition):  # It may have been elected meanwhile.
                if not partition.is_deleted and partition.leader is None:
                    known_ends.raise_to(partition.topic_id, partition.index, known_end)
                return
            how = f"from offset {partition.log.end_offset} on" if stays else "anew"
            where = "" if stays else f"; what was there is kept in {directory}{PUT_ASIDE}"
            reason = partition.log.failure or "bytes have changed"
            node.report(f"{partition} is damaged ({reason}) and is fetched {how} from node {leader}{where}")
            self._remove(partition)
            if not stays and node.env.disk.exists(directory):
                for gone in (directory, directory + PUT_ASIDE):
                    node.files.forget_directory(gone)
                if is_worse:  # The copy that was put aside before had more, and this one had only what its leader has.
                    node.env.disk.rename(directory, directory + GOING)
                else:
                    node.env.disk.rename(directory, directory + PUT_ASIDE)
                    self._aside[partition.topic_id, partition.index] = None
        except DiskFailed as failure:
            node.report(f"the damaged files of {partition} stay in its place: {failure}")
            await asyncio.sleep(AGAIN_SECONDS)
            return
        node.assignments.open_again(partition.topic_id, partition.index, is_new=not stays)
        if is_worse:
            with suppress(DiskFailed):
                await node.env.offload(node.env.disk.unlink, directory + GOING)

    async def put_aside(self, topic_id: TopicId, index: int) -> CompactedLog | None:
        """The copy that was put aside and is still of use. Nothing is cut off it."""
        key, topic = (topic_id, index), self._node.image.topics_by_id.get(topic_id)
        async with self._opening_aside:
            if topic is not None and key in self._aside and self._aside[key] is None:
                opened = await CompactedLog.open(
                    self._node.env, topic_directory(topic_id, index) + PUT_ASIDE, LogIdentity(topic_id, index),
                    log_config(self._node.partitions.config_of(topic), self._node.settings.checkpoint_bytes), self._node.files,
                    is_clean=False, restore=lambda _: None, replay=lambda _: None, known_end=EVERYTHING,
                )  # fmt: skip
                if key in self._aside:
                    self._aside[key] = opened
                else:
                    opened.abandon()
        return self._aside.get(key)

    def _let_go_what_is_replaced(self) -> None:
        for key in list(self._aside):
            state = self._node.image.partition(*key)
            if state is None or self._me in state.in_sync or self._me not in state.replicas:
                aside = self._aside.pop(key)
                if aside is not None:
                    aside.abandon()

    def leads(self, partition: Partition) -> None:
        """This node was elected with a damaged copy. If the controller did not count on it, that was an unclean election."""
        if self._is_distrusted(partition):
            self._node.spawn(self._go_on_with_less(partition))

    async def _accept_loss(self, partition: Partition) -> None:
        """Goes on with less; unless more can be read of the damaged copy of another node: then that one does."""
        node, state = self._node, self._node.image.partition(partition.topic_id, partition.index)
        best, longest = self._me, (partition.log.epochs.latest, int(partition.log.end_offset))
        for source in () if state is None else state.replicas:
            with suppress(Refusal):
                if source != self._me and (end := await readable_end(node, source, partition)) > longest:
                    best, longest = source, end
        if best != self._me:
            copy = self._described(partition, in_favour_of=best)
            with suppress(Refusal):
                (reply,) = await node.submit(DistrustCopies(self._me, node.membership.node_epoch, (copy,)))
                if isinstance(reply, PartitionChange):
                    node.report(f"{partition} goes on with the copy of node {best}, of which more can be read: up to offset {longest[1]}")
                    self._distrusted[partition] = reply.leader_epoch
                    self._only_ones.pop(partition, None)
                    node.assignments.adopt(partition)
                    return
        if partition in self._only_ones:
            await self._go_on_with_less(partition)

    async def _go_on_with_less(self, partition: Partition) -> None:
        node = self._node
        known_end = node.partitions.known_ends.of(partition.topic_id, partition.index)
        try:
            await node.partitions.known_ends.forget(partition.topic_id, partition.index)
        except DiskFailed as failure:
            node.report(f"{partition} cannot go on with what is left of it here: {failure}")
            return
        if partition.is_deleted:
            return
        log.error("%s goes on with what can be read here, as was decided: records below offset %d are lost", partition, known_end)
        self._remove(partition)
        node.assignments.open_again(partition.topic_id, partition.index, is_new=False, accepts_loss=True)

    def forget(self, partition: Partition) -> None:
        """The partition is no longer open here."""
        self._distrusted.pop(partition, None)
        self._only_ones.pop(partition, None)
        self.mending.forget(partition)

    def _remove(self, partition: Partition) -> None:
        self._node.partitions.remove(partition)
        self._node.assignments.removed(partition, "the log is damaged")
