# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=False, embedsignature=False
"""The compiled walk over a queue's records. `messages` says what the functions promise, `_messages_py` is the same in Python.

Bytes are untrusted and reached through plain pointers: a position moves only after it was compared with the end, and a length is compared
with what is left before it is added. Nothing is allocated for a record that is stepped over.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from penstock.errors import MalformedInput

include "_varints.pxi"


cdef struct Field:
    const uint8_t *bytes
    int64_t length  # -1 stands for null.


cdef struct Fields:
    const uint8_t *end  # Where the next record starts.
    const uint8_t *headers  # The first of them.
    int64_t header_count
    int64_t timestamp_delta
    int64_t offset_delta
    Field key
    Field value


def marked_records(payload, int64_t count, bytes prefix):
    cdef Py_buffer view
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef Fields fields
    cdef list marked = []
    cdef list headers
    cdef int64_t index
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        at, end = <const uint8_t *>view.buf, <const uint8_t *>view.buf + view.len
        check_count(count)
        for index in range(count):
            read_fields(at, end, &fields)
            at = fields.end
            if fields.header_count:
                headers = chosen_headers(&fields, prefix)
                if headers:
                    marked.append((fields.offset_delta, fields.timestamp_delta, headers))
    finally:
        PyBuffer_Release(&view)
    return marked


def pick_records(payload, int64_t count, int64_t first_delta, int64_t end_delta):
    cdef Py_buffer view
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef Fields fields
    cdef list picked = []
    cdef int64_t index
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        at, end = <const uint8_t *>view.buf, <const uint8_t *>view.buf + view.len
        check_count(count)
        for index in range(count):
            read_fields(at, end, &fields)
            at = fields.end
            if fields.offset_delta >= end_delta:
                break
            if fields.offset_delta >= first_delta:
                headers = tuple(chosen_headers(&fields, b"")) if fields.header_count else ()
                picked.append((fields.offset_delta, fields.timestamp_delta, content_of(&fields.key), content_of(&fields.value), headers))
    finally:
        PyBuffer_Release(&view)
    return picked


cdef int check_count(int64_t count) except -1:
    if count < 0:
        raise MalformedInput("a batch has a negative count of records")
    return 0


cdef int read_fields(const uint8_t *at, const uint8_t *end, Fields *fields) except -1:
    """All of the record is checked, its headers too."""
    cdef int64_t length, left
    cdef Field field
    if not take_varint(&at, end, &length) or length <= 0 or length > end - at:
        raise MalformedInput("a record's length reaches past the batch")
    fields.end = at + length
    at += 1  # Attributes, none of them in use.
    if not take_varlong(&at, fields.end, &fields.timestamp_delta) or not take_varint(&at, fields.end, &fields.offset_delta):
        raise MalformedInput("a record is cut off")
    if not take_field(&at, fields.end, &fields.key) or not take_field(&at, fields.end, &fields.value):
        raise MalformedInput("a field reaches past its record")
    if not take_varint(&at, fields.end, &fields.header_count) or fields.header_count < 0:
        raise MalformedInput("a record has a negative count of headers")
    fields.headers = at
    left = fields.header_count
    while left > 0:  # Each takes two bytes at least, so a count that lies ends at the record's end.
        if not take_field(&at, fields.end, &field) or field.length < 0 or not take_field(&at, fields.end, &field):
            raise MalformedInput("a header reaches past its record")
        left -= 1
    if at != fields.end:
        raise MalformedInput("a record is longer than its fields")
    return 0


cdef list chosen_headers(const Fields *fields, bytes prefix):
    """Those whose names begin with the prefix. `read_fields` has walked them before."""
    cdef const uint8_t *at = fields.headers
    cdef const char *wanted = prefix
    cdef Py_ssize_t wanted_length = len(prefix)
    cdef Field name, content
    cdef list chosen = []
    cdef int64_t index
    for index in range(fields.header_count):
        if not take_field(&at, fields.end, &name) or not take_field(&at, fields.end, &content):
            break
        if name.length >= wanted_length and memcmp(name.bytes, wanted, wanted_length) == 0:
            chosen.append((PyUnicode_DecodeUTF8(<const char *>name.bytes, name.length, "replace"), content_of(&content)))
    return chosen


cdef object content_of(const Field *field):
    return None if field.length < 0 else PyBytes_FromStringAndSize(<const char *>field.bytes, field.length)


cdef inline bint take_field(const uint8_t **at, const uint8_t *end, Field *field) noexcept:
    if not take_varint(at, end, &field.length) or field.length < -1 or field.length > end - at[0]:
        return False
    field.bytes = at[0]
    if field.length > 0:
        at[0] += field.length
    return True
