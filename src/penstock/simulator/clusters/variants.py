"""Clusters that are broken on purpose: each neglects one thing that keeps acknowledged records, and each must be caught.

A variant is a handful of attributes of the product's classes, replaced on every node while one world runs and put back afterwards. What
neglects a rule of consensus or of replication in some rare order of events is tried on the cores alone (simulator/cores,
simulator/replicas), where thousands of stories cost what one costs here; what is here is also wrong with disks, links and clients.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.broker import coordinator_loading, replica_serving
from penstock.broker.assignments import Assignments
from penstock.broker.coordinator_loading import Loaded
from penstock.broker.disk_room import DiskRoom
from penstock.broker.in_sync_changes import InSyncChanges
from penstock.broker.patience import Patience
from penstock.cluster import drafting, moving, placement, registering
from penstock.cluster.commands import RegisterNode
from penstock.cluster.drafting import Draft
from penstock.cluster.image import Load, NodeState, PartitionState
from penstock.cluster.moving import Circumstances
from penstock.errors import ErrorCode
from penstock.groups import guards as group_guards
from penstock.log.log import Log
from penstock.partition import guards as partition_guards
from penstock.partition.follower import Fetch, Fetched, Follower, Step, Truncate
from penstock.partition.in_sync import ProposeInSync
from penstock.partition.leader import InSyncChanged, Leader
from penstock.partition.partition import Partition
from penstock.simulator.cores import variants as of_cores
from penstock.simulator.defects import breaks
from penstock.vocabulary import NO_NODE, NodeId

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.


# Promises made too early.


@breaks("replication.acked-is-kept", "log.ack-after-flush")
def acknowledges_before_the_flush() -> Patches:
    """Of anybody: the answer leaves as soon as the leader has appended."""
    return [(Leader, "park", lambda self, end_offset, token, *, needs_all: False)]


@breaks("replication.acked-is-kept")
def acknowledges_before_its_followers_have_it() -> Patches:
    return [(Leader, "_lowest", lambda self: self.own_end)]


@breaks("replication.acked-is-kept")
def reports_before_its_flush() -> Patches:
    """A follower says that it has what is only in its machine's memory."""
    return [(Partition, "durable_end", property(lambda self: self.log.end_offset))]


@breaks("replication.end-offset-never-back")
def tells_its_end_before_it_knows_it() -> Patches:
    """A new leader's watermark lags behind what the one before has shown (KIP-207)."""
    return [(Leader, "may_tell_end", property(lambda self: True))]


# The in-sync set.


@breaks("replication.deleted-stays-deleted")
def lets_replicas_join_that_still_have_deleted_records() -> Patches:
    return [(Leader, "records_deleted", lambda self, start: None)]


@breaks("replication.in-sync-has-committed")
def shrinks_the_set_without_the_controller() -> Patches:
    def help_yourself(self: InSyncChanges, partition: Partition, proposal: ProposeInSync) -> None:
        node, leader = self._node, partition.leader
        assert leader is not None
        replicas = [member for member in leader._set.replicas]
        changed = InSyncChanged(proposal.members, proposal.partition_epoch + 1, replicas)
        node.carry_out(partition, leader.step(changed, node.env.now()))

    return [(InSyncChanges, "propose", help_yourself)]


# Leadership.


@breaks("replication.old-leader-acks-nothing")
def leads_on_when_another_was_chosen() -> Patches:
    adopt = Assignments.adopt

    def adopt_unless_it_leads(self: Assignments, partition: Partition) -> None:
        state = self._node.image.partition(partition.topic_id, partition.index)
        if partition.leader is None or state is None or state.leader in (self._me, NO_NODE):
            adopt(self, partition)

    return [(Assignments, "adopt", adopt_unless_it_leads)]


@breaks("replication.last-replica-leads", "controller.unclean-election-explicit")
def elects_whoever_is_up() -> Patches:
    chosen = moving._chosen

    def anybody(drafts: list[PartitionState], others: list[tuple[NodeId, ...]], wanted: NodeId | None, now: Circumstances) -> NodeId:
        found = chosen(drafts, others, wanted, now)
        if found == NO_NODE or not now.is_live(found):
            return next((node for node in drafts[0].replicas if now.is_live(node)), found)
        return found

    return [(moving, "_chosen", anybody)]


