"""What must hold whatever a crowd of consumers does: promises that were made are compared with everything that follows.

The checker keeps books of its own from commands, replies and stored records, and never asks the core what it thinks. Only `look_inside`
opens it, for the rules that its own files state. What is counted per life ends with a restart: a rebalance under way may be forgotten then.
"""

from collections.abc import Hashable
from typing import Any

from penstock.errors import ErrorCode
from penstock.groups import commands, records, replies
from penstock.groups.bounds import NEW_MEMBER_JOIN_MS
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.draft import Decision
from penstock.groups.group import Group
from penstock.groups.states import GroupState

NONE = ErrorCode.NONE


class Violation(AssertionError):
    """Something that must hold did not."""


def must(claim: bool, promise: str) -> None:
    if not claim:
        raise Violation(promise)


class Checker:
    def __init__(self, retention_ms: int) -> None:
        self._retention_ms = retention_ms
        self._life = 0
        self._deletions: dict[str, int] = {}  # How often a group was deleted: its generations begin anew.
        self._facts: dict[Hashable, Hashable] = {}  # Things that are said more than once and must always be the same.
        self._waiting: dict[Hashable, tuple[commands.Command, float]] = {}
        self._answered: dict[Hashable, None] = {}
        self._people: dict[str, str] = {}  # member id -> its instance id, or itself
        self._newest: dict[str, int] = {}  # The newest generation that anybody was told of in this life.
        self._recorded: dict[str, records.GroupSaved] = {}
        self._claims: dict[tuple[str, str], str] = {}  # The last member id that claimed an instance id.
        self._promised: dict[tuple[str, str], tuple[str, int]] = {}  # Who was told to hold it, in which generation.
        self._offsets: dict[str, dict[tuple[str, int], tuple[int, int]]] = {}  # (offset, committed at) by group and partition.
        self.seen: dict[str, int] = {}  # How often things happened, to know that the stories are worth something.

    # What happens

    def asked(self, command: commands.Command, now: float) -> None:
        if isinstance(command, commands.Abandoned):
            self._waiting.pop(command.token, None)
        else:
            self._waiting[command.token] = (command, now)

    def dropped(self, decision: Decision) -> None:
        """Its records could not be stored: whoever would have been answered hears an error instead."""
        for token, _ in decision.replies:
            self._waiting.pop(token, None)
        self._count("dropped decisions")

    def carried_out(self, decision: Decision, cause: commands.Command | None, now: float, wall_ms: int) -> None:
        for record in decision.records:
            self._stored(record, cause, wall_ms)
        for token, reply in decision.replies:  # Who is who must be known before the first hears who leads.
            if isinstance(reply, replies.JoinReply) and token in self._waiting:
                self._people[reply.member_id] = getattr(self._waiting[token][0], "instance_id", None) or reply.member_id
        for token, reply in decision.replies:
            must(token not in self._answered, f"{token} is answered twice")
            self._answered[token] = None
            if token in self._waiting:
                command, asked_at = self._waiting.pop(token)
                self._replied(command, reply, cause, now - asked_at, wall_ms)
        if isinstance(cause, commands.JoinGroup) and not cause.member_id and cause.instance_id is not None:
            self._claimed(cause, decision)

    def restarted(self, coordinator: GroupCoordinator) -> None:
        """Whoever waited is told that the node is gone. What was recorded must be there again."""
        self._life += 1
        self._count("restarts")
        self._waiting.clear()
        self._newest.clear()
        generations = {group: saved.generation for group, saved in self._recorded.items()}
        # What was promised in a generation that was never recorded is void, and that number may be used again.
        self._promised = {key: held for key, held in self._promised.items() if held[1] == generations.get(key[0])}
        for group, saved in self._recorded.items():
            view = coordinator.describe(group)
            must(view.generation == saved.generation, f"{group} comes back in {view.generation}, {saved.generation} was recorded")
            held = [member.member_id for member in view.members]
            for (name, instance), (member_id, _) in self._promised.items():
                must(name != group or member_id in held, f"{member_id} was told to be {instance!r} of {group}, which was forgotten")
        self._claims = {
            (group, member.instance_id): member.member_id
            for group, saved in self._recorded.items()
            for member in saved.members
            if member.instance_id is not None
        }
        self.compare_offsets(coordinator)

    def compare_offsets(self, coordinator: GroupCoordinator) -> None:
        """Committed offsets change by a commit, a deletion or their age, and by nothing else."""
        names = dict.fromkeys([*self._offsets, *(listed.group for listed in coordinator.groups())])
        for group in names:
            found = {(view.topic, view.partition): view.offset for view in coordinator.offsets(group, None)}
            expected = {where: offset for where, (offset, _) in self._offsets.get(group, {}).items()}
            must(found == expected, f"{group} has committed {expected}, and {found} is there")

    def over(self) -> None:
        """Long after the last request nobody waits any more."""
        must(not self._waiting, f"nobody answers {list(self._waiting.values())[:3]}")

    # Books

    def _stored(self, record: records.Record, cause: commands.Command | None, wall_ms: int) -> None:
        match record:
            case records.GroupSaved():
                before = self._recorded.get(record.group)
                must(before is None or record.generation >= before.generation, "a recorded generation goes back")
                self._recorded[record.group] = record
                self._count("generations recorded" if record.members else "groups emptied")
            case records.GroupDeleted():
                self._recorded.pop(record.group, None)
                self._newest.pop(record.group, None)
                self._deletions[record.group] = self._deletions.get(record.group, 0) + 1
                self._promised = {key: held for key, held in self._promised.items() if key[0] != record.group}
                self._count("groups deleted")
            case records.OffsetDeleted() if cause is None:
                held = self._offsets.get(record.group, {})
                _, committed_ms = held.pop((record.topic, record.partition))
                must(wall_ms - committed_ms >= self._retention_ms, f"{record} is forgotten after {wall_ms - committed_ms} ms")
                self._count("offsets expired")

    def _replied(
        self, command: commands.Command, reply: replies.Reply, cause: commands.Command | None, waited: float, wall_ms: int
    ) -> None:
        match command, reply:
            case commands.JoinGroup(), replies.JoinReply():
                self._joined(command, reply)
                if reply.error is ErrorCode.UNKNOWN_MEMBER_ID and cause is not command:
                    told_to_go = isinstance(cause, commands.LeaveGroup) or waited >= NEW_MEMBER_JOIN_MS / 1000
                    must(told_to_go, f"a parked join lapsed after {waited} s")
            case commands.SyncGroup(), replies.SyncReply():
                self._synced(command, reply)
            case commands.Heartbeat(), replies.HeartbeatReply() if reply.error is NONE:
                self._is_current(command.group, command.generation, "heartbeat")
                self._is_holder(command)
            case commands.CommitOffsets(), replies.CommitReply():
                self._committed(command, reply, wall_ms)
            case commands.DeleteOffsets(), replies.DeleteOffsetsReply():
                for topic, partition, error in reply.partitions:
                    if error is NONE:
                        self._offsets.get(command.group, {}).pop((topic, partition), None)
            case commands.DeleteGroup(), replies.DeleteGroupReply() if reply.error is NONE:
                self._offsets.pop(command.group, None)
            case commands.ForgetTopic(), replies.TopicForgotten():
                for held in self._offsets.values():
                    for where in [where for where in held if where[0] == command.topic]:
                        del held[where]

    def _joined(self, command: commands.JoinGroup, reply: replies.JoinReply) -> None:
        if reply.error is not NONE:
            self._count(f"joins refused with {reply.error.name}")
            return
        self._count("joins")
        must(reply.generation >= self._current(command.group), f"generation {reply.generation} follows {self._current(command.group)}")
        self._newest[command.group] = reply.generation
        self._people[reply.member_id] = command.instance_id or reply.member_id
        generation = (self._life, *self._generation(command.group, reply.generation))
        self._same(("leader", generation), self._people.get(reply.leader, reply.leader), "leaders")
        self._same(("protocol", generation), (reply.protocol_type, reply.protocol_name), "protocols")
        must(not reply.members or reply.leader == reply.member_id, "a follower was told who the members are")
        listed = [member.member_id for member in reply.members]
        must(len(set(listed)) == len(listed), "a member is there twice")
        must(not reply.members or reply.member_id in listed, "the leader is not among the members")
        if command.instance_id is not None:
            self._promised[command.group, command.instance_id] = (reply.member_id, reply.generation)

    def _synced(self, command: commands.SyncGroup, reply: replies.SyncReply) -> None:
        if reply.error is not NONE:
            self._count(f"syncs refused with {reply.error.name}")
            return
        self._count("syncs")
        self._is_current(command.group, command.generation, "sync")
        self._is_holder(command)
        generation = self._generation(command.group, command.generation)
        who = self._people.get(command.member_id, command.member_id)
        self._same(("protocol", (self._life, *generation)), (reply.protocol_type, reply.protocol_name), "protocols")
        self._same(("assignment", generation, who), reply.assignment, "assignments of one member")
        if reply.assignment:
            self._same(("owner", generation, reply.assignment), who, "owners of one assignment")
        saved = self._recorded.get(command.group)
        assigned = {member.member_id: member.assignment for member in saved.members} if saved is not None else {}
        must(assigned.get(command.member_id) == reply.assignment, f"{command.member_id} hears of an assignment that is not recorded")

    def _committed(self, command: commands.CommitOffsets, reply: replies.CommitReply, wall_ms: int) -> None:
        must([(t, p) for t, p, _ in reply.offsets] == [(new.topic, new.partition) for new in command.offsets], "not all is answered")
        for new, (_, _, error) in zip(command.offsets, reply.offsets, strict=True):
            if error is not NONE:
                self._count(f"commits refused with {error.name}")
                continue
            self._count("commits")
            if command.generation >= 0:
                self._is_current(command.group, command.generation, "commit")
                self._is_holder(command)
            self._offsets.setdefault(command.group, {})[new.topic, new.partition] = (new.offset, wall_ms)

    def _claimed(self, cause: commands.JoinGroup, decision: Decision) -> None:
        reply: Any = dict(decision.replies).get(cause.token)
        if reply is None or reply.error is NONE:
            self._claims[cause.group, cause.instance_id or ""] = cause.fresh_member_id
            self._count("static members came")

    def _is_current(self, group: str, generation: int, what: str) -> None:
        must(generation == self._current(group), f"a {what} of generation {generation} is taken in {self._current(group)}")

    def _is_holder(self, command: commands.Heartbeat | commands.SyncGroup | commands.CommitOffsets) -> None:
        if command.instance_id is not None:
            holder = self._claims.get((command.group, command.instance_id))
            must(holder == command.member_id, f"{command.member_id} speaks as {command.instance_id!r}, which is {holder}")

    def _current(self, group: str) -> int:
        saved = self._recorded.get(group)
        return max(self._newest.get(group, 0), saved.generation if saved is not None else 0)

    def _generation(self, group: str, generation: int) -> tuple[str, int, int]:
        return group, self._deletions.get(group, 0), generation

    def _same(self, key: Hashable, value: Hashable, what: str) -> None:
        known = self._facts.setdefault(key, value)
        must(known == value, f"two {what}, {known!r} and {value!r}, in {key}")

    def _count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1


