"""Which partition a record goes to.

Unless told otherwise: with a key, where Java's client puts it (murmur2 of the key), so that programs in every language agree where a key
lives; without one, some partition for a few milliseconds and then another, so that batches fill up. librdkafka does both when told
to; its own default hashes keys differently.

A caller may decide instead, with a function of topic, key and number of partitions. librdkafka has no door for that in Python, so the
number is asked for here, and kept for a while.
"""

import time
from collections.abc import Callable

from penstock.client.channel import HEARING_SECONDS, Channel
from penstock.client.failures import NotDelivered

Partitioner = Callable[[str, bytes | None, int], int]
"""From topic, key and number of partitions to a partition."""

AS_JAVA = "murmur2_random"  # What librdkafka calls it.
ANY_PARTITION = -1
KNOWN_SECONDS = 60.0  # A topic that grows is noticed after this long; partitions never go away.


class PartitionCounts:
    """How many partitions topics have."""

    def __init__(self, channel: Channel, patience_seconds: float) -> None:
        self._channel = channel
        self._patience_seconds = patience_seconds
        self._known: dict[str, tuple[int, float]] = {}  # By topic: the number, and when it was asked for.

    def known(self, topic: str) -> int | None:
        """Without asking anybody; None where that is not known, or too old."""
        count, asked_at = self._known.get(topic, (0, 0.0))
        return count if count and time.monotonic() - asked_at < KNOWN_SECONDS else None

    def ask(self, topic: str) -> int:
        """Asks the broker, and waits while it is still making the topic."""
        deadline = time.monotonic() + self._patience_seconds
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise NotDelivered(f"topic {topic!r} has no partitions yet", "wait until it is made, or create it first")
            count = self._channel.partitions_of(topic, left)
            if count:
                self._known[topic] = (count, time.monotonic())
                return count
            time.sleep(HEARING_SECONDS)


def choose(partitioner: Partitioner, topic: str, key: bytes | None, count: int) -> int:
    chosen = partitioner(topic, key, count)
    if not isinstance(chosen, int) or not 0 <= chosen < count:
        raise ValueError(f"the partitioner chose {chosen!r} for topic {topic!r}, which has partitions 0 to {count - 1}")
    return chosen
