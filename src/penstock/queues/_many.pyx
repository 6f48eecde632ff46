# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
"""The compiled loops over the messages of one decision. `many` says what each promises, `_many_py` is the same in Python.

Rows are ours, and are looked at no further than they are long; the texts of handles are untrusted, and are measured first.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_DelItem, PyDict_GetItem, PyDict_SetItem
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from penstock.queues.commands import Verb
from penstock.queues.replies import Delivery
from penstock.queues.rows import ATTEMPTS_MAX, ROW
from penstock.queues.states import State

cdef extern from *:
    """
    static PyObject *ascii_text(const unsigned char *letters, Py_ssize_t count) {
        PyObject *text = PyUnicode_New(count, 127);
        if (text != NULL) memcpy(PyUnicode_1BYTE_DATA(text), letters, count);
        return text;
    }
    static PyObject *named(PyObject *made_class, Py_ssize_t count) {
        /* A named tuple without its ceremony; all of its items must be put. */
        return ((PyTypeObject *)made_class)->tp_alloc((PyTypeObject *)made_class, count);
    }
    static void put_item(PyObject *made, Py_ssize_t at, PyObject *item) {
        Py_INCREF(item);
        PyTuple_SET_ITEM(made, at, item);
    }
    static const unsigned char *ascii_letters(PyObject *text, Py_ssize_t count) {
        if (!PyUnicode_Check(text) || !PyUnicode_IS_COMPACT_ASCII(text) || PyUnicode_GET_LENGTH(text) != count) return NULL;
        return PyUnicode_1BYTE_DATA(text);
    }
    """
    object named(object made_class, Py_ssize_t count)
    void put_item(object made, Py_ssize_t at, object item)
    object ascii_text(const unsigned char *letters, Py_ssize_t count)
    const unsigned char *ascii_letters(PyObject *text, Py_ssize_t count)

cdef enum:
    ROW_BYTES = 43  # "<BHqqqqq"
    HANDLE_BYTES = 31  # ">B6sIqqI", then the checksum and a byte of nothing
    BLOCK_BYTES = 36
    LETTERS = 47  # Of a handle: the 48th stands for nothing.
    TOPIC_BYTES = 6
    VERSION = 1

cdef uint8_t LEASED = State.LEASED.value
cdef uint16_t ATTEMPTS = ATTEMPTS_MAX
cdef object DONE = Verb.DONE
cdef object delivery_class = Delivery

cdef uint32_t[256] CHECKS
cdef unsigned char[64] TO_LETTER
cdef uint8_t[256] FROM_LETTER
cdef const unsigned char *DIGITS = b"0123456789abcdef"


cdef void fill() noexcept:
    cdef uint32_t value
    cdef int each, bit
    cdef bytes letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for each in range(256):
        value = each
        for bit in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
        CHECKS[each] = value
        FROM_LETTER[each] = 255
    for each in range(64):
        TO_LETTER[each] = letters[each]
        FROM_LETTER[<unsigned char>letters[each]] = each
    FROM_LETTER[c'+'] = 62
    FROM_LETTER[c'/'] = 63


fill()
assert ROW.size == ROW_BYTES


# Rows


cdef inline int64_t little(const uint8_t *at) noexcept:
    """Eight bytes, the least of them first."""
    cdef uint64_t value = 0
    cdef int each
    for each in range(7, -1, -1):
        value = value << 8 | at[each]
    return <int64_t>value


cdef inline void put_little(uint8_t *at, int64_t number) noexcept:
    cdef uint64_t value = <uint64_t>number
    cdef int each
    for each in range(8):
        at[each] = value & 0xFF
        value >>= 8


cdef inline const uint8_t *row_at(PyObject *row) except NULL:
    if not isinstance(<object>row, bytes) or PyBytes_GET_SIZE(<object>row) < ROW_BYTES:
        raise ValueError("a row of a ledger is cut off")
    return <const uint8_t *>PyBytes_AS_STRING(<object>row)


cdef inline uint16_t next_attempt(const uint8_t *row) noexcept:
    cdef uint16_t attempts = (row[1] | <uint16_t>row[2] << 8) & ATTEMPTS
    return attempts + 1 if attempts < ATTEMPTS else ATTEMPTS


def lease_rows(dict rows not None, record):
    cdef int64_t wall_ms, deadline_ms, lease
    cdef bytes who
    _, wall_ms, deadline_ms, lease, who, _, offsets = record
    cdef Py_ssize_t before = 0, who_bytes = PyBytes_GET_SIZE(who)
    cdef const uint8_t *old
    cdef uint8_t *new
    cdef PyObject *found
    cdef int64_t place, first_ms
    cdef uint16_t attempts
    for offset in offsets:
        found = PyDict_GetItem(rows, offset)
        if found is NULL:
            attempts, place, first_ms = 1, offset, wall_ms
        else:
            old = row_at(found)
            before += old[0] == LEASED
            attempts, place, first_ms = next_attempt(old), little(old + 19), little(old + 27)
            if first_ms == 0:
                first_ms = wall_ms
        row = PyBytes_FromStringAndSize(NULL, ROW_BYTES + who_bytes)
        new = <uint8_t *>PyBytes_AS_STRING(row)
        new[0] = LEASED
        new[1], new[2] = attempts & 0xFF, attempts >> 8
        put_little(new + 3, lease)
        put_little(new + 11, deadline_ms)
        put_little(new + 19, place)
        put_little(new + 27, first_ms)
        put_little(new + 35, wall_ms)
        memcpy(new + ROW_BYTES, PyBytes_AS_STRING(who), who_bytes)
        PyDict_SetItem(rows, offset, row)
        lease += 1
    return before


def deliveries(dict rows not None, record):
    cdef int64_t lease
    _, wall_ms, deadline_ms, lease, _, _, offsets = record
    cdef list made = []
    cdef PyObject *found
    cdef const uint8_t *row
    cdef int64_t first_ms
    for offset in offsets:
        found = PyDict_GetItem(rows, offset)
        if found is NULL:
            attempt, first_taken_ms = 1, wall_ms
        else:
            row = row_at(found)
            first_ms = little(row + 27)
            attempt, first_taken_ms = next_attempt(row), first_ms if first_ms else wall_ms
        its_lease = lease
        one = named(delivery_class, 5)
        put_item(one, 0, offset)
        put_item(one, 1, attempt)
        put_item(one, 2, its_lease)
        put_item(one, 3, deadline_ms)
        put_item(one, 4, first_taken_ms)
        made.append(one)
        lease += 1
    return tuple(made)


def held_offsets(dict rows not None, items, int64_t wall_ms):
    cdef list offsets = []
    cdef PyObject *found
    cdef const uint8_t *row
    cdef int64_t lease
    cdef tuple item
    for each in items:
        if not isinstance(each, tuple) or len(<tuple>each) != 7:
            raise TypeError("settlements are tuples")
        item = <tuple>each  # Without a look at its class, which is a tuple's own child.
        if item[2] is not DONE or item[3] is not None or item[6]:
            return None
        found = PyDict_GetItem(rows, item[0])
        if found is NULL:
            return None
        row, lease = row_at(found), item[1]
        if lease == 0 or row[0] != LEASED or little(row + 3) != lease or little(row + 11) <= wall_ms:
            return None
        offsets.append(item[0])
    return offsets


def drop_rows(dict rows not None, int64_t start, int64_t end):
    cdef Py_ssize_t before = 0
    cdef PyObject *found
    cdef int64_t each
    for each in range(start, end):
        offset = each
        found = PyDict_GetItem(rows, offset)
        if found is not NULL:
            before += row_at(found)[0] == LEASED
            PyDict_DelItem(rows, offset)
    return before


# Ids and handles


def write_ids(str prefix not None, offsets):
    cdef bytes front = prefix.encode("ascii")
    cdef unsigned char[36] letters
    cdef uint64_t left
    cdef int each
    cdef list texts = []
    if PyBytes_GET_SIZE(front) != 24:
        raise ValueError("ids of a partition have 24 characters in common")
    memcpy(letters, PyBytes_AS_STRING(front), 24)
    for left in offsets:
        for each in range(35, 23, -1):
            letters[each] = DIGITS[left & 15]
            left >>= 4
        texts.append(ascii_text(letters, 36))
    return texts


cdef inline void put_big(uint8_t *at, uint64_t value, int count) noexcept:
    cdef int each
    for each in range(count - 1, -1, -1):
        at[each] = value & 0xFF
        value >>= 8


cdef inline uint64_t big(const uint8_t *at, int count) noexcept:
    cdef uint64_t value = 0
    cdef int each
    for each in range(count):
        value = value << 8 | at[each]
    return value


cdef inline uint32_t checksum(const uint8_t *at, Py_ssize_t count) noexcept:
    cdef uint32_t value = 0xFFFFFFFF
    cdef Py_ssize_t each
    for each in range(count):
        value = CHECKS[(value ^ at[each]) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def write_handles(bytes topic not None, uint32_t partition, uint32_t hashed, pairs):
    cdef uint8_t[BLOCK_BYTES] block
    cdef unsigned char[48] letters
    cdef uint32_t three
    cdef int64_t offset, lease
    cdef int each
    cdef list texts = []
    if PyBytes_GET_SIZE(topic) != TOPIC_BYTES:
        raise ValueError("the beginning of a topic's id has six bytes")
    block[0] = VERSION
    memcpy(block + 1, PyBytes_AS_STRING(topic), TOPIC_BYTES)
    put_big(block + 7, partition, 4)
    put_big(block + 27, hashed, 4)
    block[35] = 0
    for offset, lease in pairs:
        put_big(block + 11, <uint64_t>offset, 8)
        put_big(block + 19, <uint64_t>lease, 8)
        put_big(block + HANDLE_BYTES, checksum(block, HANDLE_BYTES), 4)
        for each in range(12):
            three = <uint32_t>block[3 * each] << 16 | <uint32_t>block[3 * each + 1] << 8 | block[3 * each + 2]
            letters[4 * each] = TO_LETTER[three >> 18]
            letters[4 * each + 1] = TO_LETTER[three >> 12 & 63]
            letters[4 * each + 2] = TO_LETTER[three >> 6 & 63]
            letters[4 * each + 3] = TO_LETTER[three & 63]
        texts.append(ascii_text(letters, LETTERS))
    return texts


def read_handles(texts, bytes topic not None, uint32_t hashed):
    cdef uint8_t[BLOCK_BYTES] block
    cdef const unsigned char *letters
    cdef uint8_t[48] six
    cdef uint8_t bad
    cdef int64_t partition = -1, index
    cdef int each
    cdef list pairs = []
    if PyBytes_GET_SIZE(topic) != TOPIC_BYTES:
        raise ValueError("the beginning of a topic's id has six bytes")
    for text in texts:
        letters = ascii_letters(<PyObject *>text, LETTERS)
        if letters is NULL:
            return None
        bad = 0
        for each in range(LETTERS):
            six[each] = FROM_LETTER[letters[each]]
            bad |= six[each] & 0x80
        if bad:
            return None
        six[47] = 0
        for each in range(12):
            block[3 * each] = six[4 * each] << 2 | six[4 * each + 1] >> 4
            block[3 * each + 1] = (six[4 * each + 1] & 15) << 4 | six[4 * each + 2] >> 2
            block[3 * each + 2] = (six[4 * each + 2] & 3) << 6 | six[4 * each + 3]
        if block[0] != VERSION or memcmp(block + 1, PyBytes_AS_STRING(topic), TOPIC_BYTES) != 0 or big(block + 27, 4) != hashed:
            return None
        if big(block + HANDLE_BYTES, 4) != checksum(block, HANDLE_BYTES):
            return None
        index = <int64_t>big(block + 7, 4)
        if partition >= 0 and index != partition:
            return None
        if big(block + 11, 8) >> 63 or big(block + 19, 8) >> 63:  # They are never negative.
            return None
        partition = index
        pairs.append((<int64_t>big(block + 11, 8), <int64_t>big(block + 19, 8)))
    return partition, pairs
