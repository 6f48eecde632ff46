"""Metadata, versions 0 to 13: which nodes there are and who leads what.

Clients ask often and the answer seldom changes, so a topic is encoded once per version and kept by the caller as bytes; a reply is a head,
those bytes, and a tail. Requests come through the schemas into a shape that is the same for all versions.
Topic ids from version 10 (KIP-516), asked by id from 12; leader epochs from 7 (KIP-320); a reply may fail as a whole from 13.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from penstock.vocabulary import NO_TOPIC_ID, Buffer, TopicId
from penstock.wire import fields, schemas
from penstock.wire.api_keys import ApiKey
from penstock.wire.fields import Endpoint
from penstock.wire.frames import LENGTH, whole_frame

NO_OPERATIONS = -(2**31)  # Authorized operations were not asked for.

_FLEXIBLE_FROM = 9
_RACK_FROM = 1
_CONTROLLER_FROM = 1
_CLUSTER_ID_FROM = 2
_THROTTLE_FROM = 3
_OFFLINE_FROM = 5
_LEADER_EPOCH_FROM = 7
_OPERATIONS_FROM = 8
_CLUSTER_OPERATIONS_UNTIL = 10
_TOPIC_IDS_FROM = 10
_NAME_NULLABLE_FROM = 12
_ERROR_FROM = 13


class TopicWish(NamedTuple):
    name: str | None  # None when asked by id.
    topic_id: TopicId


class MetadataRequest(NamedTuple):
    topics: list[TopicWish] | None  # None asks for all, an empty list for none.
    allow_auto_creation: bool
    with_cluster_operations: bool
    with_topic_operations: bool


class PartitionDescription(NamedTuple):
    """One partition of a topic. Any tuple of the same shape will do."""

    error_code: int
    partition: int
    leader_id: int
    leader_epoch: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    offline: Sequence[int] = ()


PartitionRow = tuple[int, int, int, int, Sequence[int], Sequence[int], Sequence[int]]


def read_metadata_request(frame: Buffer, at: int, version: int) -> MetadataRequest:
    request = schemas.read_request(ApiKey.METADATA, version, frame, at)
    topics = None
    if request.topics or (request.topics is not None and version > 0):  # In version 0 an empty list asks for all.
        topics = [TopicWish(topic.name, schemas.topic_id_bytes(getattr(topic, "topic_id", None))) for topic in request.topics]
    return MetadataRequest(
        topics,
        getattr(request, "allow_auto_topic_creation", True),
        getattr(request, "include_cluster_authorized_operations", False),
        getattr(request, "include_topic_authorized_operations", False),
    )


def encode_topic(
    version: int,
    *,
    name: str | None,
    topic_id: bytes = NO_TOPIC_ID,
    error_code: int = 0,
    is_internal: bool = False,
    partitions: Sequence[PartitionRow] = (),
    authorized_operations: int = NO_OPERATIONS,
) -> bytes:
    """One topic, to be kept and given to `write_metadata_response` of the same version. A name may be None from version 12."""
    count, string, end = fields.shapes(version >= _FLEXIBLE_FROM)
    pieces = [fields.SHORT.pack(error_code), string(name if version >= _NAME_NULLABLE_FROM else name or "")]
    if version >= _TOPIC_IDS_FROM:
        pieces.append(topic_id)
    if version >= _CONTROLLER_FROM:
        pieces.append(b"\1" if is_internal else b"\0")
    pieces.append(count(len(partitions)))
    pieces += (_encode_partition(version, row) for row in partitions)
    if version >= _OPERATIONS_FROM:
        pieces.append(LENGTH.pack(authorized_operations))
    pieces.append(end)
    return b"".join(pieces)


def write_metadata_response(
    version: int,
    correlation_id: int,
    *,
    brokers: Sequence[Endpoint],
    cluster_id: str | None,
    controller_id: int,
    topic_pieces: Sequence[bytes],
    throttle_ms: int = 0,
    cluster_authorized_operations: int = NO_OPERATIONS,
    error_code: int = 0,
) -> bytes:
    """A whole frame."""
    count, string, end = fields.shapes(version >= _FLEXIBLE_FROM)
    pieces = [LENGTH.pack(correlation_id), end]
    if version >= _THROTTLE_FROM:
        pieces.append(LENGTH.pack(throttle_ms))
    pieces.append(count(len(brokers)))
    for node_id, host, port, rack in brokers:
        pieces += (LENGTH.pack(node_id), string(host), LENGTH.pack(port), string(rack) if version >= _RACK_FROM else b"", end)
    if version >= _CLUSTER_ID_FROM:
        pieces.append(string(cluster_id))
    if version >= _CONTROLLER_FROM:
        pieces.append(LENGTH.pack(controller_id))
    pieces.append(count(len(topic_pieces)))
    pieces += topic_pieces
    if _OPERATIONS_FROM <= version <= _CLUSTER_OPERATIONS_UNTIL:
        pieces.append(LENGTH.pack(cluster_authorized_operations))
    if version >= _ERROR_FROM:
        pieces.append(fields.SHORT.pack(error_code))
    pieces.append(end)
    return whole_frame(pieces)


_PARTITION = Struct(">hii")
_PARTITION_WITH_EPOCH = Struct(">hiii")


def _encode_partition(version: int, row: PartitionRow) -> bytes:
    error_code, partition, leader_id, leader_epoch, replicas, in_sync, offline = row
    flexible = version >= _FLEXIBLE_FROM
    if version >= _LEADER_EPOCH_FROM:
        front = _PARTITION_WITH_EPOCH.pack(error_code, partition, leader_id, leader_epoch)
    else:
        front = _PARTITION.pack(error_code, partition, leader_id)
    nodes = fields.int_array(replicas, flexible) + fields.int_array(in_sync, flexible)
    if version >= _OFFLINE_FROM:
        nodes += fields.int_array(offline, flexible)
    return front + nodes + (b"\0" if flexible else b"")
