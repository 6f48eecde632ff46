# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=False, embedsignature=False
"""The compiled loop over records and batches. `records` says what the functions promise, `_records_py` is the same in Python.

Bytes here are untrusted and reached through plain pointers, so no check is left to the language: a position moves only after it was compared
with the end, and a length is compared with what is left before it is added. The tests hold every verdict against the twin's.
Nothing is allocated per record but what `take_pairs` and `take_latest` hand over, and the interpreter is not released: a call is shorter than the handing over would be.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from penstock.errors import MalformedInput
from penstock.wire.verdicts import RecordsVerdict, Scan

include "_varints.pxi"

cdef extern from "_crc32c.h":
    void crc32c_prepare() noexcept
    uint32_t crc32c_of(const uint8_t *bytes, size_t count) noexcept
    uint32_t crc32c_of_by_table(const uint8_t *bytes, size_t count) noexcept
    int crc32c_uses_instruction

crc32c_prepare()
USES_INSTRUCTION = bool(crc32c_uses_instruction)

cdef object new_tuple = tuple.__new__  # Half the cost of calling a named tuple's class.
cdef object verdict_class = RecordsVerdict
cdef object scan_class = Scan

cdef enum:
    HEADER_BYTES = 61
    PREFIX_BYTES = 12  # Base offset and length: not counted by the length.
    EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    CRC_FROM = 21  # What the checksum covers begins here.
    ATTRIBUTES_AT = 21
    LAST_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_AT = 43
    PRODUCER_EPOCH_AT = 51
    SEQUENCE_AT = 53
    COUNT_AT = 57
    MAGIC = 2
    CODEC_BITS = 0x07  # Of the attributes' second byte.
    CONTROL_BIT = 0x20
    NO_TIMESTAMP = -1

# As in verdicts.RecordFault and verdicts.ScanFault.
cdef enum:
    RECORDS_FINE = 0
    MALFORMED = 1
    OFFSET_DELTA = 2
    KEY_MISSING = 3
    TIMESTAMP = 4

cdef enum:
    SCAN_FINE = 0
    TRUNCATED = 1
    BAD_LENGTH = 2
    BAD_MAGIC = 3
    BAD_OFFSET = 4
    BAD_CRC = 5
    BAD_EPOCH = 6


cdef struct Rules:
    int64_t base_timestamp
    int64_t timestamp_min
    int64_t timestamp_max
    bint keys_required


cdef struct Highest:
    int64_t timestamp
    int64_t delta


cdef struct Front:
    int64_t base_offset
    int64_t end_offset
    int64_t size


def crc32c(buffer, Py_ssize_t start, Py_ssize_t end):
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or end < start or end > view.len:
            raise ValueError("the range reaches past the buffer")
        return crc32c_of(<const uint8_t *>view.buf + start, <size_t>(end - start))
    finally:
        PyBuffer_Release(&view)


def crc32c_by_table(buffer):
    """The checksum as a machine without the instruction would compute it; for the tests."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return crc32c_of_by_table(<const uint8_t *>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)


def check_records(payload, count, *, base_timestamp, timestamp_min, timestamp_max, bint keys_required):
    cdef Py_buffer view
    cdef Rules rules
    cdef Highest highest
    cdef int64_t index = 0
    cdef int fault
    rules.base_timestamp = base_timestamp
    rules.timestamp_min = clamp(timestamp_min)
    rules.timestamp_max = clamp(timestamp_max)
    rules.keys_required = keys_required
    highest.timestamp = NO_TIMESTAMP
    highest.delta = -1
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        fault = walk_records(<const uint8_t *>view.buf, view.len, clamp(count), &rules, &highest, &index)
    finally:
        PyBuffer_Release(&view)
    return new_tuple(verdict_class, (index if fault else -1, fault, highest.timestamp, highest.delta))


