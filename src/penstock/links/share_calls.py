"""Bytes ⇄ what leaders of partitions ask of a share group's coordinator.

As JSON: it is asked once for each ledger that begins. A field that is not known is passed over, so that nodes of the next version may say
more.
"""

from typing import NamedTuple

from penstock.errors import MalformedInput
from penstock.links.lists import read_list, write_list
from penstock.vocabulary import TopicId


class LedgerQuestion(NamedTuple):
    """Is the group to have a ledger there?"""

    group: str
    topic_id: TopicId
    partition: int
    sweeps: bool = False  # One is there, and shall go if it is not: then none may begin for a while.


class LedgerAnswer(NamedTuple):
    word: str  # Of the coordinator. Empty: there is none.
    reason: str = ""


def write_question(question: LedgerQuestion) -> bytes:
    return write_list([question.group, question.topic_id.hex(), question.partition, question.sweeps])


def read_question(body: memoryview) -> LedgerQuestion:
    try:
        group, topic_id, partition, sweeps, *_ = read_list(body)
        return LedgerQuestion(str(group), TopicId(bytes.fromhex(topic_id)), int(partition), bool(sweeps))
    except (TypeError, ValueError) as wrong:
        raise _malformed(wrong) from None


def write_answer(answer: LedgerAnswer) -> bytes:
    return write_list(list(answer))


def read_answer(body: memoryview) -> LedgerAnswer:
    try:
        word, reason, *_ = read_list(body)
        return LedgerAnswer(str(word), str(reason))
    except (TypeError, ValueError) as wrong:
        raise _malformed(wrong) from None


def _malformed(wrong: Exception) -> MalformedInput:
    return MalformedInput(f"a call about ledgers of share groups is not what it should be: {wrong}")
