"""The few requests that the generator sends, as bytes, in versions that every broker of the last years knows (none of them flexible).

ApiVersions 0, Produce 7, Fetch 11, ListOffsets 1, Metadata 4, CreateTopics 4, DeleteTopics 3. Written out by hand, not with the broker's
own codec: a mistake there must not hide itself here. Record batches are the broker's (penstock.wire.batches).
"""

from collections.abc import Mapping, Sequence
from struct import Struct, pack

from penstock.wire.batches import Record, encode_batch

CLIENT_ID = "load"
ACKS_ALL = -1
LATEST = -1
PARTITION_BYTES_MAX = 1 << 20  # Per partition and fetch, as consumers ask for by default.
VALUE_BYTES = 100

_PRODUCED = Struct(">ihqqq")  # Partition, error, base offset, append time, log start.


class UnexpectedReply(Exception):
    """The broker refused, or answered something else than was asked. A run with one of these has no figures."""


def one_batch(records: int, timestamp_ms: int) -> bytes:
    """A batch of `records` values of 100 bytes, no keys, no compression."""
    value = bytes(range(VALUE_BYTES))
    return bytes(encode_batch([Record(None, value, (), timestamp_ms, offset) for offset in range(records)]))


def batch_of_bytes(bytes_max: int, timestamp_ms: int) -> tuple[bytes, int]:
    """The largest batch within `bytes_max`, and how many records it holds."""
    low, high = 1, max(2, bytes_max // VALUE_BYTES)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if len(one_batch(middle, timestamp_ms)) <= bytes_max else (low, middle)
    return one_batch(low, timestamp_ms), low


def api_versions() -> bytes:
    return _frame(18, 0, 0, b"")


def produce(topic: str, partitions: Sequence[int], batch: bytes, *, correlation_id: int, acks: int = ACKS_ALL) -> bytes:
    """The same batch to each of the partitions."""
    parts = b"".join(pack(">ii", partition, len(batch)) + batch for partition in partitions)
    body = pack(">hhi", -1, acks, 30_000) + pack(">i", 1) + _string(topic) + pack(">i", len(partitions)) + parts
    return _frame(0, 7, correlation_id, body)


def check_produced(reply: memoryview, topic: str, partitions: int, correlation_id: int) -> None:
    """Raises unless every partition was acknowledged."""
    first = 4 + 4 + 2 + len(topic) + 4
    if len(reply) != first + partitions * _PRODUCED.size + 4:
        raise UnexpectedReply(f"a produce reply of {len(reply)} bytes")
    if int.from_bytes(reply[:4]) != correlation_id:
        raise UnexpectedReply("a produce reply out of order")
    for at in range(first, len(reply) - 4, _PRODUCED.size):
        partition, error, _, _, _ = _PRODUCED.unpack_from(reply, at)
        if error:
            raise UnexpectedReply(f"produce to partition {partition}: error {error}")


def fetch(
    topic: str, offsets: Mapping[int, int], *, correlation_id: int, wait_ms: int = 500, bytes_min: int = 1, bytes_max: int = 50 << 20
) -> bytes:
    """From each partition at its offset, without a fetch session."""
    parts = b"".join(pack(">iiqqi", partition, -1, offset, -1, PARTITION_BYTES_MAX) for partition, offset in offsets.items())
    head = pack(">iiiibii", -1, wait_ms, bytes_min, bytes_max, 0, 0, -1)
    return _frame(
        1, 11, correlation_id, head + pack(">i", 1) + _string(topic) + pack(">i", len(offsets)) + parts + pack(">i", 0) + _string("")
    )


def list_offsets(topic: str, partitions: Sequence[int], timestamp: int = LATEST) -> bytes:
    parts = b"".join(pack(">iq", partition, timestamp) for partition in partitions)
    return _frame(2, 1, 0, pack(">i", -1) + pack(">i", 1) + _string(topic) + pack(">i", len(partitions)) + parts)


def read_listed_offsets(reply: memoryview, topic: str) -> dict[int, tuple[int, int]]:
    """Partition to (error, offset)."""
    listed = Struct(">ihqq")
    first = 4 + 4 + 2 + len(topic) + 4
    rows = (listed.unpack_from(reply, at) for at in range(first, len(reply), listed.size))
    return {partition: (error, offset) for partition, error, _, offset in rows}


def metadata(topic: str) -> bytes:
    """Of one topic, which is not made by asking."""
    return _frame(3, 4, 0, pack(">i", 1) + _string(topic) + pack(">b", 0))


def read_metadata(reply: memoryview) -> tuple[dict[int, tuple[str, int]], dict[int, tuple[int, int, int]]]:
    """Where each broker listens; and of each partition of the one topic the leader, how many replicas it has and how many are in sync."""
    walk = _Walk(reply, 4 + 4)  # After the correlation id and the throttle time.
    brokers = {}
    for _ in range(walk.int32()):
        node, host, port, _ = walk.int32(), walk.string(), walk.int32(), walk.string()
        brokers[node] = (host, port)
    walk.string()  # The cluster's id,
    walk.int32()  # and its controller.
    partitions = {}
    for _ in range(walk.int32()):
        _, _, _ = walk.int16(), walk.string(), walk.int8()
        for _ in range(walk.int32()):
            _, partition, leader = walk.int16(), walk.int32(), walk.int32()
            replicas, in_sync = ([walk.int32() for _ in range(walk.int32())] for _ in range(2))
            partitions[partition] = (leader, len(replicas), len(in_sync))
    return brokers, partitions


class _Walk:
    """Reads one field after another."""

    def __init__(self, reply: memoryview, at: int) -> None:
        self._reply, self._at = reply, at

    def int8(self) -> int:
        return self._number(1)

    def int16(self) -> int:
        return self._number(2)

    def int32(self) -> int:
        return self._number(4)

    def string(self) -> str:
        size = max(0, self.int16())
        self._at += size
        return bytes(self._reply[self._at - size : self._at]).decode()

    def _number(self, size: int) -> int:
        self._at += size
        return int.from_bytes(self._reply[self._at - size : self._at], signed=True)


def create_topic(topic: str, partitions: int, configs: Mapping[str, str], replicas: int = 1) -> bytes:
    settings = b"".join(_string(name) + _string(value) for name, value in configs.items())
    one = _string(topic) + pack(">ihi", partitions, replicas, 0) + pack(">i", len(configs)) + settings
    return _frame(19, 4, 0, pack(">i", 1) + one + pack(">ib", 60_000, 0))


def read_created(reply: memoryview) -> tuple[int, str]:
    """The error code and what the broker says of it."""
    at = 4 + 4 + 4
    at += 2 + int.from_bytes(reply[at : at + 2])
    error = int.from_bytes(reply[at : at + 2], signed=True)
    size = int.from_bytes(reply[at + 2 : at + 4], signed=True)
    return error, bytes(reply[at + 4 : at + 4 + max(0, size)]).decode()


def delete_topic(topic: str) -> bytes:
    return _frame(20, 3, 0, pack(">i", 1) + _string(topic) + pack(">i", 60_000))


def read_deleted(reply: memoryview) -> int:
    return int.from_bytes(reply[-2:], signed=True)


def _frame(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    message = pack(">hhi", api_key, version, correlation_id) + _string(CLIENT_ID) + body
    return pack(">i", len(message)) + message


def _string(text: str) -> bytes:
    return pack(">h", len(text)) + text.encode()
