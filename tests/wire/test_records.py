"""The loops over records and batches: the same claims hold for the compiled one and the one in Python."""

import importlib

import crc32c as crc32c_library
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire import _records_py
from penstock.wire.batches import HEADER_BYTES, Record, encode_batch, stamp
from penstock.wire.records import RecordFault, ScanFault
from penstock.wire.varints import varint

LOWEST, HIGHEST = -(2**63), 2**63 - 1


def loops():
    try:
        compiled = [importlib.import_module("penstock.wire._records")]
    except ImportError:
        compiled = []
    return [_records_py, *compiled]


@pytest.fixture(params=loops(), ids=lambda module: module.__name__.rpartition(".")[2])
def loop(request):
    return request.param


@pytest.fixture(scope="module")
def compiled():
    return pytest.importorskip("penstock.wire._records", reason="needs cc: the compiled loop was not built")


def check(loop, payload, count, **rules):
    defaults = {"base_timestamp": 0, "timestamp_min": LOWEST, "timestamp_max": HIGHEST, "keys_required": False}
    return loop.check_records(payload, count, **defaults | rules)


def payload_of(*records):
    return bytes(encode_batch(records)[HEADER_BYTES:])


def record(*fields):
    body = b"".join(fields)
    return varint(len(body)) + body


def three_batches():
    """Offsets 10 and 11, a gap as compaction leaves it, 20, 30 to 32."""
    batches = []
    for base_offset, count in ((10, 2), (20, 1), (30, 3)):
        batches.append(encode_batch([Record(value=b"v" * 50, timestamp_ms=1)] * count, base_offset=base_offset))
    return batches


def scan(loop, buffer, **bounds):
    return loop.scan_batches(buffer, **{"first_offset": 0, "end_offset_max": HIGHEST, "bytes_max": 1 << 30} | bounds)


# Records


def test_good_records_have_no_fault(loop):
    payload = payload_of(Record(b"k", b"v", (("h", b"x"), ("n", None)), 100), Record(None, None, (), 300), Record(b"", b"", (), 200))
    assert check(loop, payload, 3, base_timestamp=100) == (-1, RecordFault.NONE, 300, 1)


def test_the_first_of_equal_timestamps_is_named(loop):
    assert check(loop, payload_of(*[Record(value=b"v", timestamp_ms=9)] * 5), 5, base_timestamp=9).max_timestamp_delta == 0


def test_no_records_at_all_are_fine_only_without_bytes(loop):
    assert check(loop, b"", 0) == (-1, RecordFault.NONE, -1, -1)
    assert check(loop, b"\0", 0).fault == RecordFault.MALFORMED


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 4, 2**31 - 1])
def test_a_wrong_count_is_a_fault_at_the_right_place(loop, count):
    verdict = check(loop, payload_of(Record(value=b"a"), Record(value=b"b")), count)
    assert (verdict.fault_index, verdict.fault) == (max(0, min(count, 2)), RecordFault.MALFORMED)


def test_records_cut_at_any_byte_are_a_fault(loop):
    payload = payload_of(*[Record(b"key", b"value", (("header", b"content"),), 5)] * 3)
    for end in range(len(payload)):
        assert check(loop, payload[:end], 3).fault == RecordFault.MALFORMED


def test_a_missing_key_is_a_fault_only_where_keys_are_required(loop):
    payload = payload_of(Record(b"k", b"v"), Record(b"", b"v"), Record(None, b"v"))
    assert check(loop, payload, 3).fault == RecordFault.NONE
    assert check(loop, payload, 3, keys_required=True)[:2] == (2, RecordFault.KEY_MISSING)


@pytest.mark.parametrize(("timestamp", "fault"), [(99, 4), (100, 0), (200, 0), (201, 4), (-1, 0), (-2, 4)])
def test_timestamps_outside_the_allowed_range_are_a_fault(loop, timestamp, fault):
    payload = payload_of(Record(value=b"v", timestamp_ms=timestamp))
    assert check(loop, payload, 1, base_timestamp=timestamp, timestamp_min=100, timestamp_max=200).fault == fault


def test_bounds_past_64_bits_allow_everything(loop):
    payload = payload_of(Record(value=b"v", timestamp_ms=5))
    assert check(loop, payload, 1, timestamp_min=-(2**70), timestamp_max=2**70).fault == RecordFault.NONE


