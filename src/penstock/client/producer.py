"""The producer: records out, each with a receipt.

`acks` says when a record counts as delivered, for the producer or for a single record:

| acks | delivered when | stored |
|---|---|---|
| "all" | every in-sync replica has it | once, in the order of sending |
| 1 | the leader has it | once or more: a retry can double it, or let a later one overtake |
| 0 | it was sent; nobody says whether it arrived | once, or never |

A librdkafka producer knows one way only, so each way in use has a channel of its own, made when it is first asked for. Records on different
channels are not ordered among each other, and each channel has a buffer of its own.

A full buffer makes `send` wait for up to `block_seconds` and then raise BufferFull, or raise it at once (`when_full="raise"`).
What is wrong with a record itself is raised by `send`; what happens to it later, by its receipt.

A producer with a `transactional_id` sends in transactions only (transactions.py), always with acks "all".
"""

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Self

from penstock.client.channel import Channel, wait_for_room
from penstock.client.consumer import Consumer
from penstock.client.failures import BufferFull, ClientError, Closed, NotDelivered
from penstock.client.library import common_settings, log
from penstock.client.options import Acks, Compression, WhenFull
from penstock.client.partitioning import ANY_PARTITION, AS_JAVA, PartitionCounts, Partitioner, choose
from penstock.client.receipts import Receipt
from penstock.client.records import Content, Headers, NewRecord, as_bytes, header_pairs
from penstock.client.transaction_calls import TransactionCalls
from penstock.client.transactions import Transaction

FAREWELL_SECONDS = 5.0  # What a producer that was never closed gets to deliver the rest when the interpreter ends.
NOW = 0  # librdkafka's word for it.
IN_FLIGHT_MAX = 5  # As Java's: the most that an idempotent producer may have under way.


