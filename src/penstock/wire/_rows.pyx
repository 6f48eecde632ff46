# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=False, embedsignature=False
"""The compiled loop from columns to records. `columns` says what the functions promise, `_rows_py` is the same in Python.

What columns say of themselves is not believed: an offset is compared with the data before anything is read there. Rows are gone over twice:
measured, so that memory is allotted once, then written, each byte only where there is room. The interpreter is let go meanwhile, for
whoever sends what was written before.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from penstock.errors import MalformedInput
from penstock.wire.column_layout import Encoded

cdef enum:
    NO_PARTITION = -1
    FIRST_MAX = 0x7FFFFFFF

cdef enum:
    FINE = 0
    FULL = 1  # The next row does not fit any more.
    CHANGED = 2
    BAD_KEY = 3
    BAD_VALUE = 4
    BAD_HEADERS = 5
    BAD_TIMESTAMP = 6
    NAMELESS = 7
    TOO_LONG = 8

cdef dict NAMES = {BAD_KEY: "key", BAD_VALUE: "value", BAD_HEADERS: "headers", BAD_TIMESTAMP: "timestamp"}
cdef int64_t WALL_MS_MAX = <int64_t>1 << 62


cdef struct Cells:
    bint is_there
    const uint8_t *validity  # NULL: no cell is null.
    int64_t bits
    const uint8_t *offsets  # Numbers of 32 bits, where the machine may want them aligned and they need not be.
    int64_t ends
    const uint8_t *data
    int64_t size
    int64_t first


cdef struct Rows:
    Cells key
    Cells value
    Cells lists
    Cells names
    Cells contents
    Cells timestamps
    const uint8_t *selection  # NULL: all.
    int64_t wall_ms
    int64_t base_timestamp


cdef struct Row:
    const uint8_t *key
    int64_t key_length
    const uint8_t *value
    int64_t value_length
    int64_t header_start
    int64_t header_end
    int64_t timestamp
    int64_t body  # Bytes after the record's length.


cdef struct Extent:
    int64_t count
    int64_t size
    int64_t max_timestamp


cdef class Opened:
    """The buffers of one column, held as long as they are looked at."""

    cdef Py_buffer views[3]
    cdef int held
    cdef Cells cells

    def __cinit__(self, validity, offsets, data, first):
        self.held = 0
        memset(&self.cells, 0, sizeof(Cells))
        self.cells.is_there = True
        self.cells.first = first if -FIRST_MAX <= first <= FIRST_MAX else INT64_MIN // 2  # Outside: every look at it then fails.
        self.cells.offsets = self.hold(offsets)
        self.cells.ends = self.views[0].len // 4
        self.cells.data = self.hold(data)
        self.cells.size = self.views[1].len
        if validity is not None:
            self.cells.validity = self.hold(validity)
            self.cells.bits = 8 * self.views[2].len

    cdef const uint8_t *hold(self, buffer) except? NULL:
        PyObject_GetBuffer(buffer, &self.views[self.held], PyBUF_SIMPLE)
        self.held += 1
        return <const uint8_t *>self.views[self.held - 1].buf

    def __dealloc__(self):
        while self.held > 0:
            self.held -= 1
            PyBuffer_Release(&self.views[self.held])


def partition_rows(key, int64_t rows, partition_count, selection=None):
    cdef int64_t partitions = checked_count(partition_count)
    cdef Opened opened = Opened(key.validity, key.offsets, key.data, key.first)
    cdef Opened chosen = open_selection(selection, rows)
    cdef int64_t count = rows if chosen is None else chosen.cells.ends
    cdef const uint8_t *numbers = numbers_of(chosen)
    cdef int64_t at = 0
    cdef int fault
    out = PyBytes_FromStringAndSize(NULL, 4 * max(0, count))
    cdef uint8_t *target = <uint8_t *>PyBytes_AS_STRING(out)
    with nogil:
        fault = choose_all(&opened.cells, numbers, count, partitions, target, &at)
    if fault:
        raise_malformed(fault, number_at(numbers, at))
    return out


def rows_by_partition(partitions, partition_count, selection=None):
    cdef int64_t wanted = checked_count(partition_count), at
    cdef Opened numbers = Opened(None, partitions, b"", 0)
    cdef Opened chosen = None if selection is None else Opened(None, selection, b"", 0)
    if chosen is not None and chosen.cells.ends != numbers.cells.ends:
        raise ValueError("there must be a partition for each selected row")
    rows = PyBytes_FromStringAndSize(NULL, 4 * numbers.cells.ends)
    cdef int64_t *ends = <int64_t *>calloc(<size_t>(wanted + 1), 8)
    if ends == NULL:
        raise MemoryError
    try:
        sort_rows(&numbers.cells, numbers_of(chosen), wanted, ends, <uint8_t *>PyBytes_AS_STRING(rows))
        whole = memoryview(rows).cast("i")
        return [whole[ends[at - 1] if at else 0 : ends[at]] for at in range(wanted)]
    finally:
        free(ends)


def encode_records(columns, selection=None, *, int64_t start=0, bytes_max, wall_ms):
    cdef Rows rows
    cdef Extent extent
    cdef int64_t count = columns.rows, room = clamp(bytes_max)
    cdef Opened chosen = open_selection(selection, count)
    cdef int fault
    if chosen is not None:
        count = chosen.cells.ends
    if not 0 <= start < count:
        raise ValueError("there is no row to encode")
    if not -1 <= wall_ms <= WALL_MS_MAX:
        raise ValueError("the wall clock cannot show that")
    held = open_columns(&rows, columns)
    rows.selection = numbers_of(chosen)
    rows.wall_ms = wall_ms
    with nogil:
        fault = measure_rows(&rows, start, count, room, &extent)
    if fault:
        raise_malformed(fault, number_at(rows.selection, start + extent.count))
    payload = PyBytes_FromStringAndSize(NULL, extent.size)
    cdef uint8_t *target = <uint8_t *>PyBytes_AS_STRING(payload)
    with nogil:
        fault = write_rows(&rows, start, extent.count, target, extent.size)
    if fault:
        raise ValueError("the columns changed while they were read")
    return Encoded(payload, extent.count, rows.base_timestamp, extent.max_timestamp)


# What is asked of Python

cdef int64_t checked_count(partition_count) except -1:
    if not 0 < partition_count <= INT32_MAX:
        raise ValueError("a topic has at least one partition")
    return partition_count


cdef const uint8_t *numbers_of(Opened chosen) noexcept:
    if chosen is None:
        return NULL
    return chosen.cells.offsets


cdef Opened open_selection(selection, int64_t rows):
    if selection is None:
        return None
    cdef Opened chosen = Opened(None, selection, b"", 0)
    cdef int64_t at
    cdef int32_t row
    for at in range(chosen.cells.ends):
        row = int32_at(chosen.cells.offsets, at)
        if row < 0 or row >= rows:
            raise MalformedInput(f"row {row} was selected, but there are only {rows}")
    return chosen


cdef list open_columns(Rows *rows, columns):
    """What is given back must live as long as the rows are looked at."""
    held = []
    memset(rows, 0, sizeof(Rows))
    open_column(&rows.key, columns.key, held)
    open_column(&rows.value, columns.value, held)
    headers, timestamps = columns.headers, columns.timestamps
    if headers is not None:
        hold(&rows.lists, Opened(headers.validity, headers.offsets, b"", headers.first), held)
        open_column(&rows.names, headers.names, held)
        open_column(&rows.contents, headers.contents, held)
    if timestamps is not None:
        hold(&rows.timestamps, Opened(timestamps.validity, b"", timestamps.values, timestamps.first), held)
    return held


cdef int open_column(Cells *cells, column, list held) except -1:
    if column is not None:
        hold(cells, Opened(column.validity, column.offsets, column.data, column.first), held)
    return 0


cdef int hold(Cells *cells, Opened opened, list held) except -1:
    held.append(opened)
    cells[0] = opened.cells
    return 0


cdef int raise_malformed(int fault, int64_t row) except -1:
    if fault == NAMELESS:
        raise MalformedInput(f"row {row}: a header has no name")
    if fault == TOO_LONG:
        raise MalformedInput(f"row {row}: it is too long for a record")
    raise MalformedInput(f"row {row}: the column of its {NAMES[fault]} contradicts itself")


cdef int64_t clamp(object number) except? -2:
    if number > INT64_MAX:
        return INT64_MAX
    if number < INT64_MIN:
        return INT64_MIN
    return number


# Cells

cdef inline int32_t int32_at(const uint8_t *numbers, int64_t at) noexcept nogil:
    cdef int32_t number
    memcpy(&number, numbers + 4 * at, 4)
    return number


cdef inline int64_t number_at(const uint8_t *selection, int64_t at) noexcept nogil:
    return at if selection == NULL else int32_at(selection, at)


cdef inline bint look(const Cells *cells, int64_t index, bint *is_null) noexcept nogil:
    cdef int64_t at = cells.first + index
    is_null[0] = False
    if cells.validity == NULL:
        return True
    if at < 0 or at >= cells.bits:
        return False
    is_null[0] = not cells.validity[at >> 3] >> (at & 7) & 1
    return True


cdef inline bint range_at(const Cells *cells, int64_t index, int64_t end_max, int64_t *start, int64_t *end) noexcept nogil:
    cdef int64_t at = cells.first + index
    if at < 0 or at >= cells.ends - 1:
        return False
    start[0] = int32_at(cells.offsets, at)
    end[0] = int32_at(cells.offsets, at + 1)
    return 0 <= start[0] and start[0] <= end[0] and end[0] <= end_max


cdef inline bint cell_at(const Cells *cells, int64_t index, const uint8_t **cell, int64_t *length) noexcept nogil:
    """The cell's bytes; a length of -1 stands for null. False where the column contradicts itself."""
    cdef int64_t start, end
    cdef bint is_null
    length[0] = -1
    if not cells.is_there:
        return True
    if not look(cells, index, &is_null):
        return False
    if is_null:
        return True
    if not range_at(cells, index, cells.size, &start, &end):
        return False
    cell[0] = cells.data + start
    length[0] = end - start
    return True


