"""Closed-loop load: several connections, each with a fixed number of requests in flight, for a fixed time.

What was sent before the warm-up ended, or is answered after the end, is checked but not counted.
"""

import selectors
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.load.connection import Connection
from benchmarks.load.stopwatch import NO_LAP, Lap, Stopwatch
from benchmarks.tables import quantile

Ticket = int  # What a workload wants to remember of a request; it is also the request's correlation id.
NextRequest = Callable[[], tuple[Ticket, bytes]]
CheckReply = Callable[[memoryview, Ticket], tuple[int, int]]  # To (records, bytes); raises UnexpectedReply.


@dataclass(frozen=True, slots=True)
class Timing:
    warm_up_s: float
    seconds: float
    broker_pids: tuple[int, ...] = ()  # Whose CPU time is read beside our own.


@dataclass(slots=True)
class Outcome:
    requests: int = 0
    records: int = 0
    bytes: int = 0
    lap: Lap = NO_LAP  # The stretch in which all this was counted.
    latencies: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, float]:
        ordered = sorted(self.latencies)
        seconds = self.lap.seconds
        return {
            "requests_per_s": self.requests / seconds,
            "records_per_s": self.records / seconds,
            "bytes_per_s": self.bytes / seconds,
            "generator_cpu": self.lap.own_cpu_s / seconds,
            "broker_cpu": self.lap.broker_cpu_s / seconds,
            "p50_s": quantile(ordered, 0.5),
            "p99_s": quantile(ordered, 0.99),
            "p999_s": quantile(ordered, 0.999),
            "max_s": ordered[-1],
        }


@dataclass(slots=True)
class Lane:
    """One connection with its share of the load."""

    connection: Connection
    next_request: NextRequest
    in_flight: deque[tuple[float, Ticket]] = field(default_factory=deque)


class Pipeline:
    def __init__(self, lanes: Sequence[Lane], check: CheckReply, *, depth: int) -> None:
        self._lanes = lanes
        self._check = check
        self._depth = depth
        self._selector = selectors.DefaultSelector()
        self._outcome = Outcome()
        self._is_counting = False
        self._is_ending = False

    def run(self, timing: Timing) -> Outcome:
        for lane in self._lanes:
            self._selector.register(lane.connection, selectors.EVENT_READ, lane)
            self._refill(lane)
        self._turn_until(time.perf_counter() + timing.warm_up_s)
        self._is_counting = True
        watch = Stopwatch(timing.broker_pids)
        self._turn_until(watch.began_s + timing.seconds)
        self._outcome.lap = watch.lap()
        self._drain()
        return self._outcome

    def _turn_until(self, end: float) -> None:
        while (left := end - time.perf_counter()) > 0:
            self._turn(left)

    def _drain(self) -> None:
        self._is_counting, self._is_ending = False, True
        give_up = time.perf_counter() + 30
        while any(lane.in_flight for lane in self._lanes):
            if time.perf_counter() > give_up:
                raise TimeoutError("the broker did not answer the last requests in 30 s")
            self._turn(1.0)

    def _turn(self, timeout: float) -> None:
        for key, events in self._selector.select(timeout):
            lane: Lane = key.data
            if events & selectors.EVENT_READ:
                self._take_replies(lane)
            self._refill(lane)

    def _take_replies(self, lane: Lane) -> None:
        outcome = self._outcome
        now = time.perf_counter()
        for reply in lane.connection.receive():
            sent_at, ticket = lane.in_flight.popleft()
            records, size = self._check(reply, ticket)
            if self._is_counting:
                outcome.requests += 1
                outcome.records += records
                outcome.bytes += size
                outcome.latencies.append(now - sent_at)

    def _refill(self, lane: Lane) -> None:
        missing = 0 if self._is_ending else self._depth - len(lane.in_flight)
        if missing:
            now = time.perf_counter()
            for _ in range(missing):
                ticket, frame = lane.next_request()
                lane.connection.send(frame)
                lane.in_flight.append((now, ticket))
        had_unsent = bool(self._selector.get_key(lane.connection).events & selectors.EVENT_WRITE)
        has_unsent = not lane.connection.flush()
        if had_unsent != has_unsent:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if has_unsent else 0)
            self._selector.modify(lane.connection, events, lane)
