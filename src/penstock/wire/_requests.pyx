# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=False, embedsignature=False
"""The compiled look at a produce request of the usual shape. `produce.read_single` says what it promises; without it every request
is read by `produce.read_produce_request`, which is also what the tests hold it against.

As in `_records`, bytes are untrusted and reached through plain pointers: a position moves only after it was compared with the end.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, uint8_t, uint32_t

cdef enum:
    PRODUCE = 0
    VERSION_MIN = 3
    FLEXIBLE_FROM = 9
    IDS_FROM = 13
    VERSION_MAX = 13
    ID_BYTES = 16
    FRONT_BYTES = 10  # API key, version, correlation id, length of the client id.


def read_single(frame):
    cdef Py_buffer view
    cdef const uint8_t *bytes
    cdef Py_ssize_t at, end, name_at
    cdef int version, acks
    cdef int32_t timeout_ms, partition
    cdef Py_ssize_t size, name_size
    cdef object topic
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        bytes = <const uint8_t *>view.buf
        end = view.len
        if end < FRONT_BYTES or be16(bytes) != PRODUCE:
            return None
        version = be16(bytes + 2)
        if version < VERSION_MIN or version > VERSION_MAX:
            return None
        size = be16(bytes + 8)
        at = FRONT_BYTES
        if size > 0:
            if size > end - at or not is_ascii(bytes + at, size):
                return None
            at += size
        elif size < -1:
            return None
        if version < FLEXIBLE_FROM:
            # No transaction, acks, time-out, one topic, its name, one partition, its index, its records.
            if end - at < 14 or be16(bytes + at) != -1 or be32(bytes + at + 8) != 1:
                return None
            acks = be16(bytes + at + 2)
            timeout_ms = be32(bytes + at + 4)
            name_size = be16(bytes + at + 12)
            name_at = at + 14
            if name_size < 0 or name_size + 12 > end - name_at:
                return None
            at = name_at + name_size
            if be32(bytes + at) != 1:
                return None
            partition = be32(bytes + at + 4)
            size = be32(bytes + at + 8)
            at += 12
            if size < 0 or size != end - at:
                return None
        else:
            # Tagged fields of the header (none), no transaction, acks, time-out, one topic, one partition, and tagged fields (none) three times.
            if end - at < 9 or bytes[at] != 0 or bytes[at + 1] != 0 or bytes[at + 8] != 2:
                return None
            acks = be16(bytes + at + 2)
            timeout_ms = be32(bytes + at + 4)
            at += 9
            if version >= IDS_FROM:
                name_size = ID_BYTES
                name_at = at
            else:
                if at >= end or bytes[at] == 0 or bytes[at] >= 0x80:
                    return None
                name_size = bytes[at] - 1
                name_at = at + 1
            if name_size + 6 > end - name_at:
                return None
            at = name_at + name_size
            if bytes[at] != 2:
                return None
            partition = be32(bytes + at + 1)
            at += 5
            size = take_length(bytes, &at, end)
            if size < 0 or size != end - at - 3 or bytes[end - 1] or bytes[end - 2] or bytes[end - 3]:
                return None
        if version >= IDS_FROM:
            topic = bytes[name_at : name_at + ID_BYTES]
        else:
            if not is_ascii(bytes + name_at, name_size):
                return None
            topic = PyUnicode_DecodeUTF8(<const char *>bytes + name_at, name_size, NULL)
        return version, <int32_t>be32(bytes + 4), acks, timeout_ms, topic, partition, frame[at : at + size]
    finally:
        PyBuffer_Release(&view)


cdef inline int16_t be16(const uint8_t *bytes) noexcept:
    return <int16_t>(<uint32_t>bytes[0] << 8 | bytes[1])


cdef inline int32_t be32(const uint8_t *bytes) noexcept:
    return <int32_t>(<uint32_t>bytes[0] << 24 | <uint32_t>bytes[1] << 16 | <uint32_t>bytes[2] << 8 | bytes[3])


cdef inline bint is_ascii(const uint8_t *bytes, Py_ssize_t size) noexcept:
    """Names that are more than that are left to the slower reader."""
    cdef Py_ssize_t at
    for at in range(size):
        if bytes[at] >= 0x80:
            return False
    return True


cdef inline Py_ssize_t take_length(const uint8_t *bytes, Py_ssize_t *at, Py_ssize_t end) noexcept:
    """A compact length: one more than it is, in up to five bytes of seven bits; -1 when it is null, cut off or too long."""
    cdef uint32_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while at[0] < end and shift <= 28:
        byte = bytes[at[0]]
        at[0] += 1
        value |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return <Py_ssize_t>value - 1
        shift += 7
    return -1
