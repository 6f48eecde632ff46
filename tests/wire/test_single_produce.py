"""The compiled look at a produce request of the usual shape agrees with the reader that it saves, or stays silent."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import pick

from penstock.errors import MalformedInput
from penstock.wire import schemas
from penstock.wire.api_keys import ApiKey
from penstock.wire.frames import read_request_header
from penstock.wire.produce import SingleReply, read_produce_request, write_produce_response

VERSIONS = range(3, 14)
read_single = pytest.importorskip("penstock.wire._requests", reason="needs cc: the compiled reader was not built").read_single


def frame(version, *, topic="orders", partition=3, records=b"r" * 100, client_id="tests", transactional_id=None, acks=-1, more=()):
    named = {"topic_id": b"i" * 16} if version >= 13 else {"name": topic}
    partitions = [{"index": partition, "records": records}, *({"index": index, "records": b"x"} for index in more)]
    topic = {**named, "partition_data": partitions}
    body = {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 31_500, "topic_data": [topic]}
    return memoryview(bytearray(schemas.write_request(ApiKey.PRODUCE, version, 77, client_id, body)))[4:]


def in_full(one):
    """What the slower reader finds, if the request has one batch."""
    header = read_request_header(one)
    request = read_produce_request(one, header.body_at, header.api_version)
    ((topic, ((partition, records),)),) = request.topics
    assert request.transactional_id is None
    return header.api_version, header.correlation_id, request.acks, request.timeout_ms, topic, partition, records


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 20_000])
@pytest.mark.parametrize("client_id", [None, "", "tests"])
def test_a_request_of_the_usual_shape_is_read_at_once(version, size, client_id):
    one = frame(version, records=b"r" * size, client_id=client_id)
    assert read_single(one) == in_full(one)


@pytest.mark.parametrize("version", VERSIONS)
def test_any_other_shape_is_left_to_the_slower_reader(version):
    assert read_single(frame(version, more=[4])) is None
    assert read_single(frame(version, transactional_id="t")) is None
    assert read_single(frame(version, records=None)) is None
    assert read_single(memoryview(bytes(frame(version)) + b"\0")) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_the_batch_is_a_slice_of_the_frame(version):
    one = frame(version)
    read_single(one)[6][0] = ord("!")
    assert bytes(one).count(b"!") == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_cut_at_any_byte_is_not_taken(version):
    one = frame(version)
    for size in range(len(one)):
        assert read_single(one[:size]) is None


@pytest.mark.repeats
@settings(max_examples=pick(test=300, slow=2000))
@given(st.sampled_from(VERSIONS), st.lists(st.tuples(st.integers(0, 159), st.integers(0, 255)), min_size=1, max_size=3))
def test_whatever_it_reads_of_changed_bytes_the_slower_reader_reads_too(version, changes):
    one = frame(version)
    for at, byte in changes:
        one[at % len(one)] = byte
    single = read_single(one)
    if single is not None:
        assert single == in_full(one)


@given(st.binary(max_size=80))
def test_noise_is_not_read_otherwise_than_in_full(noise):
    one = memoryview(noise)
    single = read_single(one)
    if single is not None:
        try:
            assert single == in_full(one)
        except MalformedInput:
            pytest.fail("the slower reader refuses what the quick one took")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reply_laid_out_beforehand_is_the_same_reply(version):
    topic = b"i" * 16 if version >= 13 else "orders"
    laid_out = SingleReply(version, topic, 3)
    row = (3, 0, 123456789, 1_700_000_000_000, 42, (), None, None)
    assert laid_out.write(7, *row[2:5]) == write_produce_response(version, 7, [(topic, [row])])
