"""Fetch, versions 4 to 18: requests read in bulk, replies written as a list of pieces that is never joined.

Partitions of a request have a fixed size, so a whole array of them is unpacked by one call. Record bytes go from the log to the socket as
they are: a reply is header pieces with record slices between them, and the first piece begins with the frame's length.
A topic is named by a string up to version 12 and by its id from 13; versions 12 and up are flexible.
Read and let go: the cluster id of a request, and what only replicas tag onto a partition (directory id, high watermark).
"""

from collections.abc import Sequence
from struct import Struct, error
from typing import Any, NamedTuple

from penstock.errors import MalformedInput
from penstock.packed import rows_of
from penstock.vocabulary import Buffer
from penstock.wire import fields
from penstock.wire.fields import Endpoint, Rows, read_compact_count, read_compact_string, read_count, read_string, skip_tagged
from penstock.wire.frames import LENGTH
from penstock.wire.varints import uvarint

Topic = str | bytes  # A name up to version 12, an id from 13.
Payload = Any  # A buffer, or anything else that knows its length and that whoever writes the pieces can write.

_FLEXIBLE_FROM = 12
_TOPIC_IDS_FROM = 13
_SESSIONS_FROM = 7  # KIP-227
_REPLICA_STATE_FROM = 15  # The replica's id moved to a tagged field.
_RACK_FROM = 11
_LEADER_EPOCH_FROM = 9
_LOG_START_FROM = 5
_ENDPOINTS_FROM = 16
_CONSUMER = -1  # Replica id of everyone who is not a replica.


class FetchPartition(NamedTuple):
    partition: int
    leader_epoch: int  # What the reader believes; -1 when it does not say.
    fetch_offset: int
    last_fetched_epoch: int  # Replicas only.
    log_start_offset: int  # Replicas only.
    bytes_max: int


class FetchRequest(NamedTuple):
    replica_id: int
    max_wait_ms: int
    bytes_min: int
    bytes_max: int
    isolation_level: int  # 0 read uncommitted, 1 read committed.
    session_id: int
    session_epoch: int
    topics: list[tuple[Topic, list[FetchPartition]]]
    forgotten: list[tuple[Topic, list[int]]]
    rack_id: str
    replica_epoch: int


class FetchedPartition(NamedTuple):
    """One row of a reply. Any tuple of the same shape will do."""

    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Payload = b""  # Never null: clients differ on what a null means.
    aborted: Sequence[tuple[int, int]] | None = None  # Producer id and first offset of each aborted transaction.
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None  # For a follower: the epoch and end offset where its log leaves ours.
    current_leader: tuple[int, int] | None = None  # Node and leader epoch, for a reader that asked the wrong node.


FetchedRow = tuple[int, int, int, int, int, Payload, Sequence[tuple[int, int]] | None, int, tuple[int, int] | None, tuple[int, int] | None]


_new_row = tuple.__new__  # Half the cost of calling a named tuple's class, and a request may list thousands.


def read_fetch_request(frame: Buffer, at: int, version: int) -> FetchRequest:
    view = frame if type(frame) is memoryview else memoryview(frame)
    try:
        return _read_flexible(view, at, version) if version >= _FLEXIBLE_FROM else _read_classic(view, at, version)
    except error:
        raise MalformedInput("a fetch request is cut off") from None


def write_fetch_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[Topic, Sequence[FetchedRow]]],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[Endpoint] = (),
) -> list[Payload]:
    """A whole frame in pieces. `error_code` and `session_id` go out from version 7."""
    if version >= _FLEXIBLE_FROM:
        pieces, small = _flexible_topics(topics, _FLEXIBLE_HEAD.pack(correlation_id, 0, throttle_ms, error_code, session_id))
        small += fields.endpoints_section(node_endpoints) if version >= _ENDPOINTS_FROM else b"\0"
    elif version >= _SESSIONS_FROM:
        pieces, small = _classic_topics(version, topics, _SESSION_HEAD.pack(correlation_id, throttle_ms, error_code, session_id))
    else:
        pieces, small = _classic_topics(version, topics, _PAIR.pack(correlation_id, throttle_ms))
    if small:
        pieces.append(small)
    pieces[0] = LENGTH.pack(sum(map(len, pieces))) + pieces[0]
    return pieces


_PAIR = Struct(">ii")
_LONGS = Struct(">qq")
_SESSION_HEAD = Struct(">iihi")
_FLEXIBLE_HEAD = Struct(">iBihi")
_EPOCH_AND_OFFSET = Struct(">iq")
_NO_ABORTED = fields.count(-1)


