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

# A whole front: length, header, no error, the lock's time, and one topic with one partition, of which nothing is wrong.
_PLAIN_FRONT = Struct(">iiBihBiB16sBihBhBiiB")
_ENDS = b"\0\0\1\0"  # Tagged fields of the partition and of the topic, no endpoints, tagged fields of it all.

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


def write_acquired_response(
    correlation_id: int, topic_id: TopicId, partition: int, records: Sequence[Buffer], acquired: Sequence[Acquired], *, lock_ms: int
) -> list[Buffer]:
    """What nearly all replies to a share fetch are: records of one partition, and nothing else. The same bytes as by the other way."""
    size = sum(map(len, records))
    front = uvarint(size + 1)
    tail = compact_count(len(acquired)) + b"".join([_RANGE.pack(first, last, count, 0) for first, last, count in acquired]) + _ENDS
    length = _PLAIN_FRONT.size - LENGTH.size + len(front) + size + len(tail)
    plain = _PLAIN_FRONT.pack(length, correlation_id, 0, 0, 0, 0, lock_ms, 2, topic_id, 2, partition, 0, 0, 0, 0, *NO_LEADER, 0)
    return [plain + front, *records, tail]


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
