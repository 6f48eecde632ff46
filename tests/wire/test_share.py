"""ShareFetch and ShareAcknowledge as they are read and written by hand, held against the schemas."""

from typing import Any
from uuid import UUID

import pytest

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer, TopicId
from penstock.wire import schemas
from penstock.wire.api_keys import ApiKey
from penstock.wire.frames import read_request_header
from penstock.wire.share_requests import Acknowledged, SharedPartition, read_share_acknowledge, read_share_fetch
from penstock.wire.share_responses import (
    Acquired,
    SharedRow,
    write_acquired_response,
    write_share_acknowledge_response,
    write_share_fetch_response,
)

A, B = TopicId(b"a" * 16), TopicId(b"b" * 16)
TOPICS = [
    {
        "topic_id": A,
        "partitions": [
            {"partition_index": 0, "acknowledgement_batches": [{"first_offset": 3, "last_offset": 5, "acknowledge_types": [1, 2, 0]}]},
            {"partition_index": 7, "acknowledgement_batches": []},
        ],
    },
    {"topic_id": B, "partitions": [{"partition_index": 1, "acknowledgement_batches": []}]},
]
READ = [SharedPartition(A, 0, [Acknowledged(3, 5, b"\1\2\0")]), SharedPartition(A, 7, []), SharedPartition(B, 1, [])]


@pytest.mark.parametrize("version", [1, 2])
def test_a_share_fetch_is_read_as_the_schemas_write_it(version: int) -> None:
    body = {
        "group_id": "g", "member_id": "m", "share_session_epoch": 4, "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 9_000,
        "max_records": 50, "batch_size": 10, "share_acquire_mode": 1, "is_renew_ack": version == 2, "topics": TOPICS,
        "forgotten_topics_data": [{"topic_id": B, "partitions": [2, 3]}],
    }  # fmt: skip
    frame = schemas.write_request(ApiKey.SHARE_FETCH, version, 1, "c", body)[4:]
    request = read_share_fetch(frame, read_request_header(frame).body_at, version)
    assert request == ("g", "m", 4, 500, 9_000, 50, version == 2, READ, [(B, 2), (B, 3)])
    for cut in range(read_request_header(frame).body_at, len(frame) - 1):
        with pytest.raises(MalformedInput):
            read_share_fetch(frame[:cut], read_request_header(frame).body_at, version)


def _said(*ranges: tuple[int, int, list[int]]) -> list[dict[str, Any]]:
    batches = [{"first_offset": first, "last_offset": last, "acknowledge_types": types} for first, last, types in ranges]
    return [{"topic_id": A, "partitions": [{"partition_index": 3, "acknowledgement_batches": batches}]}]


SAID: list[tuple[list[dict[str, Any]], list[SharedPartition]]] = [
    ([], []),
    (_said((5, 9, [1])), [SharedPartition(A, 3, [Acknowledged(5, 9, b"\1")])]),
    (_said((5, 9, [4])), [SharedPartition(A, 3, [Acknowledged(5, 9, b"\4")])]),
    (_said((5, 6, [1, 2])), [SharedPartition(A, 3, [Acknowledged(5, 6, b"\1\2")])]),
    (_said((5, 5, [1]), (7, 7, [1])), [SharedPartition(A, 3, [Acknowledged(5, 5, b"\1"), Acknowledged(7, 7, b"\1")])]),
    (_said((5, 9, [])), [SharedPartition(A, 3, [Acknowledged(5, 9, b"")])]),
    (_said(), [SharedPartition(A, 3, [])]),
    (_said() + _said(), [SharedPartition(A, 3, [])] * 2),
]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", ["", "g", "ü" * 60, "g" * 126, "g" * 127, "g" * 300])
def test_the_usual_share_fetch_is_read_as_any_other(version: int, name: str) -> None:
    for topics, read in SAID:
        body = {
            "group_id": name, "member_id": f"m{name}", "share_session_epoch": 4, "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 9_000,
            "max_records": 50, "batch_size": 10, "topics": topics, "forgotten_topics_data": [],
        }  # fmt: skip
        frame = schemas.write_request(ApiKey.SHARE_FETCH, version, 1, "c", body)[4:]
        at = read_request_header(frame).body_at
        assert read_share_fetch(frame, at, version) == (name, f"m{name}", 4, 500, 9_000, 50, False, read, [])
        for cut in range(at, len(frame) - 1):
            with pytest.raises(MalformedInput):
                read_share_fetch(frame[:cut], at, version)