@breaks("replication.last-replica-leads", "controller.eligible-has-everything")
def takes_everybody_for_eligible() -> Patches:
    """Whoever was in the set once may lead when nobody is left in it, whatever was acknowledged since (KIP-966)."""
    moved = moving.moved

    def move(states: Sequence[PartitionState], wishes: Sequence[moving.Wish], now: Circumstances) -> tuple[PartitionState, ...]:
        after = moved(states, wishes, now)
        return tuple(state._replace(eligible=state.replicas) if state.eligible or not state.in_sync else state for state in after)

    return [(drafting, "moved", move)]


@breaks("replication.last-replica-leads", "controller.unclean-stop-and-new-disk")
def trusts_a_disk_that_was_put_in_since() -> Patches:
    come_back = registering._come_back

    def come_back_as_ever(draft: Draft, command: RegisterNode, *, has_other_disk: bool) -> None:
        come_back(draft, command, has_other_disk=False)

    return [(registering, "_come_back", come_back_as_ever)]


@breaks("replication.full-disk-hands-over")
def leads_on_with_a_full_disk() -> Patches:
    """The controller takes no note of what nodes say of their disks."""
    return [(Circumstances, "may_lead", lambda self, node_id: self.stays(node_id))]


@breaks("replication.full-disk-hands-over")
def places_new_partitions_on_full_disks() -> Patches:
    make = placement.Placer.__init__

    def make_blind(self: placement.Placer, brokers: Sequence[NodeState], loads: Mapping[NodeId, Load]) -> None:
        make(self, [replace(broker, is_disk_full=False) for broker in brokers], loads)

    return [(placement.Placer, "__init__", make_blind)]


@breaks("node.reserve-for-moves")
def gives_up_no_reserve() -> Patches:
    return [(DiskRoom, "make_room", lambda self: False)]


@breaks("node.reserve-for-moves")
def copies_into_the_reserve() -> Patches:
    """A follower fills with records what was given up for the metadata log."""
    return [(DiskRoom, "is_in_reserve", property(lambda self: False))]


# Logs and groups.


@breaks("replication.truncate-by-epoch")
def truncates_by_its_watermark() -> Patches:
    """As before KIP-101: who follows a new leader cuts its log at the watermark that it knows, and takes whatever comes."""
    answered = Follower.answered

    def cut_first(self: Follower, asked: Fetch, answer: Fetched) -> list[Step]:
        if not self.is_agreed and asked == self.next_fetch() and answer.error_code == ErrorCode.NONE:
            self.is_agreed = True
            if self.high_watermark < self._log.end_offset:
                return [Truncate(max(self.high_watermark, self._log.start_offset), is_loss=False)]
        return answered(self, asked, answer)

    return [(Follower, "answered", cut_first), (replica_serving, "diverging_at", lambda log, offset, last_epoch: None)]


@breaks("groups.coordinator-failover")
def begins_groups_anew_where_their_partition_is_led() -> Patches:
    async def read_nothing(log: Log, offset: int, loaded: Loaded, patience: Patience) -> tuple[dict[bytes, bytes | None], int]:
        return {}, log.end_offset

    return [(coordinator_loading, "_read_stretch", read_nothing)]


# Transactions: what was verified comes late.


@breaks("transactions.no-append-after-marker")
def appends_though_the_transaction_has_ended_since() -> Patches:
    """A yes of the coordinator holds for ever (KIP-890)."""
    return [(partition_guards.Guards, "void", lambda self, producer_id: None)]


@breaks("transactions.no-append-after-marker", "groups.transactional-offsets-atomic")
def holds_offsets_though_the_transaction_has_ended_since() -> Patches:
    return [(group_guards.Guards, "ended", lambda self, producer_id, epoch, number: None)]


# Consensus.


@breaks("replication.metadata-images-agree")
def commits_before_the_flush() -> Patches:
    return of_cores.acknowledges_before_the_flush()


VARIANTS: dict[str, Callable[[], Patches]] = {
    make.__name__.replace("_", "-"): make
    for make in (
        acknowledges_before_the_flush,
        acknowledges_before_its_followers_have_it,
        reports_before_its_flush,
        tells_its_end_before_it_knows_it,
        lets_replicas_join_that_still_have_deleted_records,
        shrinks_the_set_without_the_controller,
        leads_on_when_another_was_chosen,
        elects_whoever_is_up,
        takes_everybody_for_eligible,
        trusts_a_disk_that_was_put_in_since,
        leads_on_with_a_full_disk,
        places_new_partitions_on_full_disks,
        gives_up_no_reserve,
        copies_into_the_reserve,
        truncates_by_its_watermark,
        begins_groups_anew_where_their_partition_is_led,
        appends_though_the_transaction_has_ended_since,
        holds_offsets_though_the_transaction_has_ended_since,
        commits_before_the_flush,
    )
}