def is_plain_batch(batch, timestamp_min, timestamp_max, bint keys_required):
    cdef Py_buffer view
    cdef const uint8_t *bytes
    cdef Rules rules
    cdef Highest highest
    cdef int64_t index = 0
    rules.timestamp_min = clamp(timestamp_min)
    rules.timestamp_max = clamp(timestamp_max)
    rules.keys_required = keys_required
    highest.timestamp = NO_TIMESTAMP
    highest.delta = -1
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        bytes = <const uint8_t *>view.buf
        if not has_plain_header(bytes, view.len):
            return False
        if crc32c_of(bytes + CRC_FROM, <size_t>(view.len - CRC_FROM)) != be32(bytes + CRC_AT):
            return False
        rules.base_timestamp = <int64_t>be64(bytes + BASE_TIMESTAMP_AT)
        if walk_records(bytes + HEADER_BYTES, view.len - HEADER_BYTES, <int32_t>be32(bytes + COUNT_AT), &rules, &highest, &index):
            return False
        return highest.timestamp == <int64_t>be64(bytes + MAX_TIMESTAMP_AT)
    finally:
        PyBuffer_Release(&view)


def scan_batches(
    buffer, *, Py_ssize_t start=0, int64_t first_offset, end_offset_max, bytes_max, bint verify=True, bint is_dense=False, leader_epoch=None
):
    cdef Py_buffer view
    cdef int64_t offset_max = clamp(end_offset_max)
    cdef int64_t room = clamp(bytes_max)
    cdef int64_t at = start
    cdef int64_t end_offset = first_offset
    cdef int64_t batches = 0
    cdef bint has_epoch = leader_epoch is not None
    cdef int32_t epoch = leader_epoch if has_epoch else 0
    cdef Front front
    cdef int fault = SCAN_FINE
    cdef const uint8_t *bytes
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or start > view.len:
            raise ValueError("the start is outside the buffer")
        bytes = <const uint8_t *>view.buf
        while at < view.len:
            fault = read_front(bytes + at, view.len - at, end_offset, &front)
            if fault:
                break
            if is_dense and front.base_offset != end_offset:
                fault = BAD_OFFSET
                break
            if has_epoch and <int32_t>be32(bytes + at + EPOCH_AT) != epoch:
                fault = BAD_EPOCH
                break
            if front.end_offset > offset_max or (batches and at - start + front.size > room):
                break
            if front.size > view.len - at:
                fault = TRUNCATED
                break
            if verify and crc32c_of(bytes + at + CRC_FROM, <size_t>(front.size - CRC_FROM)) != be32(bytes + at + CRC_AT):
                fault = BAD_CRC
                break
            at += front.size
            end_offset = front.end_offset
            batches += 1
    finally:
        PyBuffer_Release(&view)
    return new_tuple(scan_class, (at - start, end_offset, batches, fault))


def seek_batch(buffer, offset, Py_ssize_t start=0):
    cdef Py_buffer view
    cdef int64_t wanted = clamp(offset)
    cdef int64_t at = start
    cdef Front front
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or start > view.len:
            raise ValueError("the start is outside the buffer")
        while at < view.len:
            if read_front(<const uint8_t *>view.buf + at, view.len - at, INT64_MIN, &front):
                return -1
            if front.end_offset > wanted:
                return at
            at += front.size
        return -1
    finally:
        PyBuffer_Release(&view)


def take_pairs(batches, Py_ssize_t at, offset_min, list pairs not None):
    return take_keyed(batches, at, offset_min, pairs, None)


def take_latest(batches, Py_ssize_t at, offset_min, dict latest not None):
    return take_keyed(batches, at, offset_min, None, latest)


cdef tuple take_keyed(object batches, Py_ssize_t at, object offset_min, list pairs, dict latest):
    cdef Py_buffer view
    cdef int64_t offset = clamp(offset_min)
    cdef int64_t end_offset = offset
    cdef const uint8_t *bytes
    cdef Front front
    PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
    try:
        bytes = <const uint8_t *>view.buf
        if at < 0 or at > view.len:
            raise ValueError("the start is outside the buffer")
        while at < view.len:
            if read_front(bytes + at, view.len - at, INT64_MIN, &front) or front.size > view.len - at:
                raise MalformedInput("a batch is not whole")
            if not bytes[at + ATTRIBUTES_AT + 1] & CONTROL_BIT:
                if bytes[at + ATTRIBUTES_AT + 1] & CODEC_BITS:
                    break
                take_of_batch(bytes + at + HEADER_BYTES, bytes + at + front.size, front.base_offset, offset, pairs, latest)
            at += front.size
            end_offset = front.end_offset
        return at, end_offset
    finally:
        PyBuffer_Release(&view)


