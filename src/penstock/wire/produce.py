"""Produce, versions 3 to 13: requests read without copying a record, replies written in one go.

This is the hottest message there is, so it is plain functions, precompiled structs and tuples. A topic is named by a string up to version
12 and by its sixteen-byte id from 13 (KIP-516); versions 9 and up are flexible. Records come as slices of the frame: to be stamped in
place, the frame must be writable, and it must outlive them.
Not here: what is inside the records, and whether the request may be served.
"""

from collections.abc import Sequence
from struct import Struct, error
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire import fields
from penstock.wire.fields import Endpoint, Rows, read_compact_count, read_compact_string, read_count, read_string, skip_tagged
from penstock.wire.frames import LENGTH, whole_frame
from penstock.wire.varints import read_uvarint, uvarint

Topic = str | bytes  # A name up to version 12, an id from 13.
PartitionRecords = tuple[int, memoryview | None]  # Partition index and its records.

_FLEXIBLE_FROM = 9
_TOPIC_IDS_FROM = 13
_LEADERS_FROM = 10  # Replies name the current leader and its address (KIP-951).
_RECORD_ERRORS_FROM = 8
_LOG_START_FROM = 5

_NO_TRANSACTION = Struct(">hhi")  # Length -1, acks, time-out: what follows nearly every classic header.
_ACKS = Struct(">hi")
_PARTITION = Struct(">ii")  # Index, length of the records.


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[Topic, list[PartitionRecords]]]


# Version, correlation id, acks, time-out, topic, partition, records: all that a request of the usual shape says.
Single = tuple[int, int, int, int, Topic, int, memoryview]

if TYPE_CHECKING:

    def read_single(frame: memoryview) -> Single | None:
        """A whole request frame with one batch for one partition, no transaction and no tagged fields: what clients send when every
        microsecond counts. None for any other frame, and for every frame where the compiled reader was not built: read that in full."""
else:
    try:
        from penstock.wire._requests import read_single
    except ImportError:

        def read_single(frame: memoryview) -> Single | None:
            return None


class ProducedPartition(NamedTuple):
    """One row of a reply. Any tuple of the same shape will do."""

    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1  # Only for topics that stamp the time of append.
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()  # Index in the batch and what is wrong with it.
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None  # Node and leader epoch, for a client that asked the wrong node.


ProducedRow = tuple[int, int, int, int, int, Sequence[tuple[int, str | None]], str | None, tuple[int, int] | None]


def read_produce_request(frame: Buffer, at: int, version: int) -> ProduceRequest:
    view = frame if type(frame) is memoryview else memoryview(frame)
    try:
        return _read_flexible(view, at, version) if version >= _FLEXIBLE_FROM else _read_classic(view, at)
    except error:
        raise MalformedInput("a produce request is cut off") from None


def write_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[Topic, Sequence[ProducedRow]]],
    *,
    throttle_ms: int = 0,
    node_endpoints: Sequence[Endpoint] = (),
) -> bytes:
    """A whole frame. `node_endpoints` says where the named leaders are: node, host, port, rack."""
    if version < _FLEXIBLE_FROM:
        return _write_classic(version, correlation_id, topics, throttle_ms)
    pieces = [_CORRELATION_FLEXIBLE.pack(correlation_id, 0), uvarint(len(topics) + 1)]
    for topic, partitions in topics:
        pieces += (topic if isinstance(topic, bytes) else fields.compact_string(topic), uvarint(len(partitions) + 1))
        for index, error_code, base_offset, time, log_start, record_errors, message, leader in partitions:
            if error_code:
                pieces.append(_ROW.pack(index, error_code, base_offset, time, log_start))
                pieces.append(_flexible_failure(version, record_errors, message, leader))
            else:
                pieces.append(_FLEXIBLE_SUCCESS.pack(index, 0, base_offset, time, log_start, 1, 0, 0))
        pieces.append(b"\0")
    pieces.append(LENGTH.pack(throttle_ms))
    pieces.append(fields.endpoints_section(node_endpoints) if version >= _LEADERS_FROM else b"\0")
    return whole_frame(pieces)


