/* Assemblies: batches under construction. Rows get their slots in order; any thread then writes their
 * contents, in any order. A batch is complete when it is closed and every row that has a slot is done. */
#include "engine/assembly.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define COMPONENT_ALIGN 64 /* bytes: each component begins at a multiple of a cache line */
/* Staged chunks of at least this many bytes are mapped directly from the system. malloc would keep freed
 * chunks for each thread, uncounted by the budget. Smaller chunks come from malloc. */
#define CHUNK_MAPPED ((size_t)256 << 10)
#define CHUNK_HEAD CW_ALIGN_UP(sizeof(struct cw_staged_chunk), (size_t)64)

int cw_layout_init(struct cw_layout *l, const struct cw_compiled *c, struct cw_budget *budget,
                   struct cw_error *err)
{
    *l = (struct cw_layout){.compiled = c,
                            .budget = budget,
                            .capacity = c->batch_size,
                            .n = c->n_outputs,
                            .leading = c->batcher != NULL};
    l->offset = calloc(l->n, sizeof(*l->offset));
    l->row_bytes = calloc(l->n, sizeof(*l->row_bytes));
    if (!l->offset || !l->row_bytes) {
        cw_layout_deinit(l);
        return cw_error_nomem(err, 0, "a layout");
    }
    for (unsigned k = 0; k < l->n; k++) {
        const struct cw_type *t = &c->outputs[k].type;
        size_t total;
        l->offset[k] = SIZE_MAX;
        if (c->keyed || !cw_type_fixed(t)) {
            l->n_staged++;
            continue;
        }
        l->row_bytes[k] = cw_type_bytes(t);
        if (__builtin_mul_overflow(l->row_bytes[k], l->capacity, &total) || total > (size_t)1 << 45) {
            char text[160];
            cw_layout_deinit(l);
            return cw_error_set(
                err, CW_E_PIPELINE,
                "a batch of %llu values of type %s (component \"%s\") is larger than any memory can be",
                (unsigned long long)c->batch_size, cw_type_print(t, text), c->outputs[k].name);
        }
        l->offset[k] = l->slab_bytes;
        l->slab_bytes += CW_ALIGN_UP(total, COMPONENT_ALIGN);
    }
    if (l->n_staged < l->n && l->slab_bytes == 0) /* elements of no bytes need an address, too */
        l->slab_bytes = COMPONENT_ALIGN;
    return 0;
}

void cw_layout_deinit(struct cw_layout *l)
{
    free(l->offset);
    free(l->row_bytes);
    l->offset = l->row_bytes = NULL;
}

size_t cw_assembly_bytes(const struct cw_layout *l, uint64_t capacity)
{
    const struct cw_assembly *a = NULL;
    size_t entries = 2 * l->compiled->n_buckets * sizeof(uint64_t); /* for `from` and `after` */
    return capacity * (sizeof(*a->ids) + sizeof(*a->present) + l->n_staged * sizeof(*a->staged)) + entries;
}

int cw_assembly_new(const struct cw_layout *l, struct cw_slab_pool *pool, uint64_t capacity, unsigned bucket,
                    struct cw_assembly **ret, struct cw_error *err)
{
    struct cw_assembly *a = malloc(sizeof(*a));
    size_t bytes = cw_assembly_bytes(l, capacity);
    if (!a)
        return cw_error_nomem(err, sizeof(*a), "a batch");
    int r = cw_budget_take(l->budget, bytes, "the elements of a batch", err);
    if (r < 0) {
        free(a);
        return r;
    }
    *a = (struct cw_assembly){.charged = bytes,
                              .layout = l,
                              .capacity = capacity,
                              .bucket = bucket,
                              .ids = malloc(capacity * sizeof(*a->ids)),
                              .present = malloc(capacity),
                              .staged = l->n_staged ? malloc(capacity * l->n_staged * sizeof(*a->staged))
                                                    : NULL};
    if (!a->ids || !a->present || (l->n_staged && !a->staged))
        r = cw_error_nomem(err, bytes, "a batch");
    if (r >= 0 && l->slab_bytes)
        r = cw_slab_get(pool, l->slab_bytes, &a->slab, err);
    if (r < 0) {
        cw_assembly_free(a);
        return r;
    }
    *ret = a;
    return 0;
}

/* The error of a batch when there is no memory to keep its error. Never written. */
static struct cw_error no_memory = {
    .status = CW_E_MEMORY,
    .message = "out of memory: a record failed, and the system gave no memory for the reason"};

