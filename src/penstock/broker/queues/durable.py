"""Those who wait until what they sent to a partition is durable: one timer for all of them, and one token with the partition's leader.

Appends come in order, so who came first is told first. One who asks about something that lies further back (the first copy of a duplicate)
waits with the last of the others, a moment longer than it must. Whoever has waited too long hears that nobody knows.
Hot path: once for each call that sends.
"""

import asyncio
from collections import deque
from typing import NamedTuple, Protocol

from penstock.broker.queues.calls import Code, QueueRefusal
from penstock.env import Env
from penstock.errors import ErrorCode
from penstock.partition.partition import Partition
from penstock.vocabulary import Instant, Offset

DURABLE_SECONDS = 10.0  # After which a sender hears that nobody knows.
TIMER_SECONDS_MIN = 0.001


class Hearing(Protocol):
    """A future, or what hears for several."""

    def done(self) -> bool: ...

    def set_result(self, _: None, /) -> None: ...

    def set_exception(self, refusal: QueueRefusal, /) -> None: ...


class _Waiting(NamedTuple):
    end_offset: Offset
    deadline: Instant
    heard: Hearing


class Durable:
    """It is its own token with the leader, parked once for each end that somebody waits for."""

    __slots__ = ("_env", "_parked_end", "_partition", "_timer", "_waiting")

    def __init__(self, env: Env, partition: Partition) -> None:
        self._env = env
        self._partition = partition
        self._waiting: deque[_Waiting] = deque()  # Ends and deadlines rise.
        self._parked_end = Offset(0)
        self._timer: asyncio.TimerHandle | None = None

    def awaited(self, end_offset: int) -> "asyncio.Future[None] | None":
        """To be awaited until everything below the offset is durable; raises QueueRefusal there. None: it is so already."""
        heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        return heard if self.told(end_offset, heard) else None

    def told(self, end_offset: int, heard: Hearing) -> bool:
        """They hear when everything below the offset is durable, or QueueRefusal. False: it is so already."""
        leader = self._partition.leader
        if leader is None:  # Whoever asks has just appended here, or found a copy: it should not be.
            raise QueueRefusal(Code.NOT_AVAILABLE, "another node leads the queue now; what was sent may be there or not")
        if end_offset <= leader.high_watermark:
            return False
        if end_offset > self._parked_end or not self._waiting:  # While nobody waits the leader may forget what is parked.
            self._parked_end = Offset(end_offset)
            leader.park(self._parked_end, self, needs_all=True)
        deadline = Instant(self._env.now() + DURABLE_SECONDS)
        self._waiting.append(_Waiting(self._parked_end, deadline, heard))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._time_came)
        return True

    def made_durable(self) -> None:
        waiting, watermark = self._waiting, self._partition.high_watermark
        while waiting and waiting[0].end_offset <= watermark:
            heard = waiting.popleft().heard
            if not heard.done():
                heard.set_result(None)

    def is_over(self, end_offset: Offset) -> bool:
        return not self._waiting or self._waiting[0].end_offset > end_offset

    def refused(self, code: ErrorCode, reason: str) -> None:
        """The log has failed, or another node leads: of none of them anybody knows."""
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            _refuse(each, f"the queue's log cannot answer now ({reason}); what was sent may be there or not")

    def _time_came(self) -> None:
        """It is left alone when the first of them is told: most of the time it finds nothing to do, every few seconds."""
        self._timer = None
        now, waiting = self._env.now(), self._waiting
        while waiting and waiting[0].deadline <= now:
            _refuse(
                waiting.popleft(), "the messages were not durable in time, and may or may not be sent; too few replicas, or a slow disk"
            )
            self._partition.given_up()
        if waiting:
            self._timer = asyncio.get_running_loop().call_at(max(waiting[0].deadline, now + TIMER_SECONDS_MIN), self._time_came)


def _refuse(waiting: _Waiting, words: str) -> None:
    if not waiting.heard.done():
        waiting.heard.set_exception(QueueRefusal(Code.NOT_AVAILABLE, words))
