# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=False, embedsignature=False
"""The compiled sieve of compaction. `sieve` says what the functions promise, `_sieve_py` is the same in Python.

It runs beside the event loop, in another thread, and lets the interpreter go while it works: a round over a large log must not hold up
those who are served. Positions are compared with the end before they move, as in `_records`: a batch with a right checksum around records
that do not parse must not take the process with it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from penstock.wire.sieve_verdicts import Noted, Sifted

include "_varints.pxi"

cdef extern from "_crc32c.h":
    void crc32c_prepare() noexcept nogil
    uint32_t crc32c_of(const uint8_t *bytes, size_t count) noexcept nogil

cdef extern from "_siphash.h":
    void siphash128(const uint64_t *key, const uint8_t *bytes, size_t count, uint64_t *out) noexcept nogil

crc32c_prepare()

cdef enum:
    HEADER_BYTES = 61
    PREFIX_BYTES = 12
    CRC_AT = 17
    CRC_FROM = 21
    LAST_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    COUNT_AT = 57
    SLOT = 24  # As SLOT_BYTES in sieve_verdicts.
    RECORD_BYTES_MIN = 7
    GROWTH_MAX = 12  # What a record may grow by when its timestamp counts from somewhere else: nine bytes, and its length by one or two.
    APPEND_TIME = 0x08
    SPECIAL_BITS = 0x37  # A codec, transactional, control.
    TRANSACTIONAL = 0x10
    HORIZON = 0x40
    NO_TIMESTAMP = -1

# As in sieve_verdicts.Stop.
cdef enum:
    STOP_END = 0
    STOP_SPECIAL = 1
    STOP_FULL = 2
    STOP_MALFORMED = 3


cdef struct Table:
    uint8_t *slots
    uint64_t mask
    uint64_t key[2]


cdef struct Fields:
    const uint8_t *after_time  # What follows the timestamp's delta.
    const uint8_t *key
    const uint8_t *end
    uint8_t attributes
    int64_t time_delta
    int64_t offset_delta
    int64_t key_length  # -1: null
    int64_t value_length


cdef struct Task:
    Table table
    int64_t map_end
    int64_t wall_ms
    int64_t horizon_ms
    int64_t mark_bytes
    const uint8_t *kept_ends
    int64_t kept_count
    uint8_t *keeps  # Of the batch at hand, one byte for each record.
    uint8_t *out
    int64_t out_size
    int64_t *marks
    int64_t mark_count
    int64_t next_mark
    int64_t records_removed
    int64_t batches_changed


cdef struct Outcome:
    int64_t kept
    int64_t max_timestamp
    bint has_tombstone  # One that stays, below the end of the map.
    bint can_shift  # Every timestamp can be told from the new horizon.


def siphash(key, seed):
    """For the tests: the hash as its authors publish it."""
    cdef Py_buffer view
    cdef uint64_t out[2]
    cdef Table table
    read_seed(&table, seed)
    PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
    try:
        siphash128(table.key, <const uint8_t *>view.buf, <size_t>view.len, out)
    finally:
        PyBuffer_Release(&view)
    return int(out[0]).to_bytes(8, "little") + int(out[1]).to_bytes(8, "little")


def note_keys(batches, Py_ssize_t start, Py_ssize_t end, table, *, seed, int64_t room, bint takes_transactional=False):
    cdef Py_buffer view, slots
    cdef Table keys
    cdef int64_t at = start, added = 0
    cdef int stop
    PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(table, &slots, PyBUF_WRITABLE)
        try:
            check_range(start, end, view.len)
            open_table(&keys, &slots, seed)
            with nogil:
                stop = note_all(<const uint8_t *>view.buf, &at, end, &keys, room, &added, specials_of(takes_transactional))
        finally:
            PyBuffer_Release(&slots)
    finally:
        PyBuffer_Release(&view)
    return Noted(at, added, stop)


def grow_table(table):
    cdef Py_buffer old, new
    cdef Table target
    larger = bytearray(2 * len(table))
    PyObject_GetBuffer(table, &old, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(larger, &new, PyBUF_WRITABLE)
        try:
            open_table(&target, &new, bytes(16))
            with nogil:
                move_all(<const uint8_t *>old.buf, old.len, &target)
        finally:
            PyBuffer_Release(&new)
    finally:
        PyBuffer_Release(&old)
    return larger


def sift_batches(
    batches, Py_ssize_t start, Py_ssize_t end, table, *, seed,
    int64_t map_end, int64_t wall_ms, int64_t horizon_ms, bytes kept_ends, int64_t mark_bytes, bint takes_transactional=False,
):
    cdef Py_buffer view, slots
    cdef Task task
    cdef int64_t at = start, number
    cdef int stop
    PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(table, &slots, PyBUF_SIMPLE)
        try:
            check_range(start, end, view.len)
            open_table(&task.table, &slots, seed)
            task.map_end, task.wall_ms, task.horizon_ms, task.mark_bytes = map_end, wall_ms, horizon_ms, mark_bytes
            task.kept_ends = kept_ends
            task.kept_count = len(kept_ends) // 8
            allot(&task, end - start)
            try:
                with nogil:
                    stop = sift_all(<const uint8_t *>view.buf, &at, end, &task, specials_of(takes_transactional))
                content = PyBytes_FromStringAndSize(<const char *>task.out, task.out_size)
                marks = [
                    (task.marks[3 * number], task.marks[3 * number + 1], task.marks[3 * number + 2]) for number in range(task.mark_count)
                ]
            finally:
                free(task.keeps)
                free(task.out)
                free(task.marks)
        finally:
            PyBuffer_Release(&slots)
    finally:
        PyBuffer_Release(&view)
    return Sifted(at, content, marks, task.records_removed, task.batches_changed, stop)


cdef int check_range(Py_ssize_t start, Py_ssize_t end, Py_ssize_t size) except -1:
    if start < 0 or end < start or end > size:
        raise ValueError("the range reaches past the buffer")
    return 0


cdef int read_seed(Table *table, seed) except -1:
    if len(seed) != 16:
        raise ValueError("a seed has sixteen bytes")
    table.key[0] = int.from_bytes(seed[:8], "little")
    table.key[1] = int.from_bytes(seed[8:], "little")
    return 0


cdef int open_table(Table *table, Py_buffer *view, seed) except -1:
    cdef uint64_t count = <uint64_t>view.len // SLOT
    if count == 0 or count * SLOT != <uint64_t>view.len or count & (count - 1):
        raise ValueError("a table has a power of two slots")
    read_seed(table, seed)
    table.slots = <uint8_t *>view.buf
    table.mask = count - 1
    return 0


cdef int allot(Task *task, int64_t size) except -1:
    """Room for the worst: every record grows, every batch gets a mark."""
    task.out_size = task.mark_count = task.next_mark = task.records_removed = task.batches_changed = 0
    task.keeps = <uint8_t *>malloc(<size_t>(size // RECORD_BYTES_MIN + 1))
    task.out = <uint8_t *>malloc(<size_t>(size + (size // RECORD_BYTES_MIN + 1) * GROWTH_MAX))
    task.marks = <int64_t *>malloc(<size_t>((size // HEADER_BYTES + 1) * 24))
    if task.keeps == NULL or task.out == NULL or task.marks == NULL:
        free(task.keeps)
        free(task.out)
        free(task.marks)
        raise MemoryError
    return 0


# Keys

cdef int note_all(
    const uint8_t *bytes, int64_t *at, int64_t end, Table *table, int64_t room, int64_t *added, int specials
) noexcept nogil:
    cdef int64_t size
    cdef int32_t count
    cdef int stop
    while at[0] < end:
        stop = look_at_batch(bytes + at[0], end - at[0], &size, specials)
        if stop:
            return stop
        count = <int32_t>be32(bytes + at[0] + COUNT_AT)
        if count > room - added[0]:
            return STOP_FULL
        if not note_batch(bytes + at[0], size, count, table, added):
            return STOP_MALFORMED
        at[0] += size
    return STOP_END


cdef bint note_batch(const uint8_t *batch, int64_t size, int32_t count, Table *table, int64_t *added) noexcept nogil:
    cdef const uint8_t *at = batch + HEADER_BYTES
    cdef int64_t base_offset = <int64_t>be64(batch)
    cdef int32_t number
    cdef Fields record
    for number in range(count):
        if not read_record(&at, batch + size, &record):
            return False
        if record.key_length >= 0:
            added[0] += enter(table, record.key, record.key_length, base_offset + record.offset_delta)
    return at == batch + size


cdef bint enter(Table *table, const uint8_t *key, int64_t length, int64_t offset) noexcept nogil:
    """Whether the key is new."""
    cdef uint64_t hash[2]
    cdef uint8_t *slot
    cdef int64_t known
    siphash128(table.key, key, <size_t>length, hash)
    slot = find_slot(table, hash)
    known = last_offset(slot)
    if known < 0:
        memcpy(slot, hash, 16)
    if offset > known:
        set_offset(slot, offset)
    return known < 0


cdef uint8_t *find_slot(const Table *table, const uint64_t *hash) noexcept nogil:
    """The slot with this hash, or the free one where it belongs. The caller sees to it that one is free."""
    cdef uint64_t place = hash[0] & table.mask
    cdef uint8_t *slot
    cdef uint64_t found[2]
    while True:
        slot = table.slots + place * SLOT
        if last_offset(slot) < 0:
            return slot
        memcpy(found, slot, 16)
        if found[0] == hash[0] and found[1] == hash[1]:
            return slot
        place = (place + 1) & table.mask


cdef inline int64_t last_offset(const uint8_t *slot) noexcept nogil:
    """-1: the slot is free."""
    cdef int64_t stored
    memcpy(&stored, slot + 16, 8)
    return stored - 1


cdef inline void set_offset(uint8_t *slot, int64_t offset) noexcept nogil:
    cdef int64_t stored = offset + 1
    memcpy(slot + 16, &stored, 8)


cdef void move_all(const uint8_t *slots, int64_t size, Table *target) noexcept nogil:
    cdef int64_t at = 0
    cdef uint64_t hash[2]
    while at < size:
        if last_offset(slots + at) >= 0:
            memcpy(hash, slots + at, 16)
            memcpy(find_slot(target, hash), slots + at, SLOT)
        at += SLOT


# Sifting

cdef int sift_all(const uint8_t *bytes, int64_t *at, int64_t end, Task *task, int specials) noexcept nogil:
    cdef int64_t size
    cdef int stop
    while at[0] < end:
        stop = look_at_batch(bytes + at[0], end - at[0], &size, specials)
        if stop:
            return stop
        if not sift_batch(bytes + at[0], size, task):
            return STOP_MALFORMED
        at[0] += size
    return STOP_END


cdef inline int specials_of(bint takes_transactional) noexcept nogil:
    return SPECIAL_BITS & ~TRANSACTIONAL if takes_transactional else SPECIAL_BITS


cdef int look_at_batch(const uint8_t *batch, int64_t left, int64_t *size, int specials) noexcept nogil:
    cdef int32_t length
    if left < HEADER_BYTES:
        return STOP_MALFORMED
    length = <int32_t>be32(batch + 8)
    if length < HEADER_BYTES - PREFIX_BYTES or length > left - PREFIX_BYTES or <int32_t>be32(batch + COUNT_AT) < 0:
        return STOP_MALFORMED
    if batch[CRC_FROM + 1] & specials:
        return STOP_SPECIAL
    size[0] = <int64_t>length + PREFIX_BYTES
    return STOP_END


cdef bint sift_batch(const uint8_t *batch, int64_t size, Task *task) noexcept nogil:
    cdef int32_t count = <int32_t>be32(batch + COUNT_AT)
    cdef int64_t last_offset_here = <int64_t>be64(batch) + <int32_t>be32(batch + LAST_DELTA_AT)
    cdef bint has_horizon = (batch[CRC_FROM + 1] & HORIZON) != 0
    cdef bint gets_horizon
    cdef Outcome outcome
    if not judge_records(batch, size, count, task, &outcome):
        return False
    gets_horizon = outcome.has_tombstone and not has_horizon and outcome.can_shift
    task.records_removed += count - outcome.kept
    if outcome.kept == 0:
        if is_kept_end(task, last_offset_here):
            write_empty(batch, task)
            task.batches_changed += size != HEADER_BYTES or memcmp(task.out + task.out_size - HEADER_BYTES, batch, HEADER_BYTES) != 0
        else:
            task.batches_changed += 1
    elif outcome.kept == count and not gets_horizon:
        mark(batch, task, <int64_t>be64(batch + MAX_TIMESTAMP_AT))
        memcpy(task.out + task.out_size, batch, <size_t>size)
        task.out_size += size
    else:
        task.batches_changed += 1
        write_changed(batch, size, count, task, &outcome, gets_horizon)
    return True


cdef bint judge_records(const uint8_t *batch, int64_t size, int32_t count, Task *task, Outcome *outcome) noexcept nogil:
    cdef const uint8_t *at = batch + HEADER_BYTES
    cdef int64_t base_offset = <int64_t>be64(batch)
    cdef int64_t base_timestamp = <int64_t>be64(batch + BASE_TIMESTAMP_AT)
    cdef bint drops_tombstones = (batch[CRC_FROM + 1] & HORIZON) != 0 and base_timestamp <= task.wall_ms
    cdef int64_t offset, timestamp = 0, shifted = 0
    cdef int32_t number
    cdef Fields record
    outcome.kept = 0
    outcome.max_timestamp = NO_TIMESTAMP
    outcome.has_tombstone = False
    outcome.can_shift = True
    for number in range(count):
        if not read_record(&at, batch + size, &record):
            return False
        offset = base_offset + record.offset_delta
        task.keeps[number] = is_needed(task, &record, offset, drops_tombstones)
        if not task.keeps[number]:
            continue
        if not add(base_timestamp, record.time_delta, &timestamp):
            return False
        outcome.can_shift &= subtract(timestamp, task.horizon_ms, &shifted)
        if timestamp > outcome.max_timestamp or outcome.kept == 0:
            outcome.max_timestamp = timestamp
        outcome.kept += 1
        outcome.has_tombstone |= record.value_length < 0 and offset < task.map_end
    return at == batch + size


cdef bint is_needed(Task *task, const Fields *record, int64_t offset, bint drops_tombstones) noexcept nogil:
    cdef uint64_t hash[2]
    if offset >= task.map_end:
        return True
    if record.key_length < 0 or (record.value_length < 0 and drops_tombstones):
        return False
    siphash128(task.table.key, record.key, <size_t>record.key_length, hash)
    return last_offset(find_slot(&task.table, hash)) <= offset


cdef bint is_kept_end(const Task *task, int64_t offset) noexcept nogil:
    cdef int64_t low = 0, high = task.kept_count, middle, found
    while low < high:
        middle = (low + high) // 2
        found = <int64_t>be64(task.kept_ends + 8 * middle)
        if found == offset:
            return True
        if found < offset:
            low = middle + 1
        else:
            high = middle
    return False


cdef void mark(const uint8_t *batch, Task *task, int64_t max_timestamp) noexcept nogil:
    """Before the batch is written."""
    cdef int64_t *last
    if task.out_size >= task.next_mark:
        task.marks[3 * task.mark_count] = <int64_t>be64(batch)
        task.marks[3 * task.mark_count + 1] = task.out_size
        task.marks[3 * task.mark_count + 2] = max_timestamp
        task.mark_count += 1
        task.next_mark = task.out_size + task.mark_bytes
    else:
        last = task.marks + 3 * task.mark_count - 1
        if max_timestamp > last[0]:
            last[0] = max_timestamp


cdef void write_empty(const uint8_t *batch, Task *task) noexcept nogil:
    cdef uint8_t *out = task.out + task.out_size
    mark(batch, task, NO_TIMESTAMP)
    memcpy(out, batch, HEADER_BYTES)
    out[CRC_FROM + 1] &= <uint8_t>(~HORIZON & 0xFF)
    put64(out + BASE_TIMESTAMP_AT, <uint64_t>(<int64_t>NO_TIMESTAMP))
    put32(out + COUNT_AT, 0)
    seal(out, HEADER_BYTES)
    task.out_size += HEADER_BYTES


cdef void write_changed(
    const uint8_t *batch, int64_t size, int32_t count, Task *task, const Outcome *outcome, bint gets_horizon
) noexcept nogil:
    cdef uint8_t *out = task.out + task.out_size
    cdef uint8_t *to = out + HEADER_BYTES
    cdef const uint8_t *at = batch + HEADER_BYTES
    cdef const uint8_t *start
    cdef int64_t base_timestamp = <int64_t>be64(batch + BASE_TIMESTAMP_AT)
    cdef bint is_append_time = (batch[CRC_FROM + 1] & APPEND_TIME) != 0
    cdef int64_t max_timestamp = <int64_t>be64(batch + MAX_TIMESTAMP_AT) if is_append_time else outcome.max_timestamp
    cdef int32_t number
    cdef Fields record
    mark(batch, task, max_timestamp)
    memcpy(out, batch, HEADER_BYTES)
    for number in range(count):
        start = at
        read_record(&at, batch + size, &record)
        if not task.keeps[number]:
            continue
        if gets_horizon:
            to = put_record(to, &record, base_timestamp + record.time_delta - task.horizon_ms)
        else:
            memcpy(to, start, <size_t>(at - start))
            to += at - start
    if gets_horizon:
        out[CRC_FROM + 1] |= HORIZON
        put64(out + BASE_TIMESTAMP_AT, <uint64_t>task.horizon_ms)
    put64(out + MAX_TIMESTAMP_AT, <uint64_t>max_timestamp)
    put32(out + COUNT_AT, <uint32_t>outcome.kept)
    seal(out, to - out)
    task.out_size += to - out


cdef uint8_t *put_record(uint8_t *to, const Fields *record, int64_t time_delta) noexcept nogil:
    """The record with another delta of its timestamp."""
    cdef uint8_t delta[10]
    cdef int64_t delta_bytes = put_varlong(delta, time_delta) - delta
    cdef int64_t rest_bytes = record.end - record.after_time
    to = put_varlong(to, 1 + delta_bytes + rest_bytes)
    to[0] = record.attributes
    memcpy(to + 1, delta, <size_t>delta_bytes)
    memcpy(to + 1 + delta_bytes, record.after_time, <size_t>rest_bytes)
    return to + 1 + delta_bytes + rest_bytes


cdef void seal(uint8_t *batch, int64_t size) noexcept nogil:
    put32(batch + 8, <uint32_t>(size - PREFIX_BYTES))
    put32(batch + CRC_AT, crc32c_of(batch + CRC_FROM, <size_t>(size - CRC_FROM)))


# Bytes

cdef bint read_record(const uint8_t **at, const uint8_t *end, Fields *record) noexcept nogil:
    """Headers are not looked at: they end with the record."""
    cdef int64_t length
    if not take_varint(at, end, &length) or length < 1 or length > end - at[0]:
        return False
    record.end = at[0] + length
    record.attributes = at[0][0]
    at[0] += 1
    if not take_varlong(at, record.end, &record.time_delta):
        return False
    record.after_time = at[0]
    if not take_varint(at, record.end, &record.offset_delta) or record.offset_delta < 0:
        return False
    if not take_varint(at, record.end, &record.key_length) or record.key_length > record.end - at[0]:
        return False
    record.key = at[0]
    if record.key_length > 0:
        at[0] += record.key_length
    if not take_varint(at, record.end, &record.value_length) or record.end - at[0] < 1 or record.value_length >= record.end - at[0]:
        return False  # After the value comes a count of headers: no record is shorter than RECORD_BYTES_MIN.
    at[0] = record.end
    return True


cdef inline bint add(int64_t left, int64_t right, int64_t *total) noexcept nogil:
    if (right > 0 and left > INT64_MAX - right) or (right < 0 and left < INT64_MIN - right):
        return False
    total[0] = left + right
    return True


cdef inline bint subtract(int64_t left, int64_t right, int64_t *difference) noexcept nogil:
    """`right` is a time of ours, and not below zero."""
    if left < INT64_MIN + right:
        return False
    difference[0] = left - right
    return True


cdef inline uint32_t be32(const uint8_t *bytes) noexcept nogil:
    return <uint32_t>bytes[0] << 24 | <uint32_t>bytes[1] << 16 | <uint32_t>bytes[2] << 8 | bytes[3]


cdef inline uint64_t be64(const uint8_t *bytes) noexcept nogil:
    return <uint64_t>be32(bytes) << 32 | be32(bytes + 4)


cdef inline void put32(uint8_t *to, uint32_t value) noexcept nogil:
    to[0] = <uint8_t>(value >> 24)
    to[1] = <uint8_t>(value >> 16)
    to[2] = <uint8_t>(value >> 8)
    to[3] = <uint8_t>value


cdef inline void put64(uint8_t *to, uint64_t value) noexcept nogil:
    put32(to, <uint32_t>(value >> 32))
    put32(to + 4, <uint32_t>value)


cdef inline uint8_t *put_varlong(uint8_t *to, int64_t value) noexcept nogil:
    cdef uint64_t bits = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while bits >= 0x80:
        to[0] = <uint8_t>(bits & 0x7F | 0x80)
        to += 1
        bits >>= 7
    to[0] = <uint8_t>bits
    return to + 1
