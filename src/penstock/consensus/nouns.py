"""The nouns of consensus.

Raft counts entries from one and speaks of the last; here an entry stands at an `Offset`, as everywhere in the house, and ranges are
half-open: `end` is the offset after the last, so an empty log ends at 0, and `committed_end` says that every entry below it is committed.
A replica is a node and the directory that it keeps its log in (KIP-853). A node that comes back with an empty disk has a new directory and
is another replica: it cannot vote a second time for what the lost disk had promised.
"""

from enum import IntEnum
from typing import NamedTuple, NewType

from penstock.vocabulary import NodeId

# Grows with every election; at most one leader for each. Kafka's leader epoch of the metadata partition.
Term = NewType("Term", int)

# Sixteen bytes, random, given when a disk is formatted.
DirectoryId = NewType("DirectoryId", bytes)

# Stands for the directory of a voter that was named by its node alone, until a leader has heard from it and written down what it said.
ANY_DIRECTORY = DirectoryId(bytes(16))

NO_TERM = Term(0)


class Replica(NamedTuple):
    node: NodeId
    directory: DirectoryId


class Kind(IntEnum):
    """What an entry is. The numbers are on disks."""

    OFFICE = 0  # The first entry of a leader, empty: when it is committed, so is everything before it.
    PAYLOAD = 1  # The shell's bytes, never looked into.
    VOTERS = 2  # A new set of voters, which holds from the moment it is written.


class Entry(NamedTuple):
    term: Term
    kind: Kind
    payload: bytes
