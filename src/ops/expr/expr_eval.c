/*
 * Runs programs over blocks. The rows of a block are divided into pieces, and each piece goes through the
 * whole program, so that registers stay in the nearest cache. A piece is 1,024 rows of scalars; or as many
 * rows of small arrays as have 1,024 elements together; or a single larger array, 1,024 elements at a time if
 * no instruction looks at several elements. Shapes that vary are planned for each row. All scratch is in the
 * block's arena and is freed at the end; nothing is kept between blocks.
 */
#include "data/convert.h"
#include "ops/expr/expr_run.h"

/* ---- instructions ---- */

/* Copies an array into one of a larger shape, and repeats it along dimensions of size 1. */
static void eval_spread_one(uint8_t *d, const struct cw_type *to, const uint8_t *s,
                            const struct cw_type *from, size_t size)
{
    size_t strides[CW_MAX_NDIM] = {0}, step = size, n;
    int64_t at[CW_MAX_NDIM] = {0};
    int skip = to->ndim - from->ndim, last = to->ndim - 1;
    if (!cw_run_count(to, &n) || n == 0)
        return;
    for (int i = from->ndim - 1; i >= 0; i--) {
        strides[i + skip] = from->dims[i] == 1 ? 0 : step;
        step *= (size_t)from->dims[i];
    }
    for (;;) {
        const uint8_t *p = s;
        for (int i = 0; i < last; i++)
            p += (size_t)at[i] * strides[i];
        size_t run = (size_t)to->dims[last];
        if (strides[last] == 0) {
            for (size_t i = 0; i < run; i++)
                memcpy(d + i * size, p, size);
        } else {
            memcpy(d, p, run * size);
        }
        d += run * size;
        int i = last - 1;
        while (i >= 0 && ++at[i] == to->dims[i])
            at[i--] = 0;
        if (i < 0)
            return;
    }
}

struct feed {
    const uint8_t *p;
    size_t size;
    enum cw_level level;
}; /* an operand, for the current piece */

static struct feed eval_feed(struct run *x, unsigned index, int k, size_t rows)
{
    const struct cw_instr *in = &x->e->instrs[index];
    unsigned r = k == 0 ? in->a : k == 1 ? in->b : in->c;
    const struct value *v = &x->values[r], *d = &x->values[in->dst];
    struct feed f = {.p = v->p, .size = size_of(x, r), .level = reg_of(x, r)->level};
    uint8_t *to = in->level == CW_LEVEL_ELEMENT ? x->spread[index][k] : NULL;
    if (to) {
        for (size_t i = 0; i < rows; i++)
            eval_spread_one(to + i * d->n * f.size, &d->shape, v->p + i * v->n * f.size, &v->shape, f.size);
        f.p = to;
    }
    return f;
}

static bool eval_forbidden(const struct cw_instr *in, const uint8_t *v, size_t size)
{
    if (in->op == CW_X_POW) /* little-endian: the sign is in the last byte */
        return v[size - 1] & 0x80;
    for (size_t i = 0; i < size; i++)
        if (v[i])
            return false;
    return true;
}

/* Finds the rows with an operand that is not allowed, after a kernel has returned non-zero. */
static void eval_blame(struct run *x, const struct cw_instr *in, const struct feed *b, size_t rows, size_t n)
{
    enum fault f = in->op == CW_X_FLOORDIV ? FAULT_DIVISION : in->op == CW_X_MOD ? FAULT_MODULO : FAULT_POWER;
    for (size_t r = 0; r < rows; r++) {
        size_t first = b->level == CW_LEVEL_ELEMENT ? r * n : b->level == CW_LEVEL_ROW ? r : 0;
        size_t last = b->level == CW_LEVEL_ELEMENT ? first + n : first + 1;
        for (size_t i = first; i < last; i++)
            if (eval_forbidden(in, b->p + i * b->size, b->size)) {
                fault(x, x->row + r, f);
                break;
            }
    }
}

/* Calls the kernel of an instruction once, for n results. The step of an operand is 1 if it is an array, 0 if
 * it is a single value. */