def _flexible_topics(topics: Sequence[tuple[Topic, Sequence[FetchedRow]]], small: bytes) -> tuple[list[Payload], bytes]:
    """The pieces so far, and the small bytes that wait to be joined to what follows."""
    pieces: list[Payload] = []
    small += uvarint(len(topics) + 1)
    for topic, partitions in topics:
        small += (topic if isinstance(topic, bytes) else fields.compact_string(topic)) + uvarint(len(partitions) + 1)
        for index, code, high, stable, start, records, aborted, replica, diverging, leader in partitions:
            size = len(records)
            if aborted is None:
                small += _FLEXIBLE_ROW.pack(index, code, high, stable, start, 0, replica) + uvarint(size + 1)
            else:
                small += _ROW.pack(index, code, high, stable, start) + _flexible_aborted(aborted) + LENGTH.pack(replica) + uvarint(size + 1)
            if size:
                pieces += (small, records)
                small = b""
            small += b"\0" if diverging is None and leader is None else _tagged_row(diverging, leader)
        small += b"\0"
    return pieces or [b""], small


def _classic_topics(version: int, topics: Sequence[tuple[Topic, Sequence[FetchedRow]]], small: bytes) -> tuple[list[Payload], bytes]:
    pieces: list[Payload] = []
    small += LENGTH.pack(len(topics))
    for topic, partitions in topics:
        small += fields.string(str(topic)) + LENGTH.pack(len(partitions))
        for index, code, high, stable, start, records, aborted, replica, _, _ in partitions:
            if version >= _LOG_START_FROM:
                small += _ROW.pack(index, code, high, stable, start)
            else:
                small += _ROW_BEFORE_LOG_START.pack(index, code, high, stable)
            small += _NO_ABORTED if aborted is None else LENGTH.pack(len(aborted)) + b"".join(_LONGS.pack(*each) for each in aborted)
            if version >= _RACK_FROM:
                small += LENGTH.pack(replica)
            size = len(records)
            small += LENGTH.pack(size)
            if size:
                pieces += (small, records)
                small = b""
    return pieces or [b""], small


_ROW = Struct(">ihqqq")
_ROW_BEFORE_LOG_START = Struct(">ihqq")
_FLEXIBLE_ROW = Struct(">ihqqqBi")  # With no aborted transactions.


def _flexible_aborted(aborted: Sequence[tuple[int, int]]) -> bytes:
    return uvarint(len(aborted) + 1) + b"".join(_LONGS.pack(*each) + b"\0" for each in aborted)


def _tagged_row(diverging: tuple[int, int] | None, leader: tuple[int, int] | None) -> bytes:
    section = []
    if diverging is not None:
        section.append((0, _EPOCH_AND_OFFSET.pack(*diverging) + b"\0"))
    if leader is not None:
        section.append((1, _PAIR.pack(*leader) + b"\0"))
    return fields.tagged(section)