class SingleReply:
    """The reply to one batch of one partition, of which only a few fields differ from request to request."""

    __slots__ = ("_after", "_between", "_length", "_pack_offsets")

    def __init__(self, version: int, topic: Topic, partition: int) -> None:
        row = ProducedPartition(partition, 0, _MARK, _MARK, _MARK)
        whole = write_produce_response(version, 0, [(topic, [row])])
        offsets = _THREE_LONGS if version >= _LOG_START_FROM else _LONGS
        marked = whole.index(offsets.pack(*[_MARK] * (offsets.size // 8)))
        self._length = whole[:4]
        self._between = whole[8:marked]
        self._after = whole[marked + offsets.size :]
        self._pack_offsets = offsets.pack if version >= _LOG_START_FROM else _pack_two

    def write(self, correlation_id: int, base_offset: int, append_time_ms: int, log_start_offset: int) -> bytes:
        offsets = self._pack_offsets(base_offset, append_time_ms, log_start_offset)
        return b"".join((self._length, LENGTH.pack(correlation_id), self._between, offsets, self._after))


_MARK = 0x7D7D7D7D7D7D7D7D  # Stands for a field while the rest of the reply is laid out; no topic name has this byte.
_THREE_LONGS = Struct(">qqq")
_LONGS = Struct(">qq")


def _pack_two(base_offset: int, append_time_ms: int, log_start_offset: int) -> bytes:
    return _LONGS.pack(base_offset, append_time_ms)


_CORRELATION_FLEXIBLE = Struct(">iB")
_PAIR = Struct(">ii")
_ROW = Struct(">ihqqq")
_ROW_BEFORE_LOG_START = Struct(">ihqq")
_FLEXIBLE_SUCCESS = Struct(">ihqqqBBB")  # No record errors, no message, no tagged fields.
_NO_FAILURE = fields.count(0) + fields.string(None)


def _write_classic(version: int, correlation_id: int, topics: Sequence[tuple[Topic, Sequence[ProducedRow]]], throttle_ms: int) -> bytes:
    pieces = [_PAIR.pack(correlation_id, len(topics))]
    for topic, partitions in topics:
        pieces += (fields.string(str(topic)), LENGTH.pack(len(partitions)))
        for index, error_code, base_offset, time, log_start, record_errors, message, _ in partitions:
            if version >= _LOG_START_FROM:
                pieces.append(_ROW.pack(index, error_code, base_offset, time, log_start))
            else:
                pieces.append(_ROW_BEFORE_LOG_START.pack(index, error_code, base_offset, time))
            if version >= _RECORD_ERRORS_FROM:
                pieces.append(_classic_failure(record_errors, message) if error_code else _NO_FAILURE)
    pieces.append(LENGTH.pack(throttle_ms))
    return whole_frame(pieces)


def _classic_failure(record_errors: Sequence[tuple[int, str | None]], message: str | None) -> bytes:
    rows = [LENGTH.pack(index) + fields.string(reason) for index, reason in record_errors]
    return fields.count(len(rows)) + b"".join(rows) + fields.string(message)


def _flexible_failure(
    version: int, record_errors: Sequence[tuple[int, str | None]], message: str | None, leader: tuple[int, int] | None
) -> bytes:
    rows = [LENGTH.pack(index) + fields.compact_string(reason) + b"\0" for index, reason in record_errors]
    section = b"\0" if leader is None or version < _LEADERS_FROM else fields.tagged([(0, _PAIR.pack(*leader) + b"\0")])
    return fields.compact_count(len(rows)) + b"".join(rows) + fields.compact_string(message) + section


def _read_classic(view: memoryview, at: int) -> ProduceRequest:
    end = len(view)
    transactional_id = None
    length, acks, timeout_ms = _NO_TRANSACTION.unpack_from(view, at)
    at += _NO_TRANSACTION.size
    if length != -1:
        transactional_id, at = read_string(view, at - _NO_TRANSACTION.size, end)
        acks, timeout_ms = _ACKS.unpack_from(view, at)
        at += _ACKS.size
    topic_count, at = read_count(view, at, end)
    rows = Rows()
    rows.count(topic_count)
    topics: list[tuple[Topic, list[PartitionRecords]]] = []
    for _ in range(topic_count):
        name, at = read_string(view, at, end)
        partition_count, at = read_count(view, at, end)
        rows.count(partition_count)
        partitions: list[PartitionRecords] = []
        for _ in range(partition_count):
            index, size = _PARTITION.unpack_from(view, at)
            at += _PARTITION.size
            records, at = _cut(view, at, size, end)
            partitions.append((index, records))
        topics.append((name, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_flexible(view: memoryview, at: int, version: int) -> ProduceRequest:
    end = len(view)
    transactional_id, at = fields.read_nullable_compact_string(view, at, end)
    acks, timeout_ms = _ACKS.unpack_from(view, at)
    topic_count, at = read_compact_count(view, at + _ACKS.size, end)
    rows = Rows()
    rows.count(topic_count)
    topics: list[tuple[Topic, list[PartitionRecords]]] = []
    for _ in range(topic_count):
        topic, at = fields.read_id(view, at, end) if version >= _TOPIC_IDS_FROM else read_compact_string(view, at, end)
        partition_count, at = read_compact_count(view, at, end)
        rows.count(partition_count)
        partitions: list[PartitionRecords] = []
        for _ in range(partition_count):
            index, at = fields.read_int(view, at, end)
            size, at = read_uvarint(view, at, end)
            records, at = _cut(view, at, size - 1, end)
            at = skip_tagged(view, at, end)
            partitions.append((index, records))
        at = skip_tagged(view, at, end)
        topics.append((topic, partitions))
    skip_tagged(view, at, end)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _cut(view: memoryview, at: int, size: int, end: int) -> tuple[memoryview | None, int]:
    if size < 0:
        if size == -1:
            return None, at
        raise MalformedInput("records have a negative length")
    stop = at + size
    if stop > end:
        raise MalformedInput("records reach past their frame")
    return view[at:stop], stop
