"""Proper requests of every API and version that a broker announces, and ways to spoil them.

A spoilt frame mostly keeps its outer length right, so that the damage reaches the readers behind the framing. Everything follows from one
seeded generator. Not here: who sends them, and what must hold.
"""

import struct
from collections.abc import Callable
from random import Random
from typing import Any

from system.raw import Line, batch, good_batch, record
from waiting import EXPIRES_MS, NEVER_MS

from penstock.wire.api_keys import ApiKey
from penstock.wire.schemas import write_request

NUMBERS = (0, 1, -1, 2, 127, 128, 255, 32767, -32768, 65535, 2**31 - 1, -(2**31), 10_000_000)


def samples(topic: str, topic_id: bytes) -> dict[int, dict[str, Any]]:
    """One body for each API, with the fields of all its versions. An API that is not here is asked with defaults."""
    records = good_batch(b"one", b"two")
    partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": 0, "partition_max_bytes": 1 << 20}
    fetched = {"topic": topic, "topic_id": topic_id, "partitions": [partition]}
    listed = {"name": topic, "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]}
    wanted = {"name": "made", "num_partitions": 1, "replication_factor": 1, "configs": [{"name": "retention.ms", "value": "1000"}]}
    return {
        ApiKey.PRODUCE: {
            "acks": -1, "timeout_ms": EXPIRES_MS,
            "topic_data": [{"name": topic, "topic_id": topic_id, "partition_data": [{"index": 0, "records": records}]}],
        },
        ApiKey.FETCH: {"max_wait_ms": 5, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": 0, "topics": [fetched]},
        ApiKey.LIST_OFFSETS: {"replica_id": -1, "topics": [listed]},
        ApiKey.METADATA: {"topics": [{"name": topic, "topic_id": bytes(16)}], "allow_auto_topic_creation": True},
        ApiKey.API_VERSIONS: {"client_software_name": "fuzz", "client_software_version": "1"},
        ApiKey.CREATE_TOPICS: {"topics": [wanted], "timeout_ms": EXPIRES_MS, "validate_only": False},
        ApiKey.DELETE_TOPICS: {"topic_names": ["made"], "topics": [{"name": "made", "topic_id": bytes(16)}], "timeout_ms": EXPIRES_MS},
        ApiKey.INIT_PRODUCER_ID: {"transactional_id": None, "transaction_timeout_ms": NEVER_MS, "producer_id": -1, "producer_epoch": -1},
        ApiKey.DESCRIBE_CLUSTER: {},
    } | admin_samples(topic)  # fmt: skip


def admin_samples(topic: str) -> dict[int, dict[str, Any]]:
    """What is changed is another topic than the one that must go on working."""
    setting = {"name": "retention.ms", "value": "1000", "config_operation": 0}
    told = [{"resource_type": 2, "resource_name": "made", "configs": [setting]}, {"resource_type": 4, "resource_name": "", "configs": []}]
    asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": None} for kind, name in ((2, topic), (4, "1"))]
    deleted = {"partition_index": 0, "offset": -1}
    ended = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {
        ApiKey.DESCRIBE_CONFIGS: {"resources": asked, "include_synonyms": True, "include_documentation": True},
        ApiKey.ALTER_CONFIGS: {"resources": told, "validate_only": False},
        ApiKey.INCREMENTAL_ALTER_CONFIGS: {"resources": told, "validate_only": False},
        ApiKey.CREATE_PARTITIONS: {"topics": [{"name": "made", "count": 2, "assignments": None}], "timeout_ms": EXPIRES_MS},
        ApiKey.DELETE_RECORDS: {"topics": [{"name": "made", "partitions": [deleted]}], "timeout_ms": EXPIRES_MS},
        ApiKey.OFFSET_FOR_LEADER_EPOCH: {"replica_id": -1, "topics": [{"topic": topic, "partitions": [ended]}]},
        ApiKey.DESCRIBE_LOG_DIRS: {"topics": [{"topic": topic, "partitions": [0]}]},
        ApiKey.DESCRIBE_PRODUCERS: {"topics": [{"name": topic, "partition_indexes": [0]}]},
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": topic}], "cursor": {"topic_name": topic, "partition_index": 0}},
        ApiKey.LIST_PARTITION_REASSIGNMENTS: {"topics": [{"name": topic, "partition_indexes": [0]}]},
        ApiKey.LIST_CONFIG_RESOURCES: {"resource_types": [2, 4]},
    }


def announced(address: tuple[str, int]) -> list[tuple[int, int]]:
    """Every (API, version) that the broker says it speaks and that has a schema."""
    with Line(address) as line:
        rows = line.ask(ApiKey.API_VERSIONS, 0).api_keys
    return [(int(row.api_key), version) for row in rows for version in range(row.min_version, row.max_version + 1)]


def proper_frames(pairs: list[tuple[int, int]], topic: str, topic_id: bytes) -> list[bytes]:
    bodies = samples(topic, topic_id)
    # Versions 0 to 2 of Produce are announced for the sake of old librdkafka, and have no schema any more.
    served = [(api, version) for api, version in pairs if not (api == ApiKey.PRODUCE and version < 3)]
    return [write_request(api, version, 1, "fuzz", bodies.get(api, {})) for api, version in served]


def spoil(frame: bytes, rng: Random) -> bytes:
    """The frame with one to four things wrong with it."""
    body = bytearray(frame[4:])
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(WAYS)(body, rng)
    if rng.random() < 0.03:
        return struct.pack(">i", rng.choice(NUMBERS)) + body
    return struct.pack(">i", len(body)) + body


def spoilt_records(rng: Random, topic: str) -> bytes:
    """A Produce request whose batch has a right CRC around damaged records or odd header fields."""
    payload = bytearray(b"".join(record(rng.randbytes(rng.randint(0, 40)), delta=delta, key=b"k") for delta in range(3)))
    odd: dict[str, int] = {}
    if rng.random() < 0.7:
        rng.choice(WAYS)(payload, rng)
    else:
        field = rng.choice(("attributes", "last_offset_delta", "record_count", "base_sequence", "producer_epoch"))
        odd[field] = rng.choice((0, 1, -1, 2, 3, 4, 7, 32, 127, 32767, -32768))
    body = samples(topic, bytes(16))[ApiKey.PRODUCE]
    body["topic_data"][0]["partition_data"][0]["records"] = batch(bytes(payload), 3, **odd)
    return write_request(ApiKey.PRODUCE, rng.randint(3, 12), 1, "fuzz", body)


def _flip_bits(body: bytearray, rng: Random) -> None:
    for _ in range(rng.randint(1, 4)):
        if body:
            body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)


def _overwrite_number(body: bytearray, rng: Random) -> None:
    size = rng.choice((1, 2, 4, 8))
    if len(body) >= size:
        at = rng.randrange(len(body) - size + 1)
        body[at : at + size] = (rng.choice(NUMBERS) % (1 << 8 * size)).to_bytes(size, "big")


def _cut_off(body: bytearray, rng: Random) -> None:
    del body[rng.randrange(len(body) + 1) :]


def _cut_out(body: bytearray, rng: Random) -> None:
    at = rng.randrange(len(body) + 1)
    del body[at : at + rng.randint(1, 8)]


def _put_in(body: bytearray, rng: Random) -> None:
    at = rng.randrange(len(body) + 1)
    body[at:at] = rng.randbytes(rng.choice((1, 2, 4, 50, 1_000)))


def _repeat(body: bytearray, rng: Random) -> None:
    at = rng.randrange(len(body) + 1)
    piece = body[at : at + rng.randint(1, 60)]
    body[at:at] = piece * rng.choice((1, 2, 50))


def _other_api_or_version(body: bytearray, rng: Random) -> None:
    at = rng.choice((0, 2))
    if len(body) >= at + 2:
        body[at : at + 2] = struct.pack(">h", rng.choice((rng.randint(0, 95), rng.randint(0, 20), -1, 32767)))


WAYS: tuple[Callable[[bytearray, Random], None], ...] = (
    _flip_bits, _overwrite_number, _overwrite_number, _cut_off, _cut_out, _put_in, _repeat, _other_api_or_version,
)  # fmt: skip
