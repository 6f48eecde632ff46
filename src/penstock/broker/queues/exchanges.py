"""What members of a share group want of one partition in the same turn of the loop, as one decision: one append for all of them.

A round is decided before the turn after it begins, so nobody waits for others to come.
"""

import asyncio
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode
from penstock.queues.commands import COUNT_MAX, RANGE_MAX, Exchange, Swap
from penstock.queues.replies import Exchanged, Taken

if TYPE_CHECKING:
    from penstock.broker.queues.leading import QueuePartition


class Member(Protocol):
    """It hears one of these, when that is durable."""

    def exchanged(self, taken: Taken | None) -> None:
        """None: nothing was decided for it."""

    def refused(self, code: ErrorCode, reason: str) -> None: ...


class Exchanges:
    """Of one partition."""

    __slots__ = ("_is_coming", "_queue", "_rounds")

    def __init__(self, queue: "QueuePartition") -> None:
        self._queue = queue
        self._rounds: dict[str, _Round] = {}  # By group.
        self._is_coming = False

    def add(self, group: str, swap: Swap, member: Member) -> None:
        round_ = self._rounds.get(group)
        if round_ is not None and not round_.has_room_for(swap):
            self._submit(group, self._rounds.pop(group))
            round_ = None
        if round_ is None:
            round_ = self._rounds[group] = _Round()
            self._come_soon()
        round_.add(swap, member)

    def _come_soon(self) -> None:
        if not self._is_coming:
            self._is_coming = True
            asyncio.get_running_loop().call_soon(self._come)

    def _come(self) -> None:
        self._is_coming = False
        rounds, self._rounds = self._rounds, {}
        for group, round_ in rounds.items():
            self._submit(group, round_)

    def _submit(self, group: str, round_: "_Round") -> None:
        coordinator = self._queue.coordinator
        coordinator.catch_up()
        coordinator.submit(Exchange(round_, group, tuple(round_.swaps.values())), round_)


class _Round:
    __slots__ = ("_count", "_members", "_span", "swaps")

    def __init__(self) -> None:
        self.swaps: dict[str, Swap] = {}  # By who wants it.
        self._members: list[Member] = []
        self._count = self._span = 0

    def has_room_for(self, swap: Swap) -> bool:
        return swap.who not in self.swaps and self._count + swap.wanted <= COUNT_MAX and self._span + span_of(swap) <= RANGE_MAX

    def add(self, swap: Swap, member: Member) -> None:
        self.swaps[swap.who] = swap
        self._members.append(member)
        self._count += swap.wanted
        self._span += span_of(swap)

    def answered(self, reply: Exchanged) -> None:
        for member, taken in zip(self._members, reply.taken, strict=True):
            member.exchanged(taken)

    def refused(self, code: ErrorCode, reason: str) -> None:
        for member in self._members:
            member.refused(code, reason)


def span_of(swap: Swap) -> int:
    return sum([item.end_offset - item.offset for item in swap.items])
