/*
 * The Huffman decoder of baseline JPEG. libjpeg calls its entropy decoder through a pointer, once per MCU
 * (the smallest group of blocks); the decoder here replaces it and fills the same blocks. It is faster for
 * four reasons. One table look-up gives up to two coefficients, with their values (image_jpeg_huffman.c). The
 * only branch that depends on the data and is not rare is the end of a block: where there is one coefficient
 * and not two, or none, stores that change nothing take the place of branches. It holds 64 bits of data,
 * refilled eight bytes at a time from a chunk from which stuffed zeros were removed beforehand. Outside the
 * wanted columns it only counts coefficients. It runs in the thread that decodes, and its state lies in the
 * caller's arena.
 *
 * Of libjpeg's internals (jpegint.h) only pointers are used that have the same place in every release:
 * decode_mcu, and read_restart_marker with the counter of bytes that it adds to.
 */
#include "formats/image_jpeg_entropy.h"

#include <stdint.h>
#include <string.h>

#include <jerror.h>
#include <jpegint.h>

#include "formats/image_jpeg_huffman.h"

/* bytes: small compared with the CPU's caches, large enough to search for 0xFF at little cost */
#define CHUNK 4096
#define BEFORE 8 /* bytes of the chunk before the unread ones: the bits that are held begin there */
#if JPEG_LIB_VERSION >= 70
#define BLOCK_WIDTH min_DCT_h_scaled_size
#else
#define BLOCK_WIDTH min_DCT_scaled_size /* pixels of a block as it is decoded: 8, 4, 2 or 1 */
#endif
#define INLINE inline __attribute__((always_inline))

struct bits {
    uint64_t bits;    /* the next bits of the data, from the highest bit on */
    unsigned count;   /* number of valid bits, at most 63; lower bits are 0 or the true continuation */
    const uint8_t *p; /* the data after these bits, in the chunk */
};

struct block_kind {
    const struct cw_jpeg_codes *dc;
    const struct cw_jpeg_ac *ac;
    int component;
};

struct entropy {
    struct bits bits;
    bool over;                      /* the data ended: all further coefficients stay zero */
    JDIMENSION column, first, last; /* MCU columns: the next one; the first and the last wanted one */
    unsigned to_restart;            /* MCUs before the next restart marker, if the file has any */
    int32_t dc[MAX_COMPS_IN_SCAN];
    struct block_kind kinds[D_MAX_BLOCKS_IN_MCU];
    const uint8_t *file, *end; /* the compressed data that are not in the chunk yet */
    const uint8_t *data_end;   /* the end of the file */
    size_t zeros;              /* zero bytes that were added after the end of the data */
    /* Where the chunk lies in the file: */
    const uint8_t *start;       /* the first compressed byte */
    int64_t chunk_at;           /* offset of chunk[0] from start */
    bool unplaced;              /* fill bytes were left out, so offsets are not known */
    unsigned n_stuffed, passed; /* number of `stuffed`; those before the place that was requested last */
    uint16_t stuffed[CHUNK];    /* offsets in the chunk of bytes that are two in the file (0xFF 0) */
    uint8_t chunk[CHUNK];       /* compressed data as they were before 0xFF became 0xFF 0 */
    /* last in the struct: unused tables are never touched */
    struct cw_jpeg_codes dc_codes[NUM_HUFF_TBLS];
    struct cw_jpeg_ac ac[NUM_HUFF_TBLS];
};

/* By number of a coefficient in the file: its index in the block. A run that leads out of the block ends at
 * its last coefficient, as in libjpeg. */
static const uint8_t natural[62 + 2 * CW_JPEG_BLOCK_ENDS + 1] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
    12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, [63 ... 62 + 2 * CW_JPEG_BLOCK_ENDS] = 63,
};

/* ---- bits ---- */

/* Drops the first n bytes of the chunk. */
static void drop_bytes(struct entropy *e, size_t n)
{
    unsigned gone = 0;
    while (gone < e->n_stuffed && e->stuffed[gone] < n)
        gone++;
    e->chunk_at += (int64_t)n + gone;
    e->n_stuffed -= gone;
    e->passed = 0;
    for (unsigned i = 0; i < e->n_stuffed; i++)
        e->stuffed[i] = (uint16_t)(e->stuffed[i + gone] - n);
}

