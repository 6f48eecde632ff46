"""What the tests of the Python clients share: topics to write to, everything that is in one, and an address where nobody listens.

Not here: claims.
"""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from waiting import PATIENCE_S

from penstock.client import Consumer, Message, Producer
from penstock.testing import Broker

NIMBLE = {"fetch.wait.max.ms": 50}  # librdkafka asks for nothing else of a broker before the fetch that it waits for has come back.
SPANS_S = (0.6, 1.2, 2.4, 4.8, 9.6, 19.2)


writers: dict[str, Producer] = {}  # One for each broker and all tests of a process: to start one takes longer than most of them.


def write(
    broker: Broker,
    topic: str,
    *values: bytes,
    partition: int | None = None,
    key: str | None = None,
    headers: Mapping[str, bytes] | None = None,
) -> None:
    write_to(broker.bootstrap, topic, *values, partition=partition, key=key, headers=headers)


def write_to(
    bootstrap: str,
    topic: str,
    *values: bytes,
    partition: int | None = None,
    key: str | None = None,
    headers: Mapping[str, bytes] | None = None,
) -> None:
    if bootstrap not in writers:
        writers[bootstrap] = Producer(bootstrap)
    for value in values:
        writers[bootstrap].send(topic=topic, value=value, key=key, partition=partition, headers=headers)
    writers[bootstrap].flush(PATIENCE_S)


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%05d" % number for number in range(start, start + count)]


def poll_count(consumer: Consumer, count: int) -> list[Message]:
    """The next `count` records, and no more than came with them."""
    found: list[Message] = []
    while len(found) < count:
        batch = consumer.poll(timeout=PATIENCE_S)
        assert batch, f"only {len(found)} of {count} records came"
        found += batch
    return found


def read_all(broker: Broker, topic: str, count: int) -> list[Message]:
    """Everything in a topic, which must be `count` records."""
    with Consumer(topics=[topic], bootstrap=broker.bootstrap) as consumer:
        found = poll_count(consumer, count)
        assert len(found) == count, f"{len(found)} records instead of {count}"
        return found


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value for message in messages]


def holds_for_some_span(trial: Callable[[float], bool]) -> None:
    """For a claim about a deadline on the real clock which the product must keep meeting, as it does by heartbeats.

    A machine that stalls for longer than the span tells nothing about the product, so the trial is made with ever longer ones. A product
    that does not meet its deadline fails with each of them.
    """
    assert any(trial(span_s) for span_s in SPANS_S), f"it did not hold for any span up to {SPANS_S[-1]} s"


@contextmanager
def silent_address() -> Iterator[str]:
    """Nobody listens there, and nobody else will: it is bound."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"
