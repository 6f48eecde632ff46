"""Which partition a record goes to: the same one that Java's client would choose.

With a key: murmur2 of the key, so that all clients of the ecosystem agree where a key lives. Without: one partition for a while, then
another (KIP-480, KIP-794), so that batches fill up; which one is a matter of chance, and every partition gets its share over time.
"""

from penstock.peers.patience import Chance
from penstock.wire.murmur2 import murmur2, partition_of_key

__all__ = ["StickyPartitions", "murmur2", "partition_of_key"]


class StickyPartitions:
    """Where records without a key go: each topic stays with one partition for `bytes_each`, then moves on to another."""

    def __init__(self, rng: Chance, bytes_each: int) -> None:
        self._rng = rng
        self._bytes_each = bytes_each
        self._current: dict[str, tuple[int, int]] = {}  # By topic: the partition, and the bytes that it got so far.

    def choose(self, topic: str, size: int, partition_count: int) -> int:
        partition, given = self._current.get(topic, (-1, 0))
        if not 0 <= partition < partition_count:
            partition, given = self._rng.randrange(partition_count), 0
        elif given >= self._bytes_each and partition_count > 1:
            partition, given = self._another(partition, partition_count), 0
        self._current[topic] = (partition, given + size)
        return partition

    def _another(self, partition: int, partition_count: int) -> int:
        chosen = self._rng.randrange(partition_count - 1)
        return chosen + 1 if chosen >= partition else chosen
