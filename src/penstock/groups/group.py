"""One group as its members experience it: who belongs to it, who waits for what, and until when.

This is the session side of a group, which may be forgotten: a rebalance under way is in no record, and after a restart the last recorded
generation is Stable again and everybody has a full session. What is recorded comes back through `adopt`, and only that makes a group
Stable or Empty: so a decision whose records could not be stored leaves the group waiting, as if the request had never arrived.

What must hold:
- members are kept in the order in which they joined, and every order that anybody sees comes from it;
- `support` counts, for each protocol, the members that offer it; there is always one that all of them offer;
- a join is parked only in Preparing, a sync only in Completing;
- a member with a parked request doesn't lapse, unless it is new: then nobody else could tell that it is gone.
Not here: what a request causes (joining.py, syncing.py, leaving.py) and when the phases end (phases.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from penstock.errors import ErrorCode, require
from penstock.groups.commands import Token
from penstock.groups.records import GroupSaved, MemberSaved
from penstock.groups.sizes import MEMBER_BYTES, PENDING_BYTES, said_by, text_bytes
from penstock.groups.states import MOVES, GroupState
from penstock.vocabulary import Instant
from penstock.wire.consumer_protocol import read_subscription

NEVER = Instant(inf)
CONSUMERS = "consumer"  # The protocol type whose subscriptions name topics.

Protocols = tuple[tuple[str, bytes], ...]


def subscription(protocols: Protocols, chosen: str | None) -> bytes:
    """What a member says of itself under the chosen protocol."""
    return next((content for name, content in protocols if name == chosen), b"")


@dataclass(slots=True, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False  # Until its first generation begins.
    deadline: Instant = NEVER  # When its session lapses.
    said_bytes: int = 0  # What of it is counted in its group.

    def saved(self, assignment: bytes) -> MemberSaved:
        return MemberSaved(
            member_id=self.member_id, instance_id=self.instance_id, client_id=self.client_id, client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms, rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols, assignment=assignment,
        )  # fmt: skip

    @classmethod
    def loaded(cls, saved: MemberSaved, deadline: Instant) -> "Member":
        return cls(
            member_id=saved.member_id, instance_id=saved.instance_id, client_id=saved.client_id, client_host=saved.client_host,
            session_timeout_ms=saved.session_timeout_ms, rebalance_timeout_ms=saved.rebalance_timeout_ms,
            protocols=saved.protocols, assignment=saved.assignment, deadline=deadline,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """The topics that the members of a consumer group read under the protocol of their generation."""

    protocol: str | None
    topics: frozenset[str]
    is_readable: bool  # Whether all of them could be read: one that couldn't might name any topic.
    names_read: int  # How many there were to read: what it cost.

    @classmethod
    def read(cls, protocol: str | None, contents: Iterable[bytes]) -> "Wanted":
        lists = [read_subscription(content) for content in contents]
        topics = frozenset(topic for names in lists for topic in names or ())
        return cls(protocol, topics, None not in lists, sum(1 + len(names or ()) for names in lists))

    def includes(self, topic: str) -> bool:
        return not self.is_readable or topic in self.topics


@dataclass(slots=True)
class FirstJoin:
    """The initial delay of an empty group, which newcomers prolong up to the rebalance time-out."""

    left_ms: int  # How much longer it may become.
    has_newcomers: bool = False


class Group:
    __slots__ = (
        "counted_bytes", "first_join", "generation", "join_ends", "joining", "leader", "members", "name", "pending", "protocol",
        "protocol_type", "said_bytes", "state", "statics", "support", "sync_ends", "syncing", "unsynced", "wanted",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.statics: dict[str, str] = {}  # instance id -> member id
        self.said_bytes = 0  # What its members say about themselves, in all.
        self.counted_bytes = 0  # What of this session is in the coordinator's account.
        self.support: dict[str, int] = {}  # protocol -> how many members offer it
        self.wanted: Wanted | None = None  # What its members read, once somebody has asked in this generation.
        self.pending: dict[str, Instant] = {}  # Member ids given away and not yet used, and when they lapse.
        self.joining: dict[str, Token] = {}  # Parked joins by member id.
        self.syncing: dict[str, Token] = {}  # Parked syncs by member id.
        self.unsynced: dict[str, None] = {}  # Who hasn't asked for its assignment in this generation.
        self.first_join: FirstJoin | None = None
        self.join_ends = NEVER
        self.sync_ends = NEVER

    @classmethod
    def loaded(cls, saved: GroupSaved, now: Instant) -> "Group":
        group = cls(saved.group)
        group._take_over(saved, [Member.loaded(member, Instant(now + member.session_timeout_ms / 1000)) for member in saved.members])
        group.state = GroupState.STABLE if saved.members else GroupState.EMPTY
        return group

    # What is recorded

    def saved(self, assignments: Mapping[str, bytes], since_ms: int) -> GroupSaved:
        """The record of this generation with these assignments; a member without one gets none."""
        members = tuple(member.saved(assignments.get(member.member_id, b"")) for member in self.members.values())
        return GroupSaved(
            group=self.name, generation=self.generation, protocol_type=self.protocol_type, protocol=self.protocol,
            leader=self.leader, since_ms=since_ms, members=members,
        )  # fmt: skip

    def saved_empty(self, since_ms: int) -> GroupSaved:
        return GroupSaved(
            group=self.name, generation=self.generation + 1, protocol_type=self.protocol_type, protocol=None, leader=None, since_ms=since_ms
        )

    def adopt(self, saved: GroupSaved) -> None:
        """Takes over what has just been recorded of this group: an assignment, a static member's new id, or that it is empty."""
        if not saved.members:
            require(not self.members, f"group {self.name!r} is recorded as empty and has members")
            self.move(GroupState.EMPTY)
        elif self.state is not GroupState.STABLE:
            self.move(GroupState.STABLE)
        require(not self.joining and not self.syncing, f"group {self.name!r} is recorded while requests are parked")
        renamed = {self.statics[each.instance_id or ""]: each for each in saved.members if each.member_id not in self.members}
        for old_member_id, newcomer in renamed.items():
            if old_member_id in self.unsynced:
                self.unsynced[newcomer.member_id] = self.unsynced.pop(old_member_id)
        self._take_over(saved, [self._adopted(member) for member in saved.members])

    # Who belongs to it

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.pending.pop(member.member_id, None)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        self._count(member, 1)

    def remove(self, member_id: str) -> None:
        """Forgets a member or a pending id. Whoever waits under it must have been answered."""
        require(member_id not in self.joining and member_id not in self.syncing, f"member {member_id!r} goes while it waits for an answer")
        self.pending.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member, -1)
        self.unsynced.pop(member_id, None)
        if member.instance_id is not None:
            del self.statics[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def update(self, member: Member, protocols: Protocols, session_timeout_ms: int, rebalance_timeout_ms: int) -> None:
        self._count(member, -1)
        member.protocols = protocols
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms
        self._count(member, 1)

    def rename_static(self, old_member_id: str, new_member_id: str) -> Member:
        """Gives a static member's place to the holder of a new id. Whoever waited under the old one must have been answered."""
        member = self.members[old_member_id]
        require(old_member_id not in self.joining and old_member_id not in self.syncing, f"member {old_member_id!r} is fenced unanswered")
        member.member_id = new_member_id
        self.members = {each.member_id: each for each in self.members.values()}
        self.statics[member.instance_id or ""] = new_member_id
        if self.leader == old_member_id:
            self.leader = new_member_id
        return member

    def fault_of(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Why the one that says to be this member is not; NONE if it is."""
        if instance_id is not None:
            holder = self.statics.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # What they agree on

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and any(self.support.get(name) == len(self.members) for name, _ in protocols)

    def choose_protocol(self, replaced: Mapping[str, Protocols] | None = None) -> str:
        """The one that most members prefer among those that all offer; `replaced` are offers to count instead of a member's own."""
        instead = replaced or {}
        return most_wanted([instead.get(member.member_id, member.protocols) for member in self.members.values()])

    def subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic. A consumer's subscription that can't be read might name it."""
        return self.protocol_type == CONSUMERS and self.read_wanted().includes(topic)

    def read_wanted(self) -> "Wanted":
        """What the members read: taken apart once in each generation, for there may be megabytes of it."""
        wanted = self.wanted
        if wanted is None or wanted.protocol != self.protocol:
            contents = dict.fromkeys(subscription(member.protocols, self.protocol) for member in self.members.values())
            wanted = self.wanted = Wanted.read(self.protocol, contents)
        return wanted

    @property
    def has_read_wanted(self) -> bool:
        return self.wanted is not None and self.wanted.protocol == self.protocol

    # Phases

    def move(self, state: GroupState) -> None:
        require((self.state, state) in MOVES, f"group {self.name!r} cannot go from {self.state} to {state}")
        self.state = state

    @property
    def has_all_joined(self) -> bool:
        return len(self.joining) == len(self.members) and not self.pending

    @property
    def unrecorded_bytes(self) -> int:
        """What this session takes beside the group's record. The members of a Stable group are those of its record."""
        given = sum(map(text_bytes, self.pending)) + PENDING_BYTES * len(self.pending) if self.pending else 0
        return given if self.state is GroupState.STABLE else given + self.said_bytes + MEMBER_BYTES * len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_leader(self) -> bool:
        """Makes sure that the leader is one who has joined; False if nobody has."""
        if self.leader not in self.joining:
            self.leader = next((member_id for member_id in self.members if member_id in self.joining), self.leader)
        return self.leader in self.joining

    def earliest_deadline(self) -> Instant:
        sessions = min((member.deadline for member in self.members.values()), default=NEVER)
        return min(sessions, self.join_ends, self.sync_ends, *self.pending.values())

    def _adopted(self, saved: MemberSaved) -> Member:
        """The member that this is the record of: the same with its assignment, or a new one in the place of a static one."""
        member = self.members.get(saved.member_id)
        if member is None:
            return Member.loaded(saved, self.members[self.statics[saved.instance_id or ""]].deadline)
        member.assignment = saved.assignment
        return member

    def _take_over(self, saved: GroupSaved, members: Sequence[Member]) -> None:
        self.generation = saved.generation
        self.protocol_type = saved.protocol_type
        self.protocol = saved.protocol
        self.leader = saved.leader
        self.join_ends = NEVER
        before, self.members = self.members, {member.member_id: member for member in members}
        self.statics = {member.instance_id: member.member_id for member in members if member.instance_id is not None}
        for member in before.values():
            if member.member_id not in self.members:
                self._count(member, -1)
        for member in members:
            if member.member_id not in before:
                self._count(member, 1)

    def _count(self, member: Member, step: int) -> None:
        self.wanted = None
        if step > 0:
            member.said_bytes = said_by(member)
        self.said_bytes += step * member.said_bytes
        for name in dict.fromkeys(name for name, _ in member.protocols):
            self.support[name] = self.support.get(name, 0) + step
            if not self.support[name]:
                del self.support[name]


def most_wanted(offers: Sequence[Protocols]) -> str:
    common = {name for name, _ in offers[0]}.intersection(*({name for name, _ in offer} for offer in offers[1:]))
    require(bool(common), "the members of a group share a protocol")
    votes = {name: 0 for name, _ in offers[0] if name in common}
    for offer in offers:
        votes[next(name for name, _ in offer if name in votes)] += 1
    return max(votes, key=lambda name: votes[name])
