/* Elements as records of shards: what the formats share, and the format cachew. */
#include "formats/shard.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "data/convert.h"
#include "formats/shard_format.h"
#include "formats/tfrecord.h"

const char *const cw_shard_formats[CW_N_SHARD_FORMATS + 1] = {
    [CW_SHARD_CACHEW] = "cachew", [CW_SHARD_TFRECORD] = "tfrecord", [CW_SHARD_TAR] = "tar"};

void cw_shard_schema_deinit(struct cw_shard_schema *s)
{
    for (unsigned i = 0; i < s->n; i++)
        free(s->components[i].name);
    s->n = 0;
}

uint8_t *cw_shard_room(struct cw_shard_bytes *to, size_t size, struct cw_error *err)
{
    if (CW_ARRAY_ROOM(to->data, to->capacity, to->size + size, "an element", err) < 0)
        return NULL;
    return to->data + to->size;
}

bool cw_shard_wrong(char why[CW_SHARD_WHY], const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(why, CW_SHARD_WHY, fmt, args);
    va_end(args);
    return false;
}

bool cw_shard_set_dims(const struct cw_shard_component *c, const int64_t *dims, int64_t ndim,
                       struct cw_shard_value *v, char why[CW_SHARD_WHY])
{
    char wanted[160];
    bool fits = c->type.ndim < 0 ? ndim >= 0 && ndim <= CW_MAX_NDIM : ndim == c->type.ndim;
    struct cw_type type = {.dtype = c->type.dtype, .ndim = fits ? (int)ndim : 0};
    for (int d = 0; d < type.ndim; d++) {
        type.dims[d] = dims[d];
        fits = fits && dims[d] >= 0 &&
               (c->type.ndim < 0 || c->type.dims[d] == CW_VARIES || c->type.dims[d] == dims[d]);
    }
    v->size = fits ? cw_type_bytes(&type) : SIZE_MAX;
    if (v->size == SIZE_MAX)
        return cw_shard_wrong(why, "component \"%.60s\" has another shape: expected %s", c->name,
                              cw_type_print(&c->type, wanted));
    v->ndim = type.ndim;
    memcpy(v->dims, type.dims, sizeof(v->dims));
    return true;
}

/* ---- the format cachew ---- */

static int shard_cachew_write(const struct cw_shard_schema *s, uint64_t number CW_UNUSED,
                              const struct cw_tensor *values, struct cw_shard_bytes *to, struct cw_error *err)
{
    size_t size = 0, frame;
    for (unsigned i = 0; i < s->n; i++)
        size += values[i].size + (1 + CW_MAX_NDIM) * sizeof(uint64_t);
    uint8_t *start = cw_shard_room(to, size + CW_TFRECORD_FRAME, err);
    if (!start)
        return err ? err->status : CW_E_MEMORY;
    uint8_t *at = start + CW_TFRECORD_HEADER;
    for (unsigned i = 0; i < s->n; i++) {
        const struct cw_type *type = &s->components[i].type;
        const struct cw_tensor *v = &values[i];
        if (type->dtype == CW_BYTES) {
            cw_shard_store64(at, v->size);
            at += sizeof(uint64_t);
        } else if (!cw_type_fixed(type)) {
            if (type->ndim < 0) {
                cw_shard_store64(at, (uint64_t)v->ndim);
                at += sizeof(uint64_t);
            }
            memcpy(at, v->dims, (size_t)v->ndim * sizeof(uint64_t));
            at += (size_t)v->ndim * sizeof(uint64_t);
        }
        if (v->size)
            memcpy(at, v->data, v->size);
        at += v->size;
    }
    frame = cw_tfrecord_frame(start, (size_t)(at - start) - CW_TFRECORD_HEADER);
    to->size += frame;
    return 0;
}

/* Reads n numbers of 8 bytes. False: the record is too short. */
static bool shard_cachew_take(const uint8_t **at, const uint8_t *end, size_t n, int64_t *ret)
{
    size_t size = n * sizeof(*ret);
    if ((size_t)(end - *at) < size)
        return false;
    memcpy(ret, *at, size);
    *at += size;
    return true;
}

