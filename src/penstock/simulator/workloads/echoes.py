"""A client whose batches may be late: some are sent again when their time is long over, some are held up on the way and given up.

So a batch can be met that was delayed: after its transaction has ended, in the middle of the next, or when another producer has taken over.
Whatever the node says to it, it must not count a second time, nor in another transaction, nor keep one open.
"""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple

from penstock.peers.appending import ACKS_ALL, Produced, TransactionPart
from penstock.peers.client import Client
from penstock.peers.failures import AnswerTimedOut, PeerFailure
from penstock.vocabulary import Buffer

_REMEMBERED_MAX = 20
_HELD_UP = 0.06
_PATIENCE_SECONDS_MAX, _DELAY_SECONDS_MAX = 0.05, 0.5
_LATE_SECONDS = 0.5  # How long the answer to a late one is waited for.


class _Sent(NamedTuple):
    topic: str
    partition: int
    batch: bytes
    part: TransactionPart


class EchoingClient(Client):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sent: deque[_Sent] = deque(maxlen=_REMEMBERED_MAX)
        self._on_the_way: dict[asyncio.Task[None], None] = {}

    async def __aenter__(self) -> "EchoingClient":
        return self

    async def close(self) -> None:
        for task in list(self._on_the_way):
            task.cancel()
        await super().close()

    async def produce(
        self, topic: str, partition: int, batch: Buffer,
        *, acks: int = ACKS_ALL, part: TransactionPart | None = None, deadline_s: float | None = None,
    ) -> Produced:  # fmt: skip
        if part is None:
            return await super().produce(topic, partition, batch, acks=acks, deadline_s=deadline_s)
        sent = _Sent(topic, partition, bytes(batch), part)
        if self.env.rng.random() < _HELD_UP:
            self._hold_up(sent)
            await asyncio.sleep(0.001 + _PATIENCE_SECONDS_MAX * self.env.rng.random())
            raise AnswerTimedOut("the batch is held up on the way", may_have_happened=True)
        self._sent.append(sent)
        return await super().produce(topic, partition, batch, acks=acks, part=part, deadline_s=deadline_s)

    async def echo(self) -> None:
        """Sends one of the last batches again, whichever."""
        if self._sent:
            await self._send_late(self._sent[self.env.rng.randrange(len(self._sent))])

    def _hold_up(self, sent: _Sent) -> None:
        async def arrive() -> None:
            await asyncio.sleep(0.001 + _DELAY_SECONDS_MAX * self.env.rng.random() ** 2)
            await self._send_late(sent)

        task = asyncio.get_running_loop().create_task(arrive())
        self._on_the_way[task] = None
        task.add_done_callback(lambda done: self._on_the_way.pop(done, None))

    async def _send_late(self, sent: _Sent) -> None:
        with suppress(PeerFailure):
            await super().produce(sent.topic, sent.partition, sent.batch, part=sent.part, deadline_s=_LATE_SECONDS)
