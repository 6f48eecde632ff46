# Numbers of a record, as the compiled loops read them: `at` moves past one; False where it is cut off or too long.

cdef inline bint take_varint(const uint8_t **at, const uint8_t *end, int64_t *value) noexcept nogil:
    return take_bits(at, end, value, 28, 0x0F)


cdef inline bint take_varlong(const uint8_t **at, const uint8_t *end, int64_t *value) noexcept nogil:
    return take_bits(at, end, value, 63, 0x01)


cdef inline bint take_bits(const uint8_t **at, const uint8_t *end, int64_t *value, int last_shift, int last_byte_max) noexcept nogil:
    cdef uint64_t bits = 0
    cdef int shift = 0
    cdef uint8_t byte
    while at[0] < end:
        byte = at[0][0]
        at[0] += 1
        if shift == last_shift and byte > last_byte_max:
            return False
        bits |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int64_t>(bits >> 1) ^ -<int64_t>(bits & 1)
            return True
        shift += 7
    return False
