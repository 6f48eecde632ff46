"""A client that can misbehave: frames of any bytes over a plain socket, batches of any shape.

Well-formed requests come from the project's own schema adapter, whose tests hold it against independent ones.
Not here: claims about what a broker should answer.
"""

import socket
import struct
import time
from types import TracebackType
from typing import Any, Self

from crc32c import crc32c
from waiting import PATIENCE_MS, PATIENCE_S

from penstock.wire.api_keys import ApiKey
from penstock.wire.schemas import read_response, write_request

BATCH_FIELDS = struct.Struct(">hiqqqhii")  # attributes ... record count: what the CRC covers before the records.
BEGAN_MS = time.time_ns() // 1_000_000  # The time of every record. Retention by time deletes a batch from years ago.


class Line:
    """One connection."""

    def __init__(self, address: tuple[str, int], seconds: float = PATIENCE_S) -> None:
        self.socket = socket.create_connection(address, timeout=seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.socket.close()

    def send(self, sent: bytes) -> None:
        self.socket.sendall(sent)

    def send_frame(self, body: bytes) -> None:
        self.send(struct.pack(">i", len(body)) + body)

    def read_frame(self) -> bytes | None:
        """The next reply without its length, or None when the broker has closed the connection."""
        length = self._read_exactly(4)
        return None if length is None else self._read_exactly(struct.unpack(">i", length)[0])

    def is_closed(self) -> bool:
        """True when the broker closes the connection without a word; waits for it."""
        return self.read_frame() is None

    def ask(self, api: ApiKey, version: int, **body: Any) -> Any:
        """Sends a proper request and returns the reply's message."""
        self._correlation += 1
        self.send(write_request(api, version, self._correlation, "test", body))
        reply = self.read_frame()
        assert reply is not None, "the connection was closed"
        correlation, message = read_response(api, version, reply)
        assert correlation == self._correlation
        return message

    def produce(self, topic: str, records: bytes, *, version: int = 9, acks: int = -1) -> int:
        """Sends the bytes as partition 0's records; the partition's error code."""
        rows = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        body = {"acks": acks, "timeout_ms": PATIENCE_MS, "topic_data": rows}
        answer = self.ask(ApiKey.PRODUCE, version, **body)
        return int(answer.responses[0].partition_responses[0].error_code)

    def end_offset(self, topic: str) -> int:
        """The high watermark of partition 0."""
        latest = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        answer = self.ask(ApiKey.LIST_OFFSETS, 5, replica_id=-1, topics=[{"name": topic, "partitions": [latest]}])
        return int(answer.topics[0].partitions[0].offset)

    def _read_exactly(self, size: int) -> bytes | None:
        pieces = b""
        while len(pieces) < size:
            try:
                piece = self.socket.recv(size - len(pieces))
            except ConnectionResetError:
                return None
            if not piece:
                return None
            pieces += piece
        return pieces


def varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*encoded, zigzag])


def record(value: bytes, *, delta: int = 0, key: bytes | None = None) -> bytes:
    key_field = varint(-1) if key is None else varint(len(key)) + key
    body = b"\0" + varint(0) + varint(delta) + key_field + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(payload: bytes, count: int, **odd: int) -> bytes:
    """A v2 batch around any payload, right in every field that `odd` does not name. `crc` and `length` are added to the right ones."""
    fields = {
        "attributes": 0, "last_offset_delta": count - 1, "base_timestamp": BEGAN_MS, "max_timestamp": BEGAN_MS,
        "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "record_count": count,
    }  # fmt: skip
    fields |= {name: value for name, value in odd.items() if name in fields}
    covered = BATCH_FIELDS.pack(*fields.values()) + payload
    checksum = (crc32c(covered) + odd.get("crc", 0)) % (1 << 32)
    head = struct.pack(">iBI", odd.get("leader_epoch", -1), odd.get("magic", 2), checksum)
    length = len(head) + len(covered) + odd.get("length", 0)
    return struct.pack(">qi", odd.get("base_offset", 0), length) + head + covered


def good_batch(*values: bytes) -> bytes:
    return batch(b"".join(record(value, delta=delta) for delta, value in enumerate(values)), len(values))


def produce_frame(topic: str, records: bytes, *, partition: int = 0, acks: int = -1) -> bytes:
    """Produce version 7, by hand: the last one with a plain layout, the first one that may carry zstd."""
    body = struct.pack(">hhihhhi", ApiKey.PRODUCE, 7, 1, -1, -1, acks, PATIENCE_MS)
    body += struct.pack(">ih", 1, len(topic)) + topic.encode() + struct.pack(">iii", 1, partition, len(records)) + records
    return struct.pack(">i", len(body)) + body


def fetch_frame(topic: str, partitions: int, *, bytes_max: int, wait_ms: int = 500) -> bytes:
    """Fetch version 4 of all partitions from their beginning."""
    wishes = [{"partition": partition, "fetch_offset": 0, "partition_max_bytes": bytes_max} for partition in range(partitions)]
    body = {
        "replica_id": -1,
        "max_wait_ms": wait_ms,
        "min_bytes": 1,
        "max_bytes": bytes_max,
        "topics": [{"topic": topic, "partitions": wishes}],
    }
    return write_request(ApiKey.FETCH, 4, 1, "test", body)
