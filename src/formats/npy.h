/* Arrays as numpy.save writes them (.npy, versions 1 to 3), read in place. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/type.h"

#define CW_NPY_WHY 160

struct cw_npy {
    enum cw_dtype dtype; /* two bytes of any kind ("V2") are bfloat16, which NumPy does not know */
    int ndim;
    int64_t dims[CW_MAX_NDIM];
    const uint8_t *data; /* C order, little-endian; not aligned */
    size_t size;
};

/* False: why says what can't be taken. */
bool cw_npy_parse(const void *bytes, size_t size, struct cw_npy *ret, char why[CW_NPY_WHY]) _must_check_;