def test_a_usual_share_fetch_whose_group_is_no_text_is_malformed() -> None:
    body = {
        "group_id": "g", "member_id": "m", "share_session_epoch": 4, "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 9_000,
        "max_records": 50, "batch_size": 10, "topics": [], "forgotten_topics_data": [],
    }  # fmt: skip
    frame = bytearray(schemas.write_request(ApiKey.SHARE_FETCH, 2, 1, "c", body)[4:])
    at = read_request_header(frame).body_at
    frame[at + 1] = 0xFF
    with pytest.raises(MalformedInput):
        read_share_fetch(frame, at, 2)


@pytest.mark.parametrize("acquired", [[Acquired(3, 5, 1)], [Acquired(3, 5, 1), Acquired(1 << 40, 1 << 40, 32_767)]])
@pytest.mark.parametrize("records", [[b"first"], [b"first", memoryview(bytes(20_000))]])
def test_a_reply_with_nothing_but_records_is_written_as_any_other(records: list[Buffer], acquired: list[Acquired]) -> None:
    plain = write_acquired_response(5, A, 3, records, acquired, lock_ms=30_000)
    other = write_share_fetch_response(5, {A: [SharedRow(3, records=records, acquired=acquired)]}, lock_ms=30_000)
    assert b"".join(plain) == b"".join(other)


@pytest.mark.parametrize("version", [1, 2])
def test_a_share_acknowledgement_is_read_as_the_schemas_write_it(version: int) -> None:
    body = {"group_id": "g", "member_id": "m", "share_session_epoch": -1, "is_renew_ack": version == 2, "topics": TOPICS}
    frame = schemas.write_request(ApiKey.SHARE_ACKNOWLEDGE, version, 1, "c", body)[4:]
    assert read_share_acknowledge(frame, read_request_header(frame).body_at, version) == ("g", "m", -1, version == 2, READ)


@pytest.mark.parametrize("version", [1, 2])
def test_the_reply_to_a_share_fetch_is_what_the_schemas_read(version: int) -> None:
    rows = {
        A: [
            SharedRow(0, records=(b"first", b"second"), acquired=(Acquired(3, 5, 1), Acquired(7, 7, 2))),
            SharedRow(1, 6, "not here", leader=(3, 9)),
        ],
        B: [SharedRow(2, acknowledge_code=121, acknowledge_message="lapsed")],
    }
    frame = b"".join(map(bytes, write_share_fetch_response(5, rows, lock_ms=30_000, node_endpoints=[(3, "h", 9092, None)])))
    correlation_id, reply = schemas.read_response(ApiKey.SHARE_FETCH, version, frame[4:])
    first, second = reply.responses
    assert (correlation_id, schemas.milliseconds(reply.acquisition_lock_timeout), first.topic_id) == (5, 30_000, UUID(bytes=A))
    assert bytes(first.partitions[0].records) == b"firstsecond"
    assert [(each.first_offset, each.last_offset, each.delivery_count) for each in first.partitions[0].acquired_records] == [
        (3, 5, 1), (7, 7, 2)
    ]  # fmt: skip
    wrong = first.partitions[1]
    assert (wrong.error_code, wrong.error_message, wrong.current_leader.leader_id, wrong.current_leader.leader_epoch) == (
        6,
        "not here",
        3,
        9,
    )
    assert (second.partitions[0].acknowledge_error_code, second.partitions[0].acknowledge_error_message) == (121, "lapsed")
    assert [(each.node_id, each.host, each.port) for each in reply.node_endpoints] == [(3, "h", 9092)]


@pytest.mark.parametrize("version", [1, 2])
def test_the_reply_to_a_share_acknowledgement_is_what_the_schemas_read(version: int) -> None:
    frame = b"".join(map(bytes, write_share_acknowledge_response(version, 5, {A: [SharedRow(1, 121, "lapsed")]}, lock_ms=7)))
    _, reply = schemas.read_response(ApiKey.SHARE_ACKNOWLEDGE, version, frame[4:])
    row = reply.responses[0].partitions[0]
    assert (row.partition_index, row.error_code, row.error_message, row.current_leader.leader_id) == (1, 121, "lapsed", -1)
