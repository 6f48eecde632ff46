# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=False, embedsignature=False
"""The compiled loop from records to columns. `columns` says what it promises, `_columns_py` is the same in Python.

Bytes here are untrusted and reached through plain pointers, so no check is left to the language: a position moves only after it was
compared with the end, and a length is compared with what is left before it is added.
A batch is walked twice: first everything is looked at and measured, so that memory is allotted once and a bad record leaves no trace; then it
is copied. The interpreter is let go meanwhile, for whoever fetches the next records; so the second walk trusts nothing of the first but the
room that it made, and stops where that would not do.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from penstock.errors import MalformedInput
from penstock.wire import column_layout as layout
from penstock.wire.record_layout import read_record as read_record_in_words

include "_varints.pxi"

# As in column_layout.Wanted.
cdef enum:
    WANTS_KEY = 1
    WANTS_VALUE = 2
    WANTS_HEADERS = 4
    WANTS_OFFSET = 8
    WANTS_TIMESTAMP = 16
    WANTS_TIMESTAMP_TYPE = 32

cdef enum:
    APPEND_TIME_BIT = 0x08
    SHOWN_GROWTH = 3  # A byte that is not UTF-8 is shown as a sign of three.

cdef enum:
    FINE = 0
    DOES_NOT_PARSE = 1
    BAD_OFFSET = 2
    BAD_TIMESTAMP = 3
    BYTES_LEFT = 4
    CHANGED = 5
    NO_MEMORY = 6

cdef int64_t MILLIS_MAX = INT64_MAX // 1000
cdef int64_t BYTES_MAX = layout.BYTES_MAX


cdef struct Store:
    uint8_t *bytes
    int64_t used
    int64_t capacity
    int64_t usual  # What the last take had: room for as much is made at once.


cdef struct Column:
    Store bits
    Store ends  # One number of 32 bits more than rows.
    Store data
    int64_t count
    int64_t nulls


cdef struct Table:
    int64_t rows
    Store offsets
    Store timestamps
    Store types
    Column key
    Column value
    Column lists  # Of headers: its ends count them, and it has no data.
    Column names
    Column contents


cdef struct Batch:
    const uint8_t *bytes
    int64_t size
    int64_t count
    int64_t base_offset
    int64_t last_delta
    int64_t base_timestamp
    int64_t max_timestamp
    bint has_append_time
    int64_t first_offset
    int64_t end_offset


cdef struct Fields:
    int64_t timestamp_delta
    int64_t offset_delta
    const uint8_t *key
    int64_t key_length  # -1: null
    const uint8_t *value
    int64_t value_length
    const uint8_t *headers
    int64_t header_count


cdef struct Measure:
    int64_t rows
    int64_t key_bytes
    int64_t value_bytes
    int64_t headers
    int64_t name_bytes
    int64_t content_bytes


cdef struct Place:  # Of a record in its batch.
    int64_t index
    int64_t at


cdef class Memory:
    """Bytes that were gathered in C, kept alive by whoever looks at them."""

    cdef uint8_t *bytes
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.bytes)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.bytes, self.size, 1, flags)


cdef class ColumnsReader:
    cdef int wanted
    cdef Table table

    def __cinit__(self, wanted):
        self.wanted = wanted
        memset(&self.table, 0, sizeof(Table))

    def __dealloc__(self):
        free(self.table.offsets.bytes)
        free(self.table.timestamps.bytes)
        free(self.table.types.bytes)
        free_column(&self.table.key)
        free_column(&self.table.value)
        free_column(&self.table.lists)
        free_column(&self.table.names)
        free_column(&self.table.contents)

    @property
    def rows(self):
        return self.table.rows

    @property
    def bytes(self):
        return bytes_of(&self.table)

    def has_room_for(self, payload):
        cdef Py_buffer view
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        PyBuffer_Release(&view)
        return self.table.rows == 0 or bytes_of(&self.table) + view.len <= BYTES_MAX

    def add(self, header, payload, *, first_offset, end_offset):
        cdef Py_buffer view
        cdef Batch batch
        cdef Place place
        cdef int64_t before = self.table.rows
        cdef int fault
        read_header(&batch, header)
        batch.first_offset, batch.end_offset = clamp(first_offset), clamp(end_offset)
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            if before and bytes_of(&self.table) + view.len > BYTES_MAX:
                raise ValueError(layout.FULL)
            batch.bytes, batch.size = <const uint8_t *>view.buf, view.len
            check_batch(&batch)
            with nogil:
                fault = add_batch(&self.table, self.wanted, &batch, &place)
            if fault:
                raise_malformed(fault, &batch, &place, payload)
        finally:
            PyBuffer_Release(&view)
        return self.table.rows - before

    def take(self):
        cdef Table *table = &self.table
        cdef int wanted = self.wanted
        if not make_room_for_ends(table):
            raise MemoryError
        columns = layout.Columns(
            rows=table.rows,
            offsets=taken(&table.offsets) if wanted & WANTS_OFFSET else None,
            timestamps=taken(&table.timestamps) if wanted & WANTS_TIMESTAMP else None,
            timestamp_types=taken(&table.types) if wanted & WANTS_TIMESTAMP_TYPE else None,
            key=taken_column(&table.key) if wanted & WANTS_KEY else None,
            value=taken_column(&table.value) if wanted & WANTS_VALUE else None,
            headers=taken_headers(table) if wanted & WANTS_HEADERS else None,
        )
        table.rows = 0
        return columns


# In: what is asked of Python

cdef int read_header(Batch *batch, header) except -1:
    batch.base_offset = header.base_offset
    batch.last_delta = header.last_offset_delta
    batch.count = header.record_count
    batch.base_timestamp = header.base_timestamp
    batch.max_timestamp = header.max_timestamp
    batch.has_append_time = header.attributes & APPEND_TIME_BIT
    return 0


cdef int check_batch(const Batch *batch) except -1:
    if batch.base_offset < 0 or batch.base_offset > INT64_MAX - 1 - max(0, batch.last_delta):
        raise layout.MalformedRecords(batch.base_offset, 0, layout.OFFSETS_TOO_HIGH)
    if batch.count < 0:
        raise layout.MalformedRecords(batch.base_offset, 0, layout.COUNT_NEGATIVE)
    if batch.size > BYTES_MAX:
        raise layout.MalformedRecords(batch.base_offset, 0, layout.BATCH_TOO_LARGE)
    return 0


cdef int raise_malformed(int fault, const Batch *batch, const Place *place, payload) except -1:
    if fault == NO_MEMORY:
        raise MemoryError
    if fault == CHANGED:
        raise ValueError("the records changed while they were read")
    if fault == BAD_OFFSET:
        reason = layout.OFFSET_ASTRAY
    elif fault == BAD_TIMESTAMP:
        reason = layout.TIMESTAMP_TOO_FAR
    elif fault == BYTES_LEFT:
        reason = layout.LEFT_OVER
    else:
        reason = "it does not parse"
        try:
            read_record_in_words(payload, place.at, batch.size)
        except MalformedInput as failure:
            reason = str(failure)
    raise layout.MalformedRecords(batch.base_offset, place.index, reason)


cdef void free_column(Column *column) noexcept:
    free(column.bits.bytes)
    free(column.ends.bytes)
    free(column.data.bytes)


cdef taken(Store *store):
    cdef Memory memory = Memory()
    cdef uint8_t *fitted = <uint8_t *>realloc(store.bytes, <size_t>max(store.used, 1))
    memory.bytes = store.bytes if fitted == NULL else fitted
    memory.size = store.used
    store.bytes, store.usual = NULL, store.used
    store.used = store.capacity = 0
    return memoryview(memory)


cdef taken_validity(Column *column):
    validity = taken(&column.bits)
    return validity if column.nulls else None


cdef taken_column(Column *column):
    found = layout.BinaryColumn(taken_validity(column), taken(&column.ends), taken(&column.data))
    column.count = column.nulls = 0
    return found


cdef taken_headers(Table *table):
    cdef Column *lists = &table.lists
    found = layout.HeadersColumn(taken_validity(lists), taken(&lists.ends), taken_column(&table.names), taken_column(&table.contents))
    lists.count = lists.nulls = 0
    return found


# In: records to columns

cdef int64_t bytes_of(const Table *table) noexcept nogil:
    return table.key.data.used + table.value.data.used + table.names.data.used + table.contents.data.used


cdef int add_batch(Table *table, int wanted, const Batch *batch, Place *place) noexcept nogil:
    cdef Measure measure
    cdef Table before
    cdef int fault
    memset(&measure, 0, sizeof(Measure))
    place.index = place.at = 0
    fault = measure_batch(batch, wanted, &measure, place)
    if fault or measure.rows == 0:
        return fault
    if not make_room(table, wanted, &measure):
        return NO_MEMORY
    before = table[0]  # From here on nothing is allotted, so that all of it can be put back.
    fault = fill_from(table, wanted, batch)
    if fault:
        table[0] = before
    return fault


cdef int measure_batch(const Batch *batch, int wanted, Measure *measure, Place *place) noexcept nogil:
    cdef const uint8_t *at = batch.bytes
    cdef const uint8_t *end = batch.bytes + batch.size
    cdef int64_t last_delta = -1, timestamp, offset
    cdef Fields record
    while place.index < batch.count:
        place.at = at - batch.bytes
        if not read_record(&at, end, &record):
            return DOES_NOT_PARSE
        if record.offset_delta <= last_delta or record.offset_delta > batch.last_delta:
            return BAD_OFFSET
        if not timestamp_of(batch, &record, &timestamp):
            return BAD_TIMESTAMP
        last_delta = record.offset_delta
        place.index += 1
        offset = batch.base_offset + record.offset_delta
        if offset < batch.first_offset or offset >= batch.end_offset:
            continue
        measure.rows += 1
        measure.key_bytes += max(0, record.key_length)
        measure.value_bytes += max(0, record.value_length)
        if wanted & WANTS_HEADERS and record.header_count:
            measure_headers(&record, end, measure)
    return FINE if at == end else BYTES_LEFT


cdef void measure_headers(const Fields *record, const uint8_t *end, Measure *measure) noexcept nogil:
    cdef const uint8_t *at = record.headers
    cdef const uint8_t *cell
    cdef int64_t length = 0, left = record.header_count
    measure.headers += left
    while left > 0 and take_cell(&at, end, &cell, &length):
        measure.name_bytes += length if is_ascii(cell, length) else SHOWN_GROWTH * length
        if not take_cell(&at, end, &cell, &length):
            return
        measure.content_bytes += max(0, length)
        left -= 1


cdef bint make_room(Table *table, int wanted, const Measure *measure) noexcept nogil:
    cdef int64_t rows = measure.rows
    if wanted & WANTS_OFFSET and not reserve(&table.offsets, 8 * rows):
        return False
    if wanted & WANTS_TIMESTAMP and not reserve(&table.timestamps, 8 * rows):
        return False
    if wanted & WANTS_TIMESTAMP_TYPE and not reserve(&table.types, 4 * rows):
        return False
    if wanted & WANTS_KEY and not reserve_column(&table.key, rows, measure.key_bytes):
        return False
    if wanted & WANTS_VALUE and not reserve_column(&table.value, rows, measure.value_bytes):
        return False
    if not wanted & WANTS_HEADERS:
        return True
    return (
        reserve_column(&table.lists, rows, 0)
        and reserve_column(&table.names, measure.headers, measure.name_bytes)
        and reserve_column(&table.contents, measure.headers, measure.content_bytes)
    )


cdef bint make_room_for_ends(Table *table) noexcept nogil:
    """A column without rows has one offset all the same."""
    return (
        reserve_column(&table.key, 0, 0)
        and reserve_column(&table.value, 0, 0)
        and reserve_column(&table.lists, 0, 0)
        and reserve_column(&table.names, 0, 0)
        and reserve_column(&table.contents, 0, 0)
    )


cdef bint reserve_column(Column *column, int64_t rows, int64_t size) noexcept nogil:
    if not reserve(&column.bits, rows // 8 + 1) or not reserve(&column.ends, 4 * rows + 4) or not reserve(&column.data, size):
        return False
    if column.ends.used == 0:
        memset(column.ends.bytes, 0, 4)
        column.ends.used = 4
    return True


cdef bint reserve(Store *store, int64_t more) noexcept nogil:
    cdef int64_t capacity = max(store.used + more, store.usual)
    cdef uint8_t *bytes
    if store.used + more <= store.capacity:
        return True
    capacity = max(capacity, 2 * store.capacity)
    bytes = <uint8_t *>realloc(store.bytes, <size_t>capacity)
    if bytes == NULL:
        return False
    store.bytes, store.capacity = bytes, capacity
    return True


cdef int fill_from(Table *table, int wanted, const Batch *batch) noexcept nogil:
    cdef const uint8_t *at = batch.bytes
    cdef const uint8_t *end = batch.bytes + batch.size
    cdef int64_t index, timestamp, offset
    cdef Fields record
    cdef int32_t kind = 1 if batch.has_append_time else 0
    for index in range(batch.count):
        if not read_record(&at, end, &record) or not timestamp_of(batch, &record, &timestamp):
            return CHANGED
        offset = batch.base_offset + record.offset_delta
        if offset < batch.first_offset or offset >= batch.end_offset:
            continue
        table.rows += 1
        if wanted & WANTS_OFFSET and not put(&table.offsets, &offset, 8):
            return CHANGED
        timestamp = micros(timestamp)
        if wanted & WANTS_TIMESTAMP and not put(&table.timestamps, &timestamp, 8):
            return CHANGED
        if wanted & WANTS_TIMESTAMP_TYPE and not put(&table.types, &kind, 4):
            return CHANGED
        if wanted & WANTS_KEY and not put_cell(&table.key, record.key, record.key_length):
            return CHANGED
        if wanted & WANTS_VALUE and not put_cell(&table.value, record.value, record.value_length):
            return CHANGED
        if wanted & WANTS_HEADERS and not put_headers(table, &record, end):
            return CHANGED
    return FINE


cdef bint put_headers(Table *table, const Fields *record, const uint8_t *end) noexcept nogil:
    cdef const uint8_t *at = record.headers
    cdef const uint8_t *cell
    cdef int64_t length = 0, left = record.header_count
    while left > 0:
        if not take_cell(&at, end, &cell, &length) or length < 0:
            return False
        if not (put_cell(&table.names, cell, length) if is_ascii(cell, length) else put_shown(&table.names, cell, length)):
            return False
        if not take_cell(&at, end, &cell, &length) or not put_cell(&table.contents, cell, length):
            return False
        left -= 1
    return put_end(&table.lists, table.names.count, record.header_count > 0)


cdef bint put_shown(Column *column, const uint8_t *cell, int64_t length) noexcept with gil:
    """A name with signs beyond ASCII, each of which may be no UTF-8."""
    cdef bytes shown = (<const char *>cell)[:length].decode("utf-8", "replace").encode()
    return put_cell(column, <const uint8_t *>PyBytes_AS_STRING(shown), len(shown))


cdef inline bint put_cell(Column *column, const uint8_t *cell, int64_t length) noexcept nogil:
    if length > 0 and not put(&column.data, cell, length):
        return False
    return put_end(column, column.data.used, length >= 0)


cdef inline bint put_end(Column *column, int64_t position, bint is_valid) noexcept nogil:
    cdef int32_t number = <int32_t>position
    cdef int64_t slot = column.count >> 3
    cdef int bit = column.count & 7
    if slot >= column.bits.capacity or not put(&column.ends, &number, 4):
        return False
    if bit == 0:
        column.bits.bytes[slot] = 0
        column.bits.used = slot + 1
    column.bits.bytes[slot] = (column.bits.bytes[slot] & ~(1 << bit)) | (is_valid << bit)
    column.count += 1
    column.nulls += not is_valid
    return True


cdef inline bint put(Store *store, const void *bytes, int64_t size) noexcept nogil:
    if size > store.capacity - store.used:
        return False
    memcpy(store.bytes + store.used, bytes, <size_t>size)
    store.used += size
    return True


cdef inline bint timestamp_of(const Batch *batch, const Fields *record, int64_t *timestamp) noexcept nogil:
    cdef int64_t base = batch.base_timestamp, delta = record.timestamp_delta
    if batch.has_append_time:
        timestamp[0] = batch.max_timestamp
        return True
    if (delta > 0 and base > INT64_MAX - delta) or (delta < 0 and base < INT64_MIN - delta):
        return False
    timestamp[0] = base + delta
    return True


cdef inline int64_t micros(int64_t millis) noexcept nogil:
    if millis > MILLIS_MAX:
        return INT64_MAX
    if millis < -MILLIS_MAX:
        return INT64_MIN
    return millis * 1000


cdef inline bint is_ascii(const uint8_t *bytes, int64_t size) noexcept nogil:
    cdef uint8_t all_bits = 0
    cdef int64_t at
    for at in range(size):
        all_bits |= bytes[at]
    return all_bits < 0x80


cdef inline bint read_record(const uint8_t **at, const uint8_t *end, Fields *record) noexcept nogil:
    cdef int64_t length, name_length = 0, left
    cdef const uint8_t *record_end
    cdef const uint8_t *cell
    if not take_varint(at, end, &length) or length < 1 or length > end - at[0]:
        return False
    record_end = at[0] + length
    at[0] += 1  # Attributes, none of them in use.
    if not take_varlong(at, record_end, &record.timestamp_delta) or not take_varint(at, record_end, &record.offset_delta):
        return False
    if not take_cell(at, record_end, &record.key, &record.key_length):
        return False
    if not take_cell(at, record_end, &record.value, &record.value_length):
        return False
    if not take_varint(at, record_end, &record.header_count) or record.header_count < 0:
        return False
    record.headers = at[0]
    left = record.header_count
    while left > 0:  # Each takes two bytes at least, so a count that lies ends at the record's end.
        if not take_cell(at, record_end, &cell, &name_length) or name_length < 0 or not take_cell(at, record_end, &cell, &length):
            return False
        left -= 1
    return at[0] == record_end


cdef inline bint take_cell(const uint8_t **at, const uint8_t *end, const uint8_t **cell, int64_t *length) noexcept nogil:
    """A field with its length in front; -1 stands for null."""
    if not take_varint(at, end, length) or length[0] < -1 or length[0] > end - at[0]:
        return False
    cell[0] = at[0]
    if length[0] > 0:
        at[0] += length[0]
    return True


cdef int64_t clamp(object number) except? -2:
    """Bounds may lie past 64 bits; what they are compared with may not."""
    if number > INT64_MAX:
        return INT64_MAX
    if number < INT64_MIN:
        return INT64_MIN
    return number
