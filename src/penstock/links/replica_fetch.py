"""Bytes ⇄ what a follower asks its leader, and hears.

A follower says what it wants of each partition once, and then only what has changed: `session` and `sequence` tie its questions together. A
leader that does not know the session, or missed a question of it, answers `UNKNOWN_SESSION`, and the follower says everything again. So it
does not matter over which connection a question comes.

The reply's rows come first, all together, then the records of those rows that have some. Nothing is copied on either side: records go out
as the slices that the log gave, and come in as slices of the frame.

This is a hot path: one `struct` call per row, plain tuples, no loop over bytes. Counts are checked against the bytes that are there before
anything is read; whatever does not fit raises `MalformedInput`.
"""

from collections.abc import Sequence
from enum import IntEnum
from itertools import starmap
from struct import Struct
from typing import Any, NamedTuple

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer

ROWS_MAX = 100_000  # In one message: some ten milliseconds of the loop for each ten thousand, and more than a node has partitions.

_REQUEST = Struct(">qIqIIIII")  # session, sequence, node epoch, bytes, bytes of a partition, milliseconds, wishes, dropped
_WISH = Struct(">16siiqi")
_DROPPED = Struct(">16si")
_REPLY = Struct(">BI")  # verdict, rows
_ROW = Struct(">16sihqqiqI")  # topic, partition, error, high watermark, log start, diverging epoch and end, bytes of records
_REACHED = Struct(">qI")  # node epoch, rows
_REACHED_ROW = Struct(">16siiq")


class Verdict(IntEnum):
    """Of a whole question."""

    ANSWERED = 0
    UNKNOWN_SESSION = 1


class Wish(NamedTuple):
    """From here on, please. `last_epoch` is the epoch of the last batch that the follower has, -1 for none."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    fetch_offset: int
    last_epoch: int


class Request(NamedTuple):
    session: int  # Drawn by the follower; another one when it begins anew.
    sequence: int  # 0 for the first question of a session, which names every partition; one more for each that follows.
    node_epoch: int
    bytes_max: int
    partition_bytes_max: int
    wait_ms: int
    wishes: Sequence[Wish]  # What has changed since the question before.
    dropped: Sequence[tuple[bytes, int]]  # Topic ids and partitions that are of no more interest.


class Row(NamedTuple):
    """What a leader says of one partition. Rows without news are left out."""

    topic_id: bytes
    partition: int
    error_code: int
    high_watermark: int
    log_start: int
    diverging_epoch: int  # -1: the two logs agree up to where the follower asked. Otherwise cut at the end of this epoch, which is
    diverging_end: int  # here, and ask again.
    records: Buffer


class Reply(NamedTuple):
    verdict: Verdict
    rows: list[Row]


class ReachedRow(NamedTuple):
    """Everything below `end_offset` is as durable at the follower as the topic promises."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    end_offset: int


class Reached(NamedTuple):
    node_epoch: int
    rows: list[ReachedRow]


NO_RECORDS = memoryview(b"")


def encode_request(request: Request) -> bytes:
    *numbers, wishes, dropped = request
    front = _REQUEST.pack(*numbers, len(wishes), len(dropped))
    return b"".join((front, *starmap(_WISH.pack, wishes), *starmap(_DROPPED.pack, dropped)))


def decode_request(body: memoryview) -> Request:
    *numbers, wish_count, dropped_count = _front(_REQUEST, body)
    at = _REQUEST.size
    wishes_end = at + _size(_WISH, wish_count)
    if len(body) != wishes_end + _size(_DROPPED, dropped_count):
        raise MalformedInput("a replica's fetch does not end where its last row ends")
    wishes = list(map(Wish._make, _WISH.iter_unpack(body[at:wishes_end])))
    return Request._make((*numbers, wishes, list(_DROPPED.iter_unpack(body[wishes_end:]))))


def encode_reply(rows: Sequence[Row], verdict: Verdict = Verdict.ANSWERED) -> list[Buffer]:
    """Pieces to be sent one after the other: the rows, and then their records as they are."""
    pack = _ROW.pack
    heads = [
        pack(topic_id, partition, error, high_watermark, log_start, epoch, end, len(records))
        for topic_id, partition, error, high_watermark, log_start, epoch, end, records in rows
    ]
    pieces: list[Buffer] = [b"".join((_REPLY.pack(verdict, len(heads)), *heads))]
    pieces += [row[7] for row in rows if row[7]]
    return pieces


def decode_reply(body: memoryview) -> Reply:
    """The rows, whose records are slices of the body."""
    number, count = _front(_REPLY, body)
    if number not in _VERDICTS:
        raise MalformedInput(f"there is no verdict {number}")
    at = _REPLY.size + _size(_ROW, count)
    end = len(body)
    if at > end:
        raise MalformedInput("the rows of a reply are cut off")
    rows, new_row = [], tuple.__new__  # Half the cost of calling the class.
    for *fields, size in _ROW.iter_unpack(body[_REPLY.size : at]):
        if size:
            records = body[at : at + size]
            at += size
        else:
            records = NO_RECORDS
        rows.append(new_row(Row, (*fields, records)))
    if at != end:
        raise MalformedInput("a reply does not end where its last records end")
    return Reply(_VERDICTS[number], rows)


_VERDICTS = {int(verdict): verdict for verdict in Verdict}


def encode_reached(reached: Reached) -> bytes:
    return b"".join((_REACHED.pack(reached.node_epoch, len(reached.rows)), *starmap(_REACHED_ROW.pack, reached.rows)))


def decode_reached(body: memoryview) -> Reached:
    node_epoch, count = _front(_REACHED, body)
    if len(body) != _REACHED.size + _size(_REACHED_ROW, count):
        raise MalformedInput("a report of what was reached does not end where its last row ends")
    return Reached(node_epoch, list(map(ReachedRow._make, _REACHED_ROW.iter_unpack(body[_REACHED.size :]))))


def _front(shape: Struct, body: memoryview) -> tuple[Any, ...]:
    if len(body) < shape.size:
        raise MalformedInput("a message about replicas is cut off")
    return shape.unpack_from(body)


def _size(shape: Struct, count: int) -> int:
    if count > ROWS_MAX:
        raise MalformedInput(f"it has more than {ROWS_MAX} rows")
    return shape.size * count
