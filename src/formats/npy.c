/* Parses and writes the header of .npy files: a dictionary in Python's notation, in the one form that
 * numpy.save writes. Pure functions. */
#include "formats/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct text {
    const char *at, *end;
};

static bool npy_wrong(char why[CW_NPY_WHY], const char *what)
{
    snprintf(why, CW_NPY_WHY, "%s", what);
    return false;
}

static void npy_skip_space(struct text *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\n' || *t->at == '\t'))
        t->at++;
}

static bool npy_take(struct text *t, const char *word)
{
    size_t n = strlen(word);
    npy_skip_space(t);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0)
        return false;
    t->at += n;
    return true;
}

/* Reads 'text' or "text" without escapes. */
static bool npy_take_string(struct text *t, char *out, size_t room)
{
    npy_skip_space(t);
    char quote = t->at < t->end ? *t->at : 0;
    const char *end = quote == '\'' || quote == '"' ? memchr(t->at + 1, quote, (size_t)(t->end - t->at - 1))
                                                    : NULL;
    size_t n = end ? (size_t)(end - t->at - 1) : 0;
    if (!end || n >= room)
        return false;
    memcpy(out, t->at + 1, n);
    out[n] = 0;
    t->at = end + 1;
    return true;
}

static bool npy_take_shape(struct text *t, struct cw_npy *npy)
{
    if (!npy_take(t, "("))
        return false;
    while (!npy_take(t, ")")) {
        int64_t v = 0;
        npy_skip_space(t);
        if (npy->ndim == CW_MAX_NDIM || t->at == t->end || *t->at < '0' || *t->at > '9')
            return false;
        for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++) {
            if (v > (INT64_MAX >> 8) / 10)
                return false;
            v = v * 10 + (*t->at - '0');
        }
        npy->dims[npy->ndim++] = v;
        if (!npy_take(t, ",") && (npy_skip_space(t), t->at == t->end || *t->at != ')'))
            return false;
    }
    return true;
}

static bool npy_read_descr(const char *descr, struct cw_npy *npy, char why[CW_NPY_WHY])
{
    static const struct {
        const char *descr;
        enum cw_dtype dtype;
    } names[] = {
        {"b1", CW_BOOL},    {"u1", CW_UINT8},   {"u2", CW_UINT16},   {"u4", CW_UINT32}, {"u8", CW_UINT64},
        {"i1", CW_INT8},    {"i2", CW_INT16},   {"i4", CW_INT32},    {"i8", CW_INT64},  {"f2", CW_FLOAT16},
        {"f4", CW_FLOAT32}, {"f8", CW_FLOAT64}, {"V2", CW_BFLOAT16},
    };

    if (descr[0] == '<' || descr[0] == '|' || (descr[0] == '>' && descr[1] && descr[2] == '1'))
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            if (strcmp(descr + 1, names[i].descr) == 0) {
                npy->dtype = names[i].dtype;
                return true;
            }
    snprintf(why, CW_NPY_WHY, "a NumPy file of dtype \"%.20s\": expected little-endian numbers or bool",
             descr);
    return false;
}

static bool npy_read_header(struct text t, struct cw_npy *npy, char why[CW_NPY_WHY])
{
    char key[20], descr[24] = "";
    bool shape = false, order = false, fortran = false;
    if (!npy_take(&t, "{"))
        return npy_wrong(why, "a NumPy file with a malformed header");
    while (!npy_take(&t, "}")) {
        bool good = npy_take_string(&t, key, sizeof(key)) && npy_take(&t, ":");
        if (good && strcmp(key, "descr") == 0 && !descr[0])
            good = npy_take_string(&t, descr, sizeof(descr));
        else if (good && strcmp(key, "shape") == 0 && !shape)
            good = shape = npy_take_shape(&t, npy);
        else if (good && strcmp(key, "fortran_order") == 0 && !order)
            good = order = (fortran = npy_take(&t, "True")) || npy_take(&t, "False");
        else
            good = false;
        if (!good)
            return npy_wrong(why,
                             "a NumPy file whose header is malformed, or of a structured dtype, or of more "
                             "than 6 dimensions");
        if (!npy_take(&t, ","))
            npy_skip_space(&t);
    }
    if (!descr[0] || !shape || !order)
        return npy_wrong(why, "a NumPy file whose header lacks descr, shape or fortran_order");
    if (fortran && npy->ndim > 1)
        return npy_wrong(why, "a NumPy file in Fortran order: expected C order");
    return npy_read_descr(descr, npy, why);
}

bool cw_npy_parse(const void *bytes, size_t size, struct cw_npy *ret, char why[CW_NPY_WHY])
{
    const uint8_t *p = bytes;
    if (size < 10 || memcmp(p, "\x93NUMPY", 6) != 0 || p[6] < 1 || p[6] > 3)
        return npy_wrong(why, "not a NumPy file (.npy)");
    size_t at = p[6] == 1 ? 10 : 12;
    if (size < at)
        return npy_wrong(why, "a NumPy file that is cut off");
    size_t header = p[6] == 1 ? (size_t)(p[8] | p[9] << 8)
                              : (size_t)p[8] | (size_t)p[9] << 8 | (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (header > size - at)
        return npy_wrong(why, "a NumPy file that is cut off");
    *ret = (struct cw_npy){.data = p + at + header, .size = size - at - header};
    if (!npy_read_header((struct text){.at = (const char *)p + at, .end = (const char *)p + at + header}, ret,
                         why))
        return false;
    struct cw_type type = {.dtype = ret->dtype, .ndim = ret->ndim};
    memcpy(type.dims, ret->dims, sizeof(type.dims));
    if (cw_type_bytes(&type) != ret->size)
        return npy_wrong(why, "a NumPy file whose size does not match its shape");
    return true;
}

const char *cw_npy_descr(enum cw_dtype dtype)
{
    static const char *const names[CW_N_DTYPES] = {
        [CW_BOOL] = "|b1",    [CW_UINT8] = "|u1",   [CW_UINT16] = "<u2",   [CW_UINT32] = "<u4",
        [CW_UINT64] = "<u8",  [CW_INT8] = "|i1",    [CW_INT16] = "<i2",    [CW_INT32] = "<i4",
        [CW_INT64] = "<i8",   [CW_FLOAT16] = "<f2", [CW_BFLOAT16] = "|V2", [CW_FLOAT32] = "<f4",
        [CW_FLOAT64] = "<f8", [CW_BYTES] = "|u1",
    };
    return names[dtype];
}

size_t cw_npy_header(char out[CW_NPY_HEADER], const char *descr, const int64_t *dims, int ndim)
{
    size_t at = 10;
    at += (size_t)snprintf(out + at, CW_NPY_HEADER - at, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                           descr);
    for (int i = 0; i < ndim; i++)
        at += (size_t)snprintf(out + at, CW_NPY_HEADER - at, "%" PRId64 ",%s", dims[i],
                               i + 1 < ndim ? " " : "");
    at += (size_t)snprintf(out + at, CW_NPY_HEADER - at, "), }");
    size_t total = CW_ALIGN_UP(at + 1, 64);
    memset(out + at, ' ', total - at);
    out[total - 1] = '\n';
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (char)((total - 10) & 255);
    out[9] = (char)((total - 10) >> 8);
    return total;
}