cdef inline bint timestamp_at(const Rows *rows, int64_t row, int64_t *timestamp) noexcept nogil:
    cdef int64_t at = rows.timestamps.first + row, micros
    cdef bint is_null
    timestamp[0] = rows.wall_ms
    if not rows.timestamps.is_there:
        return True
    if not look(&rows.timestamps, row, &is_null):
        return False
    if is_null:
        return True
    if at < 0 or at >= rows.timestamps.size // 8:
        return False
    memcpy(&micros, rows.timestamps.data + 8 * at, 8)
    timestamp[0] = micros // 1000
    return True


# Partitions

cdef int choose_all(
    const Cells *keys, const uint8_t *selection, int64_t count, int64_t partitions, uint8_t *target, int64_t *at
) noexcept nogil:
    cdef const uint8_t *key
    cdef int64_t length
    cdef int32_t partition
    while at[0] < count:
        if not cell_at(keys, number_at(selection, at[0]), &key, &length):
            return BAD_KEY
        partition = NO_PARTITION
        if length >= 0:
            partition = <int32_t>((murmur2(key, length) & 0x7FFFFFFF) % <uint32_t>partitions)
        memcpy(target + 4 * at[0], &partition, 4)
        at[0] += 1
    return FINE


cdef int sort_rows(const Cells *partitions, const uint8_t *selection, int64_t wanted, int64_t *ends, uint8_t *target) except -1:
    """Writes the rows partition by partition; `ends`, zeros at first, then say where each partition's rows end."""
    cdef int64_t at
    cdef int32_t partition, row
    for at in range(partitions.ends):
        partition = int32_at(partitions.offsets, at)
        if partition < 0 or partition >= wanted:
            raise MalformedInput(f"row {number_at(selection, at)}: there is no partition {partition}, only 0 to {wanted - 1}")
        ends[partition + 1] += 1
    for at in range(wanted):
        ends[at + 1] += ends[at]
    for at in range(partitions.ends):  # Now an end is where its partition starts, and moves with each row.
        partition = int32_at(partitions.offsets, at)
        row = <int32_t>number_at(selection, at)
        memcpy(target + 4 * ends[partition], &row, 4)
        ends[partition] += 1
    return 0


