"""One share group, as its records tell it. Only `replay` changes it.

A partition may be in any number of members' assignments: which of them gets a record is the ledger's to say. So nothing is ever to be given
up first, and a member has what it shall have as soon as it is heard of.
"""

from collections.abc import Iterable, Mapping
from typing import assert_never

from penstock.groups.consumer.partitions import NOTHING, Partitions
from penstock.groups.share.records import (
    Ledgers,
    ShareAssignment,
    ShareCurrent,
    ShareGone,
    ShareGroupSaved,
    ShareKind,
    ShareLedgers,
    ShareMemberSaved,
    ShareRecord,
    ShareTarget,
)
from penstock.groups.states import GroupState

NO_LEDGERS: Ledgers = {}


class ShareGroup:
    __slots__ = ("_read", "assignment", "currents", "ledgers", "members", "name", "saved", "targets")

    def __init__(self, name: str) -> None:
        self.name = name
        self.saved: ShareGroupSaved | None = None
        self.assignment: ShareAssignment | None = None
        self.members: dict[str, ShareMemberSaved] = {}
        self.targets: dict[str, Partitions] = {}
        self.currents: dict[str, ShareCurrent] = {}
        self.ledgers: Ledgers = NO_LEDGERS
        self._read: dict[str, int] | None = None  # By topic: how many members read it. Made when somebody first asks.

    def replay(self, record: ShareRecord) -> None:
        match record:
            case ShareGroupSaved():
                self.saved = record
            case ShareAssignment():
                self.assignment = record
            case ShareMemberSaved():
                self._exchange(record.member_id, record)
            case ShareTarget():
                self.targets[record.member_id] = record.partitions
            case ShareCurrent():
                self.currents[record.member_id] = record
            case ShareLedgers():
                self.ledgers = record.ledgers
            case ShareGone():
                self._forget(record)
            case _:
                assert_never(record)

    @property
    def is_nothing(self) -> bool:
        """No record of it is left."""
        return not (self.saved or self.assignment or self.members or self.targets or self.currents or self.ledgers)

    @property
    def epoch(self) -> int:
        return 0 if self.saved is None else self.saved.epoch

    @property
    def assignment_epoch(self) -> int:
        return 0 if self.assignment is None else self.assignment.epoch

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def current(self, member_id: str) -> ShareCurrent:
        return self.currents.get(member_id) or ShareCurrent(group=self.name, member_id=member_id)

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NOTHING)

    def read_with(self, gone: Iterable[str], come: ShareMemberSaved | None) -> Mapping[str, int]:
        """The topics that are read if these members go and that one comes."""
        read = self._topics_read().copy()
        replaced = dict.fromkeys(gone) if come is None else dict.fromkeys([*gone, come.member_id])
        for member_id in replaced:
            if member_id in self.members:
                _count(read, self.members[member_id].topics, -1)
        if come is not None:
            _count(read, come.topics, 1)
        return read

    def subscribed_to(self, topic: str) -> bool:
        return topic in self._topics_read()

    def _topics_read(self) -> dict[str, int]:
        if self._read is None:
            self._read = {}
            for member in self.members.values():
                _count(self._read, member.topics, 1)
        return self._read

    def _exchange(self, member_id: str, record: ShareMemberSaved | None) -> None:
        before = self.members.pop(member_id, None)
        if record is not None:
            self.members[member_id] = record
        if self._read is not None:
            for member, step in ((before, -1), (record, 1)):
                if member is not None:
                    _count(self._read, member.topics, step)

    def _forget(self, record: ShareGone) -> None:
        match record.kind:
            case ShareKind.GROUP:
                self.saved = None
            case ShareKind.ASSIGNMENT:
                self.assignment = None
            case ShareKind.MEMBER:
                self._exchange(record.member_id, None)
            case ShareKind.TARGET:
                self.targets.pop(record.member_id, None)
            case ShareKind.CURRENT:
                self.currents.pop(record.member_id, None)
            case ShareKind.LEDGERS:
                self.ledgers = NO_LEDGERS


def _count(read: dict[str, int], topics: Iterable[str], step: int) -> None:
    for topic in topics:
        read[topic] = read.get(topic, 0) + step
        if not read[topic]:
            del read[topic]