static bool shard_cachew_read(const struct cw_shard_schema *s, const uint8_t *data, size_t size,
                              struct cw_shard_value *values, char why[CW_SHARD_WHY])
{
    const uint8_t *at = data, *end = data + size;
    for (unsigned i = 0; i < s->n; i++) {
        const struct cw_shard_component *c = &s->components[i];
        struct cw_shard_value *v = &values[i];
        int64_t dims[CW_MAX_NDIM] = {0}, ndim = c->type.ndim;
        bool whole = true;
        if (c->type.dtype == CW_BYTES) {
            whole = shard_cachew_take(&at, end, 1, dims);
            v->size = (size_t)dims[0];
            v->ndim = 0;
        } else {
            if (cw_type_fixed(&c->type))
                memcpy(dims, c->type.dims, sizeof(dims));
            else
                whole = (ndim >= 0 || shard_cachew_take(&at, end, 1, &ndim)) && ndim >= 0 &&
                        ndim <= CW_MAX_NDIM && shard_cachew_take(&at, end, (size_t)ndim, dims);
            if (whole && !cw_shard_set_dims(c, dims, ndim, v, why))
                return false;
        }
        if (!whole || v->size > (size_t)(end - at))
            return cw_shard_wrong(why, "it ends within component \"%.60s\"", c->name);
        v->data = at;
        at += v->size;
    }
    return at == end || cw_shard_wrong(why, "%zu bytes stand after its last component", (size_t)(end - at));
}

static const struct cw_shard_ops shard_cachew = {.write = shard_cachew_write, .read = shard_cachew_read};

/* ---- all formats ---- */

static const struct cw_shard_ops *shard_ops(const struct cw_shard_schema *s)
{
    static const struct cw_shard_ops *const all[CW_N_SHARD_FORMATS] = {
        [CW_SHARD_CACHEW] = &shard_cachew,
        [CW_SHARD_TFRECORD] = &cw_shard_example,
        [CW_SHARD_TAR] = &cw_shard_tar};
    return all[s->format];
}

int cw_shard_schema_check(const struct cw_shard_schema *s, struct cw_error *err)
{
    const struct cw_shard_ops *ops = shard_ops(s);
    return ops->check ? ops->check(s, err) : 0;
}

int cw_shard_write(const struct cw_shard_schema *s, uint64_t number, const struct cw_tensor *values,
                   struct cw_shard_bytes *to, struct cw_error *err)
{
    return shard_ops(s)->write(s, number, values, to, err);
}

int cw_shard_write_end(const struct cw_shard_schema *s, struct cw_shard_bytes *to, struct cw_error *err)
{
    size_t n = shard_ops(s)->end_zeros;
    uint8_t *at = cw_shard_room(to, n, err);
    if (!at && n)
        return err ? err->status : CW_E_MEMORY;
    if (n)
        memset(at, 0, n);
    to->size += n;
    return 0;
}

bool cw_shard_read(const struct cw_shard_schema *s, const void *data, size_t size,
                   struct cw_shard_value *values, char why[CW_SHARD_WHY])
{
    static const uint8_t nothing[1];
    return shard_ops(s)->read(s, size ? data : nothing, size, values, why);
}

static bool shard_is_half(const struct cw_shard_value *v, enum cw_dtype dtype)
{
    return !v->data && (dtype == CW_FLOAT16 || dtype == CW_BFLOAT16);
}

size_t cw_shard_scratch(const struct cw_shard_value *v, enum cw_dtype dtype)
{
    return shard_is_half(v, dtype) ? v->size / cw_dtype_size(dtype) * sizeof(float) : 0;
}

void cw_shard_copy(const struct cw_shard_value *v, enum cw_dtype dtype, void *to, void *scratch)
{
    if (v->size == 0)
        return;
    if (v->data) {
        memcpy(to, v->data, v->size);
    } else if (shard_is_half(v, dtype)) {
        cw_feature_floats(&v->feature, scratch);
        cw_convert(CW_FLOAT32, dtype, to, scratch, v->size / cw_dtype_size(dtype));
    } else if (dtype == CW_FLOAT32) {
        cw_feature_floats(&v->feature, to);
    } else {
        cw_feature_integers(&v->feature, cw_dtype_size(dtype), to);
    }
}
