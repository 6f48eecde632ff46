"""What a member says of records that it holds: accepted, released, rejected, or that it needs more time (KIP-932, KIP-1222).

The ranges of one partition become one command to its ledger, so that all of them are durable at once, and done or not done as a whole: a
record that the member does not hold (any more) makes it INVALID_RECORD_STATE. Only what has more than a thousand runs of one type is more
than one command.
"""

import asyncio
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any

from penstock.broker.askers import WaitingTask
from penstock.broker.queues.leading import QueuePartition
from penstock.errors import ErrorCode, Refusal
from penstock.queues.commands import ANY_LEASE, COUNT_MAX, RANGE_MAX, Settle, Settlement, Verb
from penstock.queues.replies import Code, Fault, Settled
from penstock.wire.share_requests import Acknowledged


class AcknowledgeType(IntEnum):
    GAP = 0  # An offset at which the member found no record.
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


_VERBS = {
    AcknowledgeType.GAP: Verb.DONE,
    AcknowledgeType.ACCEPT: Verb.DONE,
    AcknowledgeType.RELEASE: Verb.RELEASE,
    AcknowledgeType.REJECT: Verb.REJECT,
    AcknowledgeType.RENEW: Verb.EXTEND,
}

ACCEPTED = bytes([AcknowledgeType.ACCEPT])
_NOT_HELD = "some records are not held by this member: their lock has lapsed, or they are done"


def check(ranges: Sequence[Acknowledged], *, renews: bool) -> None:
    """Raises Refusal with INVALID_REQUEST where the ranges of a partition make no sense, whoever holds what."""
    end, records = -1, 0
    for first, last, types in ranges:
        records += last - first + 1
        if not 0 <= first <= last:
            raise _senseless("a range of acknowledged records ends before it begins")
        if first < end:
            raise _senseless("ranges of acknowledged records overlap, or are out of order")
        if len(types) not in (1, last - first + 1):
            raise _senseless("a range needs one type of acknowledgement, or one for each record")
        if max(types) > AcknowledgeType.RENEW:
            raise _senseless("there is no such type of acknowledgement")
        if not renews and AcknowledgeType.RENEW in types:
            raise _senseless("a request that renews must say so")
        if records > RANGE_MAX:
            raise _senseless(f"more than {RANGE_MAX} records are acknowledged at once")
        end = last + 1


def _senseless(reason: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, reason)


class Acknowledging:
    """The acknowledgements of one partition, decided; `outcome` waits until that is durable."""

    __slots__ = ("_asked",)

    def __init__(self, queue: QueuePartition, group: str, who: str, ranges: Sequence[Acknowledged], lock_ms: int) -> None:
        items = settlements(ranges, who, lock_ms)
        self._asked: list[WaitingTask] = []
        for at in range(0, len(items), COUNT_MAX):
            asker = WaitingTask()
            asker.heard.add_done_callback(_notice)
            queue.coordinator.submit(Settle(asker, group, tuple(items[at : at + COUNT_MAX]), is_whole=True), asker)
            self._asked.append(asker)

    async def outcome(self) -> Refusal | None:
        """Why it was not done; None: it was."""
        try:
            return why_not([await asker.heard for asker in self._asked])
        except Refusal as refusal:
            return refusal


def _notice(heard: asyncio.Future[Any]) -> None:
    """A fetch whose member is gone waits for no outcome, and a refusal that nobody looks at would be complained about."""
    if not heard.cancelled():
        heard.exception()


def why_not(replies: Sequence[Settled]) -> Refusal | None:
    """Why some of them were not carried out; None: all were."""
    if any([reply.fault is Fault.NO_SUCH_GROUP for reply in replies]):
        return Refusal(ErrorCode.INVALID_RECORD_STATE, "the group has taken no records of this partition")
    if any([reply.fault is not Fault.NONE for reply in replies]):
        return Refusal(ErrorCode.INVALID_REQUEST, "more is acknowledged at once than may be")
    if any([outcome.code is not Code.OK for reply in replies for outcome in reply.outcomes]):
        return Refusal(ErrorCode.INVALID_RECORD_STATE, _NOT_HELD)
    return None


def settlements(ranges: Sequence[Acknowledged], who: str, lock_ms: int) -> list[Settlement]:
    return [
        Settlement(first, ANY_LEASE, _VERBS[kind], lock_ms if kind is AcknowledgeType.RENEW else 0, who=who, end_offset=end)
        for first, end, kind in runs_of(ranges)
    ]


def runs_of(ranges: Sequence[Acknowledged]) -> Iterator[tuple[int, int, AcknowledgeType]]:
    """(first, end, type), side by side ones of a type as one."""
    start, end, kind = 0, -1, -1
    for first, last, types in ranges:
        each_by_itself = ((first + at, first + at + 1, each) for at, each in enumerate(types))
        pieces = ((first, last + 1, types[0]),) if len(types) == 1 else each_by_itself
        for piece_start, piece_end, each in pieces:
            if each == kind and piece_start == end:
                end = piece_end
                continue
            if end >= 0:
                yield start, end, AcknowledgeType(kind)
            start, end, kind = piece_start, piece_end, each
    if end >= 0:
        yield start, end, AcknowledgeType(kind)
