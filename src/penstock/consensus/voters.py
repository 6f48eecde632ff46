"""Who votes: the set of voters, its arithmetic, and how it changed along the log.

A set holds from the moment its entry is *written*, committed or not, and the one before it holds again when that entry is cut off. Two
sets that differ by one voter have no two majorities without a common member; that is why they change by one at a time. Each node is in a
set once. A snapshot carries the set that held at its end, or a log that begins there would have forgotten who votes.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.consensus.nouns import ANY_DIRECTORY, DirectoryId, Replica
from penstock.errors import require
from penstock.packed import rows_of
from penstock.vocabulary import NodeId, Offset

_FORMAT_VERSION = 1
_HEAD = struct.Struct(">bH")  # format version, number of voters
_VOTER = struct.Struct(">i16s")


@dataclass(frozen=True, slots=True)
class Voters:
    replicas: tuple[Replica, ...] = ()  # By node.
    are_all_known: bool = field(init=False, repr=False, compare=False)  # Each by its directory, not by its node alone.
    _directories: dict[NodeId, DirectoryId] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        directories = dict(self.replicas)
        require(len(directories) == len(self.replicas), "a node votes once")
        object.__setattr__(self, "replicas", tuple(sorted(self.replicas)))
        object.__setattr__(self, "are_all_known", ANY_DIRECTORY not in directories.values())
        object.__setattr__(self, "_directories", directories)

    @property
    def majority(self) -> int:
        """How many make one. Of no voters, more than there are."""
        return len(self.replicas) // 2 + 1

    def has(self, replica: Replica) -> bool:
        return self._directories.get(replica.node) in (replica.directory, ANY_DIRECTORY)

    def directory_of(self, node: NodeId) -> DirectoryId | None:
        return self._directories.get(node)

    def reached_by_majority(self, reached: Callable[[Replica], int]) -> int:
        """The most that a majority has reached; 0 of no voters."""
        if not self.replicas:
            return 0
        return sorted(map(reached, self.replicas), reverse=True)[self.majority - 1]

    def is_majority(self, nodes: Iterable[NodeId]) -> bool:
        return len([node for node in nodes if node in self._directories]) >= self.majority

    def plus(self, replica: Replica) -> "Voters":
        return Voters((*self.replicas, replica))

    def minus(self, replica: Replica) -> "Voters":
        return Voters(tuple(one for one in self.replicas if one != replica))

    def pinned(self, replica: Replica) -> "Voters":
        """The same nodes, with the directory of one of them written down."""
        return Voters(tuple(replica if one.node == replica.node else one for one in self.replicas))

    def encode(self) -> bytes:
        return _HEAD.pack(_FORMAT_VERSION, len(self.replicas)) + b"".join(_VOTER.pack(*replica) for replica in self.replicas)

    @classmethod
    def decode(cls, payload: bytes) -> "Voters":
        version, count = _HEAD.unpack_from(payload)
        require(version == _FORMAT_VERSION, f"voters are written in format {_FORMAT_VERSION}, not {version}")
        require(len(payload) == _HEAD.size + count * _VOTER.size, "an entry of voters ends where its last voter ends")
        found = rows_of(_VOTER, payload[_HEAD.size :])
        return cls(tuple(Replica(NodeId(node), DirectoryId(directory)) for node, directory in found))


class VotersHistory:
    """Which voters held up to where, as far back as the log goes."""

    __slots__ = ("_ends", "_sets")

    def __init__(self, start: Offset, voters: Voters) -> None:
        self._ends = [start]  # Ends of the entries, in order; each set holds for a log that ends there or later.
        self._sets = [voters]

    @property
    def latest(self) -> Voters:
        return self._sets[-1]

    @property
    def latest_end(self) -> Offset:
        """The end of the entry that the latest voters came with."""
        return self._ends[-1]

    def at(self, end: Offset) -> Voters:
        """The voters that hold for the log below `end`."""
        place = bisect_right(self._ends, end) - 1
        require(place >= 0, "nobody asks who voted before the log begins")
        return self._sets[place]

    def since(self, end: Offset) -> list[Voters]:
        """The voters at `end`, and every set that came later: each of them may turn out to hold."""
        return self._sets[max(bisect_right(self._ends, end) - 1, 0) :]

    def add(self, end: Offset, voters: Voters) -> None:
        require(end > self._ends[-1], "voters change in the order of the log")
        self._ends.append(end)
        self._sets.append(voters)

    def cut(self, end: Offset) -> None:
        """The log is cut to this end: voters that came later never held."""
        while len(self._ends) > 1 and self._ends[-1] > end:
            self._ends.pop()
            self._sets.pop()

    def forget_before(self, start: Offset) -> None:
        """The log now begins here; what held there still holds."""
        while len(self._ends) > 1 and self._ends[1] <= start:
            del self._ends[0], self._sets[0]
