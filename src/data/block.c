/* Columns, faults and draws of a block. Only the thread that works on the block calls these functions. */
#include "data/block.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/philox.h"

void *cw_block_alloc(struct cw_block *b, size_t bytes, struct cw_error *err)
{
    return cw_arena_alloc(b->arena, bytes, err);
}

static void block_add_fault(struct cw_block *b, size_t row, const char *op, bool note, const char *fmt,
                            va_list ap)
{
    struct cw_fault *f = cw_arena_alloc(b->arena, sizeof(*f), NULL);
    if (!f) /* out of memory: the reason is lost, but the row is still marked as failed */
        return;
    *f = (struct cw_fault){.next = b->faults, .row = row, .op = op, .note = note};
    vsnprintf(f->message, sizeof(f->message), fmt, ap);
    b->faults = f;
}

bool cw_block_fail(struct cw_block *b, size_t row, const char *op, const char *fmt, ...)
{
    va_list ap;
    b->status[row] = CW_ROW_FAILED;
    b->all_ok = false;
    va_start(ap, fmt);
    block_add_fault(b, row, op, false, fmt, ap);
    va_end(ap);
    return false;
}

void cw_block_detail(struct cw_block *b, const char *json)
{
    size_t size = json ? strlen(json) + 1 : 0;
    char *copy = b->faults && size ? cw_arena_alloc(b->arena, size, NULL) : NULL;
    if (copy) /* else out of memory: the error lacks the detail */
        b->faults->detail = memcpy(copy, json, size);
}

void cw_block_note(struct cw_block *b, size_t row, const char *op, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    block_add_fault(b, row, op, true, fmt, ap);
    va_end(ap);
}

void cw_block_draw(const struct cw_block *b, unsigned op_index, size_t row, uint32_t n, uint32_t out[4])
{
    uint64_t e = b->eids[row];
    cw_philox(b->keys[op_index], (const uint32_t[4]){(uint32_t)e, (uint32_t)(e >> 32), n, 0}, out);
}

int cw_block_dense(struct cw_block *b, unsigned v, const struct cw_type *type, struct cw_error *err)
{
    size_t stride = cw_type_bytes(type), total;
    uint8_t *data = b->slots ? b->slots[v] : NULL;
    if (!data) {
        if (__builtin_mul_overflow(stride, b->n, &total))
            return cw_error_nomem(err, SIZE_MAX, "a column");
        data = cw_block_alloc(b, total, err);
        if (!data)
            return err ? err->status : CW_E_MEMORY;
    }
    b->columns[v] = (struct cw_column){.dense = true, .data = data, .stride = stride, .type = type};
    return 0;
}

int cw_block_ragged(struct cw_block *b, unsigned v, struct cw_error *err)
{
    struct cw_tensor *rows = cw_block_alloc(b, b->n * sizeof(*rows), err);
    if (!rows)
        return err ? err->status : CW_E_MEMORY;
    memset(rows, 0, b->n * sizeof(*rows));
    b->columns[v] = (struct cw_column){.rows = rows};
    return 0;
}

int cw_block_column(struct cw_block *b, unsigned v, const struct cw_type *type, struct cw_error *err)
{
    return cw_type_fixed(type) ? cw_block_dense(b, v, type, err) : cw_block_ragged(b, v, err);
}

struct cw_tensor cw_block_row(const struct cw_block *b, unsigned v, size_t r)
{
    const struct cw_column *c = &b->columns[v];
    if (!c->dense)
        return c->rows ? c->rows[r] : (struct cw_tensor){0};
    struct cw_tensor t = {.data = c->data + r * c->stride, .size = c->stride, .ndim = c->type->ndim};
    memcpy(t.dims, c->type->dims, sizeof(t.dims));
    return t;
}

int cw_block_expand(struct cw_block *b, const uint32_t *given, struct cw_expansion **ret,
                    struct cw_error *err)
{
    size_t n = 0;
    for (size_t row = 0; row < b->n; row++)
        n += CW_MAX(given[row], 1u);
    if (n > UINT32_MAX)
        return cw_error_set(err, CW_E_DATA, "%zu elements made of %zu: expected fewer than 2^32", n, b->n);
    struct cw_expansion *e = cw_block_alloc(b, sizeof(*e), err);
    uint32_t *origin = cw_block_alloc(b, n * sizeof(*origin), err);
    uint8_t *status = cw_block_alloc(b, n, err);
    struct cw_column *columns = cw_block_alloc(b, b->n_values * sizeof(*columns), err);
    if (!e || !origin || !status || !columns)
        return err ? err->status : CW_E_MEMORY;
    memset(columns, 0, b->n_values * sizeof(*columns));
    for (size_t row = 0, at = 0; row < b->n; row++)
        for (uint32_t i = CW_MAX(given[row], 1u); i > 0; i--, at++) {
            origin[at] = (uint32_t)row;
            status[at] = b->status[row] == CW_ROW_OK && given[row] == 0 ? CW_ROW_DROPPED : b->status[row];
        }
    *e = (struct cw_expansion){.n = n, .origin = origin, .status = status, .columns = columns};
    *ret = b->expansion = e;
    return 0;
}

void *cw_block_row_out(struct cw_block *b, unsigned v, const struct cw_type *type, size_t r,
                       const int64_t *dims, int ndim, struct cw_error *err)
{
    struct cw_column *c = &b->columns[v];
    if (c->dense)
        return c->data + r * c->stride;
    struct cw_tensor *t = &c->rows[r];
    size_t bytes = cw_dtype_size(type->dtype);
    t->ndim = ndim;
    for (int i = 0; i < ndim; i++) {
        t->dims[i] = dims[i];
        if (__builtin_mul_overflow(bytes, (size_t)dims[i], &bytes)) {
            cw_error_nomem(err, SIZE_MAX, "an element");
            return NULL;
        }
    }
    t->size = bytes;
    t->data = cw_block_alloc(b, bytes, err);
    return t->data;
}