cdef inline uint32_t murmur2(const uint8_t *key, int64_t size) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t mixed = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t word
    cdef int64_t at = 0
    while at + 4 <= size:
        word = (key[at] | <uint32_t>key[at + 1] << 8 | <uint32_t>key[at + 2] << 16 | <uint32_t>key[at + 3] << 24) * m
        word = (word ^ word >> 24) * m
        mixed = mixed * m ^ word
        at += 4
    if at < size:
        word = key[at]
        if at + 1 < size:
            word |= <uint32_t>key[at + 1] << 8
        if at + 2 < size:
            word |= <uint32_t>key[at + 2] << 16
        mixed = (mixed ^ word) * m
    mixed = (mixed ^ mixed >> 13) * m
    return mixed ^ mixed >> 15


# Records

cdef int measure_rows(Rows *rows, int64_t start, int64_t end, int64_t room, Extent *extent) noexcept nogil:
    """How many rows make the batch, and how large it is; on a fault the count names the row at fault."""
    cdef Row row
    cdef int64_t size
    cdef int fault
    extent.count = extent.size = extent.max_timestamp = 0
    if not timestamp_at(rows, number_at(rows.selection, start), &rows.base_timestamp):
        return BAD_TIMESTAMP
    extent.max_timestamp = rows.base_timestamp
    while start + extent.count < end:
        fault = measure_row(rows, number_at(rows.selection, start + extent.count), extent.count, &row)
        if fault:
            return fault
        size = varint_size(row.body) + row.body
        if extent.count and extent.size + size > room:
            return FINE
        extent.count += 1
        extent.size += size
        extent.max_timestamp = max(extent.max_timestamp, row.timestamp)
    return FINE


