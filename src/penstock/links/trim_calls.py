"""Bytes ⇄ what a leader asks its followers when records are deleted: to let a log start later. JSON: it is asked seldom."""

from typing import NamedTuple

from penstock.errors import ErrorCode, MalformedInput
from penstock.links.lists import read_list, write_list
from penstock.vocabulary import Offset, TopicId


class TrimWish(NamedTuple):
    topic_id: TopicId
    partition: int
    leader_epoch: int
    start: Offset


def write_wish(wish: TrimWish) -> bytes:
    return write_list([wish.topic_id.hex(), wish.partition, wish.leader_epoch, wish.start])


def read_wish(body: memoryview) -> TrimWish:
    try:
        topic_id, partition, leader_epoch, start, *_ = read_list(body)
        return TrimWish(TopicId(bytes.fromhex(topic_id)), int(partition), int(leader_epoch), Offset(int(start)))
    except (TypeError, ValueError) as wrong:
        raise _malformed(wrong) from None


def write_outcome(code: ErrorCode) -> bytes:
    return write_list([int(code)])


def read_outcome(body: memoryview) -> ErrorCode:
    try:
        return ErrorCode(int(read_list(body)[0]))
    except (IndexError, TypeError, ValueError) as wrong:
        raise _malformed(wrong) from None


def _malformed(wrong: Exception) -> MalformedInput:
    return MalformedInput(f"a call about deleted records is not what it should be: {wrong}")