/* Moves the unread bytes, from p on, and BEFORE bytes before them to the start of the chunk and fills the
 * rest. A marker ends the data; zeros follow. Returns the place of the unread bytes. */
static __attribute__((noinline)) const uint8_t *next_chunk(struct entropy *e, const uint8_t *p)
{
    size_t n = (size_t)(e->chunk + CHUNK - p) + BEFORE;
    drop_bytes(e, CHUNK - n);
    memmove(e->chunk, p - BEFORE, n);
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
            e->unplaced |= to > e->file + 1;
            e->stuffed[e->n_stuffed++] = (uint16_t)n;
            e->chunk[n++] = 0xFF;
            e->file = to + 1;
        } else {
            memset(e->chunk + n, 0, CHUNK - n);
            e->zeros += CHUNK - n;
            n = CHUNK;
        }
    }
    return e->chunk + BEFORE;
}

/* Refills the bits, so that at least 56 are valid. */
static INLINE struct bits entropy_refill(struct entropy *e, struct bits b)
{
    if (CW_UNLIKELY(e->chunk + CHUNK - b.p < 8))
        b.p = next_chunk(e, b.p);
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

/* Returns the entry of the next code. A code that does not exist counts as 0, as in libjpeg, which reports
 * such a code only near the end. */
static INLINE uint32_t entropy_next(uint64_t bits, const struct cw_jpeg_codes *codes, bool dc,
                                    struct jpeg_decompress_struct *d)
{
    uint32_t entry = codes->entry[bits >> (64 - CW_JPEG_CODE_BITS)];
    if (CW_UNLIKELY(!entry))
        entry = cw_jpeg_long_code(bits, codes, dc);
    if (CW_UNLIKELY(!entry)) {
        WARNMS(d, JWRN_HUFF_BAD_CODE);
        entry = CW_JPEG_ENTRY(17, 17, 0, 1);
    }
    return entry;
}

/* Returns the value after a code. A value whose highest bit is 0 stands for a negative number. */
static INLINE int32_t entropy_value_of(uint64_t bits, uint32_t entry)
{
    uint64_t value = bits << (entry >> 8 & 63);
    unsigned size = entry >> 16 & 15;
    int32_t negative = -(int32_t)(~value >> 63); /* -1 or 0 */
    return (int32_t)(value >> 1 >> (63 - size)) + (int32_t)((uint32_t)negative << size) - negative;
}

static INLINE struct bits entropy_skip(struct bits b, unsigned n)
{
    b.bits <<= n & 63;
    b.count -= n & 63;
    return b;
}

/* ---- blocks ---- */

/* Decodes one AC coefficient after number `at`, from e->bits. Returns its number, or at least 63 if it ends
 * the block. keep false: only skips it. */
static __attribute__((noinline)) unsigned entropy_decode_one(struct entropy *e, const struct cw_jpeg_ac *ac,
                                                             unsigned at, JCOEF *block, bool keep,
                                                             struct jpeg_decompress_struct *d)
{
    struct bits b = entropy_refill(e, e->bits);
    uint32_t entry = entropy_next(b.bits, &ac->codes, false, d);
    unsigned run = entry >> 24;
    bool zero = !(entry & 15u << 16); /* sixteen zeros, or the rest is zero */
    at += zero && run != 16 ? CW_JPEG_BLOCK_ENDS : run;
    if (keep && !zero)
        block[natural[at]] = (JCOEF)entropy_value_of(b.bits, entry);
    e->bits = entropy_skip(b, entry);
    return at;
}

/* Decodes a block's AC coefficients; keep false: only skips them. */
static INLINE struct bits entropy_decode_ac(struct bits b, struct entropy *e, const struct cw_jpeg_ac *ac,
                                            JCOEF *block, const bool keep, struct jpeg_decompress_struct *d)
{
    unsigned at = 0; /* number of the last coefficient */
    for (;;) {
        b = entropy_refill(e, b);
#if !defined(__clang__) || __clang_major__ >= 14 /* clang 11 does not support the attribute */
#pragma GCC unroll 3
#endif
        for (int i = 0; i < 3; i++) { /* one refill suffices for three pairs */
            const struct cw_jpeg_pair *pair = &ac->pair[b.bits >> (64 - CW_JPEG_PAIR_BITS)];
            unsigned total = pair->total, first = at + pair->run, second = at + pair->runs;
            if (CW_UNLIKELY(!total)) {
                e->bits.bits = b.bits;
                e->bits.count = b.count;
                e->bits.p = b.p;
                at = entropy_decode_one(e, ac, at, block, keep, d);
                b.bits = e->bits.bits;
                b.count = e->bits.count;
                b.p = e->bits.p;
                if (at >= 63)
                    return b;
                break;
            }
            if (keep) { /* if there is no second one, the first is stored twice */
                block[natural[second]] = (JCOEF)((b.bits >> (-total & 63)) + pair->offset[1]);
                block[natural[first]] = (JCOEF)((b.bits >> (pair->shift & 63)) + pair->offset[0]);
            }
            if (second >= 63)
                return entropy_skip(b, first >= 63 ? 64u - pair->shift : total);
            b = entropy_skip(b, total);
            at = second;
        }
    }
}

/* Decodes a block's coefficients; keep false: only skips them. */
static INLINE struct bits entropy_decode_block(struct bits b, struct entropy *e,
                                               const struct block_kind *kind, JCOEF *block, const bool keep,
                                               struct jpeg_decompress_struct *d)
{
    b = entropy_refill(e, b);
    uint32_t entry = entropy_next(b.bits, kind->dc, true, d);
    int64_t dc = (int64_t)e->dc[kind->component] + entropy_value_of(b.bits, entry);
    b = entropy_skip(b, entry);
    if (dc != (int32_t)dc)
        ERREXIT(d, JERR_BAD_DCT_COEF);
    e->dc[kind->component] = (int32_t)dc;
    if (keep)
        block[0] = (JCOEF)dc;
    return entropy_decode_ac(b, e, kind->ac, block, keep, d);
}

/* Returns the number of unread bytes before the marker or the added zeros that end the data in the chunk. */
static size_t entropy_unread(const struct entropy *e, struct bits b)
{
    size_t bytes = b.count / 8 + (size_t)(e->chunk + CHUNK - b.p);
    return bytes > e->zeros ? bytes - e->zeros : 0;
}

/* Goes on behind the next restart marker, which libjpeg finds and checks. */
static void entropy_restart(struct entropy *e, struct jpeg_decompress_struct *d)
{
    d->marker->discarded_bytes += (unsigned)entropy_unread(e, e->bits);
    d->src->bytes_in_buffer = (size_t)(e->data_end - e->file);
    d->src->next_input_byte = e->file;
    d->marker->read_restart_marker(d);
    /* at the end of the file, libjpeg goes on with a marker of its own */
    e->file = e->data_end - CW_MIN(d->src->bytes_in_buffer, (size_t)(e->data_end - e->file));
    e->end = d->unread_marker ? e->file : e->data_end; /* a marker that is left unread ends the data */
    e->over = e->over && d->unread_marker;
    e->bits = (struct bits){.p = e->chunk + CHUNK};
    e->zeros = 0;
    memset(e->dc, 0, sizeof(e->dc));
    e->to_restart = d->restart_interval;
}

static boolean entropy_decode_mcu(j_decompress_ptr d, JBLOCKROW *blocks)
{
    struct entropy *e = d->client_data;
    bool wanted = blocks && e->column >= e->first && e->column <= e->last;
    e->column = e->column + 1 < d->MCUs_per_row ? e->column + 1 : 0;
    if (d->restart_interval && e->to_restart-- == 0) {
        entropy_restart(e, d);
        e->to_restart--;
    }
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
    if (CW_UNLIKELY(e->zeros) && b.count + 8 * (size_t)(e->chunk + CHUNK - b.p) < 8 * e->zeros) {
        /* some of the added zeros were used */
        e->over = true;
        WARNMS(d, JWRN_HIT_MARKER);
    }
    return TRUE;
}

/* ---- places ---- */

bool cw_jpeg_entropy_place(void *state, struct cw_jpeg_place *ret)
{
    struct entropy *e = state;
    int64_t bit = 8 * (int64_t)(e->bits.p - e->chunk) - (int64_t)e->bits.count, byte = bit >> 3;
    while (e->passed < e->n_stuffed && e->stuffed[e->passed] < byte)
        e->passed++;
    ret->bit = (uint64_t)(e->chunk_at + byte + e->passed) << 3 | (uint64_t)(bit & 7);
    memcpy(ret->dc, e->dc, sizeof(ret->dc));
    return !e->over && !e->unplaced;
}

/* Goes on reading at a byte of the file. */
static void read_from(struct entropy *e, const uint8_t *at)
{
    e->file = at;
    e->chunk_at = at - e->start - CHUNK;
    e->n_stuffed = e->passed = 0;
    e->zeros = 0;
    e->bits = (struct bits){.p = e->chunk + CHUNK};
}

bool cw_jpeg_entropy_seek(void *state, const struct cw_jpeg_place *place, JDIMENSION column)
{
    struct entropy *e = state;
    if (place->bit >> 3 >= (uint64_t)(e->end - e->start))
        return false;
    read_from(e, e->start + (place->bit >> 3));
    e->bits = entropy_refill(e, e->bits);
    e->bits.bits <<= place->bit & 7;
    e->bits.count -= place->bit & 7;
    memcpy(e->dc, place->dc, sizeof(e->dc));
    e->column = column;
    return true;
}

/* ---- setting up ---- */

bool cw_jpeg_entropy_fits(const struct jpeg_decompress_struct *d)
{
    /* Ss and Se exclude lossless images, which later releases support */
    bool sequential = !d->progressive_mode && d->Ss == 0 && d->Se == DCTSIZE2 - 1;
    return sequential && d->data_precision == 8 && !d->arith_code && d->comps_in_scan == d->num_components;
}

size_t cw_jpeg_entropy_bytes(void)
{
    return sizeof(struct entropy);
}

void cw_jpeg_entropy_install(struct jpeg_decompress_struct *d, void *state, JDIMENSION left, JDIMENSION width)
{
    struct entropy *e = state;
    JDIMENSION mcu = (JDIMENSION)((d->comps_in_scan == 1 ? 1 : d->max_h_samp_factor) * d->BLOCK_WIDTH);
    memset(e, 0, offsetof(struct entropy, stuffed));
    e->start = d->src->next_input_byte;
    e->end = e->data_end = e->start + d->src->bytes_in_buffer;
    e->to_restart = d->restart_interval;
    read_from(e, e->start);
    e->first = left / mcu;
    e->last = (left + width - 1) / mcu;
    bool made[2][NUM_HUFF_TBLS] = {0};
    const struct cw_jpeg_ac *ac[NUM_HUFF_TBLS];
    for (int i = 0; i < d->blocks_in_MCU; i++) {
        int component = d->MCU_membership[i];
        const jpeg_component_info *c = d->cur_comp_info[component];
        if (!made[0][c->dc_tbl_no])
            cw_jpeg_make_dc(&e->dc_codes[c->dc_tbl_no], d->dc_huff_tbl_ptrs[c->dc_tbl_no]);
        if (!made[1][c->ac_tbl_no])
            ac[c->ac_tbl_no] = cw_jpeg_make_ac(&e->ac[c->ac_tbl_no], d->ac_huff_tbl_ptrs[c->ac_tbl_no]);
        made[0][c->dc_tbl_no] = made[1][c->ac_tbl_no] = true;
        e->kinds[i] = (struct block_kind){&e->dc_codes[c->dc_tbl_no], ac[c->ac_tbl_no], component};
    }
    d->client_data = e;
    d->entropy->decode_mcu = entropy_decode_mcu;
}

cw_jpeg_decode_mcu *cw_jpeg_entropy_get(const struct jpeg_decompress_struct *d)
{
    return d->entropy->decode_mcu;
}

void cw_jpeg_entropy_set(struct jpeg_decompress_struct *d, cw_jpeg_decode_mcu *function)
{
    d->entropy->decode_mcu = function;
}
