"""What the tests of the Python clients share: topics to write to, members of groups, deadlines that must be kept, a silent address.

Not here: claims.
"""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from waiting import NEVER_MS, PATIENCE_S

from penstock.client import Consumer, Message, Producer
from penstock.client.options import Protocol
from penstock.testing import Broker

NIMBLE = {"fetch.wait.max.ms": 50}  # librdkafka asks for nothing else of a broker before the fetch that it waits for has come back.
ATTENTIVE = {"heartbeat.interval.ms": 100, **NIMBLE}  # How soon a member hears that the others have changed.
# A member that only goes silent keeps its partitions for longer than a test waits, so that the next one has them from a member that left.
LASTING = {"session.timeout.ms": NEVER_MS, "max.poll.interval.ms": NEVER_MS}
SHORT_SESSIONS = {"group_min_session_timeout_ms": 100}  # The least that a member may ask for.

SPANS_S = (0.6, 2.4, 9.6, 40.0)  # All but the last only save time.

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


def member(bootstrap: str, group: str, topic: str, *, settings: Mapping[str, object] | None = None, **options: Any) -> Consumer:
    """A consumer whose session does not lapse while a test waits."""
    return Consumer(group=group, topics=[topic], bootstrap=bootstrap, settings={**LASTING, **(settings or {})}, **options)


def hasty(protocol: Protocol, interval_s: float) -> dict[str, object]:
    """Settings of a member that must be served within `interval_s`, and be heard of by the group within less where it says so itself."""
    interval_ms = int(interval_s * 1_000)
    session = {"session.timeout.ms": interval_ms * 2 // 3, "heartbeat.interval.ms": interval_ms // 8} if protocol == "classic" else {}
    return {"max.poll.interval.ms": interval_ms, **session}


def holds_unless_the_machine_stalls(trial: Callable[[float], bool]) -> None:
    """For a claim about a deadline on the real clock which the product must keep meeting, as it does by heartbeats.

    A trial that fails for a short span tells nothing about the product: the machine may have stalled for so long. Only the longest decides.
    """
    assert any(trial(span_s) for span_s in SPANS_S), f"it did not hold for any span up to {SPANS_S[-1]} s"


@contextmanager
def silent_address() -> Iterator[str]:
    """Nobody listens there, and nobody else will: it is bound."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"
