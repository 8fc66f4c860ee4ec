/* Instructions that look at several values of a row: reductions, lengths, indices, slices, and lower case.
 * expr_eval.c calls them for the rows of a piece. */
#include "ops/expr/expr_run.h"

/* Returns the value of a register for row i of the piece. */
static const uint8_t *across_row(const struct run *x, unsigned r, size_t i)
{
    size_t step = reg_of(x, r)->level == CW_LEVEL_CONSTANT ? 0 : x->values[r].n * size_of(x, r);
    return x->values[r].p + i * step;
}

/* The sizes of an array before, in and after a dimension. */
struct box {
    size_t outer, n, inner;
};

static struct box across_box(const struct cw_type *shape, int axis)
{
    struct box b = {1, (size_t)shape->dims[axis], 1};
    for (int i = 0; i < shape->ndim; i++) {
        b.outer *= i < axis ? (size_t)shape->dims[i] : 1;
        b.inner *= i > axis ? (size_t)shape->dims[i] : 1;
    }
    return b;
}

/* Copies n values of `size` bytes that lie `step` bytes apart. */
static void across_gather(uint8_t *d, const uint8_t *s, ptrdiff_t step, size_t n, size_t size)
{
    if (size == 1)
        for (size_t i = 0; i < n; i++, s += step)
            d[i] = *s;
    else if (size == 4)
        for (size_t i = 0; i < n; i++, s += step)
            memcpy(d + i * 4, s, 4);
    else if (size == 8)
        for (size_t i = 0; i < n; i++, s += step)
            memcpy(d + i * 8, s, 8);
    else
        for (size_t i = 0; i < n; i++, s += step)
            memcpy(d + i * size, s, size);
}

static void across_reduce(struct run *x, const struct cw_instr *in, size_t rows)
{
    const struct value *a = &x->values[in->a];
    struct value *v = &x->values[in->dst];
    size_t size = size_of(x, in->dst);
    struct box box = in->axis < 0 ? (struct box){1, a->n, 1} : across_box(&a->shape, in->axis);
    bool empty = box.n == 0 && box.outer * box.inner > 0 && (in->op == CW_X_MIN || in->op == CW_X_MAX);
    if (box.inner > 1 && !v->gather && !(v->gather = cw_run_take(x, CW_MAX(box.n, 1u) * size, &x->status)))
        return;
    for (size_t row = 0; row < rows; row++) {
        const uint8_t *s = across_row(x, in->a, row);
        uint8_t *d = v->p + row * v->n * size;
        if (empty) {
            memset(d, 0, v->n * size);
            fault(x, x->row + row, FAULT_EMPTY);
            continue;
        }
        for (size_t i = 0; i < box.outer * box.inner; i++, d += size) {
            const uint8_t *first = s + (i / box.inner * box.n * box.inner + i % box.inner) * size;
            if (box.inner > 1) {
                across_gather(v->gather, first, (ptrdiff_t)(box.inner * size), box.n, size);
                first = v->gather;
            }
            cw_kernel_reduce(in->op, in->dtype, d, first, box.n);
        }
    }
}

static void across_length(struct run *x, const struct cw_instr *in, size_t rows)
{
    int64_t *d = (int64_t *)x->values[in->dst].p;
    for (size_t i = 0; i < rows; i++) {
        struct cw_tensor t = {0};
        if (in->kind == CW_I_COLUMN_LENGTH)
            t = cw_block_row(x->b, x->in[in->a].value, x->row + i);
        int ndim = in->kind == CW_I_COLUMN_LENGTH ? t.ndim : x->values[in->a].shape.ndim;
        const int64_t *dims = in->kind == CW_I_COLUMN_LENGTH ? t.dims : x->values[in->a].shape.dims;
        d[i] = ndim > 0 ? dims[0] : 0;
        if (ndim == 0)
            fault(x, x->row + i, FAULT_LENGTH);
    }
}

