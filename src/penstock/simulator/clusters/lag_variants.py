"""Clusters that are broken on purpose (see variants.py): each takes what it does not know yet for gone, or one topic for another."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.broker.groups import Groups
from penstock.broker.marker_sending import MarkerSending
from penstock.broker.membership import Membership
from penstock.broker.partitions import TOPICS_DIRECTORY, topic_directory
from penstock.broker.queues import facade
from penstock.broker.queues.asking import Place
from penstock.broker.shares.shares import Shares
from penstock.cluster.commands import RegisterNode
from penstock.queues.ids import Handle
from penstock.simulator.defects import breaks
from penstock.vocabulary import TopicId

if TYPE_CHECKING:
    from penstock.broker.transactions import TransactionsPartition

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.


@breaks("controller.absent-is-not-deleted", "transactions.markers-owed-until-written")
def takes_a_topic_that_it_does_not_know_for_deleted() -> Patches:
    """A transaction's coordinator notes the marker as written."""

    async def find_out(self: MarkerSending, coordinator: "TransactionsPartition", unknown: Any) -> None:
        for each, places in unknown:
            self._written(coordinator, each, places)
        self._end(coordinator, unknown)

    return [(MarkerSending, "_find_out", find_out)]


@breaks("controller.absent-is-not-deleted")
def removes_files_of_topics_that_it_does_not_know_yet() -> Patches:
    """A node that starts looks at its directory before it has the newest metadata."""
    register = Membership.register

    async def register_after_tidying(self: Membership, command: RegisterNode) -> None:
        node = self._node
        for name in node.env.disk.list(TOPICS_DIRECTORY):
            topic_id = TopicId(bytes.fromhex(name)) if len(name) == 32 else None
            if topic_id is not None and topic_id not in node.image.topics_by_id:
                await node.env.offload(node.env.disk.unlink, topic_directory(topic_id))
        await register(self, command)

    return [(Membership, "register", register_after_tidying)]


@breaks("controller.topic-made-again-is-new", "node.recreated-topic-is-new")
def tells_offsets_of_an_earlier_topic() -> Patches:
    def forget_nothing(self: Groups, topic_id: TopicId, topic: str) -> None:
        self.topics_changed()

    return [(Groups, "topic_deleted", forget_nothing), (Groups, "is_deleted", lambda self, topic_id: False)]


@breaks("controller.absent-is-not-deleted")
def keeps_ledgers_that_it_has_not_heard_of() -> Patches:
    """The coordinator of a share group deletes it, and passes over partitions whose leader has just made a ledger."""

    async def learn_nothing(self: Shares, places: Iterable[Place]) -> None:
        await asyncio.sleep(0)

    return [(Shares, "learn_of_ledgers", learn_nothing)]


@breaks("controller.topic-made-again-is-new")
def takes_receipts_of_an_earlier_queue() -> Patches:
    def is_of(self: Handle, topic_id: TopicId, group: str) -> bool:
        return True

    return [(Handle, "is_of", is_of), (facade, "read_handles", lambda *_: None)]


LAG_VARIANTS: dict[str, Callable[[], Patches]] = {
    make.__name__.replace("_", "-"): make
    for make in (
        takes_a_topic_that_it_does_not_know_for_deleted,
        removes_files_of_topics_that_it_does_not_know_yet,
        tells_offsets_of_an_earlier_topic,
        keeps_ledgers_that_it_has_not_heard_of,
        takes_receipts_of_an_earlier_queue,
    )
}
