"""Records to columns and back, by the compiled loop and by its twin: every kind of record, every edge of a range, every lie of a length."""

import struct
from mmap import mmap
from typing import Any

import pytest
from tiers import pick

from penstock.errors import MalformedInput
from penstock.wire import _columns_py, _rows_py, column_layout
from penstock.wire.batches import HEADER_BYTES, Record, decode_records, encode_batch, encode_record, read_header, wrap_records
from penstock.wire.columns import (
    BYTES_MAX,
    EVERYTHING,
    NO_PARTITION,
    BinaryColumn,
    HeadersColumn,
    MalformedRecords,
    RecordColumns,
    TimestampColumn,
    Wanted,
)
from penstock.wire.murmur2 import partition_of_key
from penstock.wire.varints import varint

FOR_EVER = 2**63 - 1
RECORDS = (
    Record(b"k", b"v", (("one", b"1"), ("none", None), ("empty", b"")), 1_000),
    Record(None, b"value", (), 1_001),
    Record(b"", b"", (("", b"x"),), 999),
    Record(b"tombstone", None, (), 1_002),
)


class Loop:
    """Both halves of one loop."""

    def __init__(self, columns: Any, rows: Any) -> None:
        self.ColumnsReader = columns.ColumnsReader
        self.encode_records, self.partition_rows, self.rows_by_partition = rows.encode_records, rows.partition_rows, rows.rows_by_partition


@pytest.fixture(scope="module", params=["compiled", "python"])
def loop(request):
    if request.param == "python":
        return Loop(_columns_py, _rows_py)
    columns = pytest.importorskip("penstock.wire._columns", reason="needs cc: the compiled loop was not built")
    rows = pytest.importorskip("penstock.wire._rows", reason="needs cc: the compiled loop was not built")
    return Loop(columns, rows)


def numbers(buffer, kind="q"):
    return list(memoryview(buffer).cast("B").cast(kind))


def bit(validity, row):
    return validity is None or bool(validity[row >> 3] >> (row & 7) & 1)


def cells(column, rows):
    """What a column says, read by the rules of Arrow's format."""
    ends = numbers(column.offsets, "i")
    assert len(ends) == rows + 1
    return [bytes(column.data[ends[row] : ends[row + 1]]) if bit(column.validity, row) else None for row in range(rows)]


def header_lists(column, rows):
    ends = numbers(column.offsets, "i")
    assert len(ends) == rows + 1
    names, contents = cells(column.names, ends[-1]), cells(column.contents, ends[-1])
    pairs = [(name.decode(), content) for name, content in zip(names, contents, strict=True)]
    return [tuple(pairs[ends[row] : ends[row + 1]]) if bit(column.validity, row) else None for row in range(rows)]


