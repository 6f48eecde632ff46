"""ListOffsets, versions 1 to 11: where a partition begins, ends, or reaches a time.

Requests come through the schemas (they are rare) into a shape that is the same for all versions; replies are written by hand.
The timestamp of a request may be one of the names below; 8 brought the local log start, 9 the tiered offset, 11 the pending upload, of
which a node without tiered storage has none.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from penstock.vocabulary import Buffer
from penstock.wire import fields, schemas
from penstock.wire.api_keys import ApiKey
from penstock.wire.frames import LENGTH, whole_frame

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3  # From version 7 (KIP-734).
EARLIEST_LOCAL = -4  # From version 8 (KIP-405).
LATEST_TIERED = -5  # From version 9 (KIP-1005).
EARLIEST_PENDING_UPLOAD = -6  # From version 11 (KIP-1023).

_FLEXIBLE_FROM = 6
_THROTTLE_FROM = 2
_LEADER_EPOCH_FROM = 4


class OffsetWish(NamedTuple):
    partition: int
    leader_epoch: int  # What the client believes; -1 when it does not say.
    timestamp: int


class ListOffsetsRequest(NamedTuple):
    replica_id: int
    isolation_level: int  # 0 read uncommitted, 1 read committed.
    topics: list[tuple[str, list[OffsetWish]]]
    timeout_ms: int  # -1 before version 10.


class OffsetFound(NamedTuple):
    """One row of a reply. Any tuple of the same shape will do."""

    partition: int
    error_code: int
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


def read_list_offsets_request(frame: Buffer, at: int, version: int) -> ListOffsetsRequest:
    request = schemas.read_request(ApiKey.LIST_OFFSETS, version, frame, at)
    topics = [(topic.name, [_wish(partition) for partition in topic.partitions]) for topic in request.topics]
    isolation_level = getattr(request, "isolation_level", 0)
    return ListOffsetsRequest(request.replica_id, isolation_level, topics, schemas.milliseconds(getattr(request, "timeout", None)))


def write_list_offsets_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str, Sequence[tuple[int, int, int, int, int]]]],
    *,
    throttle_ms: int = 0,
) -> bytes:
    """A whole frame."""
    count, string, end = fields.shapes(version >= _FLEXIBLE_FROM)
    pieces = [LENGTH.pack(correlation_id), end]
    if version >= _THROTTLE_FROM:
        pieces.append(LENGTH.pack(throttle_ms))
    pieces.append(count(len(topics)))
    for name, rows in topics:
        pieces += (string(name), count(len(rows)))
        for row in rows:
            pieces += (_ROW.pack(*row) if version >= _LEADER_EPOCH_FROM else _ROW_BEFORE_EPOCH.pack(*row[:4]), end)
        pieces.append(end)
    pieces.append(end)
    return whole_frame(pieces)


_ROW = Struct(">ihqqi")
_ROW_BEFORE_EPOCH = Struct(">ihqq")


def _wish(partition: object) -> OffsetWish:
    return OffsetWish(partition.partition_index, getattr(partition, "current_leader_epoch", -1), partition.timestamp)  # type: ignore[attr-defined]
