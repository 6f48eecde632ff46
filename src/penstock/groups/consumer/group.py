"""One group of the new protocol, as its records tell it.

Only `replay` changes it. What is counted beside the records (who owns which partition, who reads what, who is static) is made of them when
somebody first asks, and kept up from then on: while a log is loaded, records of one moment may stand beside those of another.

What must hold once all is loaded: no partition is in two members' current assignments; nobody's epoch is above the assignment's.
"""

from collections.abc import Iterable, Iterator
from typing import assert_never

from penstock.groups.consumer.partitions import NOTHING, Partitions, each
from penstock.groups.consumer.records import (
    ConsumerGroupGone,
    ConsumerGroupSaved,
    ConsumerMemberGone,
    ConsumerMemberSaved,
    ConsumerRecord,
    CurrentAssigned,
    CurrentGone,
    MemberState,
    TargetAssigned,
    TargetGone,
)
from penstock.groups.states import GroupState
from penstock.patterns import stored_pattern
from penstock.vocabulary import Instant, TopicId


class ConsumerGroup:
    __slots__ = ("_owners", "_statics", "_tallies", "currents", "members", "name", "saved", "targets")

    def __init__(self, name: str) -> None:
        self.name = name
        self.saved: ConsumerGroupSaved | None = None
        self.members: dict[str, ConsumerMemberSaved] = {}
        self.targets: dict[str, Partitions] = {}
        self.currents: dict[str, CurrentAssigned] = {}
        self._owners: dict[tuple[TopicId, int], str] | None = None  # By partition: whose current assignment it is in.
        self._statics: dict[str, str] | None = None  # instance id -> member id
        self._tallies: Tallies | None = None

    @classmethod
    def of(cls, name: str, records: Iterable[ConsumerRecord]) -> "ConsumerGroup":
        group = cls(name)
        for record in records:
            group.replay(record)
        return group

    def replay(self, record: ConsumerRecord) -> None:
        match record:
            case ConsumerGroupSaved():
                self.saved = record
            case ConsumerGroupGone():
                self.saved = None
            case ConsumerMemberSaved():
                self._exchange(record.member_id, record)
            case ConsumerMemberGone():
                self._exchange(record.member_id, None)
            case TargetAssigned():
                self.targets[record.member_id] = record.partitions
            case TargetGone():
                self.targets.pop(record.member_id, None)
            case CurrentAssigned():
                self._own(record.member_id, record)
            case CurrentGone():
                self._own(record.member_id, None)
            case _:
                assert_never(record)

    @property
    def is_nothing(self) -> bool:
        """No record of it is left."""
        return self.saved is None and not self.members and not self.targets and not self.currents

    @property
    def epoch(self) -> int:
        return 0 if self.saved is None else self.saved.epoch

    @property
    def assignment_epoch(self) -> int:
        return 0 if self.saved is None else self.saved.assignment_epoch

    @property
    def is_to_be_assigned(self) -> bool:
        return bool(self.members) and self.epoch > self.assignment_epoch

    @property
    def state(self) -> GroupState:
        """For people who ask: it looks at everybody."""
        if not self.members:
            return GroupState.EMPTY
        if self.is_to_be_assigned:
            return GroupState.ASSIGNING
        epoch = self.assignment_epoch
        if all((current := self.currents.get(member_id)) is not None and current.is_reconciled_to(epoch) for member_id in self.members):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def current(self, member_id: str) -> CurrentAssigned:
        return self.currents.get(member_id) or CurrentAssigned(group=self.name, member_id=member_id)

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NOTHING)

    def holder(self, instance_id: str) -> str | None:
        """The member that has this static place."""
        if self._statics is None:
            self._statics = {member.instance_id: member.member_id for member in self.members.values() if member.instance_id is not None}
        return self._statics.get(instance_id)

    def is_free_for(self, member_id: str, topic_id: TopicId, partition: int) -> bool:
        """Whether nobody else has it in hand."""
        return self._owned().get((topic_id, partition), member_id) == member_id

    def waits_for_others(self, member_id: str) -> bool:
        """Whether something that this member shall have is still another's."""
        assigned = self.current(member_id).assigned
        return any(
            number not in assigned.get(topic_id, ()) and not self.is_free_for(member_id, topic_id, number)
            for topic_id, number in each(self.target(member_id))
        )

    # What a group of either kind shows to those who forget offsets

    @property
    def protocol_type(self) -> str:
        return "consumer"

    @property
    def pending(self) -> dict[str, Instant]:
        """Nobody is given an id that it comes back with."""
        return {}

    def subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        tallies = self.tallies
        return topic in tallies.topics or any(stored_pattern(regex).matches(topic) for regex in tallies.regexes)

    @property
    def tallies(self) -> "Tallies":
        if self._tallies is None:
            self._tallies = Tallies()
            for member in self.members.values():
                self._tallies.count(member, 1)
        return self._tallies

    def _owned(self) -> dict[tuple[TopicId, int], str]:
        if self._owners is None:
            self._owners = {place: member_id for member_id, current in self.currents.items() for place in _held(current)}
        return self._owners

    def _exchange(self, member_id: str, record: ConsumerMemberSaved | None) -> None:
        before = self.members.pop(member_id, None)
        if record is not None:
            self.members[member_id] = record
        for member, step in ((before, -1), (record, 1)):
            if member is not None and self._tallies is not None:
                self._tallies.count(member, step)
        if self._statics is None:
            return
        if before is not None and before.instance_id is not None and self._statics.get(before.instance_id) == member_id:
            del self._statics[before.instance_id]
        if record is not None and record.instance_id is not None:
            self._statics[record.instance_id] = member_id

    def _own(self, member_id: str, record: CurrentAssigned | None) -> None:
        before = self.currents.pop(member_id, None)
        if record is not None:
            self.currents[member_id] = record
        if self._owners is None:
            return
        for place in _held(before):
            if self._owners.get(place) == member_id:
                del self._owners[place]
        for place in _held(record):
            self._owners[place] = member_id


class Tallies:
    """How many members want what."""

    __slots__ = ("assignors", "classic", "protocols", "regexes", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self.regexes: dict[str, int] = {}
        self.assignors: dict[str, int] = {}
        self.protocols: dict[str, int] = {}  # Of those that speak the classic protocol, by name.
        self.classic = 0  # How many those are.

    def copied(self) -> "Tallies":
        copy = Tallies()
        copy.topics, copy.regexes, copy.assignors = self.topics.copy(), self.regexes.copy(), self.assignors.copy()
        copy.protocols, copy.classic = self.protocols.copy(), self.classic
        return copy

    def count(self, member: ConsumerMemberSaved, step: int) -> None:
        for topic in member.topics:
            _add(self.topics, topic, step)
        if member.regex:
            _add(self.regexes, member.regex, step)
        if member.assignor is not None:
            _add(self.assignors, member.assignor, step)
        if member.classic is not None:
            self.classic += step
            for name in dict.fromkeys(name for name, _ in member.classic.protocols):
                _add(self.protocols, name, step)


def _add(tally: dict[str, int], key: str, step: int) -> None:
    tally[key] = tally.get(key, 0) + step
    if not tally[key]:
        del tally[key]


def _held(current: CurrentAssigned | None) -> Iterator[tuple[TopicId, int]]:
    if current is not None:
        yield from each(current.assigned)
        yield from each(current.revoking) if current.state is MemberState.UNREVOKED else ()
