/* Parts: rows of a range as bytes, sent to the process that joins them into a batch (docs/protocol.md,
 * "Rows"). Workers make parts; clients join them. */
#include "engine/part.h"

#include <string.h>

/* The form of a row: u32 present (0: the record was skipped, and nothing follows), u32 0, then its values.
 * Each value is u32 ndim, u32 0, u64 dims[ndim], u64 size, the data, and zeros up to a multiple of 8. */
#define HEAD_BYTES 8

void cw_part_deinit(struct cw_part *m)
{
    free(m->data);
    free(m->ids);
    free(m->offsets);
    cw_quarantined_free(m->quarantined);
    *m = (struct cw_part){0};
}

static size_t value_bytes(const struct cw_tensor *t)
{
    return 16 + (size_t)t->ndim * 8 + CW_ALIGN_UP(t->size, 8);
}

static uint8_t *put_u32(uint8_t *at, uint32_t a, uint32_t b)
{
    memcpy(at, &a, 4);
    memcpy(at + 4, &b, 4);
    return at + 8;
}

static uint8_t *put_value(uint8_t *at, const struct cw_tensor *t)
{
    uint64_t size = t->size;
    at = put_u32(at, (uint32_t)t->ndim, 0);
    memcpy(at, t->dims, (size_t)t->ndim * 8);
    at += (size_t)t->ndim * 8;
    memcpy(at, &size, 8);
    at += 8;
    if (size)
        memcpy(at, t->data, size);
    memset(at + size, 0, CW_ALIGN_UP(size, 8) - size);
    return at + CW_ALIGN_UP(size, 8);
}

int cw_part_read(const struct cw_assembly *a, uint64_t from, uint64_t n, struct cw_part *ret,
                 struct cw_error *err)
{
    const struct cw_layout *l = a->layout;
    struct cw_part m = {.n = n};
    struct cw_tensor t;
    for (uint64_t i = from; i < from + n; i++) {
        m.size += HEAD_BYTES;
        if (!a->present[i] && a->error)
            return cw_error_copy(err, a->error);
        for (unsigned k = 0; k < l->n && a->present[i]; k++) {
            cw_assembly_row(a, k, i, &t);
            m.size += value_bytes(&t);
        }
    }
    m.data = malloc(CW_MAX(m.size, 1));
    m.ids = malloc(CW_MAX(n, 1) * sizeof(*m.ids));
    m.offsets = malloc((n + 1) * sizeof(*m.offsets));
    if (!m.data || !m.ids || !m.offsets) {
        cw_part_deinit(&m);
        return cw_error_nomem(err, m.size, "rows of a range");
    }
    memcpy(m.ids, a->ids + from, n * sizeof(*m.ids));
    uint8_t *at = m.data;
    for (uint64_t i = from; i < from + n; i++) {
        m.offsets[i - from] = (size_t)(at - m.data);
        at = put_u32(at, a->present[i] != 0, 0);
        for (unsigned k = 0; k < l->n && a->present[i]; k++) {
            cw_assembly_row(a, k, i, &t);
            at = put_value(at, &t);
        }
    }
    m.offsets[n] = m.size;
    *ret = m;
    return 0;
}

/* Reads the value at *at of a component of type t, and moves *at past it; its data point into m. False: the
 * bytes are no such value. */
static bool get_value(const struct cw_part *m, size_t *at, const struct cw_type *type, struct cw_tensor *ret)
{
    uint32_t ndim;
    uint64_t size, expected = type->dtype == CW_BYTES ? 1 : cw_dtype_size(type->dtype);
    if (m->size - *at < HEAD_BYTES)
        return false;
    memcpy(&ndim, m->data + *at, sizeof(ndim));
    *at += HEAD_BYTES;
    if (ndim > CW_MAX_NDIM || (type->ndim >= 0 && ndim != (uint32_t)type->ndim) ||
        m->size - *at < ndim * 8 + 8)
        return false;
    *ret = (struct cw_tensor){.ndim = (int)ndim};
    memcpy(ret->dims, m->data + *at, ndim * 8);
    *at += ndim * 8;
    memcpy(&size, m->data + *at, 8);
    *at += 8;
    for (unsigned d = 0; d < ndim; d++)
        if (ret->dims[d] < 0 ||
            (type->ndim >= 0 && type->dims[d] != CW_VARIES && type->dims[d] != ret->dims[d]) ||
            __builtin_mul_overflow(expected, (uint64_t)ret->dims[d], &expected))
            return false;
    if ((type->dtype != CW_BYTES && size != expected) || size > m->size - *at ||
        CW_ALIGN_UP(size, 8) > m->size - *at)
        return false;
    ret->size = size;
    ret->data = m->data + *at;
    *at += CW_ALIGN_UP(size, 8);
    return true;
}

/* Walks over all rows. With `put` it copies them into dst; without, it checks them, and counts the bytes to
 * stage. */
static bool walk(struct cw_assembly *dst, const struct cw_part *m, bool put, size_t *staged, uint8_t *chunk)
{
    const struct cw_layout *l = dst->layout;
    size_t at = 0;
    for (uint64_t i = 0; i < m->n; i++) {
        uint32_t present;
        if (m->size - at < HEAD_BYTES)
            return false;
        memcpy(&present, m->data + at, sizeof(present));
        at += HEAD_BYTES;
        uint64_t slot = dst->n_assigned + i;
        if (put) {
            dst->ids[slot] = m->ids[i];
            dst->present[slot] = present != 0;
        }
        for (unsigned k = 0; k < l->n && present; k++) {
            struct cw_tensor value;
            if (!get_value(m, &at, &l->compiled->outputs[k].type, &value))
                return false;
            if (put)
                cw_assembly_put(dst, k, slot, &value, &chunk);
            else if (l->offset[k] == SIZE_MAX)
                *staged += cw_staged_bytes(&value);
        }
    }
    return at == m->size;
}

int cw_part_join(struct cw_assembly *dst, const struct cw_part *m, struct cw_error *err)
{
    size_t staged = 0;
    uint8_t *chunk = NULL;
    if (m->n > dst->capacity - dst->n_assigned)
        return cw_error_set(err, CW_E_DATA,
                            "a worker sent %llu elements for a batch that has room for only %llu: use the "
                            "same version of Cachew for workers and clients",
                            (unsigned long long)m->n, (unsigned long long)(dst->capacity - dst->n_assigned));
    if (!walk(dst, m, false, &staged, NULL))
        return cw_error_set(err, CW_E_DATA,
                            "a worker sent %llu elements in %zu bytes, which do not have the components of "
                            "this pipeline: use the same version of Cachew for workers and clients",
                            (unsigned long long)m->n, m->size);
    int r = cw_assembly_add_chunk(dst, staged, &chunk, err);
    if (r < 0)
        return r;
    walk(dst, m, true, &staged, chunk);
    dst->n_assigned += m->n;
    dst->n_done += m->n;
    return 0;
}
