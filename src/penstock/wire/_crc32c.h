/* CRC-32C, the checksum of record batches (Castagnoli's polynomial, bits reflected).
 *
 * Where the processor has an instruction for it, chosen when the module is loaded, three lanes run side by side, since the instruction gives
 * its result only after three cycles but may start every cycle. The lanes are then joined: a checksum is linear, so "what this lane's value
 * becomes after that many zero bytes" is a table. Elsewhere eight tables take eight bytes a step.
 *
 * Call crc32c_prepare() once before anything else. Nothing here reads outside [bytes, bytes + count).
 */
#ifndef PENSTOCK_CRC32C_H
#define PENSTOCK_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>
#define CRC32C_WITH_INSTRUCTION __attribute__((target("sse4.2")))
#define CRC32C_EIGHT(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define CRC32C_ONE(crc, byte) _mm_crc32_u8((crc), (byte))
static int crc32c_has_instruction(void) { return __builtin_cpu_supports("sse4.2"); }

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define CRC32C_WITH_INSTRUCTION
#define CRC32C_EIGHT(crc, word) __crc32cd((crc), (word))
#define CRC32C_ONE(crc, byte) __crc32cb((crc), (byte))
static int crc32c_has_instruction(void) { return 1; }

#elif defined(__aarch64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#include <sys/auxv.h>
#define CRC32C_WITH_INSTRUCTION __attribute__((target("+crc")))
#define CRC32C_EIGHT(crc, word) __builtin_aarch64_crc32cx((crc), (word))
#define CRC32C_ONE(crc, byte) __builtin_aarch64_crc32cb((crc), (byte))
#define CRC32C_HWCAP (1UL << 7) /* HWCAP_CRC32 in Linux' asm/hwcap.h */
static int crc32c_has_instruction(void) { return (getauxval(AT_HWCAP) & CRC32C_HWCAP) != 0; }

#else
static int crc32c_has_instruction(void) { return 0; }
#endif

#define CRC32C_POLYNOMIAL 0x82F63B78u
#define CRC32C_LONG_LANE 2048 /* Bytes a lane; both must divide by eight. */
#define CRC32C_SHORT_LANE 128

static uint32_t crc32c_steps[8][256];      /* [k][b]: what byte b does to the checksum k bytes later. */
static uint32_t crc32c_long_gap[4][256];   /* What each byte of a checksum becomes after a lane of zeros. */
static uint32_t crc32c_short_gap[4][256];
static int crc32c_uses_instruction;

/* Checksums in progress are not inverted here; crc32c_of() does that at both ends. */
static uint32_t crc32c_by_table(uint32_t crc, const uint8_t *bytes, size_t count)
{
    while (count >= 8) {
        uint32_t low = crc ^ ((uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24);
        crc = crc32c_steps[7][low & 0xFF] ^ crc32c_steps[6][(low >> 8) & 0xFF] ^ crc32c_steps[5][(low >> 16) & 0xFF] ^
              crc32c_steps[4][low >> 24] ^ crc32c_steps[3][bytes[4]] ^ crc32c_steps[2][bytes[5]] ^ crc32c_steps[1][bytes[6]] ^
              crc32c_steps[0][bytes[7]];
        bytes += 8;
        count -= 8;
    }
    while (count--)
        crc = crc32c_steps[0][(crc ^ *bytes++) & 0xFF] ^ (crc >> 8);
    return crc;
}

static void crc32c_prepare_gap(uint32_t gap[4][256], size_t zeros)
{
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t value = 0; value < 256; value++) {
            uint32_t crc = value << (8 * byte);
            if (value & (value - 1)) { /* Linear: the sum of what its lowest bit and the rest become. */
                uint32_t lowest = value & (0u - value);
                crc = gap[byte][lowest] ^ gap[byte][value ^ lowest];
            } else {
                for (size_t done = 0; done < zeros; done++)
                    crc = crc32c_steps[0][crc & 0xFF] ^ (crc >> 8);
            }
            gap[byte][value] = crc;
        }
}

static void crc32c_prepare(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? (crc >> 1) ^ CRC32C_POLYNOMIAL : crc >> 1;
        crc32c_steps[0][byte] = crc;
    }
    for (int step = 1; step < 8; step++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = crc32c_steps[step - 1][byte];
            crc32c_steps[step][byte] = crc32c_steps[0][before & 0xFF] ^ (before >> 8);
        }
    crc32c_prepare_gap(crc32c_long_gap, CRC32C_LONG_LANE);
    crc32c_prepare_gap(crc32c_short_gap, CRC32C_SHORT_LANE);
    crc32c_uses_instruction = crc32c_has_instruction();
}

#ifdef CRC32C_WITH_INSTRUCTION
static inline uint64_t crc32c_load(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

static inline uint32_t crc32c_after_gap(uint32_t gap[4][256], uint32_t crc)
{
    return gap[0][crc & 0xFF] ^ gap[1][(crc >> 8) & 0xFF] ^ gap[2][(crc >> 16) & 0xFF] ^ gap[3][crc >> 24];
}

CRC32C_WITH_INSTRUCTION static inline uint32_t crc32c_three_lanes(uint32_t crc, const uint8_t *bytes, size_t lane, uint32_t gap[4][256])
{
    uint32_t second = 0, third = 0;
    for (size_t at = 0; at < lane; at += 8) {
        crc = CRC32C_EIGHT(crc, crc32c_load(bytes + at));
        second = CRC32C_EIGHT(second, crc32c_load(bytes + lane + at));
        third = CRC32C_EIGHT(third, crc32c_load(bytes + 2 * lane + at));
    }
    crc = crc32c_after_gap(gap, crc) ^ second;
    return crc32c_after_gap(gap, crc) ^ third;
}

CRC32C_WITH_INSTRUCTION static uint32_t crc32c_by_instruction(uint32_t crc, const uint8_t *bytes, size_t count)
{
    for (; count >= 3 * CRC32C_LONG_LANE; bytes += 3 * CRC32C_LONG_LANE, count -= 3 * CRC32C_LONG_LANE)
        crc = crc32c_three_lanes(crc, bytes, CRC32C_LONG_LANE, crc32c_long_gap);
    for (; count >= 3 * CRC32C_SHORT_LANE; bytes += 3 * CRC32C_SHORT_LANE, count -= 3 * CRC32C_SHORT_LANE)
        crc = crc32c_three_lanes(crc, bytes, CRC32C_SHORT_LANE, crc32c_short_gap);
    for (; count >= 8; bytes += 8, count -= 8)
        crc = CRC32C_EIGHT(crc, crc32c_load(bytes));
    while (count--)
        crc = CRC32C_ONE(crc, *bytes++);
    return crc;
}
#endif

static uint32_t crc32c_of(const uint8_t *bytes, size_t count)
{
#ifdef CRC32C_WITH_INSTRUCTION
    if (crc32c_uses_instruction)
        return ~crc32c_by_instruction(~0u, bytes, count);
#endif
    return ~crc32c_by_table(~0u, bytes, count);
}

static uint32_t crc32c_of_by_table(const uint8_t *bytes, size_t count)
{
    return ~crc32c_by_table(~0u, bytes, count);
}

#endif
