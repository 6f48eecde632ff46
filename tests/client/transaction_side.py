"""What the tests of transactions share: producers, topics to write to, and what a reader finds in one.

Not here: claims.
"""

from typing import Any
from uuid import uuid4

from client.client_side import values, write_to
from waiting import NEVER_S, PATIENCE_S

from penstock.client import AsyncProducer, Consumer, Producer
from penstock.testing.topics import create_topic


def transactional(bootstrap: str, name: str, **options: Any) -> Producer:
    """A producer whose transactions end because somebody ends them: the broker aborts none of them while a test waits."""
    return Producer(bootstrap, transactional_id=name, transaction_seconds=NEVER_S, **options)


def async_transactional(bootstrap: str, name: str) -> AsyncProducer:
    return AsyncProducer(bootstrap, transactional_id=name, transaction_seconds=NEVER_S)


def new_topic(bootstrap: str, partitions: int = 1) -> str:
    topic = f"topic-{uuid4().hex[:8]}"
    create_topic(bootstrap, topic, partitions, {})
    return topic


def write(bootstrap: str, topic: str, contents: list[bytes], partition: int | None = None) -> None:
    write_to(bootstrap, topic, *contents, partition=partition)


def read(bootstrap: str, topic: str, partitions: int = 1, *, committed: bool = True) -> list[bytes | None]:
    """All that there is for a reader of committed records, or of all. It knows the end: a last record is written for that."""
    for partition in range(partitions):
        write(bootstrap, topic, [b"the end"], partition=partition)
    found: list[bytes | None] = []
    isolation = "read_committed" if committed else "read_uncommitted"
    with Consumer(topics=[topic], bootstrap=bootstrap, isolation=isolation) as consumer:  # type: ignore[arg-type]
        while found.count(b"the end") < partitions:
            batch = consumer.poll(timeout=PATIENCE_S)
            assert batch, f"the end never came after {found}"
            found += values(batch)
    return [content for content in found if content != b"the end"]
