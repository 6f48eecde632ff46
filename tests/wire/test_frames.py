"""Headers of requests and replies, whole, cut and lying."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.schema.index import api_key_map, schema_name_map

from penstock.errors import MalformedInput
from penstock.wire.api_keys import ApiKey, is_flexible
from penstock.wire.frames import read_request_header, read_response_header, request_header, response_header

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)


@given(st.sampled_from(ApiKey), st.integers(0, 20), int32, st.none() | st.text(max_size=300))
def test_a_request_header_reads_as_it_was_written(api_key, version, correlation_id, client_id):
    header = request_header(api_key, version, correlation_id, client_id)
    assert read_request_header(header + b"body") == (api_key, version, correlation_id, client_id, len(header))


@given(st.sampled_from(ApiKey), st.integers(0, 20), int32)
def test_a_reply_header_reads_as_it_was_written(api_key, version, correlation_id):
    header = response_header(api_key, version, correlation_id)
    assert read_response_header(api_key, version, header + b"body") == (correlation_id, len(header))


@pytest.mark.parametrize("version", range(10))
def test_the_reply_to_api_versions_never_has_tagged_fields_in_its_header(version):
    assert response_header(ApiKey.API_VERSIONS, version, 7) == b"\0\0\0\7"


@pytest.mark.parametrize("api_key", ApiKey)
def test_each_api_is_flexible_from_the_version_that_its_schemas_say(api_key):
    for version in schema_name_map[api_key_map[api_key]]:
        assert is_flexible(api_key, version) == load_request_schema(api_key, version).__flexible__


@pytest.mark.parametrize("api_key", [ApiKey.FETCH, 9999])
def test_an_api_or_version_that_nobody_knows_still_has_a_header(api_key):
    frame = request_header(api_key, 99, 5, "me")
    assert read_request_header(frame)[:4] == (api_key, 99, 5, "me")


@pytest.mark.parametrize("version", [3, 9])
def test_a_header_cut_at_any_byte_is_malformed(version):
    header = request_header(ApiKey.PRODUCE, version, 5, "someone")
    for end in range(len(header)):
        with pytest.raises(MalformedInput):
            read_request_header(header[:end])


@pytest.mark.parametrize("length", [-2, -(2**15), 8, 2**15 - 1])
def test_a_client_id_of_a_length_that_cannot_be_is_malformed(length):
    header = bytearray(request_header(ApiKey.PRODUCE, 3, 5, "someone"))
    header[8:10] = length.to_bytes(2, "big", signed=True)
    with pytest.raises(MalformedInput):
        read_request_header(header)


def test_a_client_id_that_is_not_text_is_malformed():
    with pytest.raises(MalformedInput):
        read_request_header(request_header(ApiKey.PRODUCE, 3, 5, "someone").replace(b"some", b"\xff\xfe\xfd\xfc"))


def test_tagged_fields_of_a_header_are_stepped_over():
    plain = request_header(ApiKey.PRODUCE, 9, 5, "someone")
    tagged = plain[:-1] + b"\x02" + b"\x00\x03abc" + b"\x81\x01\x00"
    assert read_request_header(tagged + b"body").body_at == len(tagged)


@pytest.mark.parametrize(
    "section", [b"", b"\x01", b"\x01\x00", b"\x01\x00\x05abc", b"\xff\xff\xff\xff\x0f", b"\x01\x00\xff\xff\xff\xff\x0f", b"\xff" * 9]
)
def test_tagged_fields_that_reach_past_the_frame_are_malformed(section):
    with pytest.raises(MalformedInput):
        read_request_header(request_header(ApiKey.PRODUCE, 9, 5, "someone")[:-1] + section)


@given(st.binary(max_size=60))
def test_noise_has_a_header_or_is_malformed(frame):
    try:
        assert read_request_header(frame).body_at <= len(frame)
    except MalformedInput:
        return