static unsigned eval_apply(const struct cw_instr *in, uint8_t *d, size_t d_size, const uint8_t *a, int a_step,
                           const uint8_t *b, int b_step, const uint8_t *c, int c_step, size_t n)
{
    switch (in->kind) {
    case CW_I_UNARY:
        return in->kernel(d, a, NULL, n, CW_VV);
    case CW_I_WHERE:
        cw_kernel_where(d_size, d, a, b, c, n, a_step, b_step, c_step);
        return 0;
    default:
        if (!a_step && !b_step) { /* both operands are the row's, or constants */
            unsigned bad = in->kernel(d, a, b, 1, CW_VV);
            for (size_t i = 1; i < n; i++)
                memcpy(d + i * d_size, d, d_size);
            return bad;
        }
        return in->kernel(d, a, b, n, a_step && b_step ? CW_VV : a_step ? CW_VS : CW_SV);
    }
}

/* n: values per row of element registers in this piece. */
static void eval_execute(struct run *x, unsigned index, size_t rows, size_t n)
{
    const struct cw_instr *in = &x->e->instrs[index];
    uint8_t *d = x->values[in->dst].p;
    size_t d_size = size_of(x, in->dst);
    bool elements = in->level == CW_LEVEL_ELEMENT;
    struct feed a = eval_feed(x, index, 0, rows), b = eval_feed(x, index, 1, rows),
                c = eval_feed(x, index, 2, rows);
    if (in->kind == CW_I_CONVERT) {
        cw_convert(in->dtype, reg_of(x, in->dst)->type.dtype, d, a.p, elements ? rows * n : rows);
        return;
    }
    bool mixed = elements && rows > 1 &&
                 (a.level == CW_LEVEL_ROW || b.level == CW_LEVEL_ROW || c.level == CW_LEVEL_ROW);
    unsigned bad = 0;
    if (!mixed) {
        enum cw_level run =
            in->level; /* operands of this level are arrays, those of lower levels single values */
        bad = eval_apply(in, d, d_size, a.p, a.level == run, b.p, b.level == run, c.p, c.level == run,
                         elements ? rows * n : rows);
    } else {
#define STEP(f) ((f).level == CW_LEVEL_ELEMENT ? n * (f).size : (f).level == CW_LEVEL_ROW ? (f).size : 0)
        for (size_t r = 0; r < rows; r++)
            bad |= eval_apply(in, d + r * n * d_size, d_size, a.p + r * STEP(a), a.level == CW_LEVEL_ELEMENT,
                              b.p + r * STEP(b), b.level == CW_LEVEL_ELEMENT, c.p + r * STEP(c),
                              c.level == CW_LEVEL_ELEMENT, n);
#undef STEP
    }
    if (CW_UNLIKELY(bad))
        eval_blame(x, in, &b, rows, n);
}

static void eval_step(struct run *x, unsigned index, size_t rows, size_t n)
{
    const struct cw_instr *in = &x->e->instrs[index];
    if (in->kind >= CW_I_REDUCE)
        cw_run_across(x, in, rows);
    else
        eval_execute(x, index, rows, n ? n : x->values[in->dst].n);
}

/* ---- a piece of rows ---- */

static void eval_store(struct run *x, uint8_t *out, size_t n)
{
    const struct cw_expr *e = x->e;
    const struct cw_reg *reg = reg_of(x, e->result);
    size_t size = size_of(x, e->result);
    if (reg->kind == CW_REG_LOAD && n > 0)
        memcpy(out, x->values[e->result].p, n * size);
    else if (reg->kind == CW_REG_CONSTANT)
        cw_kernel_where(size, out, &(uint8_t){1}, reg->constant, reg->constant, n, 0, 0, 0);
    else if (e->canonical_nan)
        cw_kernel_canonical_nan(e->type.dtype, out, n);
}

