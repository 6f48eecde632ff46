"""What may be asked of the controller: orders, and how they travel to it from another node.

On a link a command is what a record is on disk: kind, version, JSON. To ask twice does no harm, for the controller looks at what holds; but
some of them are refused then, where there is nothing left to do.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from penstock.cluster.configuring import ConfigureGroup, ConfigureNode, ConfigureTopic
from penstock.cluster.plain import Codec, UnknownKind
from penstock.cluster.records import BROKER, CONTROLLER
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NO_NODE, LeaderEpoch, NodeId, TopicId

# Topics


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    topic_id: TopicId  # Drawn by the asker: a decision has no dice.
    partitions: int  # -1: the default
    replication_factor: int = -1  # -1: the default
    overrides: dict[str, str] = field(default_factory=dict)
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopics:
    topics: tuple[NewTopic, ...]


@dataclass(frozen=True, slots=True)
class MakeCompanion:
    """This topic needs a ledger. If it has one, it is answered as when that was made."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class MorePartitions:
    topic: str
    partitions: int  # In all, with those that are there.
    assignments: tuple[tuple[int, ...], ...] | None = None  # The replicas of each new one; None: placed by the controller.


@dataclass(frozen=True, slots=True)
class AddPartitions:
    topics: tuple[MorePartitions, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class BuryTopic:
    """This node has removed the files of a deleted topic."""

    topic_id: TopicId
    node_id: NodeId


@dataclass(frozen=True, slots=True)
class TakeProducerBlock:
    node_id: NodeId


# Nodes


@dataclass(frozen=True, slots=True)
class RegisterNode:
    """A node came up. It is fenced until it says that it has caught up with the metadata (UnfenceNode)."""

    node_id: NodeId
    cluster_id: str  # Forms the cluster where there is none; otherwise it must be this one.
    directory_id: str
    host: str
    port: int
    was_stopped_cleanly: bool
    peer_host: str = ""
    peer_port: int = 0
    roles: tuple[str, ...] = (BROKER, CONTROLLER)
    rack: str | None = None
    flush_defaults: dict[str, str] | None = None  # See promises.py. Before version 2 nobody said so.
    # The node epoch that this registration follows. A registration follows each epoch once, so one that comes twice or late is recognised.
    # None: any, as before version 3.
    previous_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class UnfenceNode:
    node_id: NodeId
    node_epoch: int


@dataclass(frozen=True, slots=True)
class FenceNode:
    node_id: NodeId
    node_epoch: int


@dataclass(frozen=True, slots=True)
class StopNode:
    """The node wants to stop: others shall lead what it leads. It may go when it leads nothing that another could."""

    node_id: NodeId
    node_epoch: int


@dataclass(frozen=True, slots=True)
class ReportDisk:
    """The node's disk is nearly full, or has room again. Others shall lead what a node with a full disk leads."""

    node_id: NodeId
    node_epoch: int
    is_full: bool


@dataclass(frozen=True, slots=True)
class UnregisterNode:
    node_id: NodeId


# Partitions


class InSyncWish(NamedTuple):
    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    in_sync: tuple[tuple[NodeId, int], ...]  # (node, its node epoch as the leader knows it)


@dataclass(frozen=True, slots=True)
class ChangeInSync:
    """A leader's wish; one reply for each partition."""

    node_id: NodeId
    node_epoch: int
    wishes: tuple[InSyncWish, ...]


class DamagedCopy(NamedTuple):
    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch  # As the node knows it: what comes late is about a copy that may have been replaced.
    has_everything: bool = False  # Though some of it cannot be read.
    in_favour_of: NodeId = NO_NODE  # A node of whose copy more can be read, where no copy is whole and the loss is accepted.


@dataclass(frozen=True, slots=True)
class DistrustCopies:
    """A node says that its copies of these partitions lack records that they had, or cannot be read. One reply for each partition."""

    node_id: NodeId
    node_epoch: int
    copies: tuple[DamagedCopy, ...]


class ElectionKind(IntEnum):
    """By Kafka's numbers (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """One reply for each partition named; for None (all of them), one for each that moved or could not."""

    kind: ElectionKind
    partitions: tuple[tuple[str, int], ...] | None


class Reassignment(NamedTuple):
    topic: str
    partition: int
    replicas: tuple[NodeId, ...] | None  # None: back to what held before the one under way.


@dataclass(frozen=True, slots=True)
class ReassignPartitions:
    wishes: tuple[Reassignment, ...]


@dataclass(frozen=True, slots=True)
class Settle:
    """Do what is owed to partitions: see `Controller.owed`."""


Command = (
    CreateTopics | AddPartitions | DeleteTopic | ConfigureTopic | ConfigureNode | TakeProducerBlock | RegisterNode | BuryTopic
    | UnfenceNode | FenceNode | StopNode | UnregisterNode | ChangeInSync | ElectLeaders | ReassignPartitions | Settle | MakeCompanion
    | ConfigureGroup | DistrustCopies | ReportDisk
)  # fmt: skip

# kind number -> (class, newest version this node writes and reads)
KINDS: dict[int, tuple[type[Any], int]] = {
    1: (CreateTopics, 1),
    2: (AddPartitions, 1),
    3: (DeleteTopic, 1),
    4: (ConfigureTopic, 2),
    5: (ConfigureNode, 1),
    6: (TakeProducerBlock, 1),
    7: (RegisterNode, 3),
    8: (BuryTopic, 1),
    9: (UnfenceNode, 1),
    10: (FenceNode, 1),
    11: (StopNode, 1),
    12: (UnregisterNode, 1),
    13: (ChangeInSync, 1),
    14: (ElectLeaders, 1),
    15: (ReassignPartitions, 1),
    16: (Settle, 1),
    17: (MakeCompanion, 1),
    18: (ConfigureGroup, 1),
    19: (DistrustCopies, 1),
    20: (ReportDisk, 1),
}
_CODEC: Codec[Command] = Codec(KINDS)


def encode(command: Command) -> bytes:
    return _CODEC.encode(command)


def decode(payload: bytes) -> Command:
    """Raises Refusal for a command that only a newer node knows, MalformedInput for what is none."""
    try:
        return _CODEC.decode(payload)
    except UnknownKind as unknown:
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION, f"a command of {unknown} is not known here: the controller is older") from None