struct cw_quarantined *cw_quarantined_free(struct cw_quarantined *list)
{
    while (list) {
        struct cw_quarantined *q = CW_POP(list);
        free(q->file);
        free(q);
    }
    return NULL;
}

void cw_quarantined_move(struct cw_quarantined **from, struct cw_quarantined **to)
{
    while (*to)
        to = &(*to)->next;
    *to = *from;
    *from = NULL;
}

static void free_chunks(struct cw_assembly *a)
{
    while (a->chunks) {
        struct cw_staged_chunk *c = CW_POP(a->chunks);
        cw_budget_give(c->budget, c->size);
        if (c->size >= CHUNK_MAPPED)
            munmap(c, CHUNK_HEAD + c->size);
        else
            free(c);
    }
}

struct cw_assembly *cw_assembly_free(struct cw_assembly *a)
{
    if (!a)
        return NULL;
    free_chunks(a);
    if (a->charged)
        cw_budget_give(a->layout->budget, a->charged);
    cw_quarantined_free(a->quarantined);
    if (a->slab)
        cw_slab_put(a->slab);
    cw_batch_free(a->batch);
    free(a->ids);
    free(a->present);
    free(a->staged);
    free(a->from);
    free(a->after);
    if (a->error != &no_memory)
        free(a->error);
    free(a);
    return NULL;
}

void cw_assembly_poison(struct cw_assembly *a, const struct cw_error *error, uint64_t at)
{
    if (a->error && a->error_at <= at)
        return;
    a->error_at = at;
    if (!a->error)
        a->error = malloc(sizeof(*a->error));
    if (!a->error)
        a->error = &no_memory;
    if (a->error != &no_memory)
        *a->error = *error;
}

size_t cw_staged_bytes(const struct cw_tensor *value)
{
    return CW_ALIGN_UP(value->size, 16);
}

