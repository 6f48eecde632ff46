"""Replies that wait until everything below them in a coordinator's log is committed: in the order in which they came, and not for ever.

Whoever has waited for `SECONDS_MAX` hears that there is no answer. What it asked for may become true all the same, as with any request
whose answer got lost. From then on the log is *stuck*, until something that was appended is committed after all. Nothing more should be
appended to it meanwhile: clients that come again and again would fill it with what nobody is told of.
The partition's leader keeps one small token for each append; replies without one wait behind the last append. So what is held is bounded
by what comes in a few seconds, however long nothing is committed.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.broker.askers import Asker
from penstock.env import Env
from penstock.errors import ErrorCode
from penstock.partition.partition import Partition
from penstock.vocabulary import Instant, Offset

SECONDS_MAX = 5.0  # As Kafka's offsets.commit.timeout.ms.
TIMER_SECONDS_MIN = 0.001

Replies = Sequence[tuple[Asker, Any]]


class Bunch(NamedTuple):
    end_offset: Offset
    deadline: Instant
    replies: Replies


class WaitingReplies:
    def __init__(
        self, env: Env, partition: Partition,
        *, tell: Callable[[Replies], None], give_up: Callable[[Replies], None], log_failed: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._env = env
        self._partition = partition
        self._tell = tell
        self._give_up = give_up
        self.log_failed = log_failed
        self._bunches: deque[Bunch] = deque()  # Later ones stand behind later offsets, and have later deadlines.
        self._parked_end = Offset(0)  # The leader has a token for everything up to here.
        self._timer: asyncio.TimerHandle | None = None
        self.is_stuck = False

    def add(self, replies: Replies, now: Instant) -> None:
        """Tells them when everything that the log has now is committed; at once if it is."""
        leader, end_offset = self._partition.leader, self._partition.log.end_offset
        assert leader is not None, "a coordinator is closed before its partition has another leader"
        if end_offset <= leader.high_watermark:
            self._tell(replies)
            return
        if end_offset > self._parked_end:
            leader.park(end_offset, _Token(self, end_offset), needs_all=True)
            self._parked_end = end_offset
        self._bunches.append(Bunch(end_offset, Instant(now + SECONDS_MAX), replies))
        if self._timer is None:
            self._set_timer()

    def clear(self) -> None:
        """Everybody has heard something else. What is parked with the leader stays there."""
        self._bunches.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def committed(self, end_offset: Offset) -> None:
        self.is_stuck = False
        bunches = self._bunches
        while bunches and bunches[0].end_offset <= end_offset:
            self._tell(bunches.popleft().replies)

    def _set_timer(self) -> None:
        """For the first of them. It is left alone when that one is told: most of the time it finds nothing to do, every few seconds."""
        soonest = self._env.now() + TIMER_SECONDS_MIN
        self._timer = asyncio.get_running_loop().call_at(max(self._bunches[0].deadline, soonest), self._time_came)

    def _time_came(self) -> None:
        self._timer = None
        now, bunches = self._env.now(), self._bunches
        while bunches and bunches[0].deadline <= now:
            self.is_stuck = True
            self._give_up(bunches.popleft().replies)
        if bunches and self._timer is None:
            self._set_timer()


class _Token:
    """What the partition's leader keeps until it has caught up."""

    __slots__ = ("_end_offset", "_waiting")

    def __init__(self, waiting: WaitingReplies, end_offset: Offset) -> None:
        self._waiting = waiting
        self._end_offset = end_offset

    def made_durable(self) -> None:
        self._waiting.committed(self._end_offset)

    def is_over(self, end_offset: Offset) -> bool:
        """It ends that the log is stuck, and while it is, no more are parked."""
        return False

    def refused(self, code: ErrorCode, reason: str) -> None:
        self._waiting.log_failed(reason)