_BEFORE_SESSIONS = Struct(">iiiib")
_CLASSIC_FRONT = Struct(">iiiibii")  # Replica, wait, least and most bytes, isolation, session, its epoch.
_FLEXIBLE_FRONT = Struct(">iiibii")  # The same without the replica.
_PARTITION_4 = Struct(">iqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_12 = Struct(">iiqiqi")
_PARTITION_12_UNTAGGED = Struct(">iiqiqix")  # And the byte that says that no tagged fields follow.


def _read_classic(view: memoryview, at: int, version: int) -> FetchRequest:
    end = len(view)
    session_id, session_epoch = 0, -1
    if version >= _SESSIONS_FROM:
        replica_id, wait, least, most, isolation, session_id, session_epoch = _CLASSIC_FRONT.unpack_from(view, at)
        at += _CLASSIC_FRONT.size
    else:
        replica_id, wait, least, most, isolation = _BEFORE_SESSIONS.unpack_from(view, at)
        at += _BEFORE_SESSIONS.size
    topic_count, at = read_count(view, at, end)
    rows = Rows()
    rows.count(topic_count)
    topics: list[tuple[Topic, list[FetchPartition]]] = []
    for _ in range(topic_count):
        name, at = read_string(view, at, end)
        partitions, at = _read_classic_partitions(view, at, end, version, rows)
        topics.append((name, partitions))
    forgotten: list[tuple[Topic, list[int]]] = []
    if version >= _SESSIONS_FROM:
        forgotten_count, at = read_count(view, at, end)
        rows.count(forgotten_count)
        for _ in range(forgotten_count):
            name, at = read_string(view, at, end)
            count, at = read_count(view, at, end)
            rows.count(count)
            indexes, at = _read_indexes(view, at, end, count)
            forgotten.append((name, indexes))
    rack_id = read_string(view, at, end)[0] if version >= _RACK_FROM else ""
    return FetchRequest(replica_id, wait, least, most, isolation, session_id, session_epoch, topics, forgotten, rack_id, -1)


def _read_classic_partitions(view: memoryview, at: int, end: int, version: int, counted: Rows) -> tuple[list[FetchPartition], int]:
    count, at = read_count(view, at, end)
    counted.count(count)
    if version >= _LEADER_EPOCH_FROM:
        rows, at = _unpack_rows(_PARTITION_9, view, at, end, count)
        return [FetchPartition(index, epoch, offset, -1, start, most) for index, epoch, offset, start, most in rows], at
    if version >= _LOG_START_FROM:
        rows, at = _unpack_rows(_PARTITION_5, view, at, end, count)
        return [FetchPartition(index, -1, offset, -1, start, most) for index, offset, start, most in rows], at
    rows, at = _unpack_rows(_PARTITION_4, view, at, end, count)
    return [FetchPartition(index, -1, offset, -1, -1, most) for index, offset, most in rows], at


def _read_flexible(view: memoryview, at: int, version: int) -> FetchRequest:
    end = len(view)
    replica_id = _CONSUMER
    if version < _REPLICA_STATE_FROM:
        replica_id, at = fields.read_int(view, at, end)
    wait, least, most, isolation, session_id, session_epoch = _FLEXIBLE_FRONT.unpack_from(view, at)
    topic_count, at = read_compact_count(view, at + _FLEXIBLE_FRONT.size, end)
    rows = Rows()
    rows.count(topic_count)
    topics: list[tuple[Topic, list[FetchPartition]]] = []
    for _ in range(topic_count):
        topic, at = fields.read_id(view, at, end) if version >= _TOPIC_IDS_FROM else read_compact_string(view, at, end)
        partitions, at = _read_flexible_partitions(view, at, end, rows)
        at = skip_tagged(view, at, end)
        topics.append((topic, partitions))
    forgotten_count, at = read_compact_count(view, at, end)
    rows.count(forgotten_count)
    forgotten: list[tuple[Topic, list[int]]] = []
    for _ in range(forgotten_count):
        topic, at = fields.read_id(view, at, end) if version >= _TOPIC_IDS_FROM else read_compact_string(view, at, end)
        count, at = read_compact_count(view, at, end)
        rows.count(count)
        indexes, at = _read_indexes(view, at, end, count)
        at = skip_tagged(view, at, end)
        forgotten.append((topic, indexes))
    rack_id, at = read_compact_string(view, at, end)
    replica: dict[str, Any] = {"replica": (replica_id, -1)}
    fields.read_tagged(view, at, end, _REPLICA_STATE if version >= _REPLICA_STATE_FROM else {}, replica)
    replica_id, replica_epoch = replica["replica"]
    return FetchRequest(replica_id, wait, least, most, isolation, session_id, session_epoch, topics, forgotten, rack_id, replica_epoch)


def _read_flexible_partitions(view: memoryview, at: int, end: int, counted: Rows) -> tuple[list[FetchPartition], int]:
    count, at = read_compact_count(view, at, end)
    counted.count(count)
    stride = _PARTITION_12_UNTAGGED.size
    stop = at + count * stride
    if stop <= end and not any(view[at + stride - 1 : stop : stride]):
        rows = rows_of(_PARTITION_12_UNTAGGED, view[at:stop])
        return [_new_row(FetchPartition, row) for row in rows], stop
    partitions = []
    for _ in range(count):
        partitions.append(FetchPartition._make(_PARTITION_12.unpack_from(view, at)))
        at = skip_tagged(view, at + _PARTITION_12.size, end)
    return partitions, at


def _read_replica_state(view: Buffer, at: int, end: int) -> tuple[tuple[int, int], int]:
    if end - at < _EPOCH_AND_OFFSET.size:
        raise MalformedInput("a replica's state is cut off")
    replica_id, replica_epoch = _EPOCH_AND_OFFSET.unpack_from(view, at)
    return (replica_id, replica_epoch), skip_tagged(view, at + _EPOCH_AND_OFFSET.size, end)


_REPLICA_STATE: dict[int, tuple[str, fields.Reader]] = {1: ("replica", _read_replica_state)}


def _unpack_rows(layout: Struct, view: memoryview, at: int, end: int, count: int) -> tuple[list[tuple[Any, ...]], int]:
    stop = at + count * layout.size
    if stop > end:
        raise MalformedInput("an array reaches past its frame")
    return list(rows_of(layout, view[at:stop])), stop


def _read_indexes(view: memoryview, at: int, end: int, count: int) -> tuple[list[int], int]:
    rows, at = _unpack_rows(fields.INT, view, at, end, count)
    return [index for (index,) in rows], at