int cw_staged_chunk_new(struct cw_budget *budget, size_t bytes, struct cw_staged_chunk **ret,
                        uint8_t **ret_data, struct cw_error *err)
{
    /* without the head, since the number of chunks depends on timing */
    int r = cw_budget_take(budget, bytes, "elements that wait for their batch", err);
    if (r < 0)
        return r;
    bool mapped = bytes >= CHUNK_MAPPED;
    struct cw_staged_chunk *c = mapped ? mmap(NULL, CHUNK_HEAD + bytes, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                       : malloc(CHUNK_HEAD + bytes);
    if (!c || (mapped && c == MAP_FAILED)) {
        cw_budget_give(budget, bytes);
        return cw_error_nomem(err, CHUNK_HEAD + bytes, "elements that wait for their batch");
    }
    *c = (struct cw_staged_chunk){.size = bytes, .budget = budget};
    *ret = c;
    *ret_data = (uint8_t *)c + CHUNK_HEAD;
    return 0;
}

int cw_assembly_add_chunk(struct cw_assembly *a, size_t bytes, uint8_t **ret, struct cw_error *err)
{
    struct cw_staged_chunk *c;
    int r = bytes ? cw_staged_chunk_new(a->layout->budget, bytes, &c, ret, err) : 1;
    if (r != 0)
        return CW_MIN(r, 0);
    c->next = a->chunks;
    a->chunks = c;
    return 0;
}

static struct cw_tensor *staged_row(const struct cw_assembly *a, unsigned k, uint64_t slot)
{
    unsigned s = 0;
    for (unsigned i = 0; i < k; i++)
        s += a->layout->offset[i] == SIZE_MAX;
    return &a->staged[s * a->capacity + slot];
}

void cw_assembly_row(const struct cw_assembly *a, unsigned k, uint64_t slot, struct cw_tensor *ret)
{
    const struct cw_layout *l = a->layout;
    const struct cw_type *t = &l->compiled->outputs[k].type;
    if (l->offset[k] == SIZE_MAX) {
        *ret = *staged_row(a, k, slot);
        return;
    }
    *ret = (struct cw_tensor){.data = a->slab->data + l->offset[k] + slot * l->row_bytes[k],
                              .size = l->row_bytes[k],
                              .ndim = t->ndim};
    memcpy(ret->dims, t->dims, (size_t)t->ndim * sizeof(t->dims[0]));
}

void cw_assembly_put(struct cw_assembly *a, unsigned k, uint64_t slot, const struct cw_tensor *value,
                     uint8_t **at)
{
    const struct cw_layout *l = a->layout;
    if (l->offset[k] != SIZE_MAX) {
        uint8_t *to = a->slab->data + l->offset[k] + slot * l->row_bytes[k];
        if (to != value->data && value->data)
            memcpy(to, value->data, l->row_bytes[k]);
        return;
    }
    struct cw_tensor *t = staged_row(a, k, slot);
    *t = *value;
    t->data = *at;
    if (value->size) { /* if all values are empty, there is no chunk, and *at is NULL */
        memcpy(*at, value->data, value->size);
        *at += cw_staged_bytes(value);
    }
}

int cw_assembly_join(struct cw_assembly *dst, const struct cw_assembly *src, uint64_t from, uint64_t n,
                     struct cw_error *err)
{
    const struct cw_layout *l = dst->layout;
    size_t bytes = 0;
    uint8_t *at = NULL;
    for (uint64_t i = from; i < from + n; i++)
        for (unsigned k = 0; k < l->n; k++)
            if (l->offset[k] == SIZE_MAX && src->present[i])
                bytes += cw_staged_bytes(staged_row(src, k, i));
    int r = cw_assembly_add_chunk(dst, bytes, &at, err);
    if (r < 0)
        return r;
    for (uint64_t i = from; i < from + n; i++) {
        uint64_t slot = dst->n_assigned++;
        dst->n_done++;
        dst->ids[slot] = src->ids[i];
        dst->present[slot] = src->present[i];
        /* the error goes with the part that contains the failed element */
        if (src->error && !src->present[i] && !dst->error)
            cw_assembly_poison(dst, src->error, 0);
        for (unsigned k = 0; k < l->n && src->present[i]; k++) {
            struct cw_tensor value;
            cw_assembly_row(src, k, i, &value);
            cw_assembly_put(dst, k, slot, &value, &at);
        }
    }
    return 0;
}

/* Closes the holes that skipped records left. Returns the number of rows that remain. */
static uint64_t compact(struct cw_assembly *a)
{
    const struct cw_layout *l = a->layout;
    uint64_t n = 0;
    for (uint64_t i = 0; i < a->n_assigned; i++) {
        if (!a->present[i])
            continue;
        if (n != i) {
            a->ids[n] = a->ids[i];
            for (unsigned k = 0; k < l->n; k++)
                if (l->offset[k] == SIZE_MAX)
                    *staged_row(a, k, n) = *staged_row(a, k, i);
                else
                    memcpy(a->slab->data + l->offset[k] + n * l->row_bytes[k],
                           a->slab->data + l->offset[k] + i * l->row_bytes[k], l->row_bytes[k]);
        }
        n++;
    }
    return n;
}

static void print_dims(const struct cw_tensor *t, char buf[96])
{
    size_t at = (size_t)snprintf(buf, 96, "(");
    for (int i = 0; i < t->ndim && at < 80; i++)
        at += (size_t)snprintf(buf + at, 96 - at, "%s%lld", i ? ", " : "", (long long)t->dims[i]);
    snprintf(buf + at, 96 - at, ")");
}

/* Returns the size that padding gives dimension d of component k; -1: that of the longest row, or the rows
 * are not padded. */
static int64_t padded_size(const struct cw_assembly *a, unsigned k, int d)
{
    const struct cw_compiled *g = a->layout->compiled;
    const struct cw_padding *p = g->padding ? &g->padding[k] : NULL;
    return !p || !p->on ? -1 : p->to[d] == CW_PAD_BOUNDARY ? g->bucket_longest[a->bucket] : p->to[d];
}

/* Sets the error about two rows that can't be in one batch, or one row whose number of dimensions differs
 * from that of `pad` (b NULL). */
static int differing_rows(const struct cw_compiled *g, unsigned k, const struct cw_tensor *a,
                          const struct cw_tensor *b, struct cw_error *err)
{
    char left[96], right[96];
    bool padded = g->padding && g->padding[k].on;
    const char *op = g->batcher->name, *differs = padded ? "its number of dimensions" : "shape";
    print_dims(a, left);
    if (b)
        print_dims(b, right);
    else
        snprintf(right, sizeof(right), "the %d sizes of pad", g->padding[k].ndim);
    cw_error_op(err, op);
    return cw_error_value(err, CW_E_DATA, "component", g->outputs[k].name,
                          padded ? "equal numbers of dimensions" : "equal shapes",
                          "%s: component \"%s\" differs in %s: %s and %s%s", op, g->outputs[k].name, differs,
                          left, right, padded ? "" : g->batcher->batcher->advice);
}

/* Sets the dims of a padded component to the sizes that padding gives, which must be large enough. */
static int padded_dims(const struct cw_assembly *a, unsigned k, struct cw_batch_component *c,
                       struct cw_error *err)
{
    const struct cw_compiled *g = a->layout->compiled;
    int lead = a->layout->leading;
    for (int d = 0; d < c->ndim - lead; d++) {
        int64_t to = padded_size(a, k, d), *size = &c->dims[lead + d];
        if (to >= 0 && *size > to) {
            bool boundary = g->padding[k].to[d] == CW_PAD_BOUNDARY;
            const char *op = g->batcher->name;
            cw_error_op(err, op);
            return cw_error_value(err, CW_E_DATA, "component", g->outputs[k].name, "a smaller size",
                                  "%s: component \"%s\" has the size %lld in dimension %d: expected at most "
                                  "%lld, %s",
                                  op, g->outputs[k].name, (long long)*size, d, (long long)to,
                                  boundary ? "the largest length of its bucket, because pad is \"boundary\""
                                           : "to which pad fills it up");
        }
        if (to >= 0)
            *size = to;
    }
    return 0;
}

/* Sets the dims of a staged component: those of all rows, which must be equal, or with padding the
 * largest. */
static int common_dims(const struct cw_assembly *a, unsigned k, uint64_t n, struct cw_batch_component *c,
                       struct cw_error *err)
{
    const struct cw_compiled *g = a->layout->compiled;
    const struct cw_type *type = &g->outputs[k].type;
    const struct cw_padding *p = g->padding && g->padding[k].on ? &g->padding[k] : NULL;
    if (n == 0) { /* an empty batch */
        c->ndim = 1 + CW_MAX(type->ndim, 0);
        c->dims[0] = 0;
        for (int i = 1; i < c->ndim; i++)
            c->dims[i] = CW_MAX(CW_MAX(type->dims[i - 1], padded_size(a, k, i - 1)), 0);
        return 0;
    }
    const struct cw_tensor *first = staged_row(a, k, 0);
    int lead = a->layout->leading;
    c->ndim = lead + first->ndim;
    if (lead)
        c->dims[0] = (int64_t)n;
    memcpy(c->dims + lead, first->dims, (size_t)first->ndim * sizeof(c->dims[0]));
    if (p && p->ndim >= 0 && first->ndim != p->ndim)
        return differing_rows(g, k, first, NULL, err);
    for (uint64_t i = 1; i < n; i++) {
        const struct cw_tensor *t = staged_row(a, k, i);
        bool same = t->ndim == first->ndim &&
                    memcmp(t->dims, first->dims, (size_t)t->ndim * sizeof(t->dims[0])) == 0;
        if (!same && (!p || t->ndim != first->ndim))
            return differing_rows(g, k, first, t, err);
        for (int d = 0; d < t->ndim; d++)
            c->dims[lead + d] = CW_MAX(c->dims[lead + d], t->dims[d]);
    }
    return p ? padded_dims(a, k, c, err) : 0;
}

/* Copies one row, padded to the dims of the batch (`dims`, ndim of them). */
static void copy_padded(uint8_t *to, const uint8_t *from, const int64_t *dims, const int64_t *have, int ndim,
                        size_t item, const uint8_t *pad)
{
    size_t inner = item, have_inner = item;
    if (ndim == 0) {
        memcpy(to, from, item);
        return;
    }
    for (int i = 1; i < ndim; i++) {
        inner *= (size_t)dims[i];
        have_inner *= (size_t)have[i];
    }
    for (int64_t i = 0; i < have[0]; i++)
        copy_padded(to + (size_t)i * inner, from + (size_t)i * have_inner, dims + 1, have + 1, ndim - 1, item,
                    pad);
    for (uint8_t *p = to + (size_t)have[0] * inner; p < to + (size_t)dims[0] * inner; p += item)
        memcpy(p, pad, item);
}

static void fill_staged(const struct cw_assembly *a, unsigned k, uint64_t n, struct cw_batch_component *c,
                        uint64_t *lengths)
{
    const struct cw_compiled *g = a->layout->compiled;
    int lead = a->layout->leading;
    size_t item = cw_dtype_size(c->dtype), row = item;
    uint8_t *at = c->data;
    static const uint8_t zeros[8];
    const uint8_t *pad = g->padding ? g->padding[k].value : zeros;
    for (int i = lead; i < c->ndim && n; i++)
        row *= (size_t)c->dims[i];
    for (uint64_t i = 0; i < n; i++) {
        const struct cw_tensor *t = staged_row(a, k, i);
        if (c->dtype == CW_BYTES) {
            lengths[i] = t->size;
            if (t->size)
                memcpy(at, t->data, t->size);
            at += t->size;
        } else if (t->size == row) {
            if (row)
                memcpy(at, t->data, row);
            at += row;
        } else {
            copy_padded(at, t->data, c->dims + lead, t->dims, t->ndim, item, pad);
            at += row;
        }
    }
}

/* Returns the bytes of a staged component of the first n rows. */
static size_t staged_size(const struct cw_assembly *a, unsigned k, uint64_t n)
{
    size_t size = 0;
    for (uint64_t i = 0; i < n; i++)
        size += staged_row(a, k, i)->size;
    return size;
}

int cw_assembly_finish(struct cw_assembly *a, struct cw_slab_pool *pool, struct cw_error *err)
{
    const struct cw_layout *l = a->layout;
    const struct cw_compiled *g = l->compiled;
    int r = 0;
    struct cw_batch *b = calloc(1, sizeof(*b));
    if (!b || !(b->components = calloc(l->n, sizeof(*b->components)))) {
        free(b);
        return cw_error_nomem(err, sizeof(*b), "a batch");
    }
    if (!a->compacted)
        a->n_rows = compact(a);
    a->compacted = true;
    uint64_t n = a->n_rows;
    b->n = (uint32_t)n;
    b->leading = l->leading || n == 0;
    b->n_components = l->n;
    size_t staged_bytes = 0;
    for (unsigned k = 0; k < l->n && r >= 0; k++) {
        struct cw_batch_component *c = &b->components[k];
        c->name = g->outputs[k].name;
        c->dtype = g->outputs[k].type.dtype;
        if (l->offset[k] != SIZE_MAX) {
            const struct cw_type *t = &g->outputs[k].type;
            c->ndim = b->leading + t->ndim;
            c->dims[0] = (int64_t)n;
            memcpy(c->dims + b->leading, t->dims, (size_t)t->ndim * sizeof(c->dims[0]));
            c->data = a->slab->data + l->offset[k];
            c->size = n * l->row_bytes[k];
        } else {
            r = common_dims(a, k, n, c, err);
            if (c->dtype == CW_BYTES) {
                c->size = staged_size(a, k, n);
                staged_bytes += CW_ALIGN_UP(n * sizeof(uint64_t), COMPONENT_ALIGN);
            } else {
                c->size = cw_dtype_size(c->dtype);
                for (int i = 0; i < c->ndim && r >= 0; i++)
                    if (__builtin_mul_overflow(c->size, (size_t)c->dims[i], &c->size))
                        r = cw_error_nomem(err, SIZE_MAX, "a batch");
                if (r >= 0)
                    b->padding_bytes += c->size - staged_size(a, k, n);
            }
            staged_bytes += CW_ALIGN_UP(c->size, COMPONENT_ALIGN);
        }
    }
    if (r >= 0 && l->n_staged)
        r = cw_slab_get(pool, CW_MAX(staged_bytes, 1), &b->slabs[1], err);
    if (r < 0) {
        cw_batch_free(b);
        return r;
    }
    uint8_t *at = b->slabs[1] ? b->slabs[1]->data : NULL;
    for (unsigned k = 0; k < l->n; k++) {
        struct cw_batch_component *c = &b->components[k];
        if (l->offset[k] != SIZE_MAX)
            continue;
        uint64_t *lengths = NULL;
        if (c->dtype == CW_BYTES) {
            c->lengths = lengths = (uint64_t *)(void *)at;
            at += CW_ALIGN_UP(n * sizeof(uint64_t), COMPONENT_ALIGN);
        }
        c->data = at;
        fill_staged(a, k, n, c, lengths);
        at += CW_ALIGN_UP(c->size, COMPONENT_ALIGN);
    }
    free_chunks(a); /* the slab has copies of the values */
    b->slabs[0] = CW_STEAL(a->slab);
    b->ids = CW_STEAL(a->ids);
    a->batch = b;
    return 0;
}
