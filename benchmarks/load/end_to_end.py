"""End-to-end latency: from the moment a record was due to be sent until a consumer holds it, at a fixed rate.

One producer (one record per request, acks=all, never waiting for the answer of an earlier one) and one consumer with a long poll, on
one partition, each on its own connection. The clock starts when a record was due, not when the generator got round to it, so a stall
counts for every record that it delayed.
"""

import select
import time
from collections import deque
from dataclasses import dataclass

from benchmarks.load import frames
from benchmarks.load.connection import Connection
from benchmarks.load.fetching import read_fetched
from benchmarks.load.frames import UnexpectedReply
from benchmarks.load.pipeline import Outcome, Timing
from benchmarks.load.stopwatch import Stopwatch
from benchmarks.load.topics import Admin

_IN_FLIGHT_MAX = 10_000  # Past this the broker does not hold the rate and there is nothing to measure.
_DRAIN_S = 30.0


@dataclass(frozen=True, slots=True)
class EndToEndLoad:
    topic: str
    rate: int  # Records a second.

    def run(self, host: str, port: int, timing: Timing) -> Outcome:
        admin = Admin(host, port)
        (offset,) = admin.end_offsets(self.topic, 1)
        admin.close()
        return _Course(self, host, port, offset).run(timing)


class _Course:
    def __init__(self, load: EndToEndLoad, host: str, port: int, offset: int) -> None:
        self._load = load
        self._producer = Connection(host, port, receive_bytes=1 << 20)
        self._consumer = Connection(host, port, receive_bytes=8 << 20)
        self._frame = frames.produce(load.topic, [0], frames.one_batch(1, time.time_ns() // 1_000_000), correlation_id=0)
        self._consumed = offset  # Every record below this offset has reached the consumer.
        self._unacknowledged = 0
        self._due: deque[float] = deque()  # When each record that was sent and not yet consumed was due.
        self._latencies: list[float] = []

    def run(self, timing: Timing) -> Outcome:
        rate = self._load.rate
        skipped = int(rate * timing.warm_up_s)
        self._ask_for_more()
        watch = Stopwatch(timing.broker_pids)
        for number in range(skipped + int(rate * timing.seconds)):
            due = watch.began_s + number / rate
            self._wait_until(due)
            self._send(due)
        self._drain()
        self._producer.close()
        self._consumer.close()
        sent = len(self._latencies)
        return Outcome(sent, sent, sent * frames.VALUE_BYTES, watch.lap(), self._latencies[skipped:])

    def _send(self, due: float) -> None:
        self._due.append(due)
        self._producer.send(self._frame)
        self._unacknowledged += 1
        if self._unacknowledged > _IN_FLIGHT_MAX:
            raise UnexpectedReply(f"the broker does not hold {self._load.rate:,} records a second")

    def _wait_until(self, moment: float) -> None:
        """Serves both connections until then. `select` because it counts in microseconds where epoll counts in milliseconds."""
        while True:
            is_sent = self._producer.flush()
            left = moment - time.perf_counter()
            if left <= 0:
                return
            self._serve(left, wants_write=not is_sent)

    def _drain(self) -> None:
        give_up = time.perf_counter() + _DRAIN_S
        while self._due or self._unacknowledged:
            if time.perf_counter() > give_up:
                raise TimeoutError(f"{len(self._due):,} records did not reach the consumer in {_DRAIN_S:.0f} s")
            self._serve(1.0, wants_write=not self._producer.flush())

    def _serve(self, timeout: float, *, wants_write: bool) -> None:
        readable, _, _ = select.select([self._producer, self._consumer], [self._producer] if wants_write else [], [], timeout)
        if self._consumer in readable:
            self._take_records()
        if self._producer in readable:
            for reply in self._producer.receive():
                frames.check_produced(reply, self._load.topic, 1, 0)
                self._unacknowledged -= 1

    def _take_records(self) -> None:
        for reply in self._consumer.receive():
            now = time.perf_counter()
            offsets = {0: self._consumed}
            records, _ = read_fetched(reply, self._load.topic, offsets, 0)
            self._latencies.extend(now - self._due.popleft() for _ in range(records))
            self._consumed = offsets[0]
            self._ask_for_more()

    def _ask_for_more(self) -> None:
        self._consumer.send(frames.fetch(self._load.topic, {0: self._consumed}, correlation_id=0))
        self._consumer.flush()
