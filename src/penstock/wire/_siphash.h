/* SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012): a keyed hash of short strings.
 *
 * Keyed with chance, so that nobody can prepare two keys that fall together; 128 bits, so that nobody needs to ask whether two did.
 */
#ifndef PENSTOCK_SIPHASH_H
#define PENSTOCK_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

#define SIP_TURN(word, bits) (((word) << (bits)) | ((word) >> (64 - (bits))))

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1]; v[2] += v[3];
    v[1] = SIP_TURN(v[1], 13) ^ v[0];
    v[3] = SIP_TURN(v[3], 16) ^ v[2];
    v[0] = SIP_TURN(v[0], 32);
    v[2] += v[1]; v[0] += v[3];
    v[1] = SIP_TURN(v[1], 17) ^ v[2];
    v[3] = SIP_TURN(v[3], 21) ^ v[0];
    v[2] = SIP_TURN(v[2], 32);
}

static inline void sip_take(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

static inline uint64_t sip_word(const uint8_t *bytes, size_t count)
{
    uint64_t word = 0;
    for (size_t at = 0; at < count; at++)
        word |= (uint64_t)bytes[at] << (8 * at);
    return word;
}

static inline uint64_t sip_finish(uint64_t v[4])
{
    for (int round = 0; round < 4; round++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static inline void siphash128(const uint64_t key[2], const uint8_t *bytes, size_t count, uint64_t out[2])
{
    uint64_t v[4] = {
        key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
        key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573),
    };
    size_t whole = count & ~(size_t)7;
    for (size_t at = 0; at < whole; at += 8)
        sip_take(v, sip_word(bytes + at, 8));
    sip_take(v, sip_word(bytes + whole, count - whole) | (uint64_t)count << 56);
    v[2] ^= 0xee;
    out[0] = sip_finish(v);
    v[1] ^= 0xdd;
    out[1] = sip_finish(v);
}

#endif
