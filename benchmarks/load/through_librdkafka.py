"""`python -m benchmarks.load.through_librdkafka end-to-end|burst`: what an application sees of a broker; figures as one line of JSON.

end-to-end: records at a fixed rate with linger 5 ms and acks=all, from when each was due until a consumer's poll returned it.
burst: a steady rate, then for a while three times as much, then the steady rate again until the consumer, who can take two and a half
times the steady rate, has caught up. Every record must be acknowledged, and none may be refused on the way.
"""

import argparse
import json
import struct
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from benchmarks.tables import quantile

LINGER_MS = 5
VALUE = struct.Struct(">d")
PADDING = bytes(92)
BURST_FACTOR, READER_FACTOR = 3.0, 2.5
DRAIN_S_MAX = 1_200.0


@dataclass(slots=True)
class Tally:
    sent: int = 0
    answered: int = 0
    refused: list[str] = field(default_factory=list)
    answer_s: list[float] = field(default_factory=list)  # From when a record was due until it was acknowledged.
    read_s: list[float] = field(default_factory=list)  # Until a consumer held it.

    def note(self, due: float, error: KafkaError | None) -> None:
        self.answered += 1
        self.answer_s.append(time.monotonic() - due)
        if error is not None:
            self.refused.append(str(error))


class Course:
    """One producer in this thread, one consumer in another."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, read_per_s: float | None = None) -> None:
        config = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": LINGER_MS, "queue.buffering.max.messages": 2_000_000}
        self._producer = Producer(config)
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._topic, self._partitions, self._read_per_s = topic, partitions, read_per_s
        self.tally = Tally()
        self._is_ending = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def lag(self) -> int:
        return self.tally.sent - len(self.tally.read_s)

    def send(self, per_second: float, seconds: float) -> None:
        begin, number = time.monotonic(), 0
        while number < per_second * seconds:
            due = begin + number / per_second
            wait = due - time.monotonic()
            if wait > 0:
                self._producer.poll(min(wait, 0.001))
                continue
            self._send_one(due)
            number += 1

    def _send_one(self, due: float) -> None:
        tally = self.tally
        self._producer.produce(
            self._topic, VALUE.pack(due) + PADDING, partition=tally.sent % self._partitions,
            on_delivery=lambda error, _message: tally.note(due, error),
        )  # fmt: skip
        tally.sent += 1

    def finish(self) -> None:
        """Until everything was answered and read."""
        if left := self._producer.flush(60):
            raise TimeoutError(f"{left:,} records were not answered")
        give_up = time.monotonic() + DRAIN_S_MAX
        while self.lag:
            if time.monotonic() > give_up:
                raise TimeoutError(f"{self.lag:,} records were not read in {DRAIN_S_MAX:.0f} s")
            time.sleep(0.01)
        self._is_ending = True
        self._reader.join(10)
        self._consumer.close()

    def _read(self) -> None:
        begin = time.monotonic()
        while not self._is_ending:
            if self._read_per_s and len(self.tally.read_s) > (time.monotonic() - begin) * self._read_per_s:
                time.sleep(0.005)
                continue
            # Not `consume(500, 0.05)` alone: that waits for 500 records or for all of its time-out, whatever is there.
            first = self._consumer.poll(0.05)
            records: list[Message] = [] if first is None else [first, *self._consumer.consume(500, timeout=0)]
            now = time.monotonic()
            self.tally.read_s.extend(now - VALUE.unpack_from(record.value() or b"")[0] for record in records if record.error() is None)


def end_to_end(arguments: argparse.Namespace) -> dict[str, float]:
    course = Course(arguments.bootstrap, arguments.topic, arguments.partitions)
    course.send(arguments.rate, arguments.warm_up)
    skipped = course.tally.sent
    course.send(arguments.rate, arguments.seconds)
    course.finish()
    return _quantiles(course.tally, skipped)


def burst(arguments: argparse.Namespace) -> dict[str, float]:
    rate = arguments.rate
    course = Course(arguments.bootstrap, arguments.topic, arguments.partitions, read_per_s=rate * READER_FACTOR)
    course.send(rate, arguments.warm_up)
    skipped = course.tally.sent
    course.send(rate * BURST_FACTOR, arguments.seconds)
    lag_max, ended = course.lag, time.monotonic()
    while course.lag > rate * 0.5 and time.monotonic() < ended + DRAIN_S_MAX:
        course.send(rate, 1.0)
    drained_s = time.monotonic() - ended
    course.finish()
    return _quantiles(course.tally, skipped) | {
        "sent": course.tally.sent,
        "refused": len(course.tally.refused),
        "lag_max": lag_max,
        "drained_s": drained_s,
        "sent_per_s": rate * BURST_FACTOR,
    }


def _quantiles(tally: Tally, skipped: int) -> dict[str, float]:
    if tally.refused:
        raise ValueError(f"{len(tally.refused)} records were refused, such as {tally.refused[0]}")
    answered, read = sorted(tally.answer_s[skipped:]), sorted(tally.read_s[skipped:])
    names = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))
    return {f"answer_{name}_s": quantile(answered, share) for name, share in names} | {
        f"read_{name}_s": quantile(read, share) for name, share in names
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.through_librdkafka", description=__doc__)
    parser.add_argument("kind", choices=["end-to-end", "burst"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True, help="must exist, and be empty")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--rate", type=float, default=1_000.0, help="records a second")
    parser.add_argument("--warm-up", type=float, default=2.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    kinds: dict[str, Any] = {"end-to-end": end_to_end, "burst": burst}
    try:
        print(json.dumps(kinds[arguments.kind](arguments)))
    except (TimeoutError, ValueError, BufferError) as failure:
        sys.exit(f"load: {failure}")


if __name__ == "__main__":
    main()
