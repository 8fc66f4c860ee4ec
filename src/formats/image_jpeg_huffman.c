/* Makes look-up tables of JPEG's Huffman codes. Owns those of the usual tables, which all threads share. */
#include "formats/image_jpeg_huffman.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>

#define PAIRS (1u << CW_JPEG_PAIR_BITS)

/* The AC tables of ITU-T T.81, tables K.5 (luminance) and K.6 (chrominance), which encoders use unless they
 * compute others: number of codes by length, and values. */
static const struct huffman_usual {
    uint8_t bits[17], values[162];
} usual[2] = {
    {
        {0, 0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125},
        {
            0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61,
            0x07, 0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xA1, 0x08, 0x23, 0x42, 0xB1, 0xC1, 0x15, 0x52,
            0xD1, 0xF0, 0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0A, 0x16, 0x17, 0x18, 0x19, 0x1A, 0x25,
            0x26, 0x27, 0x28, 0x29, 0x2A, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3A, 0x43, 0x44, 0x45,
            0x46, 0x47, 0x48, 0x49, 0x4A, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5A, 0x63, 0x64,
            0x65, 0x66, 0x67, 0x68, 0x69, 0x6A, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7A, 0x83,
            0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99,
            0x9A, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xB2, 0xB3, 0xB4, 0xB5, 0xB6,
            0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3, 0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xD2, 0xD3,
            0xD4, 0xD5, 0xD6, 0xD7, 0xD8, 0xD9, 0xDA, 0xE1, 0xE2, 0xE3, 0xE4, 0xE5, 0xE6, 0xE7, 0xE8,
            0xE9, 0xEA, 0xF1, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA,
        },
    },
    {
        {0, 0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119},
        {
            0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61,
            0x71, 0x13, 0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xA1, 0xB1, 0xC1, 0x09, 0x23, 0x33,
            0x52, 0xF0, 0x15, 0x62, 0x72, 0xD1, 0x0A, 0x16, 0x24, 0x34, 0xE1, 0x25, 0xF1, 0x17, 0x18,
            0x19, 0x1A, 0x26, 0x27, 0x28, 0x29, 0x2A, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3A, 0x43, 0x44,
            0x45, 0x46, 0x47, 0x48, 0x49, 0x4A, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5A, 0x63,
            0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6A, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7A,
            0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97,
            0x98, 0x99, 0x9A, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xB2, 0xB3, 0xB4,
            0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3, 0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA,
            0xD2, 0xD3, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8, 0xD9, 0xDA, 0xE2, 0xE3, 0xE4, 0xE5, 0xE6, 0xE7,
            0xE8, 0xE9, 0xEA, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA,
        },
    },
};

static struct cw_jpeg_ac huffman_shared[CW_COUNT_OF(usual)]; /* immutable once huffman_once is done */
static pthread_once_t huffman_once = PTHREAD_ONCE_INIT;

static uint32_t huffman_entry(unsigned length, unsigned symbol, bool dc)
{
    unsigned size = dc ? symbol : symbol & 15, run = dc ? 0 : symbol >> 4;
    return CW_JPEG_ENTRY(length + size, length, size, run + 1);
}

static void huffman_make_codes(struct cw_jpeg_codes *t, const uint8_t *bits, const uint8_t *values, bool dc)
{
    unsigned code = 0, n = 0;
    memset(t->entry, 0, sizeof(t->entry));
    for (unsigned length = 1; length <= 16; length++, code <<= 1) {
        t->offset[length] = (int32_t)n - (int32_t)code;
        for (unsigned i = 0; i < bits[length]; i++, n++, code++) {
            if (length > CW_JPEG_CODE_BITS)
                continue;
            uint32_t entry = huffman_entry(length, values[n], dc),
                     *to = t->entry + (code << (CW_JPEG_CODE_BITS - length));
            for (unsigned k = 0; k < 1u << (CW_JPEG_CODE_BITS - length); k++)
                to[k] = entry;
        }
        t->last[length] = bits[length] ? (int32_t)code - 1 : -1;
    }
    t->last[17] = INT_MAX;
    t->values = values;
}

