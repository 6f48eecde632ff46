"""What a producer and a consumer can be told, for those who pass it on. The classes themselves say what it means and what holds without."""

from collections.abc import Mapping
from typing import Literal, TypedDict

from penstock.client.partitioning import Partitioner

Acks = Literal["all", 1, 0]
WhenFull = Literal["block", "raise"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Start = Literal["earliest", "latest", "error"]
Protocol = Literal["classic", "consumer"]
Assignment = Literal["cooperative-sticky", "range", "roundrobin", "uniform"]
Isolation = Literal["read_committed", "read_uncommitted"]


class ProducerOptions(TypedDict, total=False):
    transactional_id: str | None
    transaction_seconds: float
    acks: Acks
    partitioner: Partitioner | None
    when_full: WhenFull
    block_seconds: float
    buffer_records: int
    buffer_bytes: int
    linger_ms: float
    compression: Compression
    delivery_seconds: float
    settings: Mapping[str, object] | None


class ConsumerOptions(TypedDict, total=False):
    group: str | None
    bootstrap: str | None
    start: Start
    auto_commit: bool
    instance: str | None
    protocol: Protocol
    assignment: Assignment | None
    session_seconds: float
    isolation: Isolation
    settings: Mapping[str, object] | None
