"""Bytes ⇄ what a follower asks its leader, and hears.

A follower says what it wants of each partition once, and then only what has changed: `session` ties its questions together, and the first
of them is full. A leader that does not know the session says so, and the follower opens another. So it does not matter over which
connection a question comes.

The answer's rows come first, all together, then the records of those rows that have some. Nothing is copied on either side: records go out
as the slices that the log gave, and come in as slices of the frame.

This is a hot path: one `struct` call per row, plain tuples, no loop over bytes. Counts are checked against the bytes that are there before
anything is read; whatever does not fit raises `MalformedInput`.
"""

from collections.abc import Iterable, Sequence
from itertools import starmap
from struct import Struct
from typing import Any, NamedTuple

from penstock.errors import MalformedInput
from penstock.packed import rows_of
from penstock.vocabulary import Buffer, Offset, TopicId

ROWS_MAX = 100_000  # In one message: some ten milliseconds of the loop for each ten thousand, and more than a node has partitions.
NO_RECORDS = memoryview(b"")

_FETCH = Struct(">q?IIIII")  # session, is_full, bytes, bytes of a partition, milliseconds, wishes, dropped
_WISH = Struct(">16siiqi")
_DROPPED = Struct(">16si")
_FETCHED = Struct(">q?I")  # session, is_unknown, rows
# topic, partition, the wish's leader epoch, offset and last epoch; error, high watermark, log start, diverging epoch and end, bytes
_ROW = Struct(">16siiqihqqiqI")
_NOT_DIVERGING = -1
_REACHED = Struct(">qI")  # node epoch, rows
_REACHED_ROW = Struct(">16siiqq")


class Wish(NamedTuple):
    """From here on, please. `last_epoch` is the epoch of the last batch that the follower has, -1 for none."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    fetch_offset: Offset
    last_epoch: int


class ReplicaFetch(NamedTuple):
    session: int  # Drawn by the follower; another one when it begins anew.
    is_full: bool  # The first question of its session: it names every partition.
    bytes_max: int
    partition_bytes_max: int
    wait_ms: int
    wishes: Sequence[Wish]  # What has changed since the question before.
    dropped: Sequence[tuple[TopicId, int]]  # Partitions that are of no more interest.


class Fetched(NamedTuple):
    """What a leader says of one partition. One without news is left out."""

    topic_id: TopicId
    partition: int
    leader_epoch: int  # These three are the wish's own. A follower may have wished for something else since,
    fetch_offset: Offset  # and must not take this for the answer to that.
    last_epoch: int
    error_code: int
    high_watermark: Offset
    log_start: Offset
    diverging: tuple[int, int] | None  # The two logs part at the end of this epoch, which is here: cut, and ask again.
    records: Buffer


class Answer(NamedTuple):
    session: int
    is_unknown: bool  # The leader knows nothing of the session.
    rows: list[Fetched]


# Partition, leader epoch, and the end below which everything is as durable at the follower as the topic promises; where its log starts.
ReachedRow = tuple[TopicId, int, int, Offset, Offset]


def write_fetch(
    session: int, wishes: Sequence[Wish], dropped: Sequence[tuple[TopicId, int]], *,
    is_full: bool, bytes_max: int, partition_bytes_max: int, wait_ms: int,
) -> bytes:  # fmt: skip
    front = _FETCH.pack(session, is_full, bytes_max, partition_bytes_max, wait_ms, len(wishes), len(dropped))
    return b"".join((front, *starmap(_WISH.pack, wishes), *starmap(_DROPPED.pack, dropped)))


def read_fetch(body: memoryview) -> ReplicaFetch:
    *numbers, wish_count, dropped_count = _front(_FETCH, body)
    at = _FETCH.size
    wishes_end = at + _size(_WISH, wish_count)
    if len(body) != wishes_end + _size(_DROPPED, dropped_count):
        raise MalformedInput("a replica's fetch does not end where its last row ends")
    wishes = list(map(Wish._make, rows_of(_WISH, body[at:wishes_end])))
    return ReplicaFetch._make((*numbers, wishes, list(rows_of(_DROPPED, body[wishes_end:]))))


def write_fetched(session: int, rows: Sequence[Fetched], *, is_unknown: bool = False) -> list[Buffer]:
    """Pieces to be sent one after the other: the rows, and then their records as they are."""
    heads, records = [_FETCHED.pack(session, is_unknown, len(rows))], []
    for *front, diverging, content in rows:
        epoch, end = (_NOT_DIVERGING, -1) if diverging is None else diverging
        heads.append(_ROW.pack(*front, epoch, end, len(content)))
        if content:
            records.append(content)
    return [b"".join(heads), *records]


def read_fetched(body: memoryview) -> Answer:
    """The rows, whose records are slices of the body."""
    session, is_unknown, count = _front(_FETCHED, body)
    at, end = _FETCHED.size + _size(_ROW, count), len(body)
    if at > end:
        raise MalformedInput("the rows of an answer are cut off")
    rows, new_row = [], tuple.__new__  # Half the cost of calling the class.
    for *front, epoch, epoch_end, size in rows_of(_ROW, body[_FETCHED.size : at]):
        diverging = None if epoch == _NOT_DIVERGING else (epoch, epoch_end)
        records = body[at : at + size] if size else NO_RECORDS
        at += size
        rows.append(new_row(Fetched, (*front, diverging, records)))
    if at != end:
        raise MalformedInput("an answer does not end where its last records end")
    return Answer(session, is_unknown, rows)


def write_reached(node_epoch: int, rows: Sequence[ReachedRow]) -> bytes:
    return b"".join((_REACHED.pack(node_epoch, len(rows)), *starmap(_REACHED_ROW.pack, rows)))


def read_reached(body: memoryview) -> tuple[int, Iterable[ReachedRow]]:
    """The follower's node epoch, and how far its copies are durable."""
    node_epoch, count = _front(_REACHED, body)
    if len(body) != _REACHED.size + _size(_REACHED_ROW, count):
        raise MalformedInput("a report of what was reached does not end where its last row ends")
    return node_epoch, rows_of(_REACHED_ROW, body[_REACHED.size :])


def _front(shape: Struct, body: memoryview) -> tuple[Any, ...]:
    if len(body) < shape.size:
        raise MalformedInput("a message about replicas is cut off")
    return shape.unpack_from(body)


def _size(shape: Struct, count: int) -> int:
    if count > ROWS_MAX:
        raise MalformedInput(f"it has more than {ROWS_MAX} rows")
    return shape.size * count