uint32_t cw_jpeg_long_code(uint64_t bits, const struct cw_jpeg_codes *t, bool dc)
{
    unsigned length = CW_JPEG_CODE_BITS + 1;
    while ((int32_t)(bits >> (64 - length)) > t->last[length])
        length++;
    if (length > 16)
        return 0;
    return huffman_entry(length, t->values[((int32_t)(bits >> (64 - length)) + t->offset[length]) & 0xFF],
                         dc);
}

struct huffman_single { /* a coefficient; total 0: it does not fit in a pair */
    uint8_t total, size, run;
    bool negative;
};

/* Fills in the coefficients by the next CW_JPEG_PAIR_BITS bits, which include the code and the value's first
 * bit. */
static void huffman_make_singles(struct huffman_single *to, const uint8_t *bits, const uint8_t *values)
{
    unsigned code = 0, n = 0;
    memset(to, 0, PAIRS * sizeof(*to));
    for (unsigned length = 1; length <= CW_JPEG_PAIR_BITS; length++, code <<= 1)
        for (unsigned i = 0; i < bits[length]; i++, n++, code++) {
            unsigned size = values[n] & 15, run = (values[n] >> 4) + 1u, rest = CW_JPEG_PAIR_BITS - length;
            if (length + size > CW_JPEG_PAIR_TOTAL || (size && !rest))
                continue;
            if (!size && run != 16)
                run = CW_JPEG_BLOCK_ENDS;
            for (unsigned k = 0; k < 1u << rest; k++)
                to[(code << rest) + k] = (struct huffman_single){(uint8_t)(length + size), (uint8_t)size,
                                                                 (uint8_t)run, size && !(k >> (rest - 1))};
        }
}

/* Returns the offset of a coefficient that ends before bit number `end`; i: the next CW_JPEG_PAIR_BITS bits.
 */
static uint16_t huffman_offset(unsigned i, unsigned end, struct huffman_single s)
{
    unsigned before = i >> (CW_JPEG_PAIR_BITS - (end - s.size)) << s.size;
    return (uint16_t)((s.negative ? 1 - (1u << s.size) : 0) - before);
}

static void huffman_make_ac(struct cw_jpeg_ac *t, const uint8_t *bits, const uint8_t *values)
{
    struct huffman_single single[PAIRS];
    huffman_make_codes(&t->codes, bits, values, false);
    huffman_make_singles(single, bits, values);
    for (unsigned i = 0; i < PAIRS; i++) {
        struct huffman_single a = single[i], b = {0};
        t->pair[i] = (struct cw_jpeg_pair){0};
        if (!a.total)
            continue;
        if (a.run != CW_JPEG_BLOCK_ENDS && a.total < CW_JPEG_PAIR_BITS)
            b = single[i << a.total & (PAIRS - 1)];
        unsigned total = a.total + b.total, known = total - b.size + (b.size > 0);
        if (total > CW_JPEG_PAIR_TOTAL || known > CW_JPEG_PAIR_BITS) {
            b.total = 0;
            total = a.total;
        }
        uint16_t first = huffman_offset(i, a.total, a);
        t->pair[i] = (struct cw_jpeg_pair){
            .total = (uint8_t)total,
            .run = a.run,
            .runs = (uint8_t)(a.run + (b.total ? b.run : 0)),
            .shift = (uint8_t)(64 - a.total),
            .offset = {first, b.total ? huffman_offset(i, total, b) : first},
        };
    }
}

void cw_jpeg_make_dc(struct cw_jpeg_codes *ret, const JHUFF_TBL *from)
{
    huffman_make_codes(ret, from->bits, from->huffval, true);
}

static void huffman_make_shared(void)
{
    for (size_t i = 0; i < CW_COUNT_OF(usual); i++)
        huffman_make_ac(&huffman_shared[i], usual[i].bits, usual[i].values);
}

const struct cw_jpeg_ac *cw_jpeg_make_ac(struct cw_jpeg_ac *room, const JHUFF_TBL *from)
{
    for (size_t i = 0; i < CW_COUNT_OF(usual); i++)
        if (!memcmp(from->bits + 1, usual[i].bits + 1, 16) &&
            !memcmp(from->huffval, usual[i].values, sizeof(usual[i].values))) {
            pthread_once(&huffman_once, huffman_make_shared);
            return &huffman_shared[i];
        }
    huffman_make_ac(room, from->bits, from->huffval);
    return room;
}
