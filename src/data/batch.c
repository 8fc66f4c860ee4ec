/* Copies, hashes and frees batches. */
#include "data/batch.h"

#include <string.h>

void cw_batch_free(struct cw_batch *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < CW_COUNT_OF(b->slabs); i++)
        if (b->slabs[i])
            cw_slab_put(b->slabs[i]);
    free(b->memory);
    free(b->components);
    free(b->ids);
    free(b);
}

void cw_batch_disown(struct cw_batch *b)
{
    for (size_t i = 0; i < CW_COUNT_OF(b->slabs); i++)
        if (b->slabs[i])
            cw_slab_disown(b->slabs[i]);
    b->disowned = true;
}

int cw_batch_copy(const struct cw_batch *b, struct cw_batch **ret, struct cw_error *err)
{
    size_t bytes = 0;
    for (unsigned k = 0; k < b->n_components; k++)
        bytes += CW_ALIGN_UP(b->components[k].size, 64) + CW_ALIGN_UP(b->n * sizeof(uint64_t), 64);
    struct cw_batch *c = calloc(1, sizeof(*c));
    if (!c)
        return cw_error_nomem(err, sizeof(*c), "a batch");
    *c = *b;
    memset(c->slabs, 0, sizeof(c->slabs));
    c->components = malloc(b->n_components * sizeof(*c->components));
    c->ids = malloc(CW_MAX(b->n, 1) * sizeof(*c->ids));
    c->memory = aligned_alloc(64, CW_MAX(bytes, 64));
    if (!c->components || !c->ids || !c->memory) {
        cw_batch_free(c);
        return cw_error_nomem(err, bytes, "a batch");
    }
    memcpy(c->ids, b->ids, b->n * sizeof(*c->ids));
    memcpy(c->components, b->components, b->n_components * sizeof(*c->components));
    uint8_t *at = c->memory;
    for (unsigned k = 0; k < b->n_components; k++) {
        struct cw_batch_component *to = &c->components[k];
        if (to->lengths) {
            memcpy(at, to->lengths, b->n * sizeof(uint64_t));
            to->lengths = (const uint64_t *)(const void *)at;
            at += CW_ALIGN_UP(b->n * sizeof(uint64_t), 64);
        }
        if (to->size)
            memcpy(at, to->data, to->size);
        to->data = at;
        at += CW_ALIGN_UP(to->size, 64);
    }
    *ret = c;
    return 0;
}

/* Adds a number, little-endian as all supported machines are. */
static void batch_add_u64(XXH3_state_t *x, uint64_t v)
{
    XXH3_128bits_update(x, &v, sizeof(v));
}

static void batch_add_text(XXH3_state_t *x, const char *text)
{
    size_t n = strlen(text);
    batch_add_u64(x, n);
    XXH3_128bits_update(x, text, n);
}

/* Adds values of a component to the hash: those of a batch, or those of one row. */
static void batch_add_component(XXH3_state_t *x, const struct cw_batch_component *c, const int64_t *dims,
                                int ndim, const uint64_t *lengths, size_t n_lengths, const void *data,
                                size_t size)
{
    batch_add_text(x, c->name);
    batch_add_text(x, cw_dtype_name(c->dtype));
    batch_add_u64(x, (uint64_t)ndim);
    for (int i = 0; i < ndim; i++)
        batch_add_u64(x, (uint64_t)dims[i]);
    if (lengths)
        XXH3_128bits_update(x, lengths, n_lengths * sizeof(*lengths));
    if (size)
        XXH3_128bits_update(x, data, size);
}

static struct cw_hash128 batch_finish(XXH3_state_t *x)
{
    XXH128_hash_t h = XXH3_128bits_digest(x);
    return (struct cw_hash128){.lo = h.low64, .hi = h.high64};
}

struct cw_hash128 cw_batch_hash(const struct cw_batch *b)
{
    XXH3_state_t x;
    XXH3_INITSTATE(&x);
    XXH3_128bits_reset(&x);
    batch_add_u64(&x, b->epoch);
    batch_add_u64(&x, b->g);
    batch_add_u64(&x, b->n);
    for (unsigned i = 0; i < b->n_components; i++) {
        const struct cw_batch_component *c = &b->components[i];
        batch_add_component(&x, c, c->dims, c->ndim, c->lengths,
                            c->lengths ? (c->ndim ? (size_t)c->dims[0] : 1) : 0, c->data, c->size);
    }
    return batch_finish(&x);
}

bool cw_batch_next_row(struct cw_batch_rows *rows, struct cw_tensor *values)
{
    const struct cw_batch *b = rows->b;
    uint32_t r = rows->next++;
    if (r >= b->n)
        return false;
    for (unsigned i = 0; i < b->n_components; i++) {
        const struct cw_batch_component *c = &b->components[i];
        struct cw_tensor *v = &values[i];
        v->data = (uint8_t *)c->data + rows->at[i];
        v->size = c->lengths ? c->lengths[r] : c->size / b->n;
        v->ndim = c->ndim - b->leading;
        for (int d = 0; d < v->ndim; d++)
            v->dims[d] = c->dims[d + b->leading];
        rows->at[i] += v->size;
    }
    return true;
}

struct cw_hash128 cw_batch_row_hash(const struct cw_batch *b, const struct cw_tensor *values)
{
    XXH3_state_t x;
    XXH3_INITSTATE(&x);
    XXH3_128bits_reset(&x);
    batch_add_u64(&x, 1);
    for (unsigned i = 0; i < b->n_components; i++) {
        const struct cw_batch_component *c = &b->components[i];
        const struct cw_tensor *v = &values[i];
        uint64_t length = v->size;
        batch_add_component(&x, c, v->dims, v->ndim, c->lengths ? &length : NULL, 1, v->data, v->size);
    }
    return batch_finish(&x);
}

struct cw_hash128 cw_batch_set_hash(const struct cw_batch *b)
{
    struct cw_hash128 sum = {0, 0};
    struct cw_batch_rows rows = {.b = b};
    struct cw_tensor values[CW_MAX_COMPONENTS];
    while (cw_batch_next_row(&rows, values))
        sum = cw_hash128_add(sum, cw_batch_row_hash(b, values));
    return sum;
}
