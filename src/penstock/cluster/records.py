"""The records of the metadata log: facts about the cluster, in the order in which they became true.

On disk a record is two big-endian int16 (kind, version) and a JSON object. Few are written and all are read by people now and then,
so clarity beats size. A kind or version that this node doesn't know stops it from starting: guessing at metadata loses data.
A new field gets a new version and a default for the old one; a number is never used again for something else.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.cluster.plain import Codec, UnknownKind
from penstock.errors import BrokenPromise, MalformedInput
from penstock.vocabulary import NO_NODE, LeaderEpoch, NodeId, ProducerId, TopicId

EVERY_NODE = NodeId(-1)
BROKER, CONTROLLER = "broker", "controller"


class UnknownRecord(Exception):
    """Written by a newer Penstock than this one."""


@dataclass(frozen=True, slots=True)
class ClusterFormed:
    cluster_id: str


@dataclass(frozen=True, slots=True)
class NodeRegistered:
    """A node came up. Its node epoch grows with each start, so that an older life of it can be told apart."""

    node_id: NodeId
    node_epoch: int
    directory_id: str
    host: str
    port: int
    rack: str | None = None
    peer_host: str = ""  # Where other nodes reach it; empty for a node that is a cluster of its own.
    peer_port: int = 0
    roles: tuple[str, ...] = (BROKER, CONTROLLER)
    is_fenced: bool = False  # Version 1 knew no fences.
    has_new_disk: bool = False  # It held partitions under this number before, with another data directory.
    flush_defaults: dict[str, str] | None = None  # What it was started with of what tells when it flushes. Before version 3 none said so.


@dataclass(frozen=True, slots=True)
class NodeFenced:
    """Nothing was heard of it for too long: it leads nothing and is in sync with nothing until it is unfenced."""

    node_id: NodeId
    node_epoch: int


@dataclass(frozen=True, slots=True)
class NodeUnfenced:
    node_id: NodeId
    node_epoch: int


@dataclass(frozen=True, slots=True)
class NodeStopping:
    """It asked for leave: it gets no leadership and joins no in-sync set any more in this life."""

    node_id: NodeId
    node_epoch: int


@dataclass(frozen=True, slots=True)
class NodeDiskReported:
    """The node said whether its disk is nearly full. That holds until it says otherwise, also when it registers again with this disk."""

    node_id: NodeId
    node_epoch: int
    is_full: bool


@dataclass(frozen=True, slots=True)
class NodeUnregistered:
    node_id: NodeId
    node_epoch: int  # Its last one: should it come back, it begins above.


@dataclass(frozen=True, slots=True)
class Placement:
    """One partition as it was made: who holds it, who of them is in sync, who leads in which epoch. The fields are PartitionState's."""

    replicas: tuple[NodeId, ...]
    in_sync: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: LeaderEpoch = LeaderEpoch(0)  # noqa: RUF009 - a NewType of int is as immutable as an int
    partition_epoch: int = 0
    eligible: tuple[NodeId, ...] = ()
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()
    last_leader: NodeId = NO_NODE


class PartitionChange(NamedTuple):
    """The whole new state of one partition, so that it may be replayed twice. What each field promises stands at PartitionState."""

    topic_id: TopicId
    partition: int
    replicas: tuple[NodeId, ...]
    in_sync: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    eligible: tuple[NodeId, ...] = ()
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()
    last_leader: NodeId = NO_NODE


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    changes: tuple[PartitionChange, ...]


@dataclass(frozen=True, slots=True)
class TopicCreated:
    name: str
    topic_id: TopicId
    partitions: tuple[Placement, ...]
    overrides: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompanionMade:
    """A topic got a companion, which has its ledger: as many partitions, on the same replicas, under the same leaders, for good."""

    topic_id: TopicId
    companion_id: TopicId
    partitions: tuple[Placement, ...]
    overrides: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """They follow those that the topic has."""

    topic_id: TopicId
    partitions: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class TopicConfigured:
    """The topic's overrides, all of them: what isn't named is back at its default."""

    topic_id: TopicId
    overrides: dict[str, str]


@dataclass(frozen=True, slots=True)
class FlushPromised:
    """From now on these topics are acknowledged after the flush by nodes that did not wait for it until now, each in this life of it."""

    topics: tuple[TopicId, ...]
    lives: tuple[tuple[NodeId, int], ...]  # (node, its node epoch)


@dataclass(frozen=True, slots=True)
class NodeConfigured:
    """What a node does otherwise than it was started to do: all of it, so that what isn't named holds as it was started again."""

    node_id: NodeId  # Or EVERY_NODE: what holds where a node has no word of its own.
    overrides: dict[str, str]


@dataclass(frozen=True, slots=True)
class GroupConfigured:
    """What a group was told, all of it: what isn't named is as the nodes have it for all groups. The group need not be there."""

    group: str
    overrides: dict[str, str]


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    topic_id: TopicId
    holders: tuple[NodeId, ...] | None = None  # Whose disks have files of it; None: those that the image names.


@dataclass(frozen=True, slots=True)
class TopicBuried:
    """The files of a deleted topic are gone from this node: nothing more is owed for it."""

    topic_id: TopicId
    node_id: NodeId


@dataclass(frozen=True, slots=True)
class LeadershipResumed:
    """A node came back without a clean stop and leads again what it led: each of those partitions begins a new leader epoch.

    Only read, from logs of the time before PartitionsChanged.
    """

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class ProducerBlockTaken:
    node_id: NodeId
    first: ProducerId
    size: int


OfNode = NodeRegistered | NodeFenced | NodeUnfenced | NodeStopping | NodeDiskReported | NodeUnregistered
OfTopic = TopicCreated | CompanionMade | PartitionsAdded | TopicConfigured | TopicDeleted | TopicBuried | FlushPromised
Record = OfNode | OfTopic | ClusterFormed | PartitionsChanged | LeadershipResumed | ProducerBlockTaken | NodeConfigured | GroupConfigured

# kind number -> (class, newest version this node writes and reads)
KINDS: dict[int, tuple[type[Any], int]] = {
    1: (ClusterFormed, 1),
    2: (NodeRegistered, 3),
    3: (TopicCreated, 2),
    4: (TopicConfigured, 1),
    5: (TopicDeleted, 2),
    6: (TopicBuried, 1),
    7: (LeadershipResumed, 1),
    8: (ProducerBlockTaken, 1),
    9: (PartitionsAdded, 2),
    10: (NodeConfigured, 1),
    11: (NodeFenced, 1),
    12: (NodeUnfenced, 1),
    13: (NodeStopping, 1),
    14: (NodeUnregistered, 1),
    15: (PartitionsChanged, 1),
    16: (FlushPromised, 1),
    17: (CompanionMade, 1),
    18: (GroupConfigured, 1),
    19: (NodeDiskReported, 1),
}
_CODEC: Codec[Record] = Codec(KINDS)


def encode(record: Record) -> bytes:
    return _CODEC.encode(record)


def decode(payload: bytes) -> Record:
    try:
        return _CODEC.decode(payload)
    except UnknownKind as unknown:
        raise UnknownRecord(f"metadata record of {unknown}: start a newer Penstock on this data directory") from None
    except MalformedInput as malformed:
        raise BrokenPromise(f"a metadata record is what this node wrote: {malformed}") from malformed