cdef inline int measure_row(const Rows *rows, int64_t number, int64_t delta, Row *row) noexcept nogil:
    cdef int fault
    row.header_start = row.header_end = 0
    if not timestamp_at(rows, number, &row.timestamp):
        return BAD_TIMESTAMP
    if not cell_at(&rows.key, number, &row.key, &row.key_length):
        return BAD_KEY
    if not cell_at(&rows.value, number, &row.value, &row.value_length):
        return BAD_VALUE
    row.body = 1 + varint_size(row.timestamp - rows.base_timestamp) + varint_size(delta)
    row.body += cell_size(row.key_length) + cell_size(row.value_length)
    if rows.lists.is_there:
        fault = measure_headers(rows, number, row)
        if fault:
            return fault
    row.body += varint_size(row.header_end - row.header_start)
    return FINE if row.body <= INT32_MAX else TOO_LONG


cdef int measure_headers(const Rows *rows, int64_t number, Row *row) noexcept nogil:
    cdef const uint8_t *cell
    cdef int64_t length, index
    cdef bint is_null
    if not look(&rows.lists, number, &is_null):
        return BAD_HEADERS
    if is_null:
        return FINE
    if not range_at(&rows.lists, number, INT32_MAX, &row.header_start, &row.header_end):
        return BAD_HEADERS
    for index in range(row.header_start, row.header_end):
        if not cell_at(&rows.names, index, &cell, &length):
            return BAD_HEADERS
        if length < 0:
            return NAMELESS
        row.body += cell_size(length)
        if not cell_at(&rows.contents, index, &cell, &length):
            return BAD_HEADERS
        row.body += cell_size(length)
    return FINE


cdef int write_rows(const Rows *rows, int64_t start, int64_t count, uint8_t *target, int64_t size) noexcept nogil:
    cdef uint8_t *end = target + size
    cdef int64_t delta
    cdef Row row
    for delta in range(count):
        if measure_row(rows, number_at(rows.selection, start + delta), delta, &row):
            return CHANGED
        if end - target < varint_size(row.body) + row.body:
            return CHANGED
        target = put_varint(target, row.body)
        target[0] = 0  # Attributes.
        target = put_varint(target + 1, row.timestamp - rows.base_timestamp)
        target = put_varint(target, delta)
        target = put_cell(target, row.key, row.key_length)
        target = put_cell(target, row.value, row.value_length)
        target = put_varint(target, row.header_end - row.header_start)
        if row.header_end > row.header_start:
            target = put_headers(rows, &row, target, end)
            if target == NULL:
                return CHANGED
    return FINE if target == end else CHANGED


cdef uint8_t *put_headers(const Rows *rows, const Row *row, uint8_t *target, uint8_t *end) noexcept nogil:
    cdef const uint8_t *cell
    cdef int64_t length, index
    for index in range(row.header_start, row.header_end):
        if not cell_at(&rows.names, index, &cell, &length) or end - target < cell_size(length):
            return NULL
        target = put_cell(target, cell, length)
        if not cell_at(&rows.contents, index, &cell, &length) or end - target < cell_size(length):
            return NULL
        target = put_cell(target, cell, length)
    return target


cdef inline uint8_t *put_cell(uint8_t *target, const uint8_t *cell, int64_t length) noexcept nogil:
    target = put_varint(target, length)
    if length > 0:
        memcpy(target, cell, <size_t>length)
        target += length
    return target


cdef inline uint8_t *put_varint(uint8_t *target, int64_t value) noexcept nogil:
    cdef uint64_t bits = <uint64_t>value << 1 ^ <uint64_t>(value >> 63)
    while bits >= 0x80:
        target[0] = <uint8_t>(bits | 0x80)
        target += 1
        bits >>= 7
    target[0] = <uint8_t>bits
    return target + 1


cdef inline int64_t cell_size(int64_t length) noexcept nogil:
    return varint_size(length) + (length if length > 0 else 0)


cdef inline int64_t varint_size(int64_t value) noexcept nogil:
    cdef uint64_t bits = <uint64_t>value << 1 ^ <uint64_t>(value >> 63)
    cdef int64_t size = 1
    while bits >= 0x80:
        bits >>= 7
        size += 1
    return size
