"""Records as columns, in memory that Apache Arrow takes as its own: one vocabulary for the compiled loop and its Python twin.

A column is a few flat buffers, as Arrow's format lays them out: numbers in the machine's byte order, `offsets` of 32 bits (row i's bytes
lie from offset i to offset i + 1 of `data`), validity as one bit a row, lowest bit first (0 stands for null; no buffer: no row is null).
So `pyarrow.Array.from_buffers` takes them without a copy, and an array of Arrow becomes a column as it stands:

    pa.Array.from_buffers(pa.binary(), columns.rows, [column.validity and pa.py_buffer(column.validity), pa.py_buffer(column.offsets), …])
    BinaryColumn(*(memoryview(buffer) if buffer else None for buffer in array.buffers()), first=array.offset)   # None for data: b""

Nothing here knows Arrow itself.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer

BYTES_MAX = 1 << 29  # Of records in one take. Offsets have 31 bits, and a name that is not UTF-8 may triple when it is shown.
NO_PARTITION = -1  # Where a row without a key goes is not for its key to say.


class Wanted(IntFlag):
    """The columns that a reader of records fills. What is not wanted costs nothing. The numbers are known to the compiled loop."""

    KEY = 1
    VALUE = 2
    HEADERS = 4
    OFFSET = 8
    TIMESTAMP = 16
    TIMESTAMP_TYPE = 32


EVERYTHING = Wanted.KEY | Wanted.VALUE | Wanted.HEADERS | Wanted.OFFSET | Wanted.TIMESTAMP | Wanted.TIMESTAMP_TYPE


class TimestampType(IntEnum):
    """By Kafka's numbers."""

    CREATE = 0
    LOG_APPEND = 1


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    validity: Buffer | None  # One bit a row; None: no row is null.
    offsets: Buffer  # int32, one more than rows.
    data: Buffer
    first: int = 0  # Which row of the buffers is the column's row 0 (Arrow's `offset`): a slice shares the buffers of the whole.


@dataclass(frozen=True, slots=True)
class HeadersColumn:
    """A list of (name, content) a row: Arrow's list<struct<key: string, value: binary>>, Spark's array of structs.

    As Spark's own source has it, a record without headers is null here, not an empty list; both are written as no headers.
    The two columns have one row for each header, and `offsets` say which of them belong to a row. The struct itself is never null.
    """

    validity: Buffer | None
    offsets: Buffer  # int32, one more than rows; counts headers.
    names: BinaryColumn  # UTF-8, whatever the record had: what is not is shown as Java's clients show it. Never null.
    contents: BinaryColumn
    first: int = 0


@dataclass(frozen=True, slots=True)
class TimestampColumn:
    """Microseconds since 1970, as Spark's timestamps are."""

    validity: Buffer | None
    values: Buffer  # int64
    first: int = 0


@dataclass(frozen=True, slots=True)
class Columns:
    """Records that were read. A column that was not wanted is None."""

    rows: int
    offsets: Buffer | None  # int64
    timestamps: Buffer | None  # int64, microseconds; a record without a time has -1 ms, as at Spark. Past what fits: the last that does.
    timestamp_types: Buffer | None  # int32, a TimestampType
    key: BinaryColumn | None
    value: BinaryColumn | None
    headers: HeadersColumn | None


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Rows that are to be records. A column that is None is null, or empty, in every row."""

    rows: int
    value: BinaryColumn | None
    key: BinaryColumn | None = None
    headers: HeadersColumn | None = None
    timestamps: TimestampColumn | None = None


@dataclass(frozen=True, slots=True)
class Encoded:
    """The uncompressed records of one batch: what `batches.wrap_records` makes a batch of."""

    payload: bytes
    record_count: int  # The rows after these are still to be encoded.
    base_timestamp_ms: int
    max_timestamp_ms: int


# Why records are malformed, beyond what the layout of a single one says.
OFFSETS_TOO_HIGH = "its offset does not fit into 64 bits"
COUNT_NEGATIVE = "the batch has a negative count of records"
BATCH_TOO_LARGE = f"the batch has more than {BYTES_MAX} bytes of records"
OFFSET_ASTRAY = "its offset does not ascend, or lies outside the batch"
TIMESTAMP_TOO_FAR = "its timestamp does not fit into 64 bits"
LEFT_OVER = "the batch is longer than its records"

FULL = "the columns are full: take them first"


class MalformedRecords(MalformedInput):
    """A batch's records that cannot be what they claim to be; the batch is told by its base offset, the record by its number from 0."""

    def __init__(self, base_offset: int, index: int, reason: str) -> None:
        self.base_offset = base_offset
        self.index = index  # As many as the batch has records, where it is what follows them.
        self.reason = reason
        super().__init__(f"record {index} of the batch at offset {base_offset}: {reason}")