def look_inside(coordinator: GroupCoordinator, now: float) -> None:
    """The rules that group.py and draft.py state."""
    sessions = coordinator._sessions
    parked = {}
    due = coordinator.due()
    for name, group in sessions.groups.items():
        must(group.name == name, "a group is kept under another name")
        _look_at(group)
        must(due is not None and due <= group.earliest_deadline(), f"nobody is woken for {name} at {group.earliest_deadline()}")
        for member_id, token in [*group.joining.items(), *group.syncing.items()]:
            parked[token] = (name, member_id)
    must(parked == sessions.parked, f"{sessions.parked} are parked, and {parked} are known")


def _look_at(group: Group) -> None:
    offered: dict[str, int] = {}
    for member in group.members.values():
        for protocol in {name for name, _ in member.protocols}:
            offered[protocol] = offered.get(protocol, 0) + 1
    must(offered == group.support, f"members offer {offered}, {group.support} is counted")
    must(not group.members or len(group.members) in offered.values(), "the members share no protocol")
    must(group.members.keys() >= group.joining.keys() | group.syncing.keys() | group.unsynced.keys(), "somebody waits who is no member")
    static = {member.instance_id: member.member_id for member in group.members.values() if member.instance_id is not None}
    must(group.statics == static, "static members are lost")
    must((group.leader in group.members) if group.members else group.leader is None, f"{group.leader} leads {list(group.members)}")
    must(group.state is GroupState.PREPARING or not group.joining, f"a join is parked in {group.state}")
    must(group.state is GroupState.COMPLETING or not group.syncing, f"a sync is parked in {group.state}")
    must(group.state is not GroupState.EMPTY or (not group.members and bool(group.pending)), "an empty group is kept for nobody")
    must(not group.unsynced or group.state in (GroupState.COMPLETING, GroupState.STABLE), f"syncs are owed in {group.state}")
    if group.state is GroupState.PREPARING:
        is_settled = group.members and group.first_join is None and group.has_all_joined
        must(not is_settled, "everybody has joined, and nobody looks")
