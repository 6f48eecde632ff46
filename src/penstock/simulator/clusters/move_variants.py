"""Clusters that are broken on purpose where operators move partitions, let topics grow, and add and forget nodes.

As in variants.py: each replaces a few attributes of the product while one world runs, and each must be caught by the worlds.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from penstock.cluster import electing, moving, reassigning, records, registering, topic_making
from penstock.cluster.commands import MorePartitions, UnregisterNode
from penstock.cluster.deciding import Decision
from penstock.cluster.drafting import Draft
from penstock.cluster.electing import Election
from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.cluster.moving import Circumstances, Wish
from penstock.cluster.replies import LeaderElected
from penstock.partition.in_sync import InSync, Members
from penstock.partition.leader import Effect, Leader
from penstock.simulator.defects import breaks
from penstock.vocabulary import Instant, NodeId

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.


# Copies that go and come back.


@breaks("replication.returning-copy-is-new")
def begins_no_epoch_when_a_replica_leaves() -> Patches:
    led = moving._led

    def led_on(  # noqa: PLR0917 - as it is called
        leader: NodeId, now: Circumstances, state: PartitionState, draft: PartitionState, others: tuple[NodeId, ...], wish: Wish
    ) -> PartitionState:  # fmt: skip
        after = led(leader, now, state, draft, others, wish)
        return after if wish.begins_epoch or leader != state.leader else after._replace(leader_epoch=state.leader_epoch)

    return [(moving, "_led", led_on)]


@breaks("replication.returning-copy-is-new", "replication.in-sync-has-committed")
def counts_what_a_replica_reported_before_it_left() -> Patches:
    """For its next copy, which is empty, also in the leader's next epoch."""
    adopt, take_over = InSync.adopt, Leader.take_over

    def adopt_and_remember(self: InSync, members: Members, replicas: Iterable[NodeId], partition_epoch: int, now: Instant) -> bool:
        known = dict(self._followers)
        is_news = adopt(self, members, replicas, partition_epoch, now)
        self._followers = {**known, **self._followers}
        return is_news

    def take_reports_over(self: Leader[Any], before: Leader[Any]) -> list[Effect[Any]]:
        self._set._followers = {**before._set._followers, **self._set._followers}
        return take_over(self, before)

    return [(InSync, "adopt", adopt_and_remember), (Leader, "take_over", take_reports_over)]


# Moves.


@breaks("replication.moves-end-as-asked", "controller.reassignment-keeps-copies")
def drops_a_replica_when_a_move_is_given_up() -> Patches:
    """One that was there before, and was to leave."""
    given_up = reassigning._given_up

    def give_up_more(draft: Draft, topic: Topic, index: int) -> PartitionState:
        leaving = draft.state(topic, index).removing
        after = given_up(draft, topic, index)
        left = tuple(node for node in after.replicas if node not in leaving[:1])
        if not any(node in left for node in after.in_sync):
            return after
        return draft.move(topic, index, Wish(replicas=left))

    return [(reassigning, "_given_up", give_up_more)]


@breaks("controller.reassignment-keeps-copies")
def ends_moves_before_the_new_replicas_are_in_sync() -> Patches:
    finish = moving._finished_if_they_can_be

    def finish_early(drafts: list[PartitionState], now: Circumstances) -> list[PartitionState]:
        joined = [draft._replace(in_sync=tuple(dict.fromkeys((*draft.in_sync, *draft.adding)))) for draft in drafts]
        finished = finish(joined, now)
        if finished is joined:
            return drafts
        return [
            after._replace(in_sync=kept) if (kept := tuple(node for node in after.in_sync if node in before.in_sync)) else before
            for before, after in zip(drafts, finished, strict=True)
        ]

    return [(moving, "_finished_if_they_can_be", finish_early)]


@breaks("replication.moves-end-as-asked")
def says_that_it_elected_whom_it_did_not() -> Patches:
    elect = electing._elect_preferred

    def elect_in_words(draft: Draft, topic: Topic, index: int) -> Election:
        state = draft.state(topic, index)
        if state.leader == state.target[0]:
            return elect(draft, topic, index)
        return LeaderElected(topic.name, index, state.target[0], state.leader_epoch)

    return [(electing, "_elect_preferred", elect_in_words)]


# Topics that grow.


@breaks("replication.added-partitions-stay")
def adds_partitions_with_one_replica() -> Patches:
    grown = topic_making._grown

    def grow_thin(making: Any, wish: MorePartitions) -> records.PartitionsAdded:
        added = grown(making, wish)
        thin = [replace(placed, replicas=placed.replicas[:1], in_sync=placed.replicas[:1]) for placed in added.partitions]
        return replace(added, partitions=tuple(thin))

    return [(topic_making, "_grown", grow_thin)]


# Nodes.


@breaks("replication.nodes-come-and-go")
def forgets_nodes_that_hold_replicas() -> Patches:
    unregister = registering.unregister

    def unregister_anybody_who_is_down(image: ClusterImage, command: UnregisterNode) -> Decision:
        loads = image.loads
        image.loads = {node: load for node, load in loads.items() if node != command.node_id}
        try:
            return unregister(image, command)
        finally:
            image.loads = loads

    return [(registering, "unregister", unregister_anybody_who_is_down)]


@breaks("replication.nodes-come-and-go")
def keeps_nodes_that_were_forgotten() -> Patches:
    forget = ClusterImage._forget_node

    def forget_in_part(self: ClusterImage, record: records.NodeUnregistered) -> None:
        node = self.nodes.get(record.node_id)
        forget(self, record)
        if node is not None:
            self.nodes[record.node_id] = node

    return [(ClusterImage, "_forget_node", forget_in_part)]


MOVE_VARIANTS: dict[str, Callable[[], Patches]] = {
    make.__name__.replace("_", "-"): make
    for make in (
        begins_no_epoch_when_a_replica_leaves,
        counts_what_a_replica_reported_before_it_left,
        drops_a_replica_when_a_move_is_given_up,
        ends_moves_before_the_new_replicas_are_in_sync,
        says_that_it_elected_whom_it_did_not,
        adds_partitions_with_one_replica,
        forgets_nodes_that_hold_replicas,
        keeps_nodes_that_were_forgotten,
    )
}
