"""Coordinators that are broken on purpose: each neglects one thing, and the checkers must notice every one of them."""

from collections.abc import Callable
from typing import Any

from penstock.errors import ErrorCode
from penstock.groups import committing, coordinator, joining, leaving, phases, syncing
from penstock.groups.commands import CommitOffsets, JoinGroup
from penstock.groups.draft import Draft
from penstock.groups.group import Group, Member
from penstock.groups.image import Committed, GroupsImage
from penstock.groups.records import GroupSaved
from penstock.groups.replies import JoinReply, SyncReply
from penstock.simulator.defects import breaks
from penstock.vocabulary import Instant

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.


@breaks("groups.classic-generation")
def tells_everybody_that_they_lead() -> Patches:
    right = phases.current_generation

    def wrong(group: Group, member: Member) -> JoinReply:
        reply = right(group, member)
        return JoinReply(
            generation=reply.generation, protocol_type=reply.protocol_type, protocol_name=reply.protocol_name, leader=member.member_id,
            member_id=member.member_id, members=phases.everybody(group.members.values(), group.protocol),
        )  # fmt: skip

    return [(phases, "current_generation", wrong), (joining, "current_generation", wrong)]


@breaks("groups.parked-requests-answered-once")
def forgets_whoever_waits_when_its_member_goes() -> Patches:
    def drop(group: Group, member_id: str, draft: Draft) -> None:
        for parked in (group.joining, group.syncing):
            if member_id in parked:
                draft.sessions.parked.pop(parked.pop(member_id))
        group.remove(member_id)

    return [(phases, "drop", drop), (leaving, "drop", drop)]


@breaks("groups.parked-requests-answered-once")
def answers_a_parked_sync_again_in_the_next_rebalance() -> Patches:
    def answer_syncs(group: Group, draft: Draft, reply: Callable[[Member], SyncReply]) -> None:
        for member_id, token in group.syncing.items():
            draft.answer(token, reply(group.members[member_id]))

    return [(phases, "answer_syncs", answer_syncs), (syncing, "answer_syncs", answer_syncs), (Group, "adopt", _adopt_whatever_waits())]


def _adopt_whatever_waits() -> Callable[[Group, GroupSaved], None]:
    right = Group.adopt

    def adopt(self: Group, saved: GroupSaved) -> None:
        self.syncing, kept = {}, self.syncing
        right(self, saved)
        self.syncing = kept

    return adopt


@breaks("groups.committed-offset-changes")
def takes_commits_of_an_old_generation() -> Patches:
    def fault(group: Group | None, command: CommitOffsets) -> ErrorCode:
        return ErrorCode.NONE

    return [(committing, "_fault_of_commit", fault)]


@breaks("groups.committed-offset-changes")
def loses_an_offset_now_and_then() -> Patches:
    right = GroupsImage._put

    def put(self: GroupsImage, group: str, topic: str, partition: int, committed: Committed) -> None:
        if committed[0] % 10:
            right(self, group, topic, partition, committed)

    return [(GroupsImage, "_put", put)]


@breaks("groups.parked-requests-answered-once")
def does_not_look_again_when_a_pending_member_lapses() -> Patches:
    right = phases.somebody_went

    def somebody_went(group: Group, members_before: int, draft: Draft) -> None:
        if len(group.joining) < len(group.members) or group.pending:
            right(group, members_before, draft)

    return [(phases, "somebody_went", somebody_went), (leaving, "somebody_went", somebody_went)]


@breaks("groups.parked-requests-answered-once")
def lets_parked_joins_lapse() -> Patches:
    right = Draft.park_join

    def park_join(self: Draft, group: Group, member: Member, token: Any) -> None:
        right(self, group, member, token)
        member.deadline = self.after(member.session_timeout_ms)
        self.sessions.alarms.set_by(group.name, member.deadline)

    return [(Draft, "park_join", park_join)]


@breaks("groups.classic-generation")
def renames_static_members_without_a_record() -> Patches:
    def rename(group: Group, command: JoinGroup, old_member_id: str, draft: Draft) -> None:
        draft.keep_alive(group, group.rename_static(old_member_id, command.fresh_member_id))
        draft.answer(
            command.token,
            JoinReply(
                generation=group.generation, protocol_type=group.protocol_type, protocol_name=group.protocol, leader=group.leader or "",
                member_id=command.fresh_member_id,
            ),
        )  # fmt: skip

    return [(joining, "_rename_quietly", rename)]


@breaks("groups.classic-generation")
def does_not_fence_the_first_holder_of_an_instance_id() -> Patches:
    def fault_of(self: Group, member_id: str, instance_id: str | None) -> ErrorCode:
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def add_beside(group: Group, command: JoinGroup, old_member_id: str, draft: Draft) -> None:
        joining._add(group, command, command.fresh_member_id, draft)

    def remove(self: Group, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is not None and member.instance_id is not None:
            self.statics[member.instance_id] = member_id
        right_remove(self, member_id)

    right_remove = Group.remove
    return [(Group, "fault_of", fault_of), (joining, "_take_static_place", add_beside), (Group, "remove", remove)]


@breaks("groups.classic-generation")
def forgets_the_generation_in_a_restart() -> Patches:
    right = Group.loaded.__func__

    def loaded(cls: type[Group], saved: GroupSaved, now: Instant) -> Group:
        group: Group = right(cls, saved, now)
        group.generation = 0
        return group

    return [(Group, "loaded", classmethod(loaded))]


@breaks("groups.parked-requests-answered-once")
def does_not_set_the_alarm_for_a_join() -> Patches:
    def end_join_in(self: Draft, group: Group, ms: int) -> None:
        group.join_ends = self.after(ms)

    return [(Draft, "end_join_in", end_join_in)]


@breaks("groups.silent-member-removed", "groups.parked-requests-answered-once")
def lets_a_lapsed_group_be_without_a_word() -> Patches:
    return [(coordinator.GroupCoordinator, "_lapse_group", lambda self, name, draft: None)]


VARIANTS: dict[str, Callable[[], Patches]] = {
    variant.__name__: variant
    for variant in (
        tells_everybody_that_they_lead, forgets_whoever_waits_when_its_member_goes, answers_a_parked_sync_again_in_the_next_rebalance,
        takes_commits_of_an_old_generation, loses_an_offset_now_and_then, does_not_look_again_when_a_pending_member_lapses,
        lets_parked_joins_lapse, renames_static_members_without_a_record, does_not_fence_the_first_holder_of_an_instance_id,
        forgets_the_generation_in_a_restart, does_not_set_the_alarm_for_a_join, lets_a_lapsed_group_be_without_a_word,
    )
}  # fmt: skip
