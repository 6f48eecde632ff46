"""The records of the metadata log: facts about the cluster, in the order in which they became true.

On disk a record is two big-endian int16 (kind, version) and a JSON object. Few are written and all are read by people now and then,
so clarity beats size. A kind or version that this node doesn't know stops it from starting: guessing at metadata loses data.
A new field gets a new version and a default for the old one; a number is never used again for something else.
"""

import json
import struct
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.errors import BrokenPromise
from penstock.vocabulary import LeaderEpoch, NodeId, ProducerId, TopicId

EVERY_NODE = NodeId(-1)

_KIND_AND_VERSION = struct.Struct(">hh")


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


@dataclass(frozen=True, slots=True)
class Placement:
    """One partition as it was made: who holds it, who of them is in sync, who leads in which epoch."""

    replicas: tuple[NodeId, ...]
    in_sync: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: LeaderEpoch = LeaderEpoch(0)  # noqa: RUF009 - a NewType of int is as immutable as an int


@dataclass(frozen=True, slots=True)
class TopicCreated:
    name: str
    topic_id: TopicId
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
class NodeConfigured:
    """What a node does otherwise than it was started to do: all of it, so that what isn't named holds as it was started again."""

    node_id: NodeId  # Or EVERY_NODE: what holds where a node has no word of its own.
    overrides: dict[str, str]


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class TopicBuried:
    """The files of a deleted topic are gone from this node: nothing more is owed for it."""

    topic_id: TopicId
    node_id: NodeId


@dataclass(frozen=True, slots=True)
class LeadershipResumed:
    """A node came back without a clean stop and leads again what it led: each of those partitions begins a new leader epoch.

    What was never flushed may be gone. Clients compare epochs and so learn that offsets past the cut are other records now.
    """

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class ProducerBlockTaken:
    node_id: NodeId
    first: ProducerId
    size: int


Record = (
    ClusterFormed | NodeRegistered | TopicCreated | PartitionsAdded | TopicConfigured | TopicDeleted | TopicBuried
    | LeadershipResumed | ProducerBlockTaken | NodeConfigured
)  # fmt: skip

# kind number -> (class, newest version this node writes and reads)
KINDS: dict[int, tuple[type[Any], int]] = {
    1: (ClusterFormed, 1),
    2: (NodeRegistered, 1),
    3: (TopicCreated, 1),
    4: (TopicConfigured, 1),
    5: (TopicDeleted, 1),
    6: (TopicBuried, 1),
    7: (LeadershipResumed, 1),
    8: (ProducerBlockTaken, 1),
    9: (PartitionsAdded, 1),
    10: (NodeConfigured, 1),
}
_NUMBER_OF = {kind: number for number, (kind, _) in KINDS.items()}


def encode(record: Record) -> bytes:
    number = _NUMBER_OF[type(record)]
    return _KIND_AND_VERSION.pack(number, KINDS[number][1]) + json.dumps(_plain(asdict(record)), separators=(",", ":")).encode()


def decode(payload: bytes) -> Record:
    if len(payload) < _KIND_AND_VERSION.size:
        raise BrokenPromise("a metadata record has at least a kind and a version")
    number, version = _KIND_AND_VERSION.unpack_from(payload)
    kind, newest = KINDS.get(number, (None, 0))
    if kind is None or version > newest:
        raise UnknownRecord(f"metadata record of kind {number}, version {version}: start a newer Penstock on this data directory")
    body = json.loads(payload[_KIND_AND_VERSION.size :])
    if "topic_id" in body:
        body["topic_id"] = TopicId(bytes.fromhex(body["topic_id"]))
    if "partitions" in body:
        body["partitions"] = tuple(_placement(row) for row in body["partitions"])
    return kind(**body)  # type: ignore[no-any-return]


def _placement(row: dict[str, Any]) -> Placement:
    return Placement(tuple(row["replicas"]), tuple(row["in_sync"]), row["leader"], row["leader_epoch"])


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value