/* Computes rows [x->row, x->row + rows) into out, rows * n values. */
static int eval_compute(struct run *x, size_t rows, uint8_t *out)
{
    const struct cw_expr *e = x->e;
    struct value *result = &x->values[e->result];
    for (unsigned i = 0; i < e->n_regs; i++) {
        int r = e->regs[i].kind == CW_REG_LOAD ? cw_run_load(x, i, rows) : 0;
        if (r < 0)
            return r;
    }
    bool temp = e->regs[e->result].kind == CW_REG_TEMP;
    if (temp)
        result->p = out;
    if (!x->in_pieces) {
        for (unsigned i = 0; i < e->n_instrs; i++)
            eval_step(x, i, rows, 0);
        eval_store(x, out, rows * result->n);
        return x->status;
    }
    bool scalar = e->regs[e->result].level != CW_LEVEL_ELEMENT;
    for (unsigned i = 0; i < e->n_instrs; i++)
        if (e->instrs[i].level != CW_LEVEL_ELEMENT)
            eval_step(x, i, 1, 0);
    for (size_t at = 0; at < x->max_n && !scalar; at += PIECE) {
        size_t n = CW_MIN(x->max_n - at, (size_t)PIECE);
        for (unsigned i = 0; i < e->n_instrs; i++)
            if (e->instrs[i].level == CW_LEVEL_ELEMENT)
                eval_step(x, i, 1, n);
        eval_store(x, out, n);
        out += n * size_of(x, e->result);
        if (temp)
            result->p = out;
        for (unsigned i = 0; i < e->n_regs; i++)
            if (e->regs[i].kind == CW_REG_LOAD && e->regs[i].level == CW_LEVEL_ELEMENT)
                x->values[i].p += n * size_of(x, i);
    }
    if (scalar)
        eval_store(x, out, 1);
    return x->status;
}

/* ---- blocks ---- */

static void eval_report(struct run *x, size_t row)
{
    static const char *const reasons[] = {
        [FAULT_DIVISION] = "integer division by zero",
        [FAULT_MODULO] = "integer modulo by zero",
        [FAULT_POWER] = "negative integer power of an integer",
        [FAULT_EMPTY] = "minimum or maximum of an empty array",
        [FAULT_LENGTH] = "length of a scalar",
        [FAULT_INDEX] = "index out of range",
    };
    if (x->b->status[row] != CW_ROW_OK || x->faults[row] == FAULT_NONE)
        return;
    if (x->faults[row] == FAULT_SHAPE) {
        char left[160], right[160];
        size_t skip = strlen(cw_dtype_name(CW_BOOL)); /* leaves out the dtype, shows only the shape */
        x->left.dtype = x->right.dtype = CW_BOOL;
        cw_block_fail(x->b, row, x->op, "shapes don't match: %.80s and %.80s in %.150s%s",
                      cw_type_print(&x->left, left) + skip, cw_type_print(&x->right, right) + skip,
                      x->e->text, strlen(x->e->text) > 150 ? "..." : "");
    } else {
        cw_block_fail(x->b, row, x->op, "%s in %.200s%s", reasons[x->faults[row]], x->e->text,
                      strlen(x->e->text) > 200 ? "..." : "");
    }
}

/* Number of values computed between two checks for cancellation: about a millisecond of work. */
#define LOOK_EVERY ((size_t)1 << 20)

static int eval_cancelled(struct run *x, size_t computed)
{
    x->since_look += computed;
    if (x->since_look <= LOOK_EVERY)
        return 0;
    x->since_look = 0;
    return x->b->cancelled && x->b->cancelled(x->b->cancel_arg)
               ? cw_error_set(x->err, CW_E_INTERRUPTED, "cancelled")
               : 0;
}

/* Returns the size of a row of the result, whose type is fixed or bytes. */
static size_t eval_result_bytes(const struct cw_expr *e)
{
    return e->type.dtype == CW_BYTES ? sizeof(struct cw_span) : cw_type_bytes(&e->type);
}

/* Evaluates rows that all have the same shapes, with one plan. */
static int eval_run_fixed(struct run *x, uint8_t *out)
{
    size_t bytes = eval_result_bytes(x->e);
    int r = cw_run_plan_shapes(x, 0) ? cw_run_plan_memory(x)
                                     : cw_error_set(x->err, CW_E_BUG, "shapes of an expression do not match");
    for (x->row = 0; x->row < x->b->n && r == 0; x->row += x->rows_at_once) {
        size_t rows = CW_MIN(x->rows_at_once, x->b->n - x->row);
        r = eval_compute(x, rows, out + x->row * bytes);
        if (r == 0)
            r = eval_cancelled(x, rows * x->max_n);
    }
    return r;
}

