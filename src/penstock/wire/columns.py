"""Records in bulk, between the bytes of batches and columns: the compiled loop where it was built, its Python twin elsewhere.

In. `ColumnsReader(wanted)` gathers the records of batches, row by row, into the columns of `column_layout`:
- `add(header, payload, *, first_offset, end_offset)` takes the uncompressed records of one batch and gives the number of rows it added:
  those at `first_offset` or later and before `end_offset`. Gaps between offsets are legal, compaction leaves them. With append time every
  row has the batch's highest timestamp. Whether a batch is to be read at all (control batches, aborted transactions) is for the caller to
  say, and so is its checksum. Records that do not parse, do not ascend, or lie outside their batch raise `MalformedRecords`; nothing of
  such a batch is added.
- `has_room_for(payload)`: False once the take would pass `BYTES_MAX`, then `take()` first; a reader without rows has room for any batch
  (one that is larger than `BYTES_MAX` by itself is malformed).
- `rows` and `bytes` (of keys, values, and headers) say what is there by now.
- `take()` gives the `Columns` and begins anew. They are the taker's: the reader keeps nothing of them.
An uncompressed batch need not be unpacked: `add(header, memoryview(batch)[HEADER_BYTES:], …)` copies once, into the columns.

Out.
- `partition_rows(key, rows, partition_count)`: an int32 a row, the partition that Java's client would choose by the key (murmur2), or
  `NO_PARTITION` where the key is null.
- `rows_by_partition(partitions, partition_count)`: for each partition its rows, in order, as a memoryview of int32. A row that goes to
  no partition is refused.
- `encode_records(columns, selection, *, start, bytes_max, wall_ms)`: the records of rows `selection[start:]`, as many as fit into
  `bytes_max` uncompressed, but always one. A row without a timestamp gets `wall_ms`. `batches.wrap_records` makes a batch of it.
The first two take a `selection` too: int32 row numbers, None for all rows. `partition_rows` then gives a number for each selected row, and
`rows_by_partition` takes them so.
Columns that contradict themselves (offsets past their data, a header without a name) raise `MalformedInput`.

All take any contiguous buffers and never read outside them.
"""

from typing import TYPE_CHECKING

from penstock.wire.column_layout import (
    BYTES_MAX,
    EVERYTHING,
    NO_PARTITION,
    BinaryColumn,
    Columns,
    Encoded,
    HeadersColumn,
    MalformedRecords,
    RecordColumns,
    TimestampColumn,
    TimestampType,
    Wanted,
)

if TYPE_CHECKING:
    from penstock.wire._columns_py import ColumnsReader
    from penstock.wire._rows_py import encode_records, partition_rows, rows_by_partition

    COMPILED: bool
else:
    try:
        from penstock.wire._columns import ColumnsReader
        from penstock.wire._rows import encode_records, partition_rows, rows_by_partition

        COMPILED = True
    except ImportError:
        from penstock.wire._columns_py import ColumnsReader
        from penstock.wire._rows_py import encode_records, partition_rows, rows_by_partition

        COMPILED = False

__all__ = [
    "BYTES_MAX",
    "COMPILED",
    "EVERYTHING",
    "NO_PARTITION",
    "BinaryColumn",
    "Columns",
    "ColumnsReader",
    "Encoded",
    "HeadersColumn",
    "MalformedRecords",
    "RecordColumns",
    "TimestampColumn",
    "TimestampType",
    "Wanted",
    "encode_records",
    "partition_rows",
    "rows_by_partition",
]