cdef int take_of_batch(
    const uint8_t *at, const uint8_t *end, int64_t base_offset, int64_t offset_min, list pairs, dict latest
) except -1:
    """Into the list, or into the dictionary if there is no list."""
    cdef int64_t length, skipped, delta, offset, key_length, value_length
    cdef const uint8_t *record_end
    cdef const char *key
    while at < end:
        if not take_varint(&at, end, &length) or length <= 0 or length > end - at:
            raise MalformedInput("a record reaches past its batch")
        record_end = at + length
        at += 1  # Attributes, none of them in use.
        if not take_varlong(&at, record_end, &skipped) or not take_varint(&at, record_end, &delta):
            raise MalformedInput("a record is cut off")
        if not take_varint(&at, record_end, &key_length) or key_length < -1 or key_length > record_end - at:
            raise MalformedInput("a field reaches past its record")
        if key_length < 0:
            raise MalformedInput("a keyed record has no key")
        key = <const char *>at
        at += key_length
        if not take_varint(&at, record_end, &value_length) or value_length < -1 or value_length > record_end - at:
            raise MalformedInput("a field reaches past its record")
        if not add(base_offset, delta, &offset):
            raise MalformedInput("a record lies past the highest offset")
        if offset >= offset_min:
            name = PyBytes_FromStringAndSize(key, key_length)
            value = None if value_length < 0 else PyBytes_FromStringAndSize(<const char *>at, value_length)
            if pairs is not None:
                pairs.append((name, value))
            else:
                if name in latest:
                    del latest[name]  # So that it comes after all that are in the dictionary.
                latest[name] = value
        at = record_end
    return 0


def build_batch(rows, int64_t timestamp_ms):
    cdef list fields = []  # Of each record: key, value, count of headers, then name and content of each.
    cdef list sizes = []
    cdef list record
    cdef tuple row
    cdef int64_t size = 0
    cdef int64_t record_size
    cdef int32_t count = 0
    cdef bytearray batch
    cdef uint8_t *start
    cdef uint8_t *at
    for row in rows:
        record = fields_of(row)
        record_size = record_bytes(record, count)
        size += varint_bytes(record_size) + record_size
        fields.append(record)
        sizes.append(record_size)
        count += 1
        if size > INT32_MAX - HEADER_BYTES:
            raise ValueError("a batch has less than two gigabytes")
    if not count:
        raise ValueError("a batch has at least one record")
    batch = PyByteArray_FromStringAndSize(NULL, HEADER_BYTES + size)
    start = <uint8_t *>PyByteArray_AS_STRING(batch)
    at = start + HEADER_BYTES
    for index in range(count):
        at = put_varint(at, sizes[index])
        at = put_record(at, fields[index], index)
    put_header(start, HEADER_BYTES + size, count, timestamp_ms)
    return batch


cdef list fields_of(tuple row):
    """What a record is made of, as bytes or None: held on to until all of it is written."""
    cdef list fields = [checked_bytes(row[0]), checked_bytes(row[1])]
    cdef tuple header
    for header in row[2]:
        fields.append((<str>header[0]).encode())
        fields.append(checked_bytes(header[1]))
    return fields


cdef inline object checked_bytes(object content):
    if content is not None and type(content) is not bytes:
        raise TypeError("what is in a record is bytes, or None")
    return content


