"""Senders of plain messages to one partition in the same turn: their messages are one batch, and each gets its part of what was sent.

What cannot be sent together is tried one by one; what is not plain after all, or might be refused, goes the general way (sending.py).
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.queues import plain_sending
from penstock.broker.queues.calls import Draft, Sent

if TYPE_CHECKING:
    from penstock.broker.queues.leading import QueuePartition

Heard = asyncio.Future[list[Sent] | None]


class _Caller(NamedTuple):
    heard: Heard
    drafts: Sequence[Draft]
    size: int


class Senders:
    __slots__ = ("_callers", "_queue", "_size")

    def __init__(self, queue: "QueuePartition") -> None:
        self._queue = queue
        self._callers: list[_Caller] = []
        self._size = 0

    def has_room_for(self, size: int) -> bool:
        """Whether one batch may hold so many more bytes."""
        return not self._callers or self._size + size <= self._queue.data.config.max_message_bytes

    def add(self, drafts: Sequence[Draft], size: int) -> Heard:
        heard: Heard = asyncio.get_running_loop().create_future()
        self._callers.append(_Caller(heard, drafts, size))
        self._size += size
        return heard

    def append(self) -> None:
        """Who has hung up by now has sent nothing."""
        callers = [caller for caller in self._callers if not caller.heard.done()]
        if len(callers) > 1 and self._append(callers):
            return
        for caller in callers:
            if not self._append([caller]):
                caller.heard.set_result(None)

    def _append(self, callers: list[_Caller]) -> bool:
        """False: nothing of it was sent, and they may go another way."""
        drafts = callers[0].drafts if len(callers) == 1 else [draft for caller in callers for draft in caller.drafts]
        batch = Batch(callers)
        try:
            appended = plain_sending.append(self._queue, drafts, sum([caller.size for caller in callers]))
            if appended is None:
                return False
            batch.sent, end_offset = appended
            if not self._queue.durable.told(end_offset, batch):
                batch.set_result(None)
        except Exception as failure:  # Of whatever kind: others of the same round go on.
            batch.set_exception(failure)
        return True


class Batch:
    """Hears, in a future's stead, once it is durable, and tells everybody."""

    __slots__ = ("_callers", "sent")

    def __init__(self, callers: list[_Caller]) -> None:
        self._callers = callers
        self.sent: list[Sent] = []

    def done(self) -> bool:
        return False

    def set_result(self, _: None) -> None:
        at, sent = 0, self.sent
        for heard, drafts, _size in self._callers:
            end = at + len(drafts)
            if not heard.done():
                heard.set_result(sent[at:end])
            at = end

    def set_exception(self, failure: Exception) -> None:
        for caller in self._callers:
            if not caller.heard.done():
                caller.heard.set_exception(failure)
