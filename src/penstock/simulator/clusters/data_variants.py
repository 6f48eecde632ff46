"""Clusters that neglect one thing about data on purpose: what a follower shows, what was deleted.

As with variants.py: a handful of attributes of the product, replaced on every node while one world runs.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.broker import assignments, configuring
from penstock.broker.handlers import delete_records
from penstock.broker.known_ends import KnownEnds
from penstock.broker.mending import Mending
from penstock.broker.partitions import Partitions
from penstock.broker.trimming import trim
from penstock.cluster import records
from penstock.cluster.image import ClusterImage, Topic
from penstock.partition.partition import Partition
from penstock.simulator.clusters.variants import Patches
from penstock.simulator.defects import breaks
from penstock.vocabulary import Instant, Offset

if TYPE_CHECKING:
    from penstock.broker.node import Node


# Reads from followers.


@breaks("replication.follower-reads", "log.reads-below-watermark")
def shows_what_a_follower_has_fetched() -> Patches:
    """A follower lets consumers read to the end of its log, committed or not."""
    readable_end = Partition.readable_end

    def to_the_end(self: Partition, *, reads_committed: bool) -> Offset:
        if self.leader is None and not reads_committed:
            return self.log.end_offset
        return readable_end(self, reads_committed=reads_committed)

    return [(Partition, "readable_end", to_the_end)]


@breaks("replication.follower-reads", "log.reads-below-watermark")
def takes_the_end_of_a_fetch_for_the_watermark() -> Patches:
    """A follower believes that what it has fetched is committed."""

    def learn(self: Partition, offset: Offset) -> bool:
        known = self.log.end_offset
        if self.leader is not None or known <= self._watermark:
            return False
        self._watermark = known
        return True

    return [(Partition, "learn_watermark", learn)]


@breaks("replication.follower-reads", "transactions.all-or-nothing")
def shows_open_transactions_on_followers() -> Patches:
    stable = Partition.last_stable_offset

    def unstable(self: Partition) -> Offset:
        return self.high_watermark if self.leader is None else stable.__get__(self)

    return [(Partition, "last_stable_offset", property(unstable))]


@breaks("replication.follower-reads", "transactions.all-or-nothing")
def forgets_aborted_transactions_on_followers() -> Patches:
    """A follower tells readers of committed records of no aborted transaction."""
    aborted = Partition.aborted

    def none_as_follower(self: Partition, from_offset: int, end_offset: int) -> list[object]:
        return [] if self.leader is None else list(aborted(self, from_offset, end_offset))

    return [(Partition, "aborted", none_as_follower)]


# Deleted records.


@breaks("replication.deleted-stays-deleted")
def answers_when_only_the_leader_has_deleted() -> Patches:
    async def trim_here(node: "Node", partition: Partition, offset: Offset, deadline: Instant) -> Offset:
        await trim(node, partition, offset)
        return partition.log.start_offset

    return [(delete_records, "trim_everywhere", trim_here)]


# Bytes that change.


@breaks("log.known-end")
def cuts_off_damage_as_if_it_were_torn() -> Patches:
    """What was flushed for long is not told from a write that a crash has torn off."""
    return [(KnownEnds, "of", lambda self, topic_id, partition: Offset(0))]


@breaks("replication.damaged-copy-not-trusted")
def counts_on_damaged_copies() -> Patches:
    """A copy that opens damaged goes on with what can be read of it, and stays in the in-sync set."""
    opened = Partitions.open

    def open_with_less(self: Partitions, *arguments: Any, **options: Any) -> Any:
        return opened(self, *arguments, **{**options, "accepts_loss": True})

    return [(Partitions, "open", open_with_less)]


@breaks("replication.damage-mended")
def mends_nothing() -> Patches:
    return [(Mending, "damaged", lambda self, topic_id, index, offset: None)]


# Settings.


@breaks("replication.settings-everywhere", "node.admin-changes-durable")
def leaves_settings_of_nodes_out_of_snapshots() -> Patches:
    snapshot = ClusterImage.snapshot

    def without(self: ClusterImage) -> Iterator[records.Record]:
        return (record for record in snapshot(self) if not isinstance(record, records.NodeConfigured))

    return [(ClusterImage, "snapshot", without)]


@breaks("replication.settings-everywhere", "node.admin-changes-durable")
def goes_by_the_old_settings_of_a_topic_on_one_node() -> Patches:
    """What it describes is right; its open partitions do not follow."""
    adopt = configuring.adopt_topic_config

    def adopt_elsewhere(node: "Node", topic: Topic) -> None:
        if node.settings.node_id != 1:
            adopt(node, topic)

    return [(assignments, "adopt_topic_config", adopt_elsewhere)]


DATA_VARIANTS: dict[str, Callable[[], Patches]] = {
    make.__name__.replace("_", "-"): make
    for make in (
        shows_what_a_follower_has_fetched,
        takes_the_end_of_a_fetch_for_the_watermark,
        shows_open_transactions_on_followers,
        forgets_aborted_transactions_on_followers,
        answers_when_only_the_leader_has_deleted,
        cuts_off_damage_as_if_it_were_torn,
        counts_on_damaged_copies,
        mends_nothing,
        leaves_settings_of_nodes_out_of_snapshots,
        goes_by_the_old_settings_of_a_topic_on_one_node,
    )
}
