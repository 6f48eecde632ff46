"""Produce: our reader against kio's writer, our writer against kio's reader, and requests that are cut, stretched or lie."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import pick

from penstock.errors import MalformedInput
from penstock.wire import schemas
from penstock.wire.api_keys import ApiKey
from penstock.wire.frames import read_request_header
from penstock.wire.produce import ProducedPartition, read_produce_request, write_produce_response

few = settings(max_examples=pick(test=12, slow=50))  # Each version is a test of its own.
VERSIONS = range(3, 14)
names = st.text(min_size=1, max_size=200)
ids = st.binary(min_size=16, max_size=16)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
times = st.integers(-1, 4_000_000_000).map(lambda seconds: seconds * 1000 if seconds >= 0 else -1)
codes = st.sampled_from([0, 0, 0, 1, 2, 6, 10, 32, 87])
partitions = st.lists(st.tuples(int32, st.none() | st.binary(max_size=300)), max_size=4)
leaders = st.none() | st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
rows = st.builds(
    ProducedPartition,
    int32,
    codes,
    int64,
    times,
    int64,
    st.lists(st.tuples(st.integers(0, 2**31 - 1), st.none() | st.text(max_size=20)), max_size=3),
    st.none() | st.text(max_size=200),
    leaders,
)


def request_frame(version, body):
    return schemas.write_request(ApiKey.PRODUCE, version, 7, "someone", body)[4:]


def one_partition(version, records=b"x" * 200, **more):
    partition_data = [{"index": 3, "records": records}]
    topic = {"name": "orders", "topic_id": b"i" * 16, "partition_data": partition_data}
    return request_frame(version, {"acks": -1, "timeout_ms": 31_500, "topic_data": [topic], **more})


def read(frame, version):
    return read_produce_request(frame, read_request_header(frame).body_at, version)


@pytest.mark.repeats
@pytest.mark.parametrize("version", VERSIONS)
@few
@given(
    transactional_id=st.none() | names,
    acks=st.integers(-1, 1),
    timeout_ms=int32,
    topics=st.lists(st.tuples(names, ids, partitions), max_size=3),
)
def test_a_request_reads_as_it_was_written(version, transactional_id, acks, timeout_ms, topics):
    body = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout_ms": timeout_ms,
        "topic_data": [
            {"name": name, "topic_id": topic_id, "partition_data": [{"index": i, "records": r} for i, r in rows]}
            for name, topic_id, rows in topics
        ],
    }
    request = read(request_frame(version, body), version)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (transactional_id, acks, timeout_ms)
    assert request.topics == [(topic_id if version >= 13 else name, rows) for name, topic_id, rows in topics]


@pytest.mark.repeats
@pytest.mark.parametrize("version", VERSIONS)
@few
@given(
    correlation_id=int32,
    throttle_ms=st.integers(0, 2**31 - 1),
    topics=st.lists(st.tuples(names, ids, st.lists(rows, max_size=3)), max_size=3),
)
def test_a_reply_reads_as_it_was_written(oracle_reply, version, correlation_id, throttle_ms, topics):
    endpoints = [(1, "one.example", 9092, None), (2, "two.example", 9093, "rack")] if throttle_ms % 2 else []
    wire = write_produce_response(
        version,
        correlation_id,
        [(topic_id if version >= 13 else name, rows) for name, topic_id, rows in topics],
        throttle_ms=throttle_ms,
        node_endpoints=endpoints,
    )
    expected = {
        "responses": [
            {"name": name, "topic_id": topic_id, "partition_responses": list(map(expected_row, rows))} for name, topic_id, rows in topics
        ],
        "throttle_time_ms": throttle_ms,
        "node_endpoints": [{"node_id": node, "host": host, "port": port, "rack": rack} for node, host, port, rack in endpoints],
    }
    assert oracle_reply(ApiKey.PRODUCE, version, wire) == (correlation_id, schemas.build_response(ApiKey.PRODUCE, version, expected))


def expected_row(row):
    expected = {
        "index": row.partition,
        "error_code": row.error_code,
        "base_offset": row.base_offset,
        "log_append_time_ms": row.log_append_time_ms,
        "log_start_offset": row.log_start_offset,
    }
    if row.error_code:  # What failed and who leads are told only with an error.
        expected["record_errors"] = [{"batch_index": index, "batch_index_error_message": text} for index, text in row.record_errors]
        expected["error_message"] = row.error_message
        if row.current_leader:
            expected["current_leader"] = dict(zip(("leader_id", "leader_epoch"), row.current_leader, strict=True))
    return expected


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_slices_of_the_frame_and_can_be_written_through(version):
    frame = bytearray(one_partition(version))
    request = read(memoryview(frame), version)
    records = request.topics[0][1][0][1]
    records[0] = ord("!")
    assert b"!" + b"x" * 199 in frame


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_at_any_byte_is_malformed(version):
    frame = one_partition(version, transactional_id="tx")
    body_at = read_request_header(frame).body_at
    for end in range(body_at, len(frame)):
        with pytest.raises(MalformedInput):
            read_produce_request(frame[:end], body_at, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_after_a_request_are_let_go(version):
    assert read(one_partition(version) + b"more", version) == read(one_partition(version), version)


@pytest.mark.repeats
@pytest.mark.parametrize("version", VERSIONS)
@few
@given(where=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_request_with_a_changed_byte_reads_or_is_malformed(version, where, byte):
    frame = bytearray(one_partition(version, records=b"x" * 20))
    body_at = read_request_header(frame).body_at
    frame[body_at + where % (len(frame) - body_at)] = byte
    with suppress(MalformedInput):
        read_produce_request(frame, body_at, version)


@pytest.mark.parametrize("length", [-(2**31), -2, 2**31 - 1, 1000])
def test_record_lengths_that_cannot_be_are_malformed(length):
    frame = bytearray(one_partition(7))
    at = frame.index(b"x" * 200) - 4
    frame[at : at + 4] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedInput):
        read(frame, 7)


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x80\x80\x01", b"\xff\x7f"])
def test_compact_record_lengths_that_cannot_be_are_malformed(length):
    frame = one_partition(9)
    at = frame.index(b"x" * 200) - 2
    with pytest.raises(MalformedInput):
        read(frame[:at] + length + frame[at + 2 :], 9)


@pytest.mark.parametrize("version", [9, 12, 13])
def test_unknown_tagged_fields_are_stepped_over(version):
    frame = one_partition(version)
    assert frame.endswith(b"\0\0\0")  # Of the partition, the topic, the request.
    section = b"\x02\x00\x03abc\x63\x00"
    request = read(frame[:-3] + section * 3, version)
    assert request.topics[0][1][0] == (3, b"x" * 200)


def test_a_topic_name_that_is_not_text_is_malformed():
    with pytest.raises(MalformedInput):
        read(one_partition(7).replace(b"orders", b"\xff\xfe\xfd\xfc\xfb\xfa"), 7)
