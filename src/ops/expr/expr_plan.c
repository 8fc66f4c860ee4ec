/* Prepares a program for a block: the shapes of its registers, their memory, and the components that it
 * reads. Scratch is in the block's arena. */
#include "ops/expr/expr_run.h"

void *cw_run_take(struct run *x, size_t bytes, int *r)
{
    void *p = *r < 0 ? NULL : cw_block_alloc(x->b, bytes, x->err);
    if (!p && *r == 0)
        *r = x->err && x->err->status < 0 ? x->err->status : CW_E_MEMORY;
    return p;
}

bool cw_run_count(const struct cw_type *t, size_t *ret)
{
    struct cw_type bytes = *t;
    bytes.dtype = CW_UINT8;
    *ret = cw_type_bytes(&bytes);
    return *ret < SIZE_MAX / 64;
}

static bool plan_same_shape(const struct cw_type *a, const struct cw_type *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->dims, b->dims, (size_t)CW_MAX(a->ndim, 0) * sizeof(a->dims[0])) == 0;
}

static bool plan_combine(struct run *x, struct cw_type *shape, unsigned operand)
{
    const struct cw_type *other = &x->values[operand].shape;
    if (reg_of(x, operand)->level != CW_LEVEL_ELEMENT || plan_same_shape(shape, other))
        return true;
    x->left = *shape;
    x->right = *other;
    return cw_broadcast(shape, other, shape);
}

bool cw_run_plan_shapes(struct run *x, size_t row)
{
    const struct cw_expr *e = x->e;
    x->max_n = 1;
    for (unsigned i = 0; i < e->n_regs; i++) {
        struct value *v = &x->values[i];
        const struct cw_reg *reg = &e->regs[i];
        v->n = 1;
        v->shape = reg->type;
        if (reg->kind != CW_REG_LOAD || reg->level != CW_LEVEL_ELEMENT)
            continue;
        if (!cw_type_fixed(&reg->type)) {
            struct cw_tensor t = cw_block_row(x->b, x->in[reg->port].value, row);
            v->shape.ndim = t.ndim;
            memcpy(v->shape.dims, t.dims, sizeof(t.dims));
        }
        if (!cw_run_count(&v->shape, &v->n))
            return false;
        x->max_n = CW_MAX(x->max_n, v->n);
    }
    for (unsigned i = 0; i < e->n_instrs; i++) {
        const struct cw_instr *in = &e->instrs[i];
        struct value *d = &x->values[in->dst];
        if (in->level != CW_LEVEL_ELEMENT)
            continue;
        struct cw_type shape = cw_type_scalar(d->shape.dtype);
        if (in->kind >= CW_I_REDUCE) {
            shape = x->values[in->a].shape;
            cw_shape_cut(&shape, in->axis, in->kind == CW_I_SLICE ? &in->slice : NULL);
        } else if (!plan_combine(x, &shape, in->a) || !plan_combine(x, &shape, in->b) ||
                   !plan_combine(x, &shape, in->c))
            return false;
        d->shape = shape;
        if (!cw_run_count(&shape, &d->n))
            return false;
        x->max_n = CW_MAX(x->max_n, d->n);
    }
    return true;
}

static bool plan_is_spread(const struct run *x, const struct cw_instr *in, unsigned operand)
{
    return in->kind < CW_I_REDUCE && in->level == CW_LEVEL_ELEMENT &&
           reg_of(x, operand)->level == CW_LEVEL_ELEMENT &&
           !plan_same_shape(&x->values[operand].shape, &x->values[in->dst].shape);
}

static bool plan_is_read(const struct cw_expr *e, unsigned reg, unsigned from)
{
    for (unsigned i = from; i < e->n_instrs; i++)
        if (e->instrs[i].a == reg || e->instrs[i].b == reg || e->instrs[i].c == reg)
            return true;
    return false;
}

/* Gives the result of instruction i memory. If rows are long, it reuses the memory of a register that no
 * later instruction reads. */
