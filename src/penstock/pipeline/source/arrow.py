"""Columns of records as Arrow batches of exactly the schema that Spark expects. Buffers are handed over, not copied.

Topic and partition are the same in every row of a range: their columns are made once, and cut to size.
"""

import struct

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.vocabulary import Buffer, TopicPartition
from penstock.wire.columns import BinaryColumn, Columns, HeadersColumn

_INT32 = struct.Struct("=i")


class ArrowBatches:
    """Makes batches of the rows of one partition."""

    def __init__(self, schema: StructType, where: TopicPartition) -> None:
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._where = where
        self._same: dict[str, pa.Array] = {}

    def make(self, columns: Columns) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self._column(field, columns) for field in self.schema], schema=self.schema)

    def _column(self, field: pa.Field, columns: Columns) -> pa.Array:
        match field.name:
            case "key":
                return binary(columns.key, columns.rows, field.type)
            case "value":
                return binary(columns.value, columns.rows, field.type)
            case "headers":
                return headers(columns.headers, columns.rows, field.type)
            case "offset":
                return _fixed(field.type, columns.rows, columns.offsets)
            case "timestamp":
                return _fixed(field.type, columns.rows, columns.timestamps)
            case "timestampType":
                return _fixed(field.type, columns.rows, columns.timestamp_types)
            case "topic":
                return self._repeated(field, self._where.topic, columns.rows)
            case "partition":
                return self._repeated(field, self._where.partition, columns.rows)
            case other:
                raise AssertionError(f"no column {other!r}")  # The schema was checked.

    def _repeated(self, field: pa.Field, value: str | int, rows: int) -> pa.Array:
        known = self._same.get(field.name)
        if known is None or len(known) < rows:
            known = self._same[field.name] = pa.repeat(pa.scalar(value, field.type), max(rows, 1 << 14))
        return known.slice(0, rows)


def binary(column: BinaryColumn | None, rows: int, kind: pa.DataType) -> pa.Array:
    assert column is not None, "a column that the schema has was not asked for"
    buffers = [_buffer(column.validity), pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers)


def headers(column: HeadersColumn | None, rows: int, kind: pa.ListType) -> pa.Array:
    assert column is not None, "a column that the schema has was not asked for"
    count = _INT32.unpack_from(column.offsets, rows * _INT32.size)[0]
    pairs = kind.value_type
    children = [binary(column.names, count, pairs.field(0).type), binary(column.contents, count, pairs.field(1).type)]
    inner = pa.Array.from_buffers(pairs, count, [None], children=children)
    return pa.Array.from_buffers(kind, rows, [_buffer(column.validity), pa.py_buffer(column.offsets)], children=[inner])


def _fixed(kind: pa.DataType, rows: int, values: Buffer | None) -> pa.Array:
    assert values is not None, "a column that the schema has was not asked for"
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(values)])


def _buffer(validity: Buffer | None) -> pa.Buffer | None:
    return None if validity is None else pa.py_buffer(validity)
