"""ShareFetch and ShareAcknowledge, versions 1 and 2: their requests, read by hand, for each carries what becomes of hundreds of records.

The two have their rows in common. What types of acknowledgement stand for is not known here; they stay the bytes that came.
"""

from struct import Struct, error
from typing import NamedTuple

from penstock.errors import MalformedInput
from penstock.packed import rows_of
from penstock.vocabulary import Buffer, TopicId
from penstock.wire import fields
from penstock.wire.fields import Rows, read_compact_count, read_nullable_compact_string, skip_tagged

_RENEWS_FROM = 2
_SPAN = Struct(">qq")
_FRONT = Struct(">iiiiii")  # Session epoch, wait, least and most bytes, most records, batch size.
_USUAL_VERSION = 2
_USUAL_FRONT = Struct(">iiiiiibb")  # The same, acquire mode, renews.
# One topic's id, one partition's index, one acknowledged range of one type; nothing is forgotten. Between them counts and tagged fields.
_USUAL_REST = Struct(">B16sBiBqqBcBBBBB")
_NO_REST = b"\1\1\0"  # No topics at all, and nothing is forgotten.


class Acknowledged(NamedTuple):
    """One type for all offsets from first to last, or one for each."""

    first_offset: int
    last_offset: int
    types: bytes


class SharedPartition(NamedTuple):
    topic_id: TopicId
    partition: int
    acknowledged: list[Acknowledged]


class ShareFetchRequest(NamedTuple):
    group: str
    member_id: str
    session_epoch: int
    wait_ms: int
    bytes_max: int
    records_max: int
    renews: bool
    partitions: list[SharedPartition]
    forgotten: list[tuple[TopicId, int]]


class ShareAcknowledgeRequest(NamedTuple):
    group: str
    member_id: str
    session_epoch: int
    renews: bool
    partitions: list[SharedPartition]


def read_share_fetch(frame: Buffer, at: int, version: int) -> ShareFetchRequest:
    view = memoryview(frame)
    try:
        usual = _read_usual(view, at) if version == _USUAL_VERSION else None
        return _read_fetch(view, at, version) if usual is None else usual
    except (error, IndexError):
        raise MalformedInput("a share fetch is cut off") from None


def read_share_acknowledge(frame: Buffer, at: int, version: int) -> ShareAcknowledgeRequest:
    view = memoryview(frame)
    end = len(view)
    try:
        group, at = read_nullable_compact_string(view, at, end)
        member_id, at = read_nullable_compact_string(view, at, end)
        session_epoch, at = fields.read_int(view, at, end)
        renews = version >= _RENEWS_FROM and bool(view[at])
        partitions, at = _read_topics(view, at + (version >= _RENEWS_FROM), end, Rows())
    except (error, IndexError):
        raise MalformedInput("a share acknowledgement is cut off") from None
    return ShareAcknowledgeRequest(group or "", member_id or "", session_epoch, renews, partitions)


def _read_usual(view: memoryview, at: int) -> ShareFetchRequest | None:
    """A request that goes on with a session, and speaks of one range of one partition, or of nothing. None: it is of another shape."""
    group_size = view[at]
    if not 0 < group_size < 0x80:
        return None
    group_at, member_at = at + 1, at + group_size + 1
    member_size = view[member_at - 1]
    if not 0 < member_size < 0x80:
        return None
    front_at = member_at + member_size - 1
    rest_at = front_at + _USUAL_FRONT.size
    partitions: list[SharedPartition]
    if view[rest_at:] == _NO_REST:
        partitions = []
    elif len(view) != rest_at + _USUAL_REST.size:
        return None
    else:
        topics, topic_id, rows, index, ranges, first, last, types, kind, *ends = _USUAL_REST.unpack_from(view, rest_at)
        if (topics, rows, ranges, types, ends) != (2, 2, 2, 2, _USUAL_ENDS):
            return None
        partitions = [_new_tuple(SharedPartition, (topic_id, index, [_new_tuple(Acknowledged, (first, last, kind))]))]
    try:
        group, member_id = str(view[group_at : member_at - 1], "utf-8"), str(view[member_at:front_at], "utf-8")
    except UnicodeDecodeError:
        return None
    session_epoch, wait_ms, _, bytes_max, records_max, _, _, renews = _USUAL_FRONT.unpack_from(view, front_at)
    return _new_tuple(ShareFetchRequest, (group, member_id, session_epoch, wait_ms, bytes_max, records_max, bool(renews), partitions, []))


_USUAL_ENDS = [0, 0, 0, 1, 0]  # Tagged fields of the range, the partition and the topic; nothing is forgotten; tagged fields of it all.
_new_tuple = tuple.__new__  # Half the cost of calling a named tuple's class.


def _read_fetch(view: memoryview, at: int, version: int) -> ShareFetchRequest:
    end, rows = len(view), Rows()
    group, at = read_nullable_compact_string(view, at, end)
    member_id, at = read_nullable_compact_string(view, at, end)
    session_epoch, wait_ms, _, bytes_max, records_max, _ = _FRONT.unpack_from(view, at)
    at += _FRONT.size
    renews = False
    if version >= _RENEWS_FROM:
        renews = bool(view[at + 1])  # Behind the acquire mode: never more than was asked for is given, which suits both.
        at += 2
    partitions, at = _read_topics(view, at, end, rows)
    count, at = read_compact_count(view, at, end)
    rows.count(count)
    forgotten: list[tuple[TopicId, int]] = []
    for _ in range(count):
        topic_id, at = fields.read_id(view, at, end)
        indexes, at = read_compact_count(view, at, end)
        rows.count(indexes)
        stop = at + 4 * indexes
        forgotten += [(TopicId(topic_id), index) for (index,) in rows_of(fields.INT, view[at:stop])]
        at = skip_tagged(view, stop, end)
    return ShareFetchRequest(group or "", member_id or "", session_epoch, wait_ms, bytes_max, records_max, renews, partitions, forgotten)


def _read_topics(view: memoryview, at: int, end: int, rows: Rows) -> tuple[list[SharedPartition], int]:
    count, at = read_compact_count(view, at, end)
    rows.count(count)
    found: list[SharedPartition] = []
    for _ in range(count):
        topic_id, at = fields.read_id(view, at, end)
        partitions, at = read_compact_count(view, at, end)
        rows.count(partitions)
        for _ in range(partitions):
            index, at = fields.read_int(view, at, end)
            acknowledged, at = _read_acknowledged(view, at, end, rows)
            at = skip_tagged(view, at, end)
            found.append(SharedPartition(TopicId(topic_id), index, acknowledged))
        at = skip_tagged(view, at, end)
    return found, at


def _read_acknowledged(view: memoryview, at: int, end: int, rows: Rows) -> tuple[list[Acknowledged], int]:
    count, at = read_compact_count(view, at, end)
    rows.count(count)
    found = []
    for _ in range(count):
        first, last = _SPAN.unpack_from(view, at)
        types, at = read_compact_count(view, at + _SPAN.size, end)
        found.append(Acknowledged(first, last, bytes(view[at : at + types])))
        at = skip_tagged(view, at + types, end)
    return found, at
