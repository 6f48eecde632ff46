"""Fetch: our reader against kio's writer, our pieces against kio's reader, and requests that are cut or lie."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import pick

from penstock.errors import MalformedInput
from penstock.wire import schemas
from penstock.wire.api_keys import ApiKey
from penstock.wire.fetch import FetchedPartition, FetchPartition, read_fetch_request, write_fetch_response
from penstock.wire.frames import LENGTH, read_request_header

few = settings(max_examples=pick(test=12, slow=50))  # Each version is a test of its own.
VERSIONS = range(4, 19)
names = st.text(min_size=1, max_size=200)
ids = st.binary(min_size=16, max_size=16)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
positions = st.integers(0, 2**31 - 1)
partitions = st.lists(st.builds(FetchPartition, int32, int32, int64, int32, int64, int32), max_size=5)
requested = st.lists(st.tuples(names, ids, partitions), max_size=3)
forgotten = st.lists(st.tuples(names, ids, st.lists(int32, max_size=5)), max_size=3)
rows = st.builds(
    FetchedPartition,
    int32,
    st.sampled_from([0, 1, 6, 74]),
    int64,
    int64,
    int64,
    st.binary(max_size=300),
    st.none() | st.lists(st.tuples(int64, int64), max_size=3),
    int32,
    st.none() | st.tuples(positions, positions),
    st.none() | st.tuples(positions, positions),
)


def request_frame(version, body):
    return schemas.write_request(ApiKey.FETCH, version, 7, "someone", body)[4:]


def request_body(topics, forgotten=(), **more):
    return {
        "topics": [
            {"topic": name, "topic_id": topic_id, "partitions": [partition_body(partition) for partition in partitions]}
            for name, topic_id, partitions in topics
        ],
        "forgotten_topics_data": [{"topic": name, "topic_id": topic_id, "partitions": rows} for name, topic_id, rows in forgotten],
        **more,
    }


def partition_body(partition, **more):
    return {
        "partition": partition.partition,
        "current_leader_epoch": partition.leader_epoch,
        "fetch_offset": partition.fetch_offset,
        "last_fetched_epoch": partition.last_fetched_epoch,
        "log_start_offset": partition.log_start_offset,
        "partition_max_bytes": partition.bytes_max,
        **more,
    }


def read(frame, version):
    return read_fetch_request(frame, read_request_header(frame).body_at, version)


def as_known_to(version, partition):
    """What a version does not carry reads as unknown."""
    if version < 12:
        partition = partition._replace(last_fetched_epoch=-1)
    if version < 9:
        partition = partition._replace(leader_epoch=-1)
    return partition if version >= 5 else partition._replace(log_start_offset=-1)


@pytest.mark.repeats
@pytest.mark.parametrize("version", VERSIONS)
@few
@given(topics=requested, forgotten=forgotten, numbers=st.tuples(int32, int32, int32, int32, int32, int32), rack=names, replica_epoch=int64)
def test_a_request_reads_as_it_was_written(version, *, topics, forgotten, numbers, rack, replica_epoch):
    replica_id, wait, least, most, session_id, session_epoch = numbers
    body = request_body(
        topics,
        forgotten,
        replica_id=replica_id,
        replica_state={"replica_id": replica_id, "replica_epoch": replica_epoch},
        cluster_id="cluster",
        max_wait_ms=wait,
        min_bytes=least,
        max_bytes=most,
        isolation_level=1,
        session_id=session_id,
        session_epoch=session_epoch,
        rack_id=rack,
    )
    request = read(request_frame(version, body), version)
    assert request[:5] == (replica_id, wait, least, most, 1)
    assert (request.session_id, request.session_epoch) == ((session_id, session_epoch) if version >= 7 else (0, -1))
    assert request.topics == [
        (i if version >= 13 else name, [as_known_to(version, p) for p in partitions]) for name, i, partitions in topics
    ]
    assert request.forgotten == ([(i if version >= 13 else name, rows) for name, i, rows in forgotten] if version >= 7 else [])
    assert request.rack_id == (rack if version >= 11 else "")
    assert request.replica_epoch == (replica_epoch if version >= 15 else -1)


@pytest.mark.parametrize("version", [17, 18])
def test_what_replicas_tag_onto_partitions_is_stepped_over(version):
    asked = [FetchPartition(0, 1, 2, 3, 4, 5), FetchPartition(1, 1, 2, 3, 4, 5)]
    body = {
        "topics": [
            {"topic_id": b"i" * 16, "partitions": [partition_body(p, replica_directory_id=b"d" * 16, high_watermark=9) for p in asked]}
        ]
    }
    assert read(request_frame(version, body), version).topics == [(b"i" * 16, asked)]


@pytest.mark.repeats
@pytest.mark.parametrize("version", VERSIONS)
@few
@given(topics=st.lists(st.tuples(names, ids, st.lists(rows, max_size=4)), max_size=3), head=st.tuples(int32, positions, positions))
def test_a_reply_reads_as_it_was_written(oracle_reply, version, topics, head):
    correlation_id, throttle_ms, session_id = head
    endpoints = [(1, "one.example", 9092, None), (2, "two.example", 9093, "rack")] if throttle_ms % 2 else []
    pieces = write_fetch_response(
        version,
        correlation_id,
        [(topic_id if version >= 13 else name, rows) for name, topic_id, rows in topics],
        throttle_ms=throttle_ms,
        error_code=70,
        session_id=session_id,
        node_endpoints=endpoints,
    )
    expected = {
        "throttle_time_ms": throttle_ms,
        "error_code": 70,
        "session_id": session_id,
        "responses": [
            {"topic": name, "topic_id": topic_id, "partitions": list(map(expected_row, rows))} for name, topic_id, rows in topics
        ],
        "node_endpoints": [{"node_id": node, "host": host, "port": port, "rack": rack} for node, host, port, rack in endpoints],
    }
    assert oracle_reply(ApiKey.FETCH, version, b"".join(pieces)) == (
        correlation_id,
        schemas.build_response(ApiKey.FETCH, version, expected),
    )


def expected_row(row):
    expected = {
        "partition_index": row.partition,
        "error_code": row.error_code,
        "high_watermark": row.high_watermark,
        "last_stable_offset": row.last_stable_offset,
        "log_start_offset": row.log_start_offset,
        "aborted_transactions": row.aborted and [{"producer_id": p, "first_offset": o} for p, o in row.aborted],
        "preferred_read_replica": row.preferred_read_replica,
        "records": row.records,
    }
    if row.diverging_epoch:
        expected["diverging_epoch"] = dict(zip(("epoch", "end_offset"), row.diverging_epoch, strict=True))
    if row.current_leader:
        expected["current_leader"] = dict(zip(("leader_id", "leader_epoch"), row.current_leader, strict=True))
    return expected


@pytest.mark.parametrize("version", VERSIONS)
def test_records_go_out_as_the_very_objects_that_came_in(version):
    stored = [bytes(1000), memoryview(bytearray(500))]
    topic = b"i" * 16 if version >= 13 else "orders"
    pieces = write_fetch_response(version, 1, [(topic, [FetchedPartition(n, 0, records=records) for n, records in enumerate(stored)])])
    assert [piece for piece in pieces if any(piece is records for records in stored)] == stored
    assert LENGTH.unpack_from(pieces[0])[0] == sum(map(len, pieces)) - LENGTH.size


def test_empty_partitions_make_no_pieces_of_their_own():
    pieces = write_fetch_response(12, 1, [("orders", [FetchedPartition(n, 0) for n in range(100)])])
    assert len(pieces) <= 2


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_at_any_byte_is_malformed_and_bytes_after_it_are_let_go(version):
    frame = request_frame(version, request_body([("orders", b"i" * 16, [FetchPartition(*range(6))] * 2)], [("old", b"o" * 16, [1, 2])]))
    body_at = read_request_header(frame).body_at
    for end in range(body_at, len(frame)):
        with pytest.raises(MalformedInput):
            read_fetch_request(frame[:end], body_at, version)
    assert read_fetch_request(frame + b"more", body_at, version) == read_fetch_request(frame, body_at, version)


@pytest.mark.repeats
@pytest.mark.parametrize("version", VERSIONS)
@few
@given(where=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_request_with_a_changed_byte_reads_or_is_malformed(version, where, byte):
    frame = bytearray(request_frame(version, request_body([("orders", b"i" * 16, [FetchPartition(*range(6))] * 2)])))
    body_at = read_request_header(frame).body_at
    frame[body_at + where % (len(frame) - body_at)] = byte
    with suppress(MalformedInput):
        read_fetch_request(frame, body_at, version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("lie", [b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00"])
def test_counts_that_cannot_be_are_malformed_at_once(version, lie):
    frame = request_frame(version, {})
    body_at = read_request_header(frame).body_at
    front = {range(4, 7): 17, range(7, 12): 25, range(12, 15): 25, range(15, 19): 21}
    count_at = body_at + next(size for versions, size in front.items() if version in versions)
    with pytest.raises(MalformedInput):
        read_fetch_request(frame[:count_at] + lie + bytes(20), body_at, version)
