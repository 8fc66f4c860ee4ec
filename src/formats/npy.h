/* Reads arrays as numpy.save writes them (.npy, versions 1 to 3), in place. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/type.h"

#define CW_NPY_WHY 160 /* bytes of a reason */

struct cw_npy {
    enum cw_dtype dtype; /* NumPy's "V2" (two bytes without a type) is bfloat16, which NumPy itself lacks */
    int ndim;
    int64_t dims[CW_MAX_NDIM];
    const uint8_t *data; /* C order, little-endian; not aligned */
    size_t size;         /* bytes of data */
};

/* Parses `size` bytes of a .npy file; *ret points into them. False: why says what is wrong or not supported.
 */
bool cw_npy_parse(const void *bytes, size_t size, struct cw_npy *ret, char why[CW_NPY_WHY]) _must_check_;

#define CW_NPY_HEADER 1024 /* bytes that a header has at most */

/* Returns NumPy's name of a dtype ("<f4"). Of bytes it is that of their values, uint8. */
const char *cw_npy_descr(enum cw_dtype dtype);
/* Writes what stands before the data of an array in a .npy file of version 1.0. Returns its size, a multiple
 * of
 * 64. descr: NumPy's name of the dtype, of at most 40 characters. */
size_t cw_npy_header(char out[CW_NPY_HEADER], const char *descr, const int64_t *dims, int ndim);
