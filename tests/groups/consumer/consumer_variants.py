"""Coordinators of the new protocol that are broken on purpose: each neglects one thing, and the walk must notice every one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.groups.consumer import assigning, heartbeating, leaving, reconciling, stepping
from penstock.groups.consumer.assignors import Reader
from penstock.groups.consumer.partitions import NOTHING, Partitions
from penstock.groups.consumer.records import ConsumerRecord, CurrentAssigned, TargetGone
from penstock.groups.consumer.session import ConsumerSession
from penstock.groups.consumer.topics import KnownTopics
from penstock.simulator.defects import breaks
from penstock.vocabulary import Instant, TopicId

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.


@breaks("groups.consumer-one-owner")
def hands_on_what_another_still_has() -> Patches:
    def free(*_: Any) -> Any:
        return lambda topic_id, number: True

    return [(stepping, "_free_for", free)]


@breaks("groups.consumer-one-owner")
def takes_silence_for_having_given_up() -> Patches:
    def may_have(owned: Partitions | None, revoking: Partitions) -> bool:
        return False

    return [(reconciling, "_may_have", may_have)]


@breaks("groups.consumer-sticky")
def takes_everything_away_before_it_assigns() -> Patches:
    def nothing_in_common(one: Partitions, other: Partitions) -> Partitions:
        return NOTHING

    return [(reconciling, "common", nothing_in_common)]


@breaks("groups.consumer-all-assigned")
def forgets_the_last_partition() -> Patches:
    right = assigning.ASSIGNORS["uniform"]

    def fewer(readers: Sequence[Reader], counts: Mapping[TopicId, int]) -> dict[str, Partitions]:
        return right(readers, {topic_id: number - 1 for topic_id, number in counts.items()})

    return [(assigning, "ASSIGNORS", {"uniform": fewer, "range": fewer})]


@breaks("groups.consumer-all-assigned")
def leaves_a_gone_members_partitions_with_it() -> Patches:
    right = stepping.removal

    def removal(group: str, member_id: str) -> list[ConsumerRecord]:
        return right(group, member_id)[1:]

    return [(stepping, "removal", removal), (leaving, "removal", removal)]


@breaks("groups.consumer-all-assigned")
def leaves_a_target_behind() -> Patches:
    right = stepping.removal

    def removal(group: str, member_id: str) -> list[ConsumerRecord]:
        return [record for record in right(group, member_id) if not isinstance(record, TargetGone)]

    return [(stepping, "removal", removal), (leaving, "removal", removal)]


@breaks("groups.consumer-all-assigned")
def does_not_notice_new_topics() -> Patches:
    return [(KnownTopics, "changed", lambda self: None)]


@breaks("groups.consumer-all-assigned")
def does_not_share_out_what_a_member_leaves() -> Patches:
    def saved_after(group: Any, change: Any, draft: Any, *, must_grow: bool) -> Any:
        return replace(group.saved, since_ms=draft.wall_ms)

    return [(leaving, "saved_after", saved_after)]


@breaks("groups.consumer-one-owner")
def lets_a_static_place_be_taken_while_it_is_held() -> Patches:
    def static_place(group: Any, holder: str, member_id: str) -> stepping.Place:
        before = replace(group.members[holder], member_id=member_id)
        return stepping.Place(before, stepping.taken_over(group.current(holder), member_id), group.target(holder), replaces=None)

    return [(heartbeating, "_static_place", static_place)]


@breaks("groups.silent-member-removed", "groups.consumer-all-assigned")
def never_tires_of_waiting_for_a_member() -> Patches:
    return [(heartbeating, "note_revoking", lambda *_: None)]


@breaks("groups.silent-member-removed", "groups.consumer-all-assigned")
def never_misses_anybody() -> Patches:
    def lapsed(self: ConsumerSession, now: Instant) -> list[str]:
        for deadlines in self._all():
            deadlines.update({member_id: Instant(now + 100) for member_id in deadlines})
        return []

    return [(ConsumerSession, "lapsed", lapsed)]


@breaks("groups.consumer-epochs-grow")
def lets_a_member_run_ahead_of_its_assignment() -> Patches:
    right = stepping.reconciled

    def reconciled(current: CurrentAssigned, target_epoch: int, *rest: Any, **more: Any) -> CurrentAssigned:
        return right(current, target_epoch + 1, *rest, **more)

    return [(stepping, "reconciled", reconciled)]


VARIANTS = {
    variant.__name__.replace("_", " "): variant
    for variant in (
        hands_on_what_another_still_has, takes_silence_for_having_given_up, takes_everything_away_before_it_assigns,
        forgets_the_last_partition, leaves_a_gone_members_partitions_with_it, leaves_a_target_behind, does_not_notice_new_topics,
        does_not_share_out_what_a_member_leaves, lets_a_static_place_be_taken_while_it_is_held, never_tires_of_waiting_for_a_member,
        never_misses_anybody, lets_a_member_run_ahead_of_its_assignment,
    )
}  # fmt: skip
