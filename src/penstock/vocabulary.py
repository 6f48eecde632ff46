"""The nouns of the house, as types.

Plain integers and bytes at run time: they cost nothing on the hot path, and mypy keeps an offset from being passed for an epoch.
Ranges are half-open: `end_offset` is the next to be written, `last_offset` the last written.
"""

from typing import NamedTuple, NewType

NodeId = NewType("NodeId", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)

# Sixteen bytes, random, given once and never reused: a topic that is deleted and made again under the same name is another topic.
TopicId = NewType("TopicId", bytes)

# Monotonic seconds, the event loop's own clock: only differences mean anything.
Instant = NewType("Instant", float)

NO_TOPIC_ID = TopicId(bytes(16))
METADATA_TOPIC_ID = TopicId(bytes(15) + b"\x01")  # As Kafka reserves it for the cluster's own log.

NO_PRODUCER = ProducerId(-1)
NO_NODE = NodeId(-1)  # Where a partition has no leader.


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


# Anything that can be written to a file or a socket as it stands.
Buffer = bytes | bytearray | memoryview
