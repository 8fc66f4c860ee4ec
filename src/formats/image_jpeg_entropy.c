/*
 * The Huffman decoder of baseline JPEG. libjpeg calls its entropy decoder through a pointer, once per MCU
 * (the smallest group of blocks); the decoder here replaces it and fills the same blocks. It is faster for
 * three reasons. One table look-up gives the code length, run and size of a coefficient together, so the next
 * look-up need not wait for long. It holds 64 bits of data, refilled eight bytes at a time from a chunk from
 * which stuffed zeros were removed beforehand. Outside the wanted columns it only counts coefficients. It
 * runs in the thread that decodes, and its state lies in the caller's arena.
 *
 * Of libjpeg's internals (jpegint.h) only the pointer decode_mcu is used, which has the same place in every
 * release.
 */
#include "formats/image_jpeg_entropy.h"

#include <limits.h>
#include <stdint.h>
#include <string.h>

#include <jerror.h>
#include <jpegint.h>

#define LOOK 10 /* bits looked up at once (4 KiB a table): of a photograph's codes, one in 200 is longer */
/* bytes: small compared with the CPU's caches, large enough to search for 0xFF at little cost */
#define CHUNK 4096
#define ENTRY(total, code, size, run) \
    ((uint32_t)(total) | (uint32_t)(code) << 8 | (uint32_t)(size) << 16 | (uint32_t)(run) << 24)
#define INLINE inline __attribute__((always_inline))

struct table {
    /* made with ENTRY from four numbers: bits in total, bits of the code, bits of the value, coefficients to
     * advance. 0: the code is longer than LOOK bits, or does not exist */
    uint32_t look[1 << LOOK];
    int32_t last[18];   /* by length: the last code; -1: none. [17]: more than any code */
    int32_t offset[18]; /* by length: index of a code in values, minus the code */
    const uint8_t *values;
};

struct bits {
    uint64_t bits;  /* the next bits of the data, from the highest bit on */
    unsigned count; /* number of valid bits, at most 63; lower bits are 0 or the true continuation */
    const uint8_t *p, *limit; /* the data after these bits, in the chunk */
};

struct block_kind {
    struct table *dc, *ac;
    int component;
};

struct entropy {
    struct bits bits;
    bool over;                      /* the data ended: all further coefficients stay zero */
    JDIMENSION column, first, last; /* MCU columns: the next one; the first and the last wanted one */
    int32_t dc[MAX_COMPS_IN_SCAN];
    struct block_kind kinds[D_MAX_BLOCKS_IN_MCU];
    const uint8_t *file, *end; /* the compressed data that are not in the chunk yet */
    size_t zeros;              /* zero bytes that were added after the end of the data */
    bool made[2][NUM_HUFF_TBLS];
    uint8_t chunk[CHUNK];                  /* compressed data as they were before 0xFF became 0xFF 0 */
    struct table tables[2][NUM_HUFF_TBLS]; /* last in the struct: unused tables are never touched */
};

/* By number of a coefficient in the file: its index in the block. A run that leads out of the block ends at
 * its last coefficient, as in libjpeg. */
static const uint8_t natural[64 + 16] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33,
    40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36,
    29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
};

/* ---- bits ---- */

/* Moves the unread bytes to the start of the chunk and fills the rest. A marker ends the data; zeros follow.
 * Passes the bits by value, so that they can stay in the caller's registers. */
static __attribute__((noinline)) struct bits next_chunk(struct entropy *e, struct bits b)
{
    size_t n = (size_t)(b.limit - b.p);
    memmove(e->chunk, b.p, n);
    while (n < CHUNK) {
        size_t most = CW_MIN(CHUNK - n, (size_t)(e->end - e->file));
        const uint8_t *ff = memchr(e->file, 0xFF, most), *to = ff ? ff : e->file + most;
        memcpy(e->chunk + n, e->file, (size_t)(to - e->file));
        n += (size_t)(to - e->file);
        e->file = to;
        if (n == CHUNK)
            break;
        while (to < e->end && *to == 0xFF) /* fill bytes may precede a marker */
            to++;
        if (to < e->end && *to == 0) {
            e->chunk[n++] = 0xFF;
            e->file = to + 1;
        } else {
            memset(e->chunk + n, 0, CHUNK - n);
            e->zeros += CHUNK - n;
            n = CHUNK;
        }
    }
    b.p = e->chunk;
    b.limit = e->chunk + CHUNK;
    return b;
}