@pytest.mark.parametrize(("base", "delta"), [(HIGHEST, 1), (LOWEST, -1), (HIGHEST, HIGHEST), (LOWEST, LOWEST)])
def test_a_timestamp_past_64_bits_is_a_fault(loop, base, delta):
    payload = record(b"\0", varint(delta), varint(0), varint(-1), varint(-1), varint(0))
    assert check(loop, payload, 1, base_timestamp=base)[:2] == (0, RecordFault.TIMESTAMP)


def test_offset_deltas_must_count_from_zero(loop):
    first, second = (record(b"\0", varint(0), varint(delta), varint(-1), varint(-1), varint(0)) for delta in (0, 2))
    assert check(loop, first + second, 2)[:2] == (1, RecordFault.OFFSET_DELTA)


NONE = varint(-1)
ZERO = varint(0)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param([], id="nothing"),
        pytest.param([b"\0"], id="attributes alone"),
        pytest.param([b"\0", ZERO, ZERO, varint(-2), NONE, ZERO], id="a negative key"),
        pytest.param([b"\0", ZERO, ZERO, varint(5), b"abc"], id="a key past the record"),
        pytest.param([b"\0", ZERO, ZERO, varint(2**31 - 1), b"abc"], id="a huge key"),
        pytest.param([b"\0", ZERO, ZERO, NONE, varint(-2), ZERO], id="a negative value"),
        pytest.param([b"\0", ZERO, ZERO, NONE, varint(9), b"abc", ZERO], id="a value past the record"),
        pytest.param([b"\0", ZERO, ZERO, NONE, NONE, varint(-1)], id="a negative count of headers"),
        pytest.param([b"\0", ZERO, ZERO, NONE, NONE, varint(1)], id="a header that is not there"),
        pytest.param([b"\0", ZERO, ZERO, NONE, NONE, varint(2**31 - 1), ZERO, ZERO], id="headers beyond count"),
        pytest.param([b"\0", ZERO, ZERO, NONE, NONE, varint(1), NONE, ZERO], id="a header without a name"),
        pytest.param([b"\0", ZERO, ZERO, NONE, NONE, varint(1), ZERO, varint(-2)], id="a negative header value"),
        pytest.param([b"\0", ZERO, ZERO, NONE, NONE, ZERO, b"more"], id="bytes after the headers"),
        pytest.param([b"\0", ZERO, ZERO, NONE, b"\x80\x80\x80\x80\x80\x00", ZERO], id="a varint of six bytes"),
        pytest.param([b"\0", b"\xff" * 9 + b"\x02", ZERO, NONE, NONE, ZERO], id="a varlong of 65 bits"),
    ],
)
def test_fields_that_do_not_fit_their_record_are_a_fault(loop, body):
    """A good record follows, so that a read past the first one would find bytes."""
    payload = record(*body) + record(b"\0", ZERO, varint(1), NONE, NONE, ZERO)
    assert check(loop, payload, 2)[:2] == (0, RecordFault.MALFORMED)


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 100])
def test_record_lengths_that_cannot_be_are_a_fault(loop, length):
    assert check(loop, varint(length) + bytes(50), 1)[:2] == (0, RecordFault.MALFORMED)


# Batches


def test_a_scan_counts_whole_batches_and_crosses_gaps(loop):
    buffer = b"".join(three_batches())
    assert scan(loop, buffer) == (len(buffer), 33, 3, ScanFault.NONE)
    assert scan(loop, b"", first_offset=7) == (0, 7, 0, ScanFault.NONE)


def test_a_scan_can_start_further_on(loop):
    first, *rest = three_batches()
    assert scan(loop, first + b"".join(rest), start=len(first)) == (len(b"".join(rest)), 33, 2, ScanFault.NONE)


@pytest.mark.parametrize(("end_offset_max", "batches", "end_offset"), [(12, 1, 12), (20, 1, 12), (21, 2, 21), (32, 2, 21), (33, 3, 33)])
def test_a_scan_stops_before_a_batch_that_passes_the_end_offset(loop, end_offset_max, batches, end_offset):
    assert scan(loop, b"".join(three_batches()), end_offset_max=end_offset_max)[1:] == (end_offset, batches, ScanFault.NONE)


def test_a_first_batch_that_passes_the_end_offset_is_not_taken(loop):
    assert scan(loop, b"".join(three_batches()), end_offset_max=11, first_offset=3) == (0, 3, 0, ScanFault.NONE)


def test_a_scan_takes_what_fits_and_always_the_first(loop):
    sizes = [len(batch) for batch in three_batches()]
    buffer = b"".join(three_batches())
    assert scan(loop, buffer, bytes_max=0)[0] == sizes[0]
    assert scan(loop, buffer, bytes_max=sizes[0] + sizes[1] - 1)[0] == sizes[0]
    assert scan(loop, buffer, bytes_max=sizes[0] + sizes[1])[0] == sizes[0] + sizes[1]


