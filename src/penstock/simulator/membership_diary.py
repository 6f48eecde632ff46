"""What members of groups under the new protocol were told: their epochs, what they owned and for how long, and how the group came to rest.

Not here: any rule (membership_rules.py), any client.
"""

from dataclasses import dataclass, field

from penstock.vocabulary import TopicPartition


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat that was answered. `since` is when it was sent, or the first of those before it that got no answer."""

    since: float
    ended: float
    epoch: int


@dataclass(slots=True, eq=False)
class Tenure:
    """A partition was owned: from the answer that gave it, until the heartbeat that gave it back, or the member knew that it was fenced."""

    partition: TopicPartition
    began: float
    ended: float | None = None


@dataclass(slots=True, eq=False)
class Membership:
    """One member, from joining to its end."""

    group: str
    member: str
    session_ms: int
    rebalance_ms: int
    topics: dict[str, None] = field(default_factory=dict)  # All that it ever subscribed to.
    beats: list[Beat] = field(default_factory=list)
    tenures: list[Tenure] = field(default_factory=list)

    def gains(self, partition: TopicPartition, now: float) -> None:
        self.tenures.append(Tenure(partition, now))

    def loses(self, partition: TopicPartition, now: float) -> None:
        for tenure in self.tenures:
            if tenure.partition == partition and tenure.ended is None:
                tenure.ended = now

    def loses_everything(self, now: float) -> None:
        for tenure in self.tenures:
            tenure.ended = now if tenure.ended is None else tenure.ended


@dataclass(slots=True)
class Rest:
    """A group when all trouble was over and nothing moved any more: what its members subscribe to, and who owns what."""

    wanted: dict[TopicPartition, None] = field(default_factory=dict)
    owned: dict[str, tuple[TopicPartition, ...]] = field(default_factory=dict)


class MembershipDiary:
    def __init__(self) -> None:
        self.members: list[Membership] = []
        self.rests: dict[str, Rest] = {}

    def joins(self, group: str, member: str, *, session_ms: int, rebalance_ms: int) -> Membership:
        made = Membership(group, member, session_ms, rebalance_ms)
        self.members.append(made)
        return made

    def rests_at(self, group: str, member: str, *, wanted: list[TopicPartition], owned: tuple[TopicPartition, ...]) -> None:
        rest = self.rests.setdefault(group, Rest())
        rest.wanted.update(dict.fromkeys(wanted))
        rest.owned[member] = owned