/* Evaluates rows whose shapes vary, with a plan for each row. ragged: results go to the ragged column
 * `value`; otherwise they go to out, or nowhere if out is NULL. */
static int eval_run_varying(struct run *x, uint8_t *out, bool ragged, unsigned value)
{
    int r = 0;
    CW_ROWS_OK(row, x->b, r == 0)
    {
        x->row = row;
        if (!cw_run_plan_shapes(x, row)) {
            fault(x, row, FAULT_SHAPE);
            eval_report(x, row);
            continue;
        }
        const struct value *result = &x->values[x->e->result];
        uint8_t *to = NULL;
        if (ragged) {
            to = cw_block_row_out(x->b, value, &x->e->type, row, result->shape.dims, result->shape.ndim,
                                  x->err);
            if (!to)
                return x->err && x->err->status < 0 ? x->err->status : CW_E_MEMORY;
        } else if (out) {
            to = out + row * eval_result_bytes(x->e);
        }
        struct cw_arena_mark mark = cw_arena_mark(x->b->arena);
        if (!to)
            to = cw_run_take(x, result->n * size_of(x, x->e->result), &r);
        if (r == 0)
            r = cw_run_plan_memory(x);
        if (r == 0)
            r = eval_compute(x, 1, to);
        if (x->e->type.dtype != CW_BYTES) /* bytes that result may lie in the scratch memory */
            cw_arena_release(x->b->arena, mark);
        if (r < 0)
            return r;
        eval_report(x, row);
        r = eval_cancelled(x, x->max_n);
    }
    return r;
}

static int eval_run(const struct cw_expr *e, const struct cw_port *in, const char *op, struct cw_block *b,
                    uint8_t *out, bool ragged, unsigned value, struct cw_error *err)
{
    struct run x = {.e = e, .in = in, .op = op, .b = b, .err = err};
    int r = 0;
    x.faults = cw_run_take(&x, b->n, &r);
    struct cw_arena_mark mark = cw_arena_mark(b->arena);
    x.values = cw_run_take(&x, e->n_regs * sizeof(*x.values), &r);
    x.spread = cw_run_take(&x, e->n_instrs * sizeof(*x.spread), &r);
    if (r < 0)
        return r;
    memset(x.faults, 0, b->n);
    memset(x.values, 0, e->n_regs * sizeof(*x.values));
    if (e->varies)
        /* failed rows are recorded in the arena meanwhile, so its scratch can't be freed */
        return eval_run_varying(&x, out, ragged, value);
    r = eval_run_fixed(&x, out);
    if (e->type.dtype != CW_BYTES)
        cw_arena_release(b->arena, mark);
    for (size_t row = 0; x.faulted && row < b->n && r == 0; row++)
        eval_report(&x, row);
    return r;
}

int cw_expr_eval(const struct cw_expr *e, const struct cw_port *in, const char *op, struct cw_block *b,
                 unsigned value, struct cw_error *err)
{
    int r = cw_block_column(b, value, &e->type, err);
    if (r < 0)
        return r;
    if (e->type.dtype == CW_BYTES) {
        struct cw_span *out = cw_block_alloc(b, b->n * sizeof(*out), err);
        if (!out)
            return err && err->status < 0 ? err->status : CW_E_MEMORY;
        r = eval_run(e, in, op, b, (uint8_t *)out, false, value, err);
        CW_ROWS_OK(i, b, r == 0)
        b->columns[value].rows[i] = (struct cw_tensor){.data = (void *)out[i].data, .size = out[i].size};
        return r;
    }
    const struct cw_column *c = &b->columns[value];
    return eval_run(e, in, op, b, c->data, !c->dense, value, err);
}

int cw_expr_eval_into(const struct cw_expr *e, const struct cw_port *in, const char *op, struct cw_block *b,
                      void *out, struct cw_error *err)
{
    return eval_run(e, in, op, b, out, false, 0, err);
}

int cw_expr_where(const struct cw_op *op, struct cw_block *b, const uint8_t **ret, struct cw_error *err)
{
    uint8_t *holds = cw_block_alloc(b, b->n, err);
    *ret = holds;
    return holds ? cw_expr_eval_into(op->state, op->in, op->desc->name, b, holds, err)
           : err ? err->status
                 : CW_E_MEMORY;
}
