"""Arrow takes the columns for its own, without a copy, and its arrays are columns, slices too."""

import pytest

from penstock.wire.batches import HEADER_BYTES, Record, decode_records, encode_batch, read_header, wrap_records
from penstock.wire.columns import EVERYTHING, BinaryColumn, ColumnsReader, HeadersColumn, RecordColumns, encode_records

pa = pytest.importorskip("pyarrow", reason="needs spark: pyarrow is not installed")

RECORDS = [
    Record(b"k%d" % row if row % 3 else None, b"v" * row if row % 5 else None, (("a", b"1"), ("ü", None)) if row % 2 else (), 1_000 + row)
    for row in range(100)
]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def buffers_of(column):
    return [None if column.validity is None else pa.py_buffer(column.validity), pa.py_buffer(column.offsets), pa.py_buffer(column.data)]


def to_arrow(columns):
    names, contents = columns.headers.names, columns.headers.contents
    count = len(names.offsets) // 4 - 1
    entries = pa.StructArray.from_arrays(
        [pa.Array.from_buffers(pa.string(), count, buffers_of(names)), pa.Array.from_buffers(pa.binary(), count, buffers_of(contents))],
        fields=list(HEADERS.value_type),
    )
    lists = [columns.headers.validity and pa.py_buffer(columns.headers.validity), pa.py_buffer(columns.headers.offsets)]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.Array.from_buffers(pa.binary(), columns.rows, buffers_of(columns.key)),
            "value": pa.Array.from_buffers(pa.binary(), columns.rows, buffers_of(columns.value)),
            "offset": pa.Array.from_buffers(pa.int64(), columns.rows, [None, pa.py_buffer(columns.offsets)]),
            "timestamp": pa.Array.from_buffers(pa.timestamp("us", "UTC"), columns.rows, [None, pa.py_buffer(columns.timestamps)]),
            "timestampType": pa.Array.from_buffers(pa.int32(), columns.rows, [None, pa.py_buffer(columns.timestamp_types)]),
            "headers": pa.Array.from_buffers(HEADERS, columns.rows, lists, children=[entries]),
        }
    )


def column_of(array):
    validity, offsets, data = (None if buffer is None else memoryview(buffer) for buffer in array.buffers())
    return BinaryColumn(validity, offsets, b"" if data is None else data, array.offset)


def headers_of(array):
    validity, offsets = (None if buffer is None else memoryview(buffer) for buffer in array.buffers()[:2])
    names, contents = array.values.flatten()
    return HeadersColumn(validity, offsets, column_of(names), column_of(contents), array.offset)


def read():
    batch = encode_batch(RECORDS, base_offset=5)
    reader = ColumnsReader(EVERYTHING)
    reader.add(read_header(batch), memoryview(batch)[HEADER_BYTES:], first_offset=0, end_offset=1_000)
    return reader.take()


def test_arrow_reads_the_columns_where_they_lie():
    columns = read()
    table = to_arrow(columns)
    table.validate(full=True)
    assert table["value"].buffers()[2].address == pa.py_buffer(columns.value.data).address
    rows = table.to_pylist()
    assert [row["offset"] for row in rows] == list(range(5, 105))
    assert [int(row["timestamp"].timestamp() * 1000 + 0.5) for row in rows] == [record.timestamp_ms for record in RECORDS]
    assert [(row["key"], row["value"]) for row in rows] == [(record.key, record.value) for record in RECORDS]
    found = [row["headers"] and tuple((one["key"], one["value"]) for one in row["headers"]) for row in rows]
    assert found == [record.headers or None for record in RECORDS]


def test_columns_live_as_long_as_arrow_looks_at_them():
    table = to_arrow(read())
    for _ in range(20):
        read()  # Would come to lie where the first had been.
    assert table["value"].to_pylist() == [record.value for record in RECORDS]


@pytest.mark.parametrize(("first", "count"), [(0, 100), (13, 50), (99, 1)])
def test_arrays_of_arrow_and_their_slices_are_columns(first, count):
    table = to_arrow(read()).slice(first, count)
    columns = RecordColumns(count, column_of(table["value"]), column_of(table["key"]), headers_of(table["headers"]))
    encoded = encode_records(columns, bytes_max=1 << 20, wall_ms=9)
    batch = wrap_records(encoded.payload, record_count=encoded.record_count, base_timestamp_ms=9, max_timestamp_ms=9)
    expected = [record._replace(timestamp_ms=9, offset=row) for row, record in enumerate(RECORDS[first : first + count])]
    assert decode_records(batch, bytes_max=1 << 20) == expected


def test_a_null_among_the_structs_is_a_header_without_a_name():
    array = pa.array([[{"key": "a", "value": b"1"}, None]], HEADERS)
    with pytest.raises(Exception, match="row 0: a header has no name"):
        encode_records(RecordColumns(1, None, headers=headers_of(array)), bytes_max=100, wall_ms=0)
