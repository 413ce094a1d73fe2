/* CRC-32C (Castagnoli), by the processor's own step where there is one, else by tables. */
#ifndef KAFKA_RLM_CRC32C_H
#define KAFKA_RLM_CRC32C_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>
#define CRC_TARGET __attribute__((target("sse4.2")))
#define CRC_STEP(crc, word) _mm_crc32_u64(crc, word)
#define HAS_CRC_STEP __builtin_cpu_supports("sse4.2")
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define CRC_TARGET
#define CRC_STEP(crc, word) __crc32cd((uint32_t)(crc), word)
#define HAS_CRC_STEP true
#endif

#define CRC_POLYNOMIAL 0x82F63B78u
#define CRC_LANE 1024

static uint32_t crc_tables[8][256];
/* What a checksum becomes when CRC_LANE zero bytes follow, by its four bytes. */
static uint32_t crc_lane[4][256];

static void crc_make_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? CRC_POLYNOMIAL : 0);
        crc_tables[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = crc_tables[table - 1][byte];
            crc_tables[table][byte] = crc >> 8 ^ crc_tables[0][crc & 255];
        }
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = 1u << bit;
        for (int zero = 0; zero < CRC_LANE; zero++)
            crc = crc >> 8 ^ crc_tables[0][crc & 255];
        for (int byte = 0; byte < 256; byte++)
            if (byte >> (bit & 7) & 1)
                crc_lane[bit >> 3][byte] ^= crc;
    }
}

static uint32_t crc_bytes(uint32_t crc, const uint8_t *data, int64_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low = crc ^ (data[0] | data[1] << 8 | data[2] << 16 | (uint32_t)data[3] << 24);
        crc = crc_tables[7][low & 255] ^ crc_tables[6][low >> 8 & 255]
            ^ crc_tables[5][low >> 16 & 255] ^ crc_tables[4][low >> 24]
            ^ crc_tables[3][data[4]] ^ crc_tables[2][data[5]]
            ^ crc_tables[1][data[6]] ^ crc_tables[0][data[7]];
    }
    for (; size > 0; data++, size--)
        crc = crc >> 8 ^ crc_tables[0][(crc ^ *data) & 255];
    return crc;
}

#ifdef CRC_STEP
static inline uint64_t crc_after_lane(uint64_t crc)
{
    return crc_lane[0][crc & 255] ^ crc_lane[1][crc >> 8 & 255] ^ crc_lane[2][crc >> 16 & 255]
        ^ crc_lane[3][crc >> 24 & 255];
}

static inline uint64_t crc_word(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

/* Three lanes at once, since the processor's step takes three times longer than it blocks. */
CRC_TARGET static uint32_t crc_steps(uint32_t start, const uint8_t *data, int64_t size)
{
    uint64_t crc = start;
    for (; size >= 3 * CRC_LANE; data += 3 * CRC_LANE, size -= 3 * CRC_LANE) {
        uint64_t second = 0, third = 0;
        for (int at = 0; at < CRC_LANE; at += 8) {
            crc = CRC_STEP(crc, crc_word(data + at));
            second = CRC_STEP(second, crc_word(data + at + CRC_LANE));
            third = CRC_STEP(third, crc_word(data + at + 2 * CRC_LANE));
        }
        crc = crc_after_lane(crc_after_lane(crc) ^ second) ^ third;
    }
    for (; size >= 8; data += 8, size -= 8)
        crc = CRC_STEP(crc, crc_word(data));
    return crc_bytes((uint32_t)crc, data, size);
}
#endif

static uint32_t crc_of(const uint8_t *data, int64_t size)
{
#ifdef CRC_STEP
    if (HAS_CRC_STEP)
        return ~crc_steps(~0u, data, size);
#endif
    return ~crc_bytes(~0u, data, size);
}

#endif
