"""One librdkafka producer, and the thread that hears what became of its records.

librdkafka tells nothing by itself: somebody must ask it. The thread does, so that receipts are settled and room is made while the
program does something else. It holds no reference to the `Producer` in front of it, so that a forgotten one is cleaned up.

A failure that nobody has asked about is kept, and `flush()` raises it: a record that is sent and forgotten does not get lost in silence.
Not here: which channel a record takes (producer.py), transactions, which ask `library` themselves (transaction_calls.py).
"""

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.client.failures import BufferFull, ClientError, Closed, NotDelivered, TimedOut, error_in, failed
from penstock.client.library import confluent_kafka, log
from penstock.client.receipts import Receipt
from penstock.client.records import NewRecord, Placed

HEARING_SECONDS = 0.1  # How long closing waits at most for the thread to look up.
FAILURES_KEPT_MAX = 100
THE_END = (confluent_kafka.KafkaException, SystemError)  # The second is what becomes of the first when reports are heard with it.
NO_OFFSET = confluent_kafka.OFFSET_INVALID

_here = threading.local()  # Whether this thread is inside somebody's callback.


class Channel:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.lock = threading.Lock()
        self.trouble = ""  # What was last heard of the connections.
        self.is_dropping = False  # While a transaction is aborted.
        self.library = confluent_kafka.Producer({**settings, "error_cb": self._heard_trouble})
        self._waiting_for_room: list[Callable[[], object]] = []
        self._failed: list[Receipt] = []
        self._under_way = 0  # Records whose receipts are not settled. The library's own count has its errors and log lines in it.
        self._is_closed = False
        self._thread = threading.Thread(target=_hear, args=(self,), name="penstock-producer", daemon=True)
        self._thread.start()

    def send(self, record: NewRecord) -> Receipt:
        """Puts a record into the buffer, never waiting. Raises BufferFull, or what is wrong with the record."""
        if self._is_closed:
            raise Closed("the producer is closed", "send before close(), or make another producer")
        topic, key, value, headers, partition, timestamp = record
        receipt = Receipt(topic, self.lock)

        def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            self._delivered(receipt, error, message)

        self._count(+1)
        try:
            self.library.produce(
                topic, value=value, key=key, partition=partition, on_delivery=delivered, timestamp=timestamp, headers=headers
            )
        except BaseException as failure:
            self._count(-1)
            raise self._refusal(topic, failure) from None
        if self._is_closed:  # By another thread meanwhile: what closing has not seen must still be settled.
            self._give_up_the_rest()
        return receipt

    def when_room(self, callback: Callable[[], object]) -> None:
        """Calls it once, when a record has left the buffer. To miss nothing: ask for it first, then try to send, then wait."""
        with self.lock:
            self._waiting_for_room.append(callback)

    def partitions_of(self, topic: str, timeout: float) -> int:
        """How many partitions the broker says there are; 0 while it is still making them."""
        try:
            found = self.library.list_topics(topic, timeout=timeout).topics[topic]
        except confluent_kafka.KafkaException as failure:
            raise failed(NotDelivered, f"topic {topic!r} cannot be looked up", error_in(failure), self.trouble) from None
        if found.error is not None and found.error.code() != confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE:
            raise failed(NotDelivered, f"topic {topic!r} cannot be looked up", found.error)
        return len(found.partitions)

    def flush(self, timeout: float | None) -> None:
        """Waits until every record is acknowledged or has failed. Raises for those that failed and that nobody has asked about."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            self._flush_library(max(0.0, min(HEARING_SECONDS, deadline - time.monotonic())))
            self._tell_room()
            if not self._under_way:
                break
            if time.monotonic() >= deadline:
                problem = f"{self._under_way} records are not acknowledged yet"
                raise TimedOut(problem, "they are still under way: flush() again, or give it more time")
        with self.lock:
            forgotten, self._failed = [receipt for receipt in self._failed if not receipt.is_watched], []
        if forgotten:
            raise _together(forgotten)

    def close(self, timeout: float | None) -> None:
        """Flushes, then ends. Every receipt is settled afterwards."""
        if self._is_closed:
            return
        try:
            self.flush(timeout)
        finally:
            self._is_closed = True
            if threading.current_thread() is not self._thread:
                self._thread.join()
            self._give_up_the_rest()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def hear(self) -> None:
        try:
            heard = self.library.poll(HEARING_SECONDS)
        except THE_END as failure:
            self._heard_the_end(failure)
            time.sleep(HEARING_SECONDS)  # The library says so each time, and at once.
        else:
            if heard:
                self._tell_room()

    def _tell_room(self) -> None:
        """After a call that heard reports, never inside one: a record takes its room until its report has been heard to the end."""
        if self._waiting_for_room:
            with self.lock:
                waiting, self._waiting_for_room = self._waiting_for_room, []
            for wake in waiting:
                wake()

    def _delivered(self, receipt: Receipt, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is None:
            offset = message.offset()
            place = Placed(receipt.topic, message.partition() or 0, None if offset is None or offset == NO_OFFSET else offset)
            callbacks = receipt.settle(place)
        else:
            callbacks = receipt.settle(self._not_delivered(receipt.topic, error))
            self._keep_failure(receipt)
        self._count(-1)
        for callback in callbacks:
            _call(callback, receipt)

    def forget_failures(self) -> None:
        """An aborted transaction takes its records with it, so that nobody need hear of those that failed."""
        with self.lock:
            self._failed = []

    def _not_delivered(self, topic: str, error: confluent_kafka.KafkaError) -> NotDelivered:
        what = f"a record for topic {topic!r} was not delivered"
        if self.is_dropping and error.name() in ("_PURGE_QUEUE", "_PURGE_INFLIGHT"):
            return NotDelivered(f"{what}: its transaction was aborted", "", error.name())
        return failed(NotDelivered, what, error, self.trouble if error.code() == confluent_kafka.KafkaError._MSG_TIMED_OUT else "")

    def _keep_failure(self, receipt: Receipt) -> None:
        with self.lock:
            if not receipt.is_watched and len(self._failed) < FAILURES_KEPT_MAX:
                self._failed.append(receipt)

    def _give_up_the_rest(self) -> None:
        self.library.purge()
        self._flush_library(0)

    def _flush_library(self, seconds: float) -> None:
        try:
            self.library.flush(seconds)
        except THE_END as failure:
            self._heard_the_end(failure)

    def _heard_the_end(self, failure: Exception) -> None:
        """The library of a producer that was shut out tells so by every call; what it has heard of its records is told all the same."""
        self.trouble = error_in(failure).str() if isinstance(failure, confluent_kafka.KafkaException) else self.trouble

    def _count(self, change: int) -> None:
        with self.lock:
            self._under_way += change

    def _refusal(self, topic: str, failure: BaseException) -> BaseException:
        """What `produce` raises, in our words."""
        if isinstance(failure, confluent_kafka.KafkaException):
            return failed(NotDelivered, f"a record for topic {topic!r} was not taken", error_in(failure))
        if not isinstance(failure, BufferError):
            return failure
        trouble = f"; the last trouble was {self.trouble}" if self.trouble else ""
        return BufferFull(
            f"the buffer is full: {self._under_way} records wait for the broker{trouble}",
            "send more slowly, wait for receipts, or make the buffer larger (buffer_records=, buffer_bytes=)",
            "_QUEUE_FULL",
        )

    def _heard_trouble(self, error: confluent_kafka.KafkaError) -> None:
        self.trouble = error.str()
        log.debug("librdkafka: %s", error)


def is_in_callback() -> bool:
    """Whether waiting here would be waiting for oneself."""
    return getattr(_here, "is_in_callback", False)


def wait_for_room(channel: Channel, attempt: Callable[[], Receipt], seconds: float) -> Receipt:
    """Tries until there is room or `seconds` are over; then it raises BufferFull. In a callback it does not wait."""
    deadline = time.monotonic() + seconds
    while True:
        room = threading.Event()
        channel.when_room(room.set)
        try:
            return attempt()
        except BufferFull:
            left = deadline - time.monotonic()
            if left <= 0 or is_in_callback():
                raise
            room.wait(left)


def _hear(channel: Channel) -> None:
    while not channel.is_closed:
        channel.hear()


def _call(callback: Callable[[Receipt], object], receipt: Receipt) -> None:
    _here.is_in_callback = True
    try:
        callback(receipt)
    except Exception:
        log.exception("a callback for a record of topic %r failed", receipt.topic)
    finally:
        _here.is_in_callback = False


def _together(receipts: list[Receipt]) -> ClientError:
    first = receipts[0].exception()
    assert first is not None
    if len(receipts) == 1:
        return first
    count = f"{FAILURES_KEPT_MAX} or more" if len(receipts) == FAILURES_KEPT_MAX else str(len(receipts))
    return NotDelivered(f"{count} records were not delivered; the first: {first.problem}", first.advice, first.code)