cdef int64_t record_bytes(list fields, int32_t delta):
    cdef int64_t size = 2 + varint_bytes(delta) + varint_bytes((len(fields) - 2) // 2)  # Attributes and a time delta of none, a byte each.
    cdef int64_t length
    for content in fields:
        if content is None:
            size += 1
        else:
            length = PyBytes_GET_SIZE(content)
            size += varint_bytes(length) + length
    return size


cdef uint8_t *put_record(uint8_t *at, list fields, int32_t delta):
    cdef Py_ssize_t index
    at[0] = 0
    at[1] = 0
    at = put_varint(at + 2, delta)
    for index in range(len(fields)):
        if index == 2:
            at = put_varint(at, (len(fields) - 2) // 2)
        at = put_field(at, fields[index])
    return at if len(fields) > 2 else put_varint(at, 0)


cdef inline uint8_t *put_field(uint8_t *at, object content):
    cdef Py_ssize_t length
    if content is None:
        at[0] = 1
        return at + 1
    length = PyBytes_GET_SIZE(content)
    at = put_varint(at, length)
    memcpy(at, PyBytes_AS_STRING(content), <size_t>length)
    return at + length


cdef inline int64_t varint_bytes(int64_t value) noexcept:
    """Of a number that is not negative."""
    cdef uint64_t bits = <uint64_t>value << 1
    cdef int64_t count = 1
    while bits >= 0x80:
        bits >>= 7
        count += 1
    return count


cdef inline uint8_t *put_varint(uint8_t *at, int64_t value) noexcept:
    cdef uint64_t bits = <uint64_t>value << 1
    while bits >= 0x80:
        at[0] = <uint8_t>(bits & 0x7F | 0x80)
        at += 1
        bits >>= 7
    at[0] = <uint8_t>bits
    return at + 1


cdef void put_header(uint8_t *bytes, int64_t size, int32_t count, int64_t timestamp_ms) noexcept:
    """Of a batch that nobody has stored yet: no offset, no epoch, no producer."""
    memset(bytes, 0, 8)
    put32(bytes + 8, <uint32_t>(size - PREFIX_BYTES))
    put32(bytes + EPOCH_AT, 0xFFFFFFFF)
    bytes[MAGIC_AT] = MAGIC
    memset(bytes + CRC_FROM, 0, 2)
    put32(bytes + LAST_DELTA_AT, <uint32_t>(count - 1))
    put64(bytes + BASE_TIMESTAMP_AT, <uint64_t>timestamp_ms)
    put64(bytes + MAX_TIMESTAMP_AT, <uint64_t>timestamp_ms)
    memset(bytes + PRODUCER_AT, 0xFF, COUNT_AT - PRODUCER_AT)
    put32(bytes + COUNT_AT, <uint32_t>count)
    put32(bytes + CRC_AT, crc32c_of(bytes + CRC_FROM, <size_t>(size - CRC_FROM)))


cdef inline void put32(uint8_t *at, uint32_t value) noexcept:
    at[0] = <uint8_t>(value >> 24)
    at[1] = <uint8_t>(value >> 16)
    at[2] = <uint8_t>(value >> 8)
    at[3] = <uint8_t>value


cdef inline void put64(uint8_t *at, uint64_t value) noexcept:
    put32(at, <uint32_t>(value >> 32))
    put32(at + 4, <uint32_t>value)


cdef int64_t clamp(object number) except? -2:
    """Bounds may lie past 64 bits (now plus the longest time); what they are compared with may not."""
    if number > INT64_MAX:
        return INT64_MAX
    if number < INT64_MIN:
        return INT64_MIN
    return number


cdef inline uint32_t be32(const uint8_t *bytes) noexcept:
    return <uint32_t>bytes[0] << 24 | <uint32_t>bytes[1] << 16 | <uint32_t>bytes[2] << 8 | bytes[3]


cdef inline uint64_t be64(const uint8_t *bytes) noexcept:
    return <uint64_t>be32(bytes) << 32 | be32(bytes + 4)


cdef inline bint has_plain_header(const uint8_t *bytes, int64_t size) noexcept:
    cdef int32_t count
    if size < HEADER_BYTES or <int32_t>be32(bytes + 8) != size - PREFIX_BYTES or bytes[MAGIC_AT] != MAGIC:
        return False
    if be64(bytes) != 0 or bytes[CRC_FROM] != 0 or bytes[CRC_FROM + 1] != 0:  # A base offset, or any attribute.
        return False
    count = <int32_t>be32(bytes + COUNT_AT)
    if count <= 0 or <int32_t>be32(bytes + LAST_DELTA_AT) != count - 1:
        return False
    if <int64_t>be64(bytes + PRODUCER_AT) < 0:
        return True
    return bytes[PRODUCER_EPOCH_AT] < 0x80 and bytes[SEQUENCE_AT] < 0x80


cdef int read_front(const uint8_t *bytes, int64_t left, int64_t offset_min, Front *front) noexcept:
    """Reads the head of a batch of which `left` bytes are there; its body may lie past them."""
    cdef int32_t length, last_delta
    if left < HEADER_BYTES:
        return TRUNCATED
    length = <int32_t>be32(bytes + 8)
    if length < HEADER_BYTES - PREFIX_BYTES:
        return BAD_LENGTH
    if bytes[MAGIC_AT] != MAGIC:
        return BAD_MAGIC
    front.base_offset = <int64_t>be64(bytes)
    last_delta = <int32_t>be32(bytes + LAST_DELTA_AT)
    if front.base_offset < offset_min or last_delta < 0 or front.base_offset > INT64_MAX - 1 - last_delta:
        return BAD_OFFSET
    front.end_offset = front.base_offset + last_delta + 1
    front.size = <int64_t>length + PREFIX_BYTES
    return SCAN_FINE


cdef int walk_records(
    const uint8_t *bytes, int64_t size, int64_t count, const Rules *rules, Highest *highest, int64_t *index
) noexcept:
    """Walks all records; on a fault `index` names the one at fault."""
    cdef const uint8_t *at = bytes
    cdef const uint8_t *end = bytes + size
    cdef int fault
    if count < 0:
        return MALFORMED
    while index[0] < count:
        fault = walk_record(&at, end, rules, highest, index[0])
        if fault:
            return fault
        index[0] += 1
    return RECORDS_FINE if at == end else MALFORMED


cdef int walk_record(const uint8_t **at, const uint8_t *end, const Rules *rules, Highest *highest, int64_t index) noexcept:
    cdef int64_t length, timestamp_delta, offset_delta, key_length, value_length, header_count, name_length
    cdef int64_t timestamp = 0
    cdef const uint8_t *record_end
    if not take_varint(at, end, &length) or length < 0 or length > end - at[0] or length == 0:
        return MALFORMED
    record_end = at[0] + length
    at[0] += 1  # Attributes, none of them in use; the record has this byte, for it is not empty.
    if not take_varlong(at, record_end, &timestamp_delta) or not take_varint(at, record_end, &offset_delta):
        return MALFORMED
    if not step_over(at, record_end, &key_length) or not step_over(at, record_end, &value_length):
        return MALFORMED
    if not take_varint(at, record_end, &header_count) or header_count < 0:
        return MALFORMED
    while header_count > 0:  # Each takes two bytes at least, so a count that lies ends at the record's end.
        if not step_over(at, record_end, &name_length) or name_length < 0 or not step_over(at, record_end, &value_length):
            return MALFORMED
        header_count -= 1
    if at[0] != record_end:
        return MALFORMED
    if offset_delta != index:
        return OFFSET_DELTA
    if rules.keys_required and key_length < 0:
        return KEY_MISSING
    if not add(rules.base_timestamp, timestamp_delta, &timestamp):
        return TIMESTAMP
    if timestamp != NO_TIMESTAMP and (timestamp < rules.timestamp_min or timestamp > rules.timestamp_max):
        return TIMESTAMP
    if timestamp > highest.timestamp or index == 0:
        highest.timestamp = timestamp
        highest.delta = index
    return RECORDS_FINE


cdef inline bint add(int64_t left, int64_t right, int64_t *total) noexcept:
    if (right > 0 and left > INT64_MAX - right) or (right < 0 and left < INT64_MIN - right):
        return False
    total[0] = left + right
    return True


cdef inline bint step_over(const uint8_t **at, const uint8_t *end, int64_t *length) noexcept:
    """Steps over a field with its length in front; -1 stands for null."""
    if not take_varint(at, end, length) or length[0] < -1 or length[0] > end - at[0]:
        return False
    if length[0] > 0:
        at[0] += length[0]
    return True