class Producer:
    """Thread-safe. Use it in `with`, or close() it: what is still in the buffer goes out then.

    `bootstrap` falls back to PENSTOCK_BOOTSTRAP, then to 127.0.0.1:9092. `settings` are librdkafka's own, by its names, and win over ours.
    With a `transactional_id`, a name that only one producer uses at a time, everything is sent within `transaction()`; the broker aborts
    a transaction that takes longer than `transaction_seconds`.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        transactional_id: str | None = None,
        transaction_seconds: float = 60.0,
        acks: Acks = "all",
        partitioner: Partitioner | None = None,
        when_full: WhenFull = "block",
        block_seconds: float = 60.0,
        buffer_records: int = 100_000,
        buffer_bytes: int = 64 << 20,
        linger_ms: float = 5,
        compression: Compression = "none",
        delivery_seconds: float = 120.0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        if when_full not in ("block", "raise"):
            raise ValueError(f"when_full must be 'block' or 'raise', not {when_full!r}")
        if transactional_id == "":
            raise ValueError("transactional_id must not be empty: give each producer that runs at the same time a name, or None")
        if transactional_id is not None:
            delivery_seconds = min(delivery_seconds, transaction_seconds)  # Later than that there is no transaction to be part of.
        ours = {
            "linger.ms": linger_ms,
            "compression.type": compression,
            "queue.buffering.max.messages": buffer_records,
            "queue.buffering.max.kbytes": max(1, buffer_bytes >> 10),
            "delivery.timeout.ms": int(delivery_seconds * 1000),
            "partitioner": AS_JAVA,
        }
        if transactional_id is not None:
            ours |= {"transactional.id": transactional_id, "transaction.timeout.ms": int(transaction_seconds * 1000)}
        self._settings = common_settings(bootstrap, ours, settings)
        self._is_transactional = transactional_id is not None
        self._acks = acks
        self._partitioner = partitioner
        self.waits = when_full == "block"
        self.block_seconds = block_seconds
        self._channels: dict[object, Channel] = {}
        self._making_channel = threading.Lock()
        self._forgotten = weakref.finalize(self, _close_forgotten, self._channels)
        self._counts = PartitionCounts(self.channel(acks), block_seconds)
        self._calls = None if transactional_id is None else TransactionCalls(self.channel(acks), transactional_id, transaction_seconds)

    def send(
        self,
        *,
        topic: str,
        value: Content = None,
        key: Content = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        acks: Acks | None = None,
    ) -> Receipt:
        """Puts a record into the buffer, and returns before it is sent. `timestamp` is in milliseconds after 1970; without it: now."""
        record = self.prepare(topic=topic, value=value, key=key, headers=headers, partition=partition, timestamp=timestamp)
        attempt = partial(self.channel(acks).send, record)
        try:
            return attempt()
        except BufferFull:
            if not self.waits:
                raise
        return wait_for_room(self.channel(acks), attempt, self.block_seconds)

    def transaction(self, consumer: Consumer | None = None) -> Transaction:
        """For `with`: what is sent in the block, and what `consumer` has handed out by its end, is committed together or not at all.

        The first one also does what take_over() does. Raises, at the end of the block, TransactionAborted where it may be tried again;
        otherwise TransactionFailed, and Fenced or TransactionInDoubt among these: then this producer is at its end.
        """
        return Transaction(self._transactional(), consumer)

    def take_over(self) -> None:
        """Shuts out every earlier producer with this transactional_id, and aborts what it left open. Returns when that is done."""
        self._transactional().take_over()

    def flush(self, timeout: float | None = None) -> None:
        """Waits until everything sent so far is acknowledged. Raises for records that failed and whose receipts nobody has asked."""
        self._each(Channel.flush, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Flushes and ends. What could not be delivered within `timeout` is given up, and its receipts say so."""
        self._forgotten.detach()
        self._abort_what_is_open()
        self._each(Channel.close, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close()
        except ClientError as late:
            if failure is None:
                raise
            log.error("while closing: %s", late)  # What is already on its way up is the better story.

    # For AsyncProducer, which waits in another way.

    def prepare(
        self, *, topic: str, value: Content, key: Content, headers: Headers | None, partition: int | None, timestamp: int | None
    ) -> NewRecord:
        """Everything but the sending, which may have to be tried more than once."""
        if self._calls is not None and not self._calls.is_open:
            problem = f"a record for topic {topic!r} was not taken: no transaction is open"
            raise NotDelivered(problem, "send it inside: with producer.transaction():", "_STATE")
        if timestamp is not None and timestamp <= 0:
            raise ValueError(f"timestamp={timestamp}: give it in milliseconds after 1970, or leave it out for now")
        key = as_bytes(key)
        where = self.partition_for(topic, key) if partition is None else partition
        return NewRecord(topic, key, as_bytes(value), header_pairs(headers), where, timestamp or NOW)

    def channel(self, acks: Acks | None) -> Channel:
        wanted = self._acks if acks is None else acks
        channel = self._channels.get(wanted)
        return channel if channel is not None else self._open(wanted)

    def must_ask(self, topic: str) -> bool:
        """Whether `partition_for` would have to ask the broker first."""
        return self._partitioner is not None and self._counts.known(topic) is None

    def partition_for(self, topic: str, key: bytes | None) -> int:
        if self._partitioner is None:
            return ANY_PARTITION
        return choose(self._partitioner, topic, key, self._counts.known(topic) or self._counts.ask(topic))

    def _transactional(self) -> TransactionCalls:
        if self._calls is None:
            raise ValueError("this producer has no transactions: give it a transactional_id=")
        if not self._forgotten.alive:
            raise Closed("the producer is closed", "make another one")
        return self._calls

    def _abort_what_is_open(self) -> None:
        if self._calls is not None and self._calls.is_open:
            try:
                self._calls.abort()
            except ClientError as failure:
                log.error("while closing: %s", failure)

    def _each(self, act: Callable[[Channel, float | None], None], timeout: float | None) -> None:
        """All of them within one time-out; then the first failure is raised."""
        deadline = None if timeout is None else time.monotonic() + timeout
        failures: list[ClientError] = []
        for channel in list(self._channels.values()):
            try:
                act(channel, None if deadline is None else max(0.0, deadline - time.monotonic()))
            except ClientError as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    def _open(self, acks: Acks) -> Channel:
        if acks not in ("all", 1, 0):
            raise ValueError(f"acks must be 'all', 1 or 0, not {acks!r}")
        if self._is_transactional and acks != "all":
            raise ValueError(f"transactions need acks='all', not {acks!r}")
        ours = {"acks": acks, "enable.idempotence": acks == "all", "max.in.flight.requests.per.connection": IN_FLIGHT_MAX}
        with self._making_channel:
            if not self._forgotten.alive:
                raise Closed("the producer is closed", "make another one")
            if acks not in self._channels:
                self._channels[acks] = Channel({**ours, **self._settings})
            return self._channels[acks]


def _close_forgotten(channels: dict[object, Channel]) -> None:
    for channel in list(channels.values()):
        try:
            channel.close(FAREWELL_SECONDS)
        except ClientError as failure:
            log.error("a producer was never closed, and the rest of its records is lost: %s", failure)
