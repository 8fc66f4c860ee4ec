/* Types of components: dtype and shape, known when the pipeline is compiled. A shape may have dimensions that
 * vary from element to element. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum cw_dtype {
    CW_BOOL,
    CW_UINT8,
    CW_UINT16,
    CW_UINT32,
    CW_UINT64,
    CW_INT8,
    CW_INT16,
    CW_INT32,
    CW_INT64,
    CW_FLOAT16,
    CW_BFLOAT16,
    CW_FLOAT32,
    CW_FLOAT64,
    CW_BYTES, /* variable-length byte string; always a scalar (ndim 0) of an element */
    CW_N_DTYPES,
};

/* "bool", "uint8", ..., "bfloat16", "float32", "float64", "bytes". */
const char *cw_dtype_name(enum cw_dtype dtype);
/* Stores the dtype of a name in *ret. Returns 0, or -1 if the name is unknown. */
int cw_dtype_parse(const char *name, enum cw_dtype *ret);
/* Returns the bytes of one value; 0 for CW_BYTES. */
size_t cw_dtype_size(enum cw_dtype dtype);
bool cw_dtype_is_float(enum cw_dtype dtype);
bool cw_dtype_is_signed(enum cw_dtype dtype);  /* signed integers */
bool cw_dtype_is_integer(enum cw_dtype dtype); /* signed or unsigned, not bool */

#define CW_MAX_NDIM 6
#define CW_MAX_COMPONENTS 128 /* of an element */
#define CW_VARIES (-1)        /* a dimension that varies per element */

struct cw_type {
    enum cw_dtype dtype;
    int ndim; /* -1: the number of dimensions is not known before an element was computed */
    int64_t dims[CW_MAX_NDIM];
};

/* Returns whether every element has the same size: the dtype is not bytes, ndim is known, and no dimension
 * varies. */
bool cw_type_fixed(const struct cw_type *t);
/* Returns the bytes of one element of a fixed type; SIZE_MAX on overflow. */
size_t cw_type_bytes(const struct cw_type *t);
/* Prints a type into buf and returns buf: "uint8[224,224,3]", "float32", "uint8[?,?,3]" (dimensions that
 * vary), "uint8[...]" (ndim unknown), "bytes". */
const char *cw_type_print(const struct cw_type *t, char buf[160]);
struct cw_type cw_type_scalar(enum cw_dtype dtype);
/* Makes *a the type that holds elements of both types. -1: there is none, because the dtypes differ. */
int cw_type_merge(struct cw_type *a, const struct cw_type *b);

/* One value of one component of one element. */
struct cw_tensor {
    void *data;
    size_t size; /* bytes of data */
    int ndim;
    int64_t dims[CW_MAX_NDIM];
};
