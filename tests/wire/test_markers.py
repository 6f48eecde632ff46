"""Markers: the bytes that Kafka writes, and what is read back from them."""

import pytest

from penstock.errors import MalformedInput
from penstock.wire.batches import Record, crc_is_right, decode_records, encode_batch, read_header
from penstock.wire.markers import Marker, decode_marker, encode_marker
from penstock.wire.repacking import emptied, with_horizon

NOW = 1_700_000_000_000
# Version 0, then the type: as ControlRecordType of Kafka's clients.
KAFKAS_KEYS = {True: b"\0\0\0\1", False: b"\0\0\0\0"}


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_is_a_control_batch_of_one_record_with_kafkas_key_and_value(is_commit: bool) -> None:
    batch = encode_marker(Marker(is_commit, 5), producer_id=9, producer_epoch=3, timestamp_ms=NOW)
    header, (record,) = read_header(batch), decode_records(batch, bytes_max=1000)
    assert crc_is_right(batch, 0, len(batch))
    assert (header.is_control, header.is_transactional, header.codec, header.record_count) == (True, True, 0, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.max_timestamp) == (9, 3, -1, NOW)
    assert (record.key, record.value, record.headers) == (KAFKAS_KEYS[is_commit], b"\0\0\0\0\0\5", ())


@pytest.mark.parametrize("marker", [Marker(True, 0), Marker(False, 7, 0), Marker(True, 2**31 - 1, 2**40)])
def test_what_a_marker_says_is_read_back(marker: Marker) -> None:
    assert decode_marker(encode_marker(marker, producer_id=1, producer_epoch=0, timestamp_ms=NOW)) == marker


def test_a_control_batch_of_another_kind_and_an_emptied_one_end_nothing() -> None:
    marker = encode_marker(Marker(True, 0, 3), producer_id=1, producer_epoch=4, timestamp_ms=NOW)
    other = encode_batch([Record(b"\0\0\0\2", b"", timestamp_ms=NOW)], producer_id=1, producer_epoch=0, is_control=True)
    assert decode_marker(other) is None
    empty = emptied(marker)
    assert decode_marker(empty) is None
    assert crc_is_right(empty, 0, len(empty))
    header = read_header(empty)
    assert (header.record_count, header.producer_epoch, header.is_control, header.is_transactional) == (0, 4, True, True)


@pytest.mark.parametrize("key", [b"", b"\0\0\0", None])
def test_a_marker_that_is_cut_off_is_malformed(key: bytes | None) -> None:
    with pytest.raises(MalformedInput):
        decode_marker(encode_batch([Record(key, b"", timestamp_ms=NOW)], producer_id=1, producer_epoch=0, is_control=True))


def test_a_marker_with_a_horizon_says_the_same_at_the_same_time() -> None:
    marker = encode_marker(Marker(False, 4, 11), producer_id=1, producer_epoch=2, timestamp_ms=NOW)
    later = with_horizon(marker, NOW + 86_400_000)
    assert crc_is_right(later, 0, len(later))
    assert decode_marker(later) == Marker(False, 4, 11)
    assert read_header(later).delete_horizon_ms == NOW + 86_400_000
    assert decode_records(later, bytes_max=1000) == decode_records(marker, bytes_max=1000)
    header = read_header(later)
    assert (header.max_timestamp, header.producer_epoch, header.is_control, header.size) == (NOW, 2, True, len(later))
