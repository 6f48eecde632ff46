"""Every message of every API and version: read as kio reads it, and never anything worse than malformed."""

from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from functools import cache
from random import Random
from types import UnionType
from typing import get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.static.primitive import Records, i64Timedelta
from tiers import pick

from penstock.errors import MalformedInput
from penstock.wire import schemas
from penstock.wire.api_keys import ApiKey
from penstock.wire.frames import read_request_header

st.register_type_strategy(Records, st.binary(max_size=50).map(Records))
# kio writes longer spans than it reads.
st.register_type_strategy(i64Timedelta, st.integers(-1, 10**12).map(lambda span: i64Timedelta.parse(timedelta(milliseconds=span))))
few = settings(max_examples=pick(test=8, slow=12), suppress_health_check=[HealthCheck.too_slow])
ROWS_MAX = pick(test=3, slow=20)  # Of each list in a message, and of each list in these: most of what a message costs is to make it up.


@cache
def entities(kind):
    """Messages of a class of kio's, as `st.from_type` would make them, with fewer rows."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: field_values(field, hints[field.name]) for field in fields(kind)})


def field_values(field, hint):
    return values(hint) if field.default is MISSING else st.just(field.default) | values(hint)


def values(hint):
    if is_dataclass(hint):
        return entities(hint)
    if get_origin(hint) is tuple:
        return st.lists(values(get_args(hint)[0]), max_size=ROWS_MAX).map(tuple)
    if get_origin(hint) is UnionType:
        return st.one_of(*map(values, get_args(hint)))
    return st.from_type(hint)


def versions_of(api_key):
    return sorted(schema_name_map[api_key_map[api_key]])


def request_frame(api_key, version, body):
    frame = schemas.write_request(api_key, version, 7, "someone", body)[4:]
    return frame, read_request_header(frame).body_at


@pytest.mark.repeats
@pytest.mark.parametrize("api_key", ApiKey)
@few
@given(data=st.data())
def test_a_request_is_read_as_it_was_written_and_as_kio_reads_it(oracle_request, api_key, data):
    version = data.draw(st.sampled_from(versions_of(api_key)))
    entity = data.draw(entities(load_request_schema(api_key, version)))
    frame, at = request_frame(api_key, version, entity)
    assert schemas.read_request(api_key, version, frame, at) == entity == oracle_request(api_key, version, frame, at)


@pytest.mark.repeats
@pytest.mark.parametrize("api_key", ApiKey)
@few
@given(data=st.data())
def test_a_reply_is_read_as_it_was_written_and_as_kio_reads_it(oracle_reply, api_key, data):
    version = data.draw(st.sampled_from(versions_of(api_key)))
    entity = data.draw(entities(load_response_schema(api_key, version)))
    wire = schemas.write_response(api_key, version, 7, entity)
    assert schemas.read_response(api_key, version, wire[4:]) == (7, entity) == oracle_reply(api_key, version, wire)


@pytest.mark.parametrize("api_key", ApiKey)
def test_an_empty_mapping_makes_a_message_of_every_version(oracle_reply, oracle_request, api_key):
    for version in versions_of(api_key):
        wire = schemas.write_response(api_key, version, 7, {})
        assert schemas.read_response(api_key, version, wire[4:]) == oracle_reply(api_key, version, wire)
        frame, at = request_frame(api_key, version, {})
        assert schemas.read_request(api_key, version, frame, at) == oracle_request(api_key, version, frame, at)


def test_plain_values_become_what_the_schema_wants():
    body = {
        "topics": [
            {"name": "orders", "topic_id": b"i" * 16, "error_code": 36, "num_partitions": 3, "configs": [{"name": "a", "value": None}]}
        ],
        "throttle_time_ms": 1500,
    }
    _, reply = schemas.read_response(ApiKey.CREATE_TOPICS, 7, schemas.write_response(ApiKey.CREATE_TOPICS, 7, 1, body)[4:])
    topic = reply.topics[0]
    assert (topic.name, schemas.topic_id_bytes(topic.topic_id), int(topic.error_code), topic.num_partitions) == ("orders", b"i" * 16, 36, 3)
    assert (topic.configs[0].name, topic.configs[0].value) == ("a", None)
    assert schemas.milliseconds(reply.throttle_time) == 1500


@pytest.mark.parametrize("version", versions_of(ApiKey.CREATE_TOPICS))
def test_fields_that_a_version_does_not_have_are_dropped(version):
    reply = schemas.build_response(ApiKey.CREATE_TOPICS, version, {"topics": [{"name": "orders", "topic_id": b"i" * 16}]})
    assert hasattr(reply.topics[0], "topic_id") == (version >= 7)


def test_missing_fields_get_kafkas_defaults():
    request = schemas.build_request(ApiKey.CREATE_TOPICS, 7, {"topics": [{"name": "orders"}]})
    assert schemas.milliseconds(request.timeout) == 60_000
    assert (request.topics[0].assignments, request.validate_only) == ((), False)


@pytest.mark.parametrize("wall_ms", [-1, 0, 1, 1_700_000_000_123, 253_402_300_799_999])
def test_times_survive_to_the_millisecond(wall_ms):
    body = {"responses": [{"partition_responses": [{"log_append_time_ms": wall_ms}]}]}
    _, reply = schemas.read_response(ApiKey.PRODUCE, 9, schemas.write_response(ApiKey.PRODUCE, 9, 1, body)[4:])
    assert schemas.milliseconds(reply.responses[0].partition_responses[0].log_append_time) == wall_ms


def test_an_error_code_that_kio_does_not_know_is_still_a_number():
    wire = schemas.write_response(ApiKey.INIT_PRODUCER_ID, 4, 1, {"error_code": 50})[4:]
    _, reply = schemas.read_response(ApiKey.INIT_PRODUCER_ID, 4, wire.replace((50).to_bytes(2, "big"), (9999).to_bytes(2, "big")))
    assert reply.error_code == 9999


@pytest.mark.parametrize(("api_key", "version"), [(ApiKey.METADATA, 99), (9999, 0), (ApiKey.METADATA, -1)])
def test_an_api_or_version_that_is_not_there_is_malformed(api_key, version):
    with pytest.raises(MalformedInput):
        schemas.read_request(api_key, version, b"", 0)


def a_request_to_break(version):
    topic = {"name": "orders", "num_partitions": 3, "configs": [{"name": "a", "value": "b"}], "assignments": [{"broker_ids": [1, 2]}]}
    return request_frame(ApiKey.CREATE_TOPICS, version, {"topics": [topic]})


@pytest.mark.parametrize("version", versions_of(ApiKey.CREATE_TOPICS))
def test_a_message_cut_at_any_byte_is_malformed_and_bytes_after_it_are_let_go(version):
    frame, at = a_request_to_break(version)
    for end in range(at, len(frame)):
        with pytest.raises(MalformedInput):
            schemas.read_request(ApiKey.CREATE_TOPICS, version, frame[:end], at)
    whole = schemas.read_request(ApiKey.CREATE_TOPICS, version, frame, at)
    assert schemas.read_request(ApiKey.CREATE_TOPICS, version, frame + b"more", at) == whole


def test_a_reply_with_bytes_left_over_is_malformed():
    """Replies come from nodes of our own kind, which have no excuse."""
    with pytest.raises(MalformedInput):
        schemas.read_response(ApiKey.METADATA, 12, schemas.write_response(ApiKey.METADATA, 12, 1, {})[4:] + b"more")


@pytest.mark.parametrize(
    "lie", [b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xfe", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f"]
)
@pytest.mark.parametrize("api_key", ApiKey)
def test_a_length_that_lies_anywhere_costs_nothing(api_key, lie):
    """A parser that believed an array's length would reserve gigabytes here."""
    for version in versions_of(api_key):
        frame, at = request_frame(api_key, version, {})
        for where in range(at, len(frame)):
            with suppress(MalformedInput):
                schemas.read_request(api_key, version, frame[:where] + lie + frame[where:], at)


