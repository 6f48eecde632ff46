"""Bytes of a copy, asked of another node that has the same partition: batches from an offset on, or only whether it serves the partition.

The question is JSON. The reply is an error code and then the batches as they lie in that node's log.
"""

import struct
from typing import NamedTuple

from penstock.errors import ErrorCode, MalformedInput
from penstock.links.lists import read_list, write_list
from penstock.vocabulary import Buffer, Offset, TopicId

ONLY_WHETHER_IT_SERVES = Offset(-1)  # As the leader.
ONLY_WHETHER_IT_IS_GOOD = Offset(-2)  # Another node could take over, then.
ONLY_HOW_FAR_IT_GOES = Offset(-3)  # Answered by `write_end`.

_CODE = struct.Struct(">h")
_END = struct.Struct(">iq")


class CopyQuestion(NamedTuple):
    topic_id: TopicId
    partition: int
    leader_epoch: int
    offset: Offset  # Where the first batch begins; or one of those above.
    bytes_max: int  # At least one batch is sent, however large it is.


def write_question(question: CopyQuestion) -> bytes:
    return write_list([question.topic_id.hex(), *question[1:]])


def read_question(body: memoryview) -> CopyQuestion:
    try:
        topic_id, partition, leader_epoch, offset, bytes_max, *_ = read_list(body)
        return CopyQuestion(TopicId(bytes.fromhex(topic_id)), int(partition), int(leader_epoch), Offset(int(offset)), int(bytes_max))
    except (TypeError, ValueError) as wrong:
        raise MalformedInput(f"a question about a copy is not what it should be: {wrong}") from None


def write_end(epoch: int, end_offset: int) -> bytes:
    """The last epoch, and the end of what can be read."""
    return _END.pack(epoch, end_offset)


def read_end(body: Buffer) -> tuple[int, int]:
    try:
        epoch, end_offset = _END.unpack(body)
    except struct.error as wrong:
        raise MalformedInput(f"the end of a copy is not what it should be: {wrong}") from None
    return int(epoch), int(end_offset)


def write_reply(code: ErrorCode, batches: Buffer = b"") -> list[Buffer]:
    return [_CODE.pack(code), batches]


def read_reply(body: memoryview) -> tuple[ErrorCode, memoryview]:
    try:
        return ErrorCode(_CODE.unpack_from(body)[0]), body[_CODE.size :]
    except (struct.error, ValueError) as wrong:
        raise MalformedInput(f"a reply about a copy is not what it should be: {wrong}") from None
