/* Pure functions; the formulas are those of the format's page "Encodings". */
#include "formats/parquet_encoding.h"

#include <string.h>

#include "base/macro.h"

static bool encoding_varint(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
    *ret = 0;
    for (unsigned shift = 0; shift < 64 && *p < end; shift += 7) {
        uint8_t b = *(*p)++;
        *ret |= (uint64_t)(b & 127) << shift;
        if (!(b & 128))
            return true;
    }
    return false;
}

/* Returns `width` (at most 56) bits, of which the first is `bit`. Reads 8 bytes. */
static inline uint64_t encoding_bits(const uint8_t *p, uint64_t bit, unsigned width)
{
    uint64_t word;
    memcpy(&word, p + (bit >> 3), sizeof(word));
    return word >> (bit & 7) & ((UINT64_C(1) << width) - 1);
}

bool cw_parquet_rle_run(struct cw_parquet_rle *r)
{
    while (r->left == 0) {
        uint64_t head;
        if (!encoding_varint(&r->p, r->end, &head))
            return false;
        r->packed = head & 1;
        uint64_t n = head >> 1, room = (uint64_t)(r->end - r->p);
        if (r->packed) {
            uint64_t bytes = n * r->width;
            if (n > UINT32_MAX || bytes > room) /* groups of 8 values, so `width` bytes each */
                return false;
            r->run = r->p;
            r->bit = 0;
            r->left = n * 8;
            r->p += bytes;
        } else {
            size_t bytes = (r->width + 7) / 8;
            if (bytes > room)
                return false;
            r->value = 0;
            memcpy(&r->value, r->p, bytes);
            r->left = n;
            r->p += bytes;
        }
    }
    return true;
}

/* Unpacks 8 values of `width` (17 to 28) bits that begin at p: four words hold two of them each. */
static inline void encoding_unpack8_wide(const uint8_t *p, unsigned width, uint32_t *out)
{
    const uint32_t mask = (UINT32_C(1) << width) - 1;
    for (unsigned k = 0; k < 4; k++) {
        uint64_t pair;
        memcpy(&pair, p + (2 * k * width >> 3), sizeof(pair));
        pair >>= 2 * k * width & 7;
        out[2 * k] = (uint32_t)pair & mask;
        out[2 * k + 1] = (uint32_t)(pair >> width) & mask;
    }
}

/* Unpacks 8 values of `width` (at most 16) bits that begin at p: two words hold four of them each. */
static inline void encoding_unpack8(const uint8_t *p, unsigned width, uint32_t *out)
{
    const uint32_t mask = (UINT32_C(1) << width) - 1;
    uint64_t low, high;
    memcpy(&low, p, sizeof(low));
    memcpy(&high, p + (width >> 1), sizeof(high));
    high >>= 4 * width & 7;
    for (unsigned k = 0; k < 4; k++)
        out[k] = (uint32_t)(low >> k * width) & mask;
    for (unsigned k = 0; k < 4; k++)
        out[4 + k] = (uint32_t)(high >> k * width) & mask;
}

/* Unpacks n values of `width` bits, of which the first begins at bit `bit`. */
static void encoding_unpack(const uint8_t *p, uint64_t bit, unsigned width, uint32_t *out, size_t n)
{
    size_t i = 0;
    for (; i < n && (width > 28 || (bit + i * width) & 7); i++)
        out[i] = (uint32_t)encoding_bits(p, bit + i * width, width);
    for (const uint8_t *at = p + ((bit + i * width) >> 3); i + 8 <= n; i += 8, at += width)
        if (width > 16)
            encoding_unpack8_wide(at, width, out + i);
        else
            encoding_unpack8(at, width, out + i);
    for (; i < n; i++)
        out[i] = (uint32_t)encoding_bits(p, bit + i * width, width);
}

uint32_t cw_parquet_most(const uint32_t *values, size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++)
        most = CW_MAX(most, values[i]);
    return most;
}

bool cw_parquet_rle_read(struct cw_parquet_rle *r, uint32_t *out, size_t n)
{
    while (n > 0) {
        if (!cw_parquet_rle_run(r))
            return false;
        size_t m = (size_t)CW_MIN((uint64_t)n, r->left);
        unsigned width = r->width;
        if (!r->packed)
            for (size_t i = 0; i < m; i++)
                out[i] = r->value;
        else
            encoding_unpack(r->run, r->bit, width, out, m);
        r->bit += m * width;
        r->left -= m;
        out += m;
        n -= m;
    }
    return true;
}

static int64_t encoding_zigzag(uint64_t v)
{
    return (int64_t)(v >> 1 ^ (0 - (v & 1)));
}

/* The value of `width` (at most 64) bits from `bit` on. */
static uint64_t encoding_wide_bits(const uint8_t *p, uint64_t bit, unsigned width)
{
    if (width <= 56)
        return encoding_bits(p, bit, width);
    return encoding_bits(p, bit, 32) | encoding_bits(p, bit + 32, width - 32) << 32;
}

bool cw_parquet_delta(const uint8_t **p, const uint8_t *end, int64_t *out, size_t room, size_t *ret_n)
{
    uint64_t block, minis, total, first, least;
    if (!encoding_varint(p, end, &block) || !encoding_varint(p, end, &minis) ||
        !encoding_varint(p, end, &total) || !encoding_varint(p, end, &first) || minis == 0 || block == 0 ||
        block > (1 << 24) || minis > block || block % minis != 0 || total > room)
        return false;
    uint64_t per_mini = block / minis, value = (uint64_t)encoding_zigzag(first);
    size_t n = 0;
    if (total > 0)
        out[n++] = (int64_t)value;
    while (n < total) {
        const uint8_t *widths;
        if (!encoding_varint(p, end, &least) || minis > (uint64_t)(end - *p))
            return false;
        widths = *p;
        *p += minis;
        uint64_t step = (uint64_t)encoding_zigzag(least);
        for (uint64_t k = 0; k < minis && n < total; k++) {
            unsigned width = widths[k];
            uint64_t bytes = (per_mini * width + 7) / 8;
            if (width > 64 || bytes > (uint64_t)(end - *p))
                return false;
            for (uint64_t i = 0; i < per_mini && n < total; i++) {
                value += step + encoding_wide_bits(*p, i * width, width);
                out[n++] = (int64_t)value;
            }
            *p += bytes;
        }
    }
    *ret_n = n;
    return true;
}
