"""Transactions on this node: their coordinators over `__transaction_state`, and how a question gets to one of them.

A transactional id lives with the coordinator of its partition, found by the hash of the id. Clients ask it where FindCoordinator sends
them; leaders of partitions ask it from wherever they are (`add`), over a link where it is on another node.
Not here: what transactions do (transactions/), how their ends reach the partitions (marker_sending.py), what is said on the wire
(handlers/).
"""

from typing import TYPE_CHECKING

from penstock.broker.askers import Asker
from penstock.broker.coordinator import Coordinator, Kind
from penstock.broker.coordinators import Coordinators
from penstock.broker.marker_sending import MarkerSending
from penstock.errors import ErrorCode, MalformedInput, Refusal
from penstock.links import kinds
from penstock.links.door import Asked
from penstock.links.failures import LinkFailure
from penstock.links.transaction_calls import Added, AddToTransaction, read_add, read_added, write_add, write_added
from penstock.partition.partition import Partition
from penstock.settings import MIB
from penstock.transactions import commands, records
from penstock.transactions.bounds import TransactionSettings
from penstock.transactions.commands import AddPartitions, Command
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.records import Record, TransactionPartition
from penstock.transactions.replies import AddReply
from penstock.vocabulary import NO_NODE, NodeId

if TYPE_CHECKING:
    from penstock.broker.node import Node

TRANSACTION_STATE = "__transaction_state"
SHARE_OF_MEMORY = 16  # What transactions may take: a sixteenth.
SEGMENT_BYTES = 100 * MIB
OVERRIDES = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(SEGMENT_BYTES)}
ASKED_SECONDS = 5.0  # For a coordinator on another node. A producer asks again.

TransactionsPartition = Coordinator[TransactionCoordinator, Command, Record]


class Transactions(Coordinators[TransactionCoordinator, Command, Record]):
    def __init__(self, node: "Node") -> None:
        kind: Kind[TransactionCoordinator, Command, Record] = Kind(
            topic=TRANSACTION_STATE,
            overrides=OVERRIDES | {"min.insync.replicas": str(node.settings.transaction_min_insync)},
            new_state=self._new_state,
            encode=records.encode,
            replay=TransactionCoordinator.replay_stored,
            loaded=TransactionCoordinator.begin,
            abandoned=commands.Abandoned,
            changed=self._changed,
        )
        super().__init__(node, kind, node.settings.transaction_partitions)
        self.markers = MarkerSending(node)

    def _new_state(self) -> TransactionCoordinator:
        return TransactionCoordinator(TransactionSettings.of(self._node.settings), self._free_bytes)

    def _changed(self, coordinator: TransactionsPartition) -> None:
        self.markers.look_soon(coordinator)

    def partition_left(self, partition: Partition) -> None:
        coordinator = self._coordinators.get(partition.index)
        super().partition_left(partition)
        if coordinator is not None and coordinator.partition is partition:
            self.markers.forget(coordinator)

    def settings_changed(self) -> None:
        """The node's settings were changed while it runs."""
        settings = TransactionSettings.of(self._node.settings)
        for coordinator in self:
            if coordinator.state is not None:
                coordinator.state.settings = settings

    def _free_bytes(self) -> int:
        """How much more transactions may take: a part of the memory is theirs."""
        held = sum(coordinator.state.held_bytes for coordinator in self if coordinator.state is not None)
        return self._node.settings.memory_bytes_max // SHARE_OF_MEMORY - held

    # Clients

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether the next decision about this id may want a producer id that nobody had before. Raises Refusal."""
        state = self.find(transactional_id).state
        return state is not None and state.needs_producer_id(transactional_id)

    def place(self, topic: str, partition: int) -> TransactionPartition | None:
        """The partition as transactions know it; None where there is none."""
        known = self._node.image.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return None
        return TransactionPartition(topic, known.topic_id, partition)

    def place_of_group(self, group: str) -> TransactionPartition:
        """Where the offsets of a group live. Raises Refusal."""
        index = self._node.groups.partition_of(group)
        place = None if index is None else self.place(self._node.groups.topic, index)
        if place is None:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the groups' topic is not there yet")
        return place

    # Leaders of partitions

    async def add(self, wish: AddToTransaction) -> Added:
        """Whether the partitions are part of the transaction that this producer has open, or making them so. Raises Refusal."""
        index = self.partition_of(wish.transactional_id)
        topic = self._node.image.topics.get(self.topic)
        leader = NO_NODE if index is None or topic is None else topic.partitions[index].leader
        if leader == self._node.settings.node_id:
            return await self._add_here(wish)
        links = self._node.links
        if leader == NO_NODE or links is None:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody leads the transaction's log now")
        try:
            body = await links.ask(NodeId(leader), kinds.Kind.ADD_TO_TRANSACTION, write_add(wish), timeout_s=ASKED_SECONDS)
            return read_added(body)
        except (LinkFailure, MalformedInput) as failure:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the transaction's coordinator did not answer: {failure}") from None

    def asked_to_add(self, asked: Asked) -> None:
        """Another node leads partitions that are written to. Raises MalformedInput."""
        self._node.spawn(self._answer_add(asked, read_add(asked.body)))

    async def _answer_add(self, asked: Asked, wish: AddToTransaction) -> None:
        try:
            added = await self._add_here(wish)
        except Refusal as refusal:
            added = Added((refusal.code,) * len(wish.places), -1)
        asked.answer([write_added(added)])

    async def _add_here(self, wish: AddToTransaction) -> Added:
        places = tuple(TransactionPartition(*place) for place in wish.places)

        def order(asker: Asker) -> AddPartitions:
            return AddPartitions(
                token=asker, transactional_id=wish.transactional_id, producer_id=wish.producer_id, producer_epoch=wish.producer_epoch,
                partitions=places, is_verify_only=wish.is_verify_only, is_transaction_v2=not wish.is_verify_only,
            )  # fmt: skip

        reply: AddReply = await self.find(wish.transactional_id).ask(order)
        return Added(tuple(code for _, code in reply.partitions), reply.number)