def test_a_batch_cut_at_any_byte_is_truncated(loop):
    first, second, _ = three_batches()
    for end in range(1, len(second)):
        assert scan(loop, first + second[:end]) == (len(first), 12, 1, ScanFault.TRUNCATED)


def test_offsets_that_go_backwards_are_a_fault(loop):
    first, second, _ = three_batches()
    assert scan(loop, first, first_offset=11) == (0, 11, 0, ScanFault.OFFSET)
    stamp(second, 11, 0)
    assert scan(loop, first + second) == (len(first), 12, 1, ScanFault.OFFSET)
    stamp(second, HIGHEST, 0)
    assert scan(loop, first + second).fault == ScanFault.OFFSET


def test_a_damaged_byte_is_a_fault_unless_nobody_looks(loop):
    first, second, third = three_batches()
    second[-1] ^= 1
    assert scan(loop, first + second + third) == (len(first), 12, 1, ScanFault.CRC)
    assert scan(loop, first + second + third, verify=False).batches == 3


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_batch_shorter_than_its_header_is_a_fault(loop, length):
    first, second, _ = three_batches()
    second[8:12] = length.to_bytes(4, "big", signed=True)
    assert scan(loop, first + second) == (len(first), 12, 1, ScanFault.LENGTH)


def test_another_format_and_zeros_are_faults(loop):
    first, second, _ = three_batches()
    second[16] = 1
    assert scan(loop, first + second) == (len(first), 12, 1, ScanFault.MAGIC)
    assert scan(loop, first + bytes(4096)) == (len(first), 12, 1, ScanFault.LENGTH)


@pytest.mark.parametrize("start", [-1, 10_000])
def test_a_start_outside_the_buffer_is_our_own_mistake(loop, start):
    with pytest.raises(ValueError, match="outside"):
        scan(loop, b"".join(three_batches()), start=start)
    with pytest.raises(ValueError, match="outside"):
        loop.seek_batch(b"", 0, start)


def test_seeking_finds_the_batch_of_an_offset_or_the_next_one(loop):
    batches = three_batches()
    starts = [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    buffer = b"".join(batches)
    found = {offset: loop.seek_batch(buffer, offset) for offset in (-5, 0, 10, 11, 12, 20, 21, 32, 33, 2**70)}
    assert found == {
        **dict.fromkeys((-5, 0, 10, 11), starts[0]),
        **dict.fromkeys((12, 20), starts[1]),
        **dict.fromkeys((21, 32), starts[2]),
        **dict.fromkeys((33, 2**70), -1),
    }
    assert loop.seek_batch(buffer, 10, starts[1]) == starts[1]


def test_seeking_needs_only_the_header_of_the_batch_it_finds(loop):
    first, second, _ = three_batches()
    assert loop.seek_batch(first + second[:HEADER_BYTES], 20) == len(first)
    assert loop.seek_batch(first + second[: HEADER_BYTES - 1], 20) == -1
    assert loop.seek_batch(first + bytes(100), 20) == -1


# Checksums


@given(st.binary(max_size=700), st.integers(0, 20))
def test_a_checksum_is_that_of_the_library(content, start):
    for loop in loops():
        start = min(start, len(content))
        assert loop.crc32c(content, start, len(content)) == crc32c_library.crc32c(content[start:])


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 383, 384, 385, 767, 6143, 6144, 6145, 6144 * 3 + 384 * 2 + 8 + 3, 1_000_003])
def test_every_lane_length_is_right(compiled, size):
    content = bytes(n * 7919 % 251 for n in range(size))
    expected = crc32c_library.crc32c(content)
    assert compiled.crc32c(content, 0, size) == expected
    assert compiled.crc32c_by_table(content) == expected


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (2, 1), (0, 6), (6, 6), (-3, -1)])
def test_a_range_past_the_buffer_is_our_own_mistake(loop, start, end):
    with pytest.raises(ValueError, match="past"):
        loop.crc32c(b"12345", start, end)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda content: memoryview(bytearray(b"__" + content))[2:]])
def test_any_contiguous_buffer_will_do(loop, wrap):
    buffer = b"".join(three_batches())
    assert scan(loop, wrap(buffer)).batches == 3
    assert check(loop, wrap(payload_of(Record(value=b"v"))), 1).fault == RecordFault.NONE
