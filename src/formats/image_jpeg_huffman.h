/* Look-up tables of JPEG's Huffman codes, made from the tables of a file. image_jpeg_entropy.c decodes with
 * them. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include "base/macro.h"

#define CW_JPEG_CODE_BITS 9 /* bits looked up at once for one code, which few codes exceed */
/* bits looked up at once for a pair: 1.7 codes on average in a photograph of quality 90. With 12 bits, the
 * tables would not stay in the CPU's first-level cache */
#define CW_JPEG_PAIR_BITS 11
#define CW_JPEG_PAIR_TOTAL 18 /* bits of a pair at most: three of them are at most 56 */
#define CW_JPEG_BLOCK_ENDS 64 /* the run of a code that ends its block: longer than any other */

/* An entry of a table, made of four numbers: bits in total, bits of the code, bits of the value, coefficients
 * to advance. */
#define CW_JPEG_ENTRY(total, code, size, run) \
    ((uint32_t)(total) | (uint32_t)(code) << 8 | (uint32_t)(size) << 16 | (uint32_t)(run) << 24)

struct cw_jpeg_codes {
    /* made with CW_JPEG_ENTRY; 0: the code is longer than CW_JPEG_CODE_BITS bits, or does not exist */
    uint32_t entry[1 << CW_JPEG_CODE_BITS];
    int32_t last[18];   /* by length: the last code; -1: none. [17]: more than any code */
    int32_t offset[18]; /* by length: index of a code in values, minus the code */
    const uint8_t *values;
};

/* One coefficient or two, which the next CW_JPEG_PAIR_BITS bits determine, except for the lower bits of their
 * values. A value is (JCOEF)((bits >> shift) + offset), where `bits` are the next 64 bits: the offset takes
 * off the bits before the value, and makes it negative if its first bit says so. It is 0 for sixteen zeros
 * and for the end of a block. If there is only one coefficient, the second is the same, with a run of 0. */
struct cw_jpeg_pair {
    uint8_t total;     /* bits of the pair; 0: the first coefficient does not fit in a pair */
    uint8_t run, runs; /* coefficients to advance to the first, and to the second */
    uint8_t shift;     /* of the first coefficient: 64 - its bits. That of the second is 64 - total */
    uint16_t offset[2];
};

/* Codes of AC coefficients. */
struct cw_jpeg_ac {
    struct cw_jpeg_codes codes;
    struct cw_jpeg_pair pair[1 << CW_JPEG_PAIR_BITS];
};

/* Makes the tables of a Huffman table, which must stay valid. jpeg_start_decompress has checked it: every
 * code fits in its length, and DC sizes are at most 15. */
void cw_jpeg_make_dc(struct cw_jpeg_codes *ret, const JHUFF_TBL *from);
/* Returns *room, filled in; or tables that the process shares, if they are those that most files have. */
const struct cw_jpeg_ac *cw_jpeg_make_ac(struct cw_jpeg_ac *room, const JHUFF_TBL *from);

/* Returns the entry of a code longer than CW_JPEG_CODE_BITS bits, the first of `bits`; 0: there is no such
 * code. */
uint32_t cw_jpeg_long_code(uint64_t bits, const struct cw_jpeg_codes *codes, bool dc) _pure_;
