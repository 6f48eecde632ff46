"""A transaction: all that was sent in it is read by others, or nothing; and with it the offsets of a consumer, or none.

    with Producer(transactional_id="billing-1") as producer, Consumer(group="billing", topics=["orders"]) as consumer:
        while messages := consumer.poll():
            with producer.transaction(consumer):
                for message in messages:
                    producer.send(topic="bills", key=message.key, value=bill(message))

Leaving the block commits; leaving it by an exception aborts, and the exception goes on. After an abort the consumer is set back to where it
was: what it had handed out and not committed is handed out again. So each message has its effect once, as seen by those who read
committed records only, which consumers here do unless told otherwise.

Records that were handed out and then lost to another member cannot be taken back one by one, so a transaction that may hold what was made
of them is aborted. Only a loop that asks for more inside one transaction can come to that.

Not here: how the broker is asked (transaction_calls.py), asyncio (async_transactions.py), the whole loop (loops.py).
"""

from types import TracebackType
from typing import Self

from penstock.client.consumer import Consumer
from penstock.client.failures import ClientError, TransactionAborted, TransactionFailed
from penstock.client.library import log
from penstock.client.progress import Place
from penstock.client.transaction_calls import TransactionCalls


class Transaction:
    """From `Producer.transaction()`, for one `with` block."""

    def __init__(self, calls: TransactionCalls, consumer: Consumer | None) -> None:
        if consumer is not None:
            consumer.must_suit_transactions()
        self._calls = calls
        self._consumer = consumer
        self._is_mine = False  # Whether the transaction that is open is this one.

    def abort(self) -> None:
        """Gives the transaction up, with no exception to anybody. Whatever is sent in the rest of the block is refused."""
        if not self._is_mine:
            return
        self._is_mine = False
        self._calls.abort()
        if self._consumer is not None:
            self._consumer.rewind()

    def __enter__(self) -> Self:
        if self._is_mine:
            raise RuntimeError("a transaction is for one `with` block: ask the producer for another")
        self._calls.begin()
        self._is_mine = True
        return self

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        if not self._is_mine:
            return
        if failure is None and self._calls.is_open:
            self._commit()
            return
        if failure is None:
            self._is_mine = False
            raise TransactionAborted("the producer was closed before the end of its transaction", "close it afterwards")
        try:
            self.abort()
        except ClientError as late:
            log.error("while aborting: %s", late)  # What is already on its way up is the better story.

    def _commit(self) -> None:
        offsets = self._take_offsets_in()
        try:
            self._calls.commit()
        except TransactionAborted:
            self.abort()
            raise
        except BaseException as failure:
            if not isinstance(failure, TransactionFailed):  # An interrupt leaves open what became of it.
                self._calls.doubt()
            self._is_mine = False
            raise
        self._is_mine = False
        if self._consumer is not None:
            self._consumer.was_committed(offsets)

    def _take_offsets_in(self) -> dict[Place, int]:
        if self._consumer is None:
            return {}
        try:
            offsets, group = self._consumer.for_transaction()
            if offsets:
                self._calls.take_in(offsets, group)
        except BaseException as failure:
            if not isinstance(failure, TransactionFailed) or isinstance(failure, TransactionAborted):
                self.abort()
            self._is_mine = False
            raise
        return offsets