static uint8_t *plan_take_temp(struct run *x, unsigned i, size_t bytes, int *r)
{
    const struct cw_expr *e = x->e;
    for (unsigned k = 0; k < i && x->max_n > PIECE && !x->in_pieces; k++) {
        struct value *v = &x->values[e->instrs[k].dst];
        if (v->taken >= bytes && !plan_is_read(e, e->instrs[k].dst, i)) {
            v->taken = 0;
            return v->p;
        }
    }
    return cw_run_take(x, bytes, r);
}

int cw_run_plan_memory(struct run *x)
{
    const struct cw_expr *e = x->e;
    int r = 0;
    bool crosses = e->crosses;
    for (unsigned i = 0; i < e->n_instrs && !crosses; i++) {
        const struct cw_instr *in = &e->instrs[i];
        if (in->level == CW_LEVEL_ELEMENT)
            crosses = x->values[in->dst].n != x->max_n || plan_is_spread(x, in, in->a) ||
                      plan_is_spread(x, in, in->b) || plan_is_spread(x, in, in->c);
    }
    x->rows_at_once = e->varies ? 1 : x->max_n >= PIECE ? 1 : PIECE / CW_MAX(x->max_n, 1u);
    x->rows_at_once = CW_MIN(x->rows_at_once, CW_MAX(x->b->n, 1u));
    x->in_pieces = x->rows_at_once == 1 && x->max_n > PIECE && !crosses;
    for (unsigned i = 0; i < e->n_regs; i++) {
        const struct cw_reg *reg = &e->regs[i];
        struct value *v = &x->values[i];
        v->gather = NULL;
        v->taken = 0;
        if (reg->kind == CW_REG_CONSTANT)
            v->p = (uint8_t *)reg->constant;
    }
    for (unsigned i = 0; i < e->n_instrs && r == 0; i++) {
        const struct cw_instr *in = &e->instrs[i];
        const unsigned operands[3] = {in->a, in->b, in->c};
        struct value *v = &x->values[in->dst];
        size_t n = reg_of(x, in->dst)->level == CW_LEVEL_ELEMENT && x->in_pieces ? PIECE : v->n;
        size_t bytes = x->rows_at_once * n * size_of(x, in->dst);
        if (reg_of(x, in->dst)->kind == CW_REG_TEMP && in->dst != e->result) {
            v->p = plan_take_temp(x, i, bytes, &r);
            v->taken = bytes;
        }
        if (in->level != CW_LEVEL_ELEMENT)
            continue;
        for (int k = 0; k < 3; k++)
            x->spread[i][k] =
                plan_is_spread(x, in, operands[k])
                    ? cw_run_take(x, x->rows_at_once * x->values[in->dst].n * size_of(x, operands[k]), &r)
                    : NULL;
    }
    return r;
}

/* ---- loads ---- */

int cw_run_load(struct run *x, unsigned r, size_t rows)
{
    const struct cw_reg *reg = reg_of(x, r);
    struct value *v = &x->values[r];
    const struct cw_column *column = &x->b->columns[x->in[reg->port].value];
    size_t size = size_of(x, r), bytes = v->n * size;
    if (column->dense && (column->stride == bytes || rows == 1)) {
        v->p = column->data + x->row * column->stride;
        return 0;
    }
    if (!column->dense && rows == 1 && bytes > 0 && reg->type.dtype != CW_BYTES) {
        const struct cw_tensor *t = &column->rows[x->row];
        if (t->data && t->size == bytes && (uintptr_t)t->data % size == 0) {
            v->p = t->data;
            return 0;
        }
    }
    int status = 0;
    if (!v->gather && !(v->gather = cw_run_take(x, x->rows_at_once * bytes, &status)))
        return status;
    v->p = v->gather;
    for (size_t i = 0; i < rows && bytes > 0; i++) {
        struct cw_tensor t = cw_block_row(x->b, x->in[reg->port].value, x->row + i);
        if (reg->type.dtype == CW_BYTES)
            ((struct cw_span *)(void *)v->p)[i] = (struct cw_span){t.data, t.size};
        else if (t.data && t.size == bytes)
            memcpy(v->p + i * bytes, t.data, bytes);
        else
            memset(v->p + i * bytes, 0, bytes); /* a row that failed or was dropped before */
    }
    return 0;
}
