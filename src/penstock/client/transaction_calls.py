"""What librdkafka does of a transaction, said patiently: begin, take offsets in, commit, abort, and what an error means for the caller.

| it says | here it becomes | the caller may |
|---|---|---|
| retriable | asked again, until `seconds` are over; then TransactionInDoubt for a commit, TimedOut for the rest | see below |
| requires abort | TransactionAborted | abort, and try it again |
| fenced | Fenced | stop: another has its place, or it took too long and was aborted |
| fatal, or anything else | TransactionFailed | make a new producer |

A failure that ends the producer is remembered: whatever is asked next raises it again.
Not here: when to do which (transactions.py).
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock.client.channel import Channel
from penstock.client.failures import (
    ADVICE,
    ClientError,
    Fenced,
    TimedOut,
    TransactionAborted,
    TransactionFailed,
    TransactionInDoubt,
    error_in,
    failed,
)
from penstock.client.library import confluent_kafka
from penstock.client.progress import Place

RETRY_SECONDS = 0.1
GRACE_SECONDS = 1.0  # Beyond the time that the library was given.
FENCED_CODES = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED"})

IN_DOUBT = "make a new producer with this transactional_id, which settles it, and let the consumer begin from what its group committed"


class TransactionCalls:
    """For one producer. At most one transaction is open at a time."""

    def __init__(self, channel: Channel, transactional_id: str, seconds: float) -> None:
        self.transactional_id = transactional_id
        self.is_open = False
        self._channel = channel
        self._seconds = seconds
        self._has_place = False  # Whether earlier producers with this id are shut out.
        self._ended_by: ClientError | None = None
        self._beginning = threading.Lock()

    def take_over(self) -> None:
        with self._beginning:
            if not self._has_place:
                self._patiently(f"{self._who} cannot begin", self._channel.library.init_transactions)
                self._has_place = True

    def begin(self) -> None:
        self.take_over()
        with self._beginning:
            if self.is_open:
                raise RuntimeError(f"{self._who} has a transaction open already: one after the other, or another producer with another id")
            self._patiently(f"{self._who} cannot begin a transaction", lambda _: self._channel.library.begin_transaction())
            self.is_open = True

    def take_in(self, offsets: Mapping[Place, int], group: Any) -> None:
        """`group` is what the library's consumer says of its membership: the broker refuses offsets of one who is a member no more."""
        places = [confluent_kafka.TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        what = f"{self._who} cannot take the group's offsets in"

        def ask(seconds: float) -> None:
            self._watched(what, seconds, lambda: self._channel.library.send_offsets_to_transaction(places, group, seconds))

        self._patiently(what, ask)

    def commit(self) -> None:
        try:
            self._patiently(f"{self._who} cannot commit", self._channel.library.commit_transaction)
        except TimedOut as late:
            self._end(TransactionInDoubt(late.problem, IN_DOUBT, late.code))
        self.is_open = False

    def abort(self) -> None:
        """What was sent and is still in the buffer is dropped. The receipts of the transaction's records say so, or where they lie."""
        self._channel.is_dropping = True
        try:
            self._patiently(f"{self._who} cannot abort", self._channel.library.abort_transaction)
        except TimedOut as late:  # The broker does it by itself when the transaction's time is over.
            self._end(TransactionFailed(late.problem, "make a new producer", late.code))
        finally:
            self._channel.is_dropping = self.is_open = False
            self._channel.forget_failures()

    def doubt(self) -> None:
        """A commit was interrupted: nobody here knows what became of it, so nothing more is to be built on it."""
        self.is_open = False
        self._ended_by = TransactionInDoubt(f"{self._who} was interrupted while it committed", IN_DOUBT)

    @property
    def _who(self) -> str:
        return f"producer {self.transactional_id!r}"

    def _patiently(self, what: str, call: Callable[[float], object]) -> None:
        if self._ended_by is not None:
            raise self._ended_by
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                call(max(RETRY_SECONDS, deadline - time.monotonic()))
                return
            except confluent_kafka.KafkaException as failure:
                error = error_in(failure)
            except SystemError:  # What the library makes of a fatal error that is heard together with reports. It tells it again.
                continue
            if not error.retriable() or time.monotonic() >= deadline:
                self._judge(what, error)
            time.sleep(RETRY_SECONDS)

    def _watched(self, what: str, seconds: float, call: Callable[[], object]) -> None:
        """librdkafka 2.16 may never return here, whatever time it is given (its issues 5456 and 5511): then this producer is at its end,
        and the thread that waits in it is left behind."""
        failures: list[BaseException] = []

        def wait_for_it() -> None:
            try:
                call()
            except BaseException as failure:
                failures.append(failure)

        waiting = threading.Thread(target=wait_for_it, name="penstock-offsets", daemon=True)
        waiting.start()
        waiting.join(seconds + GRACE_SECONDS)
        if waiting.is_alive():
            self._end(TransactionFailed(f"{what}: librdkafka does not come back", "make a new producer with this transactional_id"))
        if failures:
            raise failures[0]

    def _judge(self, what: str, error: confluent_kafka.KafkaError) -> None:
        if error.name() in FENCED_CODES:
            self._end(failed(Fenced, what, error))
        if error.txn_requires_abort():
            raise failed(TransactionAborted, what, error, self._channel.trouble)
        if error.retriable():
            trouble = f"; the last trouble was {self._channel.trouble}" if self._channel.trouble else ""
            raise TimedOut(f"{what} within {self._seconds:g} s: {error.str()}{trouble}", "look whether the broker is up", error.name())
        self._end(TransactionFailed(f"{what}: {error.str()}", ADVICE.get(error.name(), "make a new producer"), error.name()))

    def _end(self, failure: TransactionFailed) -> None:
        self.is_open = False
        self._ended_by = failure
        raise failure from None