@pytest.mark.parametrize("api_key", ApiKey)
def test_noise_reads_or_is_malformed(api_key):
    random = Random(api_key)
    for version in versions_of(api_key):
        for size in [0, 3, 10, 40, 100] * 6:
            for frame in (random.randbytes(size), bytes(random.choices([0, 1, 2, 3, 0x7F, 0xFF], k=size))):
                with suppress(MalformedInput):
                    schemas.read_request(api_key, version, frame, 0)
                with suppress(MalformedInput):
                    schemas.read_response(api_key, version, frame)


def test_a_tagged_field_must_fill_its_own_length():
    frame, at = request_frame(ApiKey.FETCH, 15, {"replica_state": {"replica_id": 3, "replica_epoch": 4}})
    assert schemas.read_request(ApiKey.FETCH, 15, frame, at).replica_state.replica_id == 3
    tagged_at = frame.rindex(b"\x01\x01\x0d")
    for size in (0, 12, 14, 100):
        with pytest.raises(MalformedInput):
            schemas.read_request(
                ApiKey.FETCH, 15, frame[: tagged_at + 2] + bytes([size]) + frame[tagged_at + 3 :] + bytes(max(0, size - 13)), at
            )


def test_unknown_tagged_fields_are_stepped_over():
    frame, at = request_frame(ApiKey.METADATA, 12, {"topics": None})
    assert frame.endswith(b"\0")
    request = schemas.read_request(ApiKey.METADATA, 12, frame[:-1] + b"\x02\x63\x03abc\x64\x00", at)
    assert request.topics is None