/* Refills the bits, so that at least 56 are valid. */
static INLINE struct bits entropy_refill(struct entropy *e, struct bits b)
{
    if (CW_UNLIKELY(b.limit - b.p < 8))
        b = next_chunk(e, b);
    uint64_t word;
    memcpy(&word, b.p, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    b.bits |= word >> b.count;
    b.p += (63 - b.count) >> 3;
    b.count |= 56;
    return b;
}

/* ---- codes ---- */

static uint32_t entropy_entry_of(unsigned length, unsigned symbol, bool dc)
{
    unsigned size = dc ? symbol : symbol & 15, run = dc ? 0 : symbol >> 4;
    return ENTRY(length + size, length, size, run + 1);
}

/* Makes the look-up table of a Huffman table. jpeg_start_decompress has checked the table: every code fits in
 * its length, and DC sizes are at most 15. */
static void entropy_make_table(struct table *t, const JHUFF_TBL *from, bool dc)
{
    unsigned code = 0, n = 0;
    memset(t->look, 0, sizeof(t->look));
    for (unsigned length = 1; length <= 16; length++, code <<= 1) {
        t->offset[length] = (int32_t)n - (int32_t)code;
        for (unsigned i = 0; i < from->bits[length]; i++, n++, code++) {
            if (length > LOOK)
                continue;
            uint32_t entry = entropy_entry_of(length, from->huffval[n], dc),
                     *to = t->look + (code << (LOOK - length));
            for (unsigned k = 0; k < 1u << (LOOK - length); k++)
                to[k] = entry;
        }
        t->last[length] = from->bits[length] ? (int32_t)code - 1 : -1;
    }
    t->last[17] = INT_MAX;
    t->values = from->huffval;
}

/* Returns the entry of a code longer than LOOK bits. A code that does not exist counts as 0, as in libjpeg,
 * which reports such a code only near the end. */
static __attribute__((noinline)) uint32_t long_code(uint64_t bits, const struct table *t, bool dc,
                                                    struct jpeg_decompress_struct *d)
{
    unsigned length = LOOK + 1;
    while ((int32_t)(bits >> (64 - length)) > t->last[length])
        length++;
    if (length > 16) {
        WARNMS(d, JWRN_HUFF_BAD_CODE);
        return ENTRY(length, length, 0, 1);
    }
    return entropy_entry_of(length, t->values[((int32_t)(bits >> (64 - length)) + t->offset[length]) & 0xFF],
                            dc);
}

/* Returns the value after a code. A value whose highest bit is 0 stands for a negative number. */
static INLINE int32_t entropy_value_of(uint64_t bits, uint32_t entry)
{
    uint64_t value = bits << (entry >> 8 & 63);
    unsigned size = entry >> 16 & 15;
    int32_t negative = -(int32_t)(~value >> 63); /* -1 or 0 */
    return (int32_t)(value >> 1 >> (63 - size)) + (int32_t)((uint32_t)negative << size) - negative;
}

static INLINE struct bits entropy_skip(struct bits b, uint32_t entry)
{
    b.bits <<= entry & 63;
    b.count -= entry & 63;
    return b;
}

/* ---- blocks ---- */

/* Decodes a block's coefficients; keep false: only skips them. */
static INLINE struct bits entropy_decode_block(struct bits b, struct entropy *e,
                                               const struct block_kind *kind, JCOEF *block, const bool keep,
                                               struct jpeg_decompress_struct *d)
{
    b = entropy_refill(e, b);
    uint32_t entry = kind->dc->look[b.bits >> (64 - LOOK)];
    if (CW_UNLIKELY(!entry))
        entry = long_code(b.bits, kind->dc, true, d);
    int64_t dc = (int64_t)e->dc[kind->component] + entropy_value_of(b.bits, entry);
    b = entropy_skip(b, entry);
    if (dc != (int32_t)dc)
        ERREXIT(d, JERR_BAD_DCT_COEF);
    e->dc[kind->component] = (int32_t)dc;
    if (keep)
        block[0] = (JCOEF)dc;
    const struct table *ac = kind->ac;
    unsigned at = 0;
    for (;;) {
        b = entropy_refill(e, b);
#if !defined(__clang__) || __clang_major__ >= 14 /* clang 11 does not support the attribute */
#pragma GCC unroll 2
#endif
        for (int i = 0; i < 2; i++) {
            /* one refill suffices for two coefficients, unless one has a long code */
            entry = ac->look[b.bits >> (64 - LOOK)];
            if (CW_UNLIKELY(!entry)) {
                b = entropy_refill(e, b);
                entry = long_code(b.bits, ac, false, d);
            }
            at += entry >> 24;
            if (CW_LIKELY(entry & 15u << 16)) {
                if (keep)
                    block[natural[at]] = (JCOEF)entropy_value_of(b.bits, entry);
            } else if (entry >> 24 != 16) { /* 16: sixteen zeros; else the rest is zero */
                return entropy_skip(b, entry);
            }
            b = entropy_skip(b, entry);
            if (at >= 63)
                return b;
        }
    }
}

static boolean entropy_decode_mcu(j_decompress_ptr d, JBLOCKROW *blocks)
{
    struct entropy *e = d->client_data;
    bool wanted = blocks && e->column >= e->first && e->column <= e->last;
    e->column = e->column + 1 < d->MCUs_per_row ? e->column + 1 : 0;
    if (e->over)
        return TRUE;
    struct bits b = e->bits;
    if (wanted)
        for (int i = 0; i < d->blocks_in_MCU; i++)
            b = entropy_decode_block(b, e, &e->kinds[i], *blocks[i], true, d);
    else
        for (int i = 0; i < d->blocks_in_MCU; i++)
            b = entropy_decode_block(b, e, &e->kinds[i], NULL, false, d);
    e->bits = b;
    if (CW_UNLIKELY(e->zeros) && b.count + 8 * (size_t)(b.limit - b.p) < 8 * e->zeros) {
        /* some of the added zeros were used */
        e->over = true;
        WARNMS(d, JWRN_HIT_MARKER);
    }
    return TRUE;
}

/* ---- setting up ---- */

bool cw_jpeg_entropy_fits(const struct jpeg_decompress_struct *d)
{
    /* Ss and Se exclude lossless images, which later releases support */
    bool sequential = !d->progressive_mode && d->Ss == 0 && d->Se == DCTSIZE2 - 1;
    return sequential && d->data_precision == 8 && !d->arith_code && d->restart_interval == 0 &&
           d->comps_in_scan == d->num_components;
}

size_t cw_jpeg_entropy_bytes(void)
{
    return sizeof(struct entropy);
}

static struct table *entropy_table_for(struct entropy *e, const struct jpeg_decompress_struct *d, bool dc,
                                       int number)
{
    struct table *t = &e->tables[dc][number];
    if (!e->made[dc][number])
        entropy_make_table(t, (dc ? d->dc_huff_tbl_ptrs : d->ac_huff_tbl_ptrs)[number], dc);
    e->made[dc][number] = true;
    return t;
}

void cw_jpeg_entropy_install(struct jpeg_decompress_struct *d, void *state, JDIMENSION left, JDIMENSION width)
{
    struct entropy *e = state;
    JDIMENSION mcu = (JDIMENSION)(d->comps_in_scan == 1 ? 1 : d->max_h_samp_factor) * DCTSIZE;
    memset(e, 0, offsetof(struct entropy, chunk));
    e->bits = (struct bits){.p = e->chunk, .limit = e->chunk};
    e->file = d->src->next_input_byte;
    e->end = e->file + d->src->bytes_in_buffer;
    e->first = left / mcu;
    e->last = (left + width - 1) / mcu;
    for (int i = 0; i < d->blocks_in_MCU; i++) {
        int component = d->MCU_membership[i];
        const jpeg_component_info *c = d->cur_comp_info[component];
        e->kinds[i] = (struct block_kind){entropy_table_for(e, d, true, c->dc_tbl_no),
                                          entropy_table_for(e, d, false, c->ac_tbl_no), component};
    }
    d->client_data = e;
    d->entropy->decode_mcu = entropy_decode_mcu;
}
