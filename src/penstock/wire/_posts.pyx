# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
"""The compiled reading of a whole POST. `posts` says what it promises, `_posts_py` is the same in Python.

Bytes are untrusted and reached through plain pointers: each is compared with the end before it is looked at.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp

cdef enum:
    PATH_MAX = 2000  # Behind its first slash.
    LENGTH_DIGITS_MAX = 6  # More may be too much, and is looked at before it comes.

cdef unsigned char IN_PATH = 1, IN_NAME = 2, IN_VALUE = 4
cdef unsigned char[256] KINDS
cdef unsigned char[256] LOWER


cdef void fill() noexcept:
    cdef int each
    for each in range(256):
        KINDS[each] = 0
        LOWER[each] = each
        if 0x20 <= each <= 0x7E:
            KINDS[each] |= IN_VALUE
        if c'0' <= each <= c'9' or c'A' <= each <= c'Z' or c'a' <= each <= c'z' or each == c'-':
            KINDS[each] |= IN_NAME | IN_PATH
        if each == c'/' or each == c'.' or each == c'_' or each == c'~':
            KINDS[each] |= IN_PATH
        if c'A' <= each <= c'Z':
            LOWER[each] = each + 32


fill()


def read_post(bytes data not None):
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(data)
    cdef const unsigned char *end = at + PyBytes_GET_SIZE(data)
    cdef const unsigned char *path
    cdef const unsigned char *name
    cdef const unsigned char *value
    cdef Py_ssize_t length = -1, path_length, name_length, value_length
    cdef dict headers = {}
    if end - at < 6 or memcmp(at, b"POST /", 6) != 0:
        return None
    path = at + 5
    at = path
    while at < end and KINDS[at[0]] & IN_PATH:
        at += 1
    path_length = at - path
    if path_length > PATH_MAX + 1:
        return None
    if end - at < 11 or memcmp(at, b" HTTP/1.1\r\n", 11) != 0:
        return None
    at += 11
    while True:
        name = at
        while at < end and KINDS[at[0]] & IN_NAME:
            at += 1
        name_length = at - name
        if name_length == 0:
            break
        if end - at < 3 or at[0] != c':' or at[1] != c' ':
            return None
        at += 2
        value = at
        while at < end and KINDS[at[0]] & IN_VALUE:
            at += 1
        value_length = at - value
        if end - at < 2 or at[0] != c'\r' or at[1] != c'\n' or value_length == 0 or value[0] == c' ' or at[-1] == c' ':
            return None
        at += 2
        if name_length == 14 and is_name(name, b"content-length", 14):
            if length >= 0:
                return None
            length = number(value, value_length)
            if length < 0:
                return None
        elif is_steering(name, name_length, value, value_length):
            return None
        headers[lowered(name, name_length)] = PyBytes_FromStringAndSize(<const char *>value, value_length)
    if end - at < 2 or at[0] != c'\r' or at[1] != c'\n' or length != end - at - 2:
        return None
    return (
        PyBytes_FromStringAndSize(<const char *>path, path_length),
        headers,
        PyBytes_FromStringAndSize(<const char *>at + 2, length),
    )


cdef inline bint is_name(const unsigned char *at, const char *wanted, Py_ssize_t length) noexcept:
    """Whether so many bytes are that text, which is in lower case."""
    cdef Py_ssize_t each
    for each in range(length):
        if LOWER[at[each]] != <unsigned char>wanted[each]:
            return False
    return True


cdef inline bint is_steering(const unsigned char *name, Py_ssize_t length, const unsigned char *value, Py_ssize_t value_length) noexcept:
    if length == 10 and is_name(name, b"connection", 10):
        return value_length != 10 or not is_name(value, b"keep-alive", 10)
    return (
        (length == 6 and is_name(name, b"expect", 6))
        or (length == 7 and is_name(name, b"upgrade", 7))
        or (length == 16 and is_name(name, b"proxy-connection", 16))
        or (length == 17 and is_name(name, b"transfer-encoding", 17))
    )


cdef inline Py_ssize_t number(const unsigned char *at, Py_ssize_t length) noexcept:
    """-1: it is none, or too large."""
    cdef Py_ssize_t found = 0, each
    if length > LENGTH_DIGITS_MAX:
        return -1
    for each in range(length):
        if not c'0' <= at[each] <= c'9':
            return -1
        found = 10 * found + at[each] - c'0'
    return found


cdef inline bytes lowered(const unsigned char *name, Py_ssize_t length):
    cdef bytes made = PyBytes_FromStringAndSize(NULL, length)
    cdef unsigned char *to = <unsigned char *>PyBytes_AS_STRING(made)
    cdef Py_ssize_t each
    for each in range(length):
        to[each] = LOWER[name[each]]
    return made