static void across_take(struct run *x, const struct cw_instr *in, size_t rows)
{
    const struct value *v = &x->values[in->dst];
    size_t size = size_of(x, in->dst);
    struct box box = across_box(&x->values[in->a].shape, in->axis);
    for (size_t row = 0; row < rows; row++) {
        const uint8_t *s = across_row(x, in->a, row);
        uint8_t *d = v->p + row * v->n * size;
        int64_t index;
        memcpy(&index, across_row(x, in->b, row), sizeof(index));
        index += index < 0 ? (int64_t)box.n : 0;
        if (index < 0 || index >= (int64_t)box.n) {
            memset(d, 0, v->n * size);
            fault(x, x->row + row, FAULT_INDEX);
            continue;
        }
        for (size_t i = 0; i < box.outer && box.inner; i++)
            memcpy(d + i * box.inner * size, s + (i * box.n + (size_t)index) * box.inner * size,
                   box.inner * size);
    }
}

static void across_slice(struct run *x, const struct cw_instr *in, size_t rows)
{
    const struct value *v = &x->values[in->dst];
    size_t size = size_of(x, in->dst);
    struct box box = across_box(&x->values[in->a].shape, in->axis);
    int64_t first, n = cw_slice_count(&in->slice, (int64_t)box.n, &first);
    size_t bytes = box.inner * size;
    for (size_t row = 0; row < rows && n && bytes; row++) {
        const uint8_t *s = across_row(x, in->a, row) + (size_t)first * bytes;
        uint8_t *d = v->p + row * v->n * size;
        for (size_t i = 0; i < box.outer; i++, s += box.n * bytes, d += (size_t)n * bytes)
            if (in->slice.step == 1)
                memcpy(d, s, (size_t)n * bytes);
            else
                across_gather(d, s, (ptrdiff_t)in->slice.step * (ptrdiff_t)bytes, (size_t)n, bytes);
    }
}

static void across_slice_bytes(struct run *x, const struct cw_instr *in, size_t rows)
{
    struct cw_span *d = (struct cw_span *)(void *)x->values[in->dst].p;
    for (size_t i = 0; i < rows; i++) {
        int64_t first;
        memcpy(&d[i], across_row(x, in->a, i), sizeof(d[i]));
        size_t n = (size_t)cw_slice_count(&in->slice, (int64_t)d[i].size, &first);
        d[i] = (struct cw_span){n ? (const char *)d[i].data + first : NULL, n};
    }
}

static void across_lower(struct run *x, const struct cw_instr *in, size_t rows)
{
    struct cw_span *d = (struct cw_span *)(void *)x->values[in->dst].p;
    size_t total = 0;
    for (size_t i = 0; i < rows; i++) {
        memcpy(&d[i], across_row(x, in->a, i), sizeof(d[i]));
        total += d[i].size;
    }
    char *to = cw_run_take(x, CW_MAX(total, 1u), &x->status);
    for (size_t i = 0; i < rows && to; i++) {
        const char *s = d[i].data;
        for (size_t k = 0; k < d[i].size; k++)
            to[k] = s[k] >= 'A' && s[k] <= 'Z' ? (char)(s[k] | 0x20) : s[k];
        d[i].data = to;
        to += d[i].size;
    }
}

void cw_run_across(struct run *x, const struct cw_instr *in, size_t rows)
{
    switch (in->kind) {
    case CW_I_REDUCE:
        across_reduce(x, in, rows);
        break;
    case CW_I_TAKE:
        across_take(x, in, rows);
        break;
    case CW_I_SLICE:
        if (reg_of(x, in->dst)->type.dtype == CW_BYTES)
            across_slice_bytes(x, in, rows);
        else
            across_slice(x, in, rows);
        break;
    case CW_I_LOWER:
        across_lower(x, in, rows);
        break;
    default:
        across_length(x, in, rows);
        break;
    }
}