def records_in(columns):
    """The rows as records, their times in milliseconds; a row whose headers are null has none."""
    fields = (
        cells(columns.key, columns.rows),
        cells(columns.value, columns.rows),
        [found or () for found in header_lists(columns.headers, columns.rows)],
        [micros // 1000 for micros in numbers(columns.timestamps)],
        numbers(columns.offsets),
    )
    return [Record(*row) for row in zip(*fields, strict=True)]


def read(loop, *batches, first=0, end=FOR_EVER, wanted=EVERYTHING):
    reader = loop.ColumnsReader(wanted)
    for batch in batches:
        reader.add(read_header(batch), memoryview(batch)[HEADER_BYTES:], first_offset=first, end_offset=end)
    return reader.take()


def with_offsets(records, base):
    return [record._replace(offset=base + delta) for delta, record in enumerate(records)]


def compacted(records, base, deltas, last_delta):
    """A batch as compaction leaves it: some records gone, the offsets of the others as they were."""
    first = records[0].timestamp_ms
    payload = b"".join(encode_record(record, delta, first) for record, delta in zip(records, deltas, strict=True))
    batch = wrap_records(payload, record_count=len(records), base_timestamp_ms=first, max_timestamp_ms=first, base_offset=base)
    batch[23:27] = struct.pack(">i", last_delta)
    return batch


# In


def test_rows_are_the_records_with_their_nulls_and_headers(loop):
    columns = read(loop, encode_batch(RECORDS, base_offset=70))
    assert records_in(columns) == with_offsets(RECORDS, 70)
    assert header_lists(columns.headers, 4)[1] is None, "as in Spark's own source, no headers are null, not an empty list"
    assert numbers(columns.timestamps)[0] == 1_000_000
    assert numbers(columns.timestamp_types, "i") == [0, 0, 0, 0]


def test_columns_without_nulls_have_no_validity(loop):
    columns = read(loop, encode_batch([Record(b"k", b"v", (("h", b"x"),), 5)] * 9))
    assert columns.key.validity is columns.value.validity is columns.headers.validity is columns.headers.contents.validity is None


def test_batches_are_gathered_until_they_are_taken(loop):
    reader, first, second = loop.ColumnsReader(EVERYTHING), encode_batch(RECORDS), encode_batch(RECORDS * 5, base_offset=4)
    assert [
        reader.add(read_header(batch), bytes(batch[HEADER_BYTES:]), first_offset=0, end_offset=FOR_EVER) for batch in (first, second)
    ] == [4, 20]
    assert reader.rows == 24
    in_headers = sum(len(name) + len(content or b"") for record in RECORDS for name, content in record.headers)
    assert reader.bytes == 6 * (sum(len(record.key or b"") + len(record.value or b"") for record in RECORDS) + in_headers)
    kept = reader.take()
    assert (reader.rows, reader.bytes, reader.take().rows) == (0, 0, 0)
    reader.add(read_header(first), first[HEADER_BYTES:], first_offset=0, end_offset=FOR_EVER)
    assert records_in(kept) == with_offsets(RECORDS * 6, 0), "what was taken is not touched by what comes after"
    assert records_in(reader.take()) == with_offsets(RECORDS, 0)


def test_a_take_without_rows_has_columns_of_no_rows(loop):
    assert records_in(loop.ColumnsReader(EVERYTHING).take()) == []


@pytest.mark.parametrize(("first", "end"), [(0, 70), (71, 73), (0, 72), (73, 900), (74, 900), (72, 72), (-5, 2**70)])
def test_only_rows_of_the_range_are_added(loop, first, end):
    columns = read(loop, encode_batch(RECORDS, base_offset=70), first=first, end=end)
    assert records_in(columns) == [record for record in with_offsets(RECORDS, 70) if first <= record.offset < end]


def test_offsets_that_compaction_took_leave_gaps(loop):
    columns = read(loop, compacted(RECORDS, 100, (2, 3, 7, 900), last_delta=1_000), first=103)
    assert numbers(columns.offsets) == [103, 107, 1_000]
    assert [record.value for record in records_in(columns)] == [record.value for record in RECORDS[1:]]


def test_a_batch_that_compaction_emptied_adds_nothing(loop):
    empty = wrap_records(b"", record_count=0, base_timestamp_ms=-1, max_timestamp_ms=-1)
    assert read(loop, empty).rows == 0


def test_with_append_time_every_row_has_the_highest_timestamp_of_the_batch(loop):
    batch = encode_batch(RECORDS)
    batch[22] |= 0x08
    batch[35:43] = struct.pack(">q", 5_555)
    columns = read(loop, batch, encode_batch(RECORDS[:1], base_offset=4))
    assert numbers(columns.timestamps) == [5_555_000] * 4 + [1_000_000]
    assert numbers(columns.timestamp_types, "i") == [1, 1, 1, 1, 0]


def test_a_time_too_far_for_microseconds_is_the_last_that_fits(loop):
    far = [Record(timestamp_ms=ms) for ms in (-1, 2**62, -(2**62), 2**63 // 1000, -(2**63) // 1000, -(2**63) // 1000 + 1)]
    assert numbers(read(loop, *(encode_batch([one]) for one in far)).timestamps) == [
        -1_000,
        2**63 - 1,
        -(2**63),
        2**63 // 1000 * 1000,
        -(2**63),
        (-(2**63) // 1000 + 1) * 1000,
    ]


def test_a_timestamp_past_64_bits_is_refused_unless_it_does_not_count(loop):
    batch = encode_batch([Record(timestamp_ms=0), Record(timestamp_ms=5)])
    batch[27:35] = struct.pack(">q", 2**63 - 3)
    with pytest.raises(MalformedRecords, match="record 1 of the batch at offset 0: its timestamp"):
        read(loop, batch)
    batch[22] |= 0x08
    assert read(loop, batch).rows == 2


def test_only_what_is_wanted_is_there(loop):
    columns = read(loop, encode_batch(RECORDS), wanted=Wanted.VALUE | Wanted.OFFSET)
    assert cells(columns.value, 4) == [record.value for record in RECORDS]
    assert numbers(columns.offsets) == [0, 1, 2, 3]
    assert (columns.key, columns.headers, columns.timestamps, columns.timestamp_types) == (None, None, None, None)


def test_names_that_are_not_utf8_are_shown_as_by_other_readers(loop):
    batch = encode_batch([Record(value=b"v", headers=(("grüße", b"1"), ("xx\x7f", b"2"), ("ok", b"3")), timestamp_ms=1)])
    payload = bytes(batch[HEADER_BYTES:]).replace(b"xx\x7f", b"\xff\xc3\x28")
    shown = decode_records(batch[:HEADER_BYTES] + payload, bytes_max=1000)
    columns = loop.ColumnsReader(EVERYTHING)
    columns.add(read_header(batch), payload, first_offset=0, end_offset=1)
    assert header_lists(columns.take().headers, 1) == [(("grüße", b"1"), ("\ufffd\ufffd(", b"2"), ("ok", b"3"))]
    assert shown[0].headers[1][0] == "\ufffd\ufffd("


@pytest.mark.parametrize("deltas", [(1, 1), (1, 0), (0, 6), (-1, 0)])
def test_offsets_that_do_not_ascend_or_leave_the_batch_are_refused(loop, deltas):
    with pytest.raises(MalformedRecords, match="of the batch at offset 50: its offset") as caught:
        read(loop, compacted(RECORDS[:2], 50, deltas, last_delta=5))
    assert (caught.value.base_offset, caught.value.index) == (50, 0 if deltas[0] < 0 else 1)


@pytest.mark.parametrize("base", [-1, 2**63 - 1, 2**63 - 4])
def test_a_batch_whose_offsets_do_not_fit_is_refused(loop, base):
    with pytest.raises(MalformedRecords, match="64 bits"):
        read(loop, encode_batch(RECORDS, base_offset=base))


def test_nothing_of_a_bad_batch_is_added(loop):
    reader, good = loop.ColumnsReader(EVERYTHING), encode_batch(RECORDS)
    bad = encode_batch(RECORDS, base_offset=4)[:-1]
    reader.add(read_header(good), good[HEADER_BYTES:], first_offset=0, end_offset=FOR_EVER)
    before = reader.bytes
    with pytest.raises(MalformedRecords, match="record 3 of the batch at offset 4: a record's length reaches past the batch"):
        reader.add(read_header(bad), bad[HEADER_BYTES:], first_offset=0, end_offset=FOR_EVER)
    assert (reader.rows, reader.bytes) == (4, before)
    reader.add(read_header(good), good[HEADER_BYTES:], first_offset=0, end_offset=FOR_EVER)
    assert [record.value for record in records_in(reader.take())] == [record.value for record in RECORDS * 2]


def test_every_batch_that_is_cut_off_is_refused(loop):
    batch = encode_batch(RECORDS)
    for size in range(HEADER_BYTES, len(batch)):
        with pytest.raises(MalformedRecords):
            read(loop, batch[:size])
    with pytest.raises(MalformedRecords, match="record 4 of the batch at offset 0: the batch is longer"):
        read(loop, batch + b"\0")


def test_a_count_that_lies_is_refused(loop):
    for count in (-1, 3, 5, 2**31 - 1):
        batch = encode_batch(RECORDS)
        batch[57:61] = struct.pack(">i", count)
        with pytest.raises(MalformedRecords):
            read(loop, batch)


@pytest.mark.repeats
def test_a_take_stays_below_what_offsets_can_hold(loop):
    size = pick(test=1_000, slow=BYTES_MAX // 2 + 100)
    header, payload = read_header(encode_batch([Record(value=b"", timestamp_ms=0)])), record_of_zeros(size)
    reader = loop.ColumnsReader(Wanted.VALUE)
    assert reader.has_room_for(payload)
    reader.add(header, payload, first_offset=0, end_offset=1)
    room_left, too_much = mmap(-1, BYTES_MAX - reader.bytes), mmap(-1, BYTES_MAX - reader.bytes + 1)
    assert reader.has_room_for(room_left)
    assert not reader.has_room_for(too_much)
    with pytest.raises(ValueError, match="take them first"):
        reader.add(header, too_much, first_offset=0, end_offset=1)
    assert len(reader.take().value.data) == reader.bytes + size
    assert reader.has_room_for(too_much)


def test_a_batch_too_large_for_any_take_is_refused(loop):
    header = read_header(encode_batch([Record(value=b"", timestamp_ms=0)]))
    with pytest.raises(MalformedRecords, match=str(BYTES_MAX)):
        loop.ColumnsReader(EVERYTHING).add(header, record_of_zeros(BYTES_MAX), first_offset=0, end_offset=1)


def record_of_zeros(size):
    """Zeros that were mapped and not written cost no memory until somebody copies them."""
    body = b"\0\0\0\x01" + varint(size)
    front = varint(len(body) + size + 1) + body
    payload = mmap(-1, len(front) + size + 1)
    payload[: len(front)] = front
    return payload


# Out


def binary(values, first=0, padding=b"junk"):
    """A column as Arrow would have it; with `first`, as a slice that begins there."""
    rows = [padding] * first + list(values)
    ends, data = [0], b""
    for value in rows:
        data += value or b""
        ends.append(len(data))
    bits = bytearray(len(rows) // 8 + 1)
    for row, value in enumerate(rows):
        bits[row >> 3] |= (value is not None) << (row & 7)
    return BinaryColumn(bytes(bits) if None in rows else None, struct.pack(f"={len(ends)}i", *ends), data, first)


def headers_column(lists, first=0):
    entries = [pair for one in lists for pair in one or ()]
    ends = [0]
    for one in lists:
        ends.append(ends[-1] + len(one or ()))
    names = binary([None if name is None else name.encode() for name, _ in entries], first=2)
    contents = binary([content for _, content in entries], first=1)
    bits = sum((one is not None) << row + first for row, one in enumerate(lists))
    offsets = struct.pack(f"={first + len(ends)}i", *([0] * first), *ends)
    return HeadersColumn(bits.to_bytes(len(lists) // 8 + 2, "little"), offsets, names, contents, first)


def columns_of(records, first=0):
    return RecordColumns(
        len(records),
        binary([record.value for record in records], first),
        binary([record.key for record in records], first),
        headers_column([record.headers or None for record in records], first),
    )


def batch_of(encoded):
    return wrap_records(
        encoded.payload,
        record_count=encoded.record_count,
        base_timestamp_ms=encoded.base_timestamp_ms,
        max_timestamp_ms=encoded.max_timestamp_ms,
    )


def selection(*rows):
    return struct.pack(f"={len(rows)}i", *rows)


@pytest.mark.parametrize("first", [0, 1, 9])
def test_rows_become_the_records_that_they_say(loop, first):
    encoded = loop.encode_records(columns_of(RECORDS, first), bytes_max=10_000, wall_ms=77)
    assert (encoded.record_count, encoded.base_timestamp_ms, encoded.max_timestamp_ms) == (4, 77, 77)
    assert bytes(batch_of(encoded)) == bytes(encode_batch([record._replace(timestamp_ms=77) for record in RECORDS]))


def test_what_was_read_is_written_again_byte_for_byte(loop):
    batch = encode_batch(RECORDS)
    columns = read(loop, batch)
    again = RecordColumns(columns.rows, columns.value, columns.key, columns.headers, TimestampColumn(None, columns.timestamps))
    assert bytes(batch_of(loop.encode_records(again, bytes_max=10_000, wall_ms=0))) == bytes(batch)


def test_columns_that_are_missing_are_null_in_every_row(loop):
    encoded = loop.encode_records(RecordColumns(2, binary([b"a", b"b"])), bytes_max=100, wall_ms=-1)
    assert decode_records(batch_of(encoded), bytes_max=1000) == with_offsets([Record(value=b"a"), Record(value=b"b")], 0)
    nothing = loop.encode_records(RecordColumns(2, None), bytes_max=100, wall_ms=-1)
    assert decode_records(batch_of(nothing), bytes_max=1000) == with_offsets([Record(), Record()], 0)


def test_rows_are_cut_into_batches_that_fit_but_never_empty_ones(loop):
    values = [b"x" * 40, b"y" * 400, b"z" * 40, b"", b"a" * 40, b"b" * 40]
    columns, found, start = RecordColumns(6, binary(values)), [], 0
    while start < 6:
        encoded = loop.encode_records(columns, start=start, bytes_max=101, wall_ms=1)
        assert len(encoded.payload) <= 101 or encoded.record_count == 1
        found.append([record.value for record in decode_records(batch_of(encoded), bytes_max=1000)])
        start += encoded.record_count
    assert found == [[values[0]], [values[1]], [values[2], values[3], values[4]], [values[5]]]
    one = len(loop.encode_records(columns, selection(0), bytes_max=0, wall_ms=1).payload)
    assert loop.encode_records(columns, selection(0, 0), bytes_max=2 * one, wall_ms=1).record_count == 2
    assert loop.encode_records(columns, selection(0, 0), bytes_max=2 * one - 1, wall_ms=1).record_count == 1


def test_selected_rows_are_written_in_their_order(loop):
    encoded = loop.encode_records(columns_of(RECORDS), selection(3, 0, 0, 2), start=1, bytes_max=2**70, wall_ms=5)
    values = [record.value for record in decode_records(batch_of(encoded), bytes_max=1000)]
    assert values == [RECORDS[row].value for row in (0, 0, 2)]


def test_rows_with_a_timestamp_keep_it_and_others_get_the_wall_clock(loop):
    times = TimestampColumn(b"\x0e", struct.pack("=4q", 9, 5_000, -1_500, 2**63 - 1), first=1)
    encoded = loop.encode_records(RecordColumns(3, binary([b"a"] * 3), timestamps=times), bytes_max=1000, wall_ms=77)
    found = [record.timestamp_ms for record in decode_records(batch_of(encoded), bytes_max=1000)]
    assert found == [5, -2, (2**63 - 1) // 1000]
    assert (encoded.base_timestamp_ms, encoded.max_timestamp_ms) == (5, (2**63 - 1) // 1000)
    partly = TimestampColumn(b"\x05", struct.pack("=3q", 1_000, 0, 3_000))
    encoded = loop.encode_records(RecordColumns(3, binary([b"a"] * 3), timestamps=partly), bytes_max=1000, wall_ms=2)
    assert [record.timestamp_ms for record in decode_records(batch_of(encoded), bytes_max=1000)] == [1, 2, 3]


def test_a_header_without_a_name_is_refused(loop):
    columns = RecordColumns(2, binary([b"a", b"b"]), headers=headers_column([[("n", b"1")], [(None, b"2")]]))
    with pytest.raises(MalformedInput, match="row 1: a header has no name"):
        loop.encode_records(columns, bytes_max=1000, wall_ms=0)


GOOD = binary([b"one", None, b"three"])
BAD_COLUMNS = {
    "offsets past the data": BinaryColumn(None, struct.pack("=4i", 0, 3, 3, 9), b"onethree"),
    "offsets that descend": BinaryColumn(None, struct.pack("=4i", 0, 3, 2, 8), b"onethree"),
    "a negative offset": BinaryColumn(None, struct.pack("=4i", -3, 3, 3, 8), b"onethree"),
    "too few offsets": BinaryColumn(None, struct.pack("=3i", 0, 3, 3), b"onethree"),
    "no offsets": BinaryColumn(None, b"", b""),
    "too few bits": BinaryColumn(b"", GOOD.offsets, GOOD.data),
    "a slice past the end": BinaryColumn(None, GOOD.offsets, GOOD.data, first=1),
    "a slice before the start": BinaryColumn(GOOD.validity, GOOD.offsets, GOOD.data, first=-1),
    "a slice far past the end": BinaryColumn(None, GOOD.offsets, GOOD.data, first=2**62),
}


@pytest.mark.parametrize("column", BAD_COLUMNS.values(), ids=BAD_COLUMNS)
def test_columns_that_contradict_themselves_are_refused(loop, column):
    with pytest.raises(MalformedInput, match=r"row \d: the column of its value"):
        loop.encode_records(RecordColumns(3, column), bytes_max=1000, wall_ms=0)
    with pytest.raises(MalformedInput, match=r"row \d: the column of its key"):
        loop.encode_records(RecordColumns(3, GOOD, column), bytes_max=1000, wall_ms=0)
    with pytest.raises(MalformedInput, match=r"row \d: the column of its key"):
        loop.partition_rows(column, 3, 2)
    lists = struct.pack("=4i", 0, 1, 2, 3)
    for headers in (HeadersColumn(None, lists, column, GOOD), HeadersColumn(None, lists, binary([b"n"] * 3), column)):
        with pytest.raises(MalformedInput, match=r"row \d: the column of its headers"):
            loop.encode_records(RecordColumns(3, GOOD, GOOD, headers), bytes_max=1000, wall_ms=0)


@pytest.mark.parametrize(("validity", "size", "first"), [(None, 23, 0), (b"", 24, 0), (None, 24, -1)])
def test_timestamps_that_contradict_themselves_are_refused(loop, validity, size, first):
    times = TimestampColumn(validity, bytes(size), first)
    with pytest.raises(MalformedInput, match=r"row \d: the column of its timestamp"):
        loop.encode_records(RecordColumns(3, GOOD, timestamps=times), bytes_max=1000, wall_ms=0)


@pytest.mark.parametrize("lists", [struct.pack("=3i", 0, 1, 2), struct.pack("=4i", 0, 1, 2, 4), struct.pack("=4i", 0, 2, 1, 3)])
def test_lists_of_headers_that_contradict_themselves_are_refused(loop, lists):
    headers = HeadersColumn(None, lists, binary([b"n"] * 3), GOOD)
    with pytest.raises(MalformedInput, match=r"row \d: the column of its headers"):
        loop.encode_records(RecordColumns(3, GOOD, headers=headers), bytes_max=1000, wall_ms=0)


def test_rows_that_are_not_there_cannot_be_selected(loop):
    for row in (-1, 3):
        with pytest.raises(MalformedInput, match=f"row {row} was selected, but there are only 3"):
            loop.encode_records(RecordColumns(3, GOOD), selection(0, row), bytes_max=1000, wall_ms=0)
        with pytest.raises(MalformedInput, match=f"row {row} was selected"):
            loop.partition_rows(GOOD, 3, 2, selection(row))
    for start in (-1, 3):
        with pytest.raises(ValueError, match="no row"):
            loop.encode_records(RecordColumns(3, GOOD), start=start, bytes_max=1000, wall_ms=0)


def test_a_clock_that_cannot_be_is_refused(loop):
    for wall_ms in (-2, 2**62 + 1):
        with pytest.raises(ValueError, match="clock"):
            loop.encode_records(RecordColumns(3, GOOD), bytes_max=1000, wall_ms=wall_ms)


def test_keys_go_where_every_client_puts_them(loop):
    keys = [b"", b"a", b"ab", b"abc", b"abcd", b"abcde", b"\xff" * 7, bytes(range(256)), None, b"21"]
    column = binary(keys, first=3)
    for count in (1, 3, 10, 2**31 - 1):
        expected = [NO_PARTITION if key is None else partition_of_key(key, count) for key in keys]
        assert numbers(loop.partition_rows(column, len(keys), count), "i") == expected
        assert numbers(loop.partition_rows(column, len(keys), count, selection(9, 8, 0)), "i") == [expected[9], NO_PARTITION, expected[0]]
    assert numbers(loop.partition_rows(binary([b"21"]), 1, 2**31 - 1), "i") == [-973932308 & 0x7FFFFFFF], "as Kafka's own tests have it"


def test_rows_are_sorted_by_partition_in_their_order(loop):
    found = loop.rows_by_partition(selection(2, 0, 2, 1, 0, 2), 4)
    assert [list(rows) for rows in found] == [[1, 4], [3], [0, 2, 5], []]
    found = loop.rows_by_partition(selection(1, 0, 1), 2, selection(30, 20, 10))
    assert [list(rows) for rows in found] == [[20], [30, 10]]
    for partition in (NO_PARTITION, 4):
        with pytest.raises(MalformedInput, match=f"row 1: there is no partition {partition}, only 0 to 3"):
            loop.rows_by_partition(selection(0, partition), 4)
    with pytest.raises(ValueError, match="for each"):
        loop.rows_by_partition(selection(0, 1), 4, selection(0))
    for count in (0, -1, 2**31):
        with pytest.raises(ValueError, match="at least one"):
            loop.rows_by_partition(b"", count)


def test_the_bound_leaves_room_for_names_that_grow():
    assert 3 * column_layout.BYTES_MAX < 2**31
