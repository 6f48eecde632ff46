"""A client that remembers what it produced, and sends some of it again when its time is long over.

So a batch can be met that was delayed on the way: after its transaction has ended, in the middle of the next, or when another producer has
taken over. Whatever the node says to it, it must not count a second time, nor in another transaction, nor keep one open.
"""

from collections import deque
from typing import Any, NamedTuple

from penstock.peers.appending import ACKS_ALL, Produced, TransactionPart
from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure
from penstock.vocabulary import Buffer

_REMEMBERED_MAX = 20
_LATE_SECONDS = 0.5


class _Sent(NamedTuple):
    topic: str
    partition: int
    batch: bytes
    part: TransactionPart


class EchoingClient(Client):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sent: deque[_Sent] = deque(maxlen=_REMEMBERED_MAX)

    async def __aenter__(self) -> "EchoingClient":
        return self

    async def produce(
        self, topic: str, partition: int, batch: Buffer,
        *, acks: int = ACKS_ALL, part: TransactionPart | None = None, deadline_s: float | None = None,
    ) -> Produced:  # fmt: skip
        if part is not None:
            self._sent.append(_Sent(topic, partition, bytes(batch), part))
        return await super().produce(topic, partition, batch, acks=acks, part=part, deadline_s=deadline_s)

    async def echo(self) -> None:
        """Sends one of the last batches again, whichever."""
        if not self._sent:
            return
        sent = self._sent[self.env.rng.randrange(len(self._sent))]
        try:
            await super().produce(sent.topic, sent.partition, sent.batch, part=sent.part, deadline_s=_LATE_SECONDS)
        except PeerFailure:
            return
