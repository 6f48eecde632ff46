"""ShareFetch and ShareAcknowledge, versions 1 and 2: their replies, written as a list of pieces that is never joined.

Record bytes go from the log to the socket as they are: whole batches, of which the ranges of acquired records say which records are meant.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from penstock.vocabulary import Buffer, TopicId
from penstock.wire import fields
from penstock.wire.fields import Endpoint, compact_count, compact_string
from penstock.wire.frames import LENGTH
from penstock.wire.varints import uvarint

_RENEWS_FROM = 2
_HEAD = Struct(">iBih")  # Correlation id, no tagged fields of the header, throttle time, error.
_ROW = Struct(">ih")
_CODE = Struct(">h")
_LEADER = Struct(">iiB")
_RANGE = Struct(">qqhB")

NO_LEADER = (-1, -1)


class Acquired(NamedTuple):
    first_offset: int
    last_offset: int
    delivery_count: int


class SharedRow(NamedTuple):
    """One partition of a reply. A reply to ShareAcknowledge has none of the fetched."""

    partition: int
    error_code: int = 0
    error_message: str | None = None
    acknowledge_code: int = 0
    acknowledge_message: str | None = None
    leader: tuple[int, int] = NO_LEADER  # Node and epoch, for a reader that asked the wrong node.
    records: Sequence[Buffer] = ()
    acquired: Sequence[Acquired] = ()


Rows = Mapping[TopicId, Sequence[SharedRow]]


def write_share_fetch_response(
    correlation_id: int,
    rows: Rows,
    *,
    error_code: int = 0,
    error_message: str | None = None,
    lock_ms: int = 0,
    node_endpoints: Sequence[Endpoint] = (),
) -> list[Buffer]:
    """A whole frame in pieces."""
    pieces: list[Buffer] = []
    small = (
        _HEAD.pack(correlation_id, 0, 0, error_code) + compact_string(error_message) + fields.INT.pack(lock_ms) + compact_count(len(rows))
    )
    for topic_id, partitions in rows.items():
        small += topic_id + compact_count(len(partitions))
        for row in partitions:
            small += _ROW.pack(row.partition, row.error_code) + compact_string(row.error_message)
            small += _CODE.pack(row.acknowledge_code) + compact_string(row.acknowledge_message) + _LEADER.pack(*row.leader, 0)
            small += uvarint(sum(map(len, row.records)) + 1)
            if row.records:
                pieces += (small, *row.records)
                small = b""
            small += compact_count(len(row.acquired)) + b"".join([_RANGE.pack(*each, 0) for each in row.acquired]) + b"\0"
        small += b"\0"
    return _framed(pieces, small + _endpoints(node_endpoints))


def write_share_acknowledge_response(
    version: int,
    correlation_id: int,
    rows: Rows,
    *,
    error_code: int = 0,
    error_message: str | None = None,
    lock_ms: int = 0,
    node_endpoints: Sequence[Endpoint] = (),
) -> list[Buffer]:
    small = _HEAD.pack(correlation_id, 0, 0, error_code) + compact_string(error_message)
    if version >= _RENEWS_FROM:
        small += fields.INT.pack(lock_ms)
    small += compact_count(len(rows))
    for topic_id, partitions in rows.items():
        small += topic_id + compact_count(len(partitions))
        for row in partitions:
            small += _ROW.pack(row.partition, row.error_code) + compact_string(row.error_message) + _LEADER.pack(*row.leader, 0) + b"\0"
        small += b"\0"
    return _framed([], small + _endpoints(node_endpoints))


def _endpoints(endpoints: Sequence[Endpoint]) -> bytes:
    rows = [
        fields.INT.pack(node) + compact_string(host) + fields.INT.pack(port) + compact_string(rack) + b"\0"
        for node, host, port, rack in endpoints
    ]
    return compact_count(len(rows)) + b"".join(rows) + b"\0"


def _framed(pieces: list[Buffer], small: bytes) -> list[Buffer]:
    pieces.append(small)
    pieces[0] = LENGTH.pack(sum(map(len, pieces))) + bytes(pieces[0])
    return pieces
