"""A decision in the making: what will be recorded, who will hear what, and what is noted in the sessions on the way.

Every answer, every parked request and every deadline goes through here, so that a token is forgotten when it is answered and an alarm is
never later than what it stands for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.alarms import Alarms
from penstock.errors import require
from penstock.groups.bounds import GOING_MS, NEW_MEMBER_JOIN_MS, GroupSettings
from penstock.groups.commands import Token
from penstock.groups.consumer.session import ConsumerSession
from penstock.groups.consumer.topics import KnownTopics
from penstock.groups.group import NEVER, Group, Member
from penstock.groups.guards import Guards
from penstock.groups.image import GroupsImage
from penstock.groups.records import GroupSaved, Record
from penstock.groups.replies import Reply
from penstock.groups.share.session import Held, ShareSession
from penstock.groups.sizes import GROUP_BYTES, assigned_bytes
from penstock.settings import GroupConfig
from penstock.vocabulary import Instant, ProducerId


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes true, and who hears what of it. Records are keyed and stand alone, so they may be stored in several batches."""

    records: tuple[Record, ...] = ()
    replies: tuple[tuple[Token, Reply], ...] = ()


@dataclass(slots=True)
class Sessions:
    """What may be forgotten: groups as their members experience them, and who waits for an answer."""

    groups: dict[str, Group] = field(default_factory=dict)
    parked: dict[Token, tuple[str, str]] = field(default_factory=dict)  # token -> (group, member id)
    alarms: Alarms = field(default_factory=Alarms)
    going: dict[str, Instant] = field(default_factory=dict)  # Groups that are being deleted in pieces, and how long nobody may join.
    guards: Guards = field(default_factory=Guards)
    consumers: dict[str, ConsumerSession] = field(default_factory=dict)  # Of groups of the new protocol.
    shares: dict[str, ShareSession] = field(default_factory=dict)  # Of share groups.
    held: dict[str, Held] = field(default_factory=dict)  # Share groups whose ledgers are being changed.
    last_hold: int = 0
    configs: Callable[[str], GroupConfig] = lambda name: GroupConfig()  # What holds for a group, by its name.
    topics: KnownTopics = field(default_factory=KnownTopics)
    open: dict[ProducerId, int] = field(default_factory=dict)  # Transactions that were found open, by number, and have not begun to end.
    held_bytes: int = 0  # What they take in memory, about, beside what is recorded.


@dataclass(slots=True)
class Draft:
    sessions: Sessions
    image: GroupsImage  # Only to be looked at.
    settings: GroupSettings
    free_bytes: Callable[[], int]  # What groups may still take of the node's memory.
    now: Instant
    wall_ms: int
    records: list[Record] = field(default_factory=list)
    replies: list[tuple[Token, Reply]] = field(default_factory=list)

    def decision(self) -> Decision:
        return Decision(tuple(self.records), tuple(self.replies))

    def answer(self, token: Token, reply: Reply) -> None:
        self.sessions.parked.pop(token, None)
        self.replies.append((token, reply))

    def has_room(self, more_bytes: int) -> bool:
        """Whether groups may take so much more. Whoever takes no more than before is never refused."""
        return more_bytes <= 0 or more_bytes <= self.free_bytes()

    def has_room_for(self, group: Group, record: GroupSaved) -> bool:
        """Whether this assignment may take the place of the group's last record. What its members say is counted already."""
        return self.has_room(GROUP_BYTES + assigned_bytes(record) - self.image.saved_bytes(group.name))

    def mark_going(self, group: str) -> None:
        self.sessions.going = {name: until for name, until in self.sessions.going.items() if until > self.now}
        self.sessions.going[group] = self.after(GOING_MS)

    def is_going(self, group: str) -> bool:
        return self.sessions.going.get(group, self.now) > self.now

    def park_join(self, group: Group, member: Member, token: Token) -> None:
        self._park(group, member, token)
        group.joining[member.member_id] = token
        member.deadline = NEVER
        if member.is_new:
            member.deadline = self.after(NEW_MEMBER_JOIN_MS)
            self.sessions.alarms.set_by(group.name, member.deadline)

    def park_sync(self, group: Group, member: Member, token: Token) -> None:
        self._park(group, member, token)
        group.syncing[member.member_id] = token
        member.deadline = NEVER

    def keep_alive(self, group: Group, member: Member) -> None:
        """A full session from now. A member that waits for an answer needs none: it cannot send heartbeats on a busy connection."""
        if member.member_id not in group.joining and member.member_id not in group.syncing:
            member.deadline = self.after(member.session_timeout_ms)
            self.sessions.alarms.set_by(group.name, member.deadline)

    def await_member(self, group: Group, member_id: str, session_timeout_ms: int) -> None:
        group.pending[member_id] = self.after(session_timeout_ms)
        self.sessions.alarms.set_by(group.name, group.pending[member_id])

    def end_join_in(self, group: Group, ms: int) -> None:
        group.join_ends = self.after(ms)
        self.sessions.alarms.set_by(group.name, group.join_ends)

    def end_sync_in(self, group: Group, ms: int) -> None:
        group.sync_ends = self.after(ms)
        self.sessions.alarms.set_by(group.name, group.sync_ends)

    def after(self, ms: int) -> Instant:
        return Instant(self.now + ms / 1000)

    def _park(self, group: Group, member: Member, token: Token) -> None:
        require(token not in self.sessions.parked, "a token waits for one answer")
        self.sessions.parked[token] = (group.name, member.member_id)
