"""Batches: built, stamped, taken apart; and every way in which they can be wrong."""

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import MalformedInput
from penstock.wire.batches import (
    HEADER_BYTES,
    Record,
    crc_is_right,
    decode_records,
    encode_batch,
    read_header,
    read_magic,
    set_max_timestamp,
    stamp,
    stamp_append_time,
)
from penstock.wire.compression import Codec, TooLarge

MEGABYTE = 1 << 20
headers = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=3).map(tuple)
records = st.builds(
    Record,
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=200),
    headers=headers,
    timestamp_ms=st.integers(-1, 2**60),
)


@given(st.lists(records, min_size=1, max_size=10), st.sampled_from(Codec), st.integers(0, 2**50))
def test_records_come_out_of_a_batch_as_they_went_in(chosen, codec, base_offset):
    batch = encode_batch(chosen, base_offset=base_offset, codec=codec)
    assert crc_is_right(batch, 0, len(batch))
    expected = [record._replace(offset=base_offset + delta) for delta, record in enumerate(chosen)]
    assert decode_records(batch, bytes_max=MEGABYTE) == expected


def test_a_header_says_what_the_batch_was_built_with():
    batch = encode_batch(
        [Record(value=b"a", timestamp_ms=50), Record(value=b"b", timestamp_ms=70), Record(value=b"c", timestamp_ms=60)],
        base_offset=100,
        leader_epoch=3,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
        codec=Codec.LZ4,
        is_transactional=True,
    )
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.end_offset, header.record_count) == (100, 102, 103, 3)
    assert (header.base_timestamp, header.max_timestamp) == (50, 70)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.leader_epoch) == (7, 2, 40, 3)
    assert (header.codec, header.is_transactional, header.is_control, header.uses_log_append_time) == (Codec.LZ4, True, False, False)
    assert (header.magic, header.size) == (2, len(batch))


def test_a_header_is_read_from_the_middle_of_a_buffer():
    batch = encode_batch([Record(value=b"a")], base_offset=9)
    assert read_header(bytes(17) + batch, 17) == read_header(batch)


@pytest.mark.parametrize("size", [0, 1, 16, 60])
def test_a_short_header_is_malformed(size):
    with pytest.raises(MalformedInput):
        read_header(bytes(size))


def test_stamping_moves_a_batch_without_touching_its_checksum():
    batch = encode_batch([Record(value=b"a", timestamp_ms=5)])
    before = read_header(batch)
    stamp(memoryview(batch), 2**40, 12)
    assert read_header(batch) == before._replace(base_offset=2**40, leader_epoch=12)
    assert crc_is_right(batch, 0, len(batch))


@pytest.mark.parametrize("codec", Codec)
def test_append_time_replaces_the_time_of_every_record(codec):
    batch = encode_batch([Record(value=b"a", timestamp_ms=5), Record(value=b"b", timestamp_ms=900)], codec=codec)
    stamp_append_time(batch, 1234)
    assert read_header(batch).uses_log_append_time
    assert crc_is_right(batch, 0, len(batch))
    assert [record.timestamp_ms for record in decode_records(batch, bytes_max=MEGABYTE)] == [1234, 1234]


def test_a_corrected_highest_timestamp_leaves_the_records_alone():
    batch = encode_batch([Record(value=b"a", timestamp_ms=5)])
    set_max_timestamp(batch, 77)
    assert read_header(batch).max_timestamp == 77
    assert crc_is_right(batch, 0, len(batch))
    assert decode_records(batch, bytes_max=MEGABYTE)[0].timestamp_ms == 5


def test_every_changed_byte_under_the_checksum_is_noticed():
    batch = encode_batch([Record(b"key", b"value", (("header", b"content"),), 5)])
    for at in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[at] ^= 0x10
        assert not crc_is_right(damaged, 0, len(damaged)), f"byte {at}"


@pytest.mark.parametrize(("at", "size"), [(0, 60), (0, 10_000), (1, 80), (-1, 80), (0, -5), (0, 0)])
def test_a_checksum_outside_the_buffer_is_simply_wrong(at, size):
    batch = encode_batch([Record(value=b"v" * 5)])
    assert len(batch) < 80
    assert not crc_is_right(batch, at, size)


@pytest.mark.parametrize("magic", [0, 1])
def test_older_message_formats_are_recognised(magic):
    # Offset, size, checksum, format, attributes, key, value: the whole message is shorter than our header.
    message = bytes(8) + (14).to_bytes(4, "big") + bytes(4) + bytes([magic, 0]) + b"\xff\xff\xff\xff" + bytes(4)
    assert len(message) < HEADER_BYTES
    assert read_magic(message) == magic
    assert read_magic(b"front" + message, 5) == magic


def test_our_own_format_is_recognised():
    assert read_magic(encode_batch([Record(value=b"a")])) == 2


def test_a_format_that_is_cut_off_is_malformed():
    with pytest.raises(MalformedInput):
        read_magic(bytes(16))


def test_a_batch_has_at_least_one_record():
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])


def sealed(batch):
    batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_count_that_is_not_the_number_of_records_is_malformed(count):
    batch = encode_batch([Record(value=b"a"), Record(value=b"b")])
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedInput):
        decode_records(sealed(batch), bytes_max=MEGABYTE)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_malformed(codec):
    batch = encode_batch([Record(value=b"a")])
    batch[22] = codec
    with pytest.raises(MalformedInput):
        decode_records(sealed(batch), bytes_max=MEGABYTE)


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_unpacks_to_too_much_is_refused(codec):
    with pytest.raises(TooLarge):
        decode_records(encode_batch([Record(value=bytes(10_000))], codec=codec), bytes_max=9_000)


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_cut_at_any_byte_is_malformed(codec):
    batch = encode_batch([Record(b"key", b"value" * 9, (("header", None),), 5)] * 3, codec=codec)
    for end in range(len(batch)):
        with pytest.raises(MalformedInput):
            decode_records(batch[:end], bytes_max=MEGABYTE)


def test_a_header_name_that_is_not_text_does_not_hide_its_record():
    batch = encode_batch([Record(value=b"v", headers=(("name", b"content"),))])
    at = batch.index(b"name")
    batch[at : at + 4] = b"\xff\xfe\xfd\xfc"
    assert decode_records(sealed(batch), bytes_max=MEGABYTE)[0].value == b"v"
