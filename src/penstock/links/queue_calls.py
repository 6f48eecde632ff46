"""Bytes ⇄ what nodes ask of the leaders of queues, on behalf of whoever asked them.

A call is a head (JSON: what is asked, of which partition, and the small fields) and *blobs* (bodies, keys, contents of headers) as they
are. What the fields of each call are is known where they are asked and answered (broker/queues/); a field that is not known is passed
over, so that nodes of the next version may say more.
A call that waits long has a number, and its asker may take it back by telling that number (`QUEUE_CALL_OVER`).
"""

import json
from collections.abc import Sequence
from struct import Struct, error
from typing import Any, NamedTuple

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer, TopicId

_LENGTH = Struct(">i")  # -1 stands for null.
_NUMBER = Struct(">Q")
_NUMBER_BYTES = _NUMBER.size


class QueueCall(NamedTuple):
    operation: str
    topic_id: TopicId
    partition: int
    number: int  # By which its asker takes it back.
    fields: dict[str, Any]
    blobs: Sequence[bytes | None] = ()


class QueueAnswer(NamedTuple):
    code: str  # Empty: it was done. Otherwise why not: a code of refusals of queues, or `NOT_HERE`.
    words: str = ""
    fields: dict[str, Any] = {}  # noqa: RUF012 - never changed
    blobs: Sequence[bytes | None] = ()


NOT_HERE = "not_here"  # The asked node does not lead the partition, or its ledger is not loaded: nothing was done; look again who leads.


def write_call(call: QueueCall) -> list[Buffer]:
    return _written([call.operation, call.topic_id.hex(), call.partition, call.number, call.fields], call.blobs)


def read_call(body: memoryview) -> QueueCall:
    try:
        (operation, topic_id, partition, number, fields, *_), blobs = _read(body)
        return QueueCall(str(operation), TopicId(bytes.fromhex(topic_id)), int(partition), int(number), dict(fields), blobs)
    except (TypeError, ValueError, error) as wrong:
        raise _malformed(wrong) from None


def write_answer(answer: QueueAnswer) -> list[Buffer]:
    return _written([answer.code, answer.words, answer.fields], answer.blobs)


def read_answer(body: memoryview) -> QueueAnswer:
    try:
        (code, words, fields, *_), blobs = _read(body)
        return QueueAnswer(str(code), str(words), dict(fields), blobs)
    except (TypeError, ValueError, error) as wrong:
        raise _malformed(wrong) from None


def write_over(number: int) -> bytes:
    return _NUMBER.pack(number)


def read_over(body: memoryview) -> int:
    if len(body) != _NUMBER_BYTES:
        raise _malformed("not one number")
    number: int = _NUMBER.unpack(body)[0]
    return number


def _written(head: list[Any], blobs: Sequence[bytes | None]) -> list[Buffer]:
    packed = json.dumps(head, separators=(",", ":")).encode()
    pieces: list[Buffer] = [_LENGTH.pack(len(packed)), packed]
    for blob in blobs:
        if blob is None:
            pieces.append(_LENGTH.pack(-1))
        else:
            pieces += (_LENGTH.pack(len(blob)), blob)
    return pieces


def _read(body: memoryview) -> tuple[list[Any], list[bytes | None]]:
    parts: list[bytes | None] = []
    at, size = 0, len(body)
    while at < size:
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        if not -1 <= length <= size - at:
            raise ValueError("a part reaches past the call")
        parts.append(None if length < 0 else bytes(body[at : at + length]))
        at += max(0, length)
    head = json.loads(parts[0] or b"") if parts else None
    if not isinstance(head, list):
        raise ValueError("it has no head")
    return head, parts[1:]


def _malformed(wrong: object) -> MalformedInput:
    return MalformedInput(f"a call about queues is not what it should be: {wrong}")
