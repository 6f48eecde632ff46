"""What is recorded of all groups of one kind that one coordinator has: replayed, weighed, and written out again.

Only `replay` changes it, in any order of the keys, and it never refuses. A group is there as long as any record of it is.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

GROUP_BYTES = 2_000  # Of memory, about: a group's objects and dictionaries.
_PIECE_RECORDS = 1_000


class RecordOfGroup(Protocol):
    @property
    def group(self) -> str: ...


class RecordedGroup(Protocol):
    @property
    def members(self) -> Mapping[str, Any]: ...

    @property
    def targets(self) -> Mapping[str, Any]: ...

    @property
    def currents(self) -> Mapping[str, Any]: ...

    @property
    def is_nothing(self) -> bool: ...

    def replay(self, record: Any) -> None: ...


G = TypeVar("G", bound=RecordedGroup)
R = TypeVar("R", bound=RecordOfGroup)


class RecordedGroups(Generic[G, R]):
    def __init__(self) -> None:
        self.groups: dict[str, G] = {}
        self.held_bytes = 0  # What all of it takes in memory, about.

    def replay(self, record: R) -> None:
        group = self.groups.get(record.group)
        if group is None:
            group = self.groups[record.group] = self._new_group(record.group)
            self.held_bytes += GROUP_BYTES
        self.held_bytes -= self._replaced_bytes(group, record)
        group.replay(record)
        self.held_bytes += self._bytes_of(record)
        if group.is_nothing:
            del self.groups[record.group]
            self.held_bytes -= GROUP_BYTES

    def snapshot_pieces(self) -> Iterator[list[R]]:
        """In pieces of about a thousand records, between which anything may be replayed."""
        piece: list[R] = []
        for name in list(self.groups):
            group = self.groups.get(name)
            if group is None:
                continue
            piece += self._own_records(group)
            for member_id in list(dict.fromkeys([*group.members, *group.targets, *group.currents])):
                piece += self._records_of(group, member_id)
                if len(piece) >= _PIECE_RECORDS:
                    yield piece
                    piece = []
        yield piece

    # What differs between kinds.

    @abstractmethod
    def _new_group(self, name: str) -> G: ...

    @abstractmethod
    def _bytes_of(self, record: R) -> int: ...

    @abstractmethod
    def _replaced_bytes(self, group: G, record: R) -> int:
        """What is in the record's place now."""

    @abstractmethod
    def _own_records(self, group: G) -> Iterable[R]:
        """Those that are of no member."""

    @abstractmethod
    def _records_of(self, group: G, member_id: str) -> Iterable[R]: ...
