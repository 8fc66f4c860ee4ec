/* Compiles what looks at several values of a row: reductions, indices and slices; and functions of bytes. */
#include "ops/expr/expr_lower.h"

/* ---- reductions ---- */

int cw_lower_literal_integer(struct compiler *c, const struct cw_node *node, const char *what, int64_t *ret)
{
    const cw_i128 most = (cw_i128)1 << 62;
    struct operand o;
    int r = cw_lower_node(c, node, &o);
    if (r < 0)
        return r;
    if (o.kind != O_INT)
        return CW_LOWER_FAIL(c, node, "%s is not an integer literal", what);
    *ret = (int64_t)CW_MAX(-most, CW_MIN(o.integer, most));
    return 0;
}

/* Sets *ret to node->axis, counted from the first dimension; -1: over all values. */
static int lower_axis(struct compiler *c, const struct cw_node *node, const struct cw_type *type, int *ret)
{
    int64_t axis;
    *ret = -1;
    if (!node->axis)
        return 0;
    int r = cw_lower_literal_integer(c, node->axis, "axis", &axis);
    if (r < 0)
        return r;
    if (type->ndim < 0)
        return CW_LOWER_FAIL(c, node->axis,
                             "axis= needs an array whose number of dimensions is known beforehand");
    if (axis < -type->ndim || axis >= type->ndim)
        return CW_LOWER_FAIL(c, node->axis, "there is no axis %lld: the array has %d dimension%s",
                             (long long)axis, type->ndim, type->ndim == 1 ? "" : "s");
    *ret = type->ndim == 1 ? -1 : (int)(axis < 0 ? axis + type->ndim : axis);
    return 0;
}

int cw_lower_reduce(struct compiler *c, const struct cw_node *node, struct operand o, struct operand *ret)
{
    int axis, r = cw_lower_any_value(c, &o);
    if (r < 0)
        return r;
    struct cw_type type = reg_of(c, o.reg)->type;
    enum cw_dtype t = type.dtype; /* of the result */
    bool real = cw_dtype_is_float(t), adds = node->op == CW_X_SUM || node->op == CW_X_MEAN;
    if (node->op == CW_X_MEAN && !real)
        t = CW_FLOAT64;
    else if (node->op == CW_X_SUM && !real)
        t = cw_dtype_is_signed(t) || t == CW_BOOL ? CW_INT64 : CW_UINT64;
    enum cw_dtype computing = !adds ? cw_lower_computing_dtype(node->op, t) : real ? CW_FLOAT64 : t;
    if ((r = lower_axis(c, node, &type, &axis)) < 0)
        return r;
    *ret = o;
    if (type.ndim == 0)
        return cw_lower_convert(c, ret, t);
    if ((r = cw_lower_convert(c, &o, computing)) < 0)
        return r;
    c->e->crosses = true;
    if (axis < 0)
        type.ndim = 0;
    else
        cw_shape_cut(&type, axis, NULL);
    type.dtype = computing;
    struct cw_instr in = {.kind = CW_I_REDUCE, .op = node->op, .dtype = computing, .a = o.reg, .axis = axis};
    r = cw_lower_emit(c, node, in, &type, ret);
    return r < 0 ? r : cw_lower_convert(c, ret, t);
}

/* ---- indices and slices ---- */

static int lower_slice_part(struct compiler *c, const struct cw_node *node, int64_t open, int64_t *ret)
{
    *ret = open;
    return node->kind == CW_NODE_NONE ? 0 : cw_lower_literal_integer(c, node, "a slice's bound", ret);
}

static int lower_slice(struct compiler *c, const struct cw_node *node, struct cw_slice *ret)
{
    const struct cw_node *start = node->first, *stop = start->sibling, *step = stop->sibling;
    int r = lower_slice_part(c, start, CW_SLICE_OPEN, &ret->start);
    if (r == 0)
        r = lower_slice_part(c, stop, CW_SLICE_OPEN, &ret->stop);
    if (r == 0)
        r = lower_slice_part(c, step, 1, &ret->step);
    if (r == 0 && ret->step == 0)
        return CW_LOWER_FAIL(c, step, "a slice's step is 0");
    return r;
}

/* Compiles an index of dimension `axis` of o, an expression, to a register of int64. */
static int lower_take_index(struct compiler *c, const struct cw_node *item, const struct cw_type *type,
                            int axis, unsigned *ret)
{
    struct operand index;
    int r = cw_lower_node(c, item, &index);
    if (r < 0)
        return r;
    bool integer = index.kind == O_INT || (index.kind == O_REG && cw_dtype_is_integer(dtype_of(c, &index)) &&
                                           reg_of(c, index.reg)->type.ndim == 0);
    if (!integer)
        return CW_LOWER_FAIL(c, item, "expected an index that is a single integer, or a slice");
    int64_t n = type->dims[axis];
    if (index.kind == O_INT && n >= 0 && (index.integer < -n || index.integer >= n))
        return CW_LOWER_FAIL(c, item, "index out of range: dimension %d has size %lld", axis, (long long)n);
    r = cw_lower_value(c, &index, CW_INT64);
    *ret = index.reg;
    return r;
}

int cw_lower_index(struct compiler *c, const struct cw_node *node, struct operand *ret)
{
    struct operand o;
    int axis = 0, r = cw_lower_node(c, node->first, &o);
    if (r < 0)
        return r;
    bool bytes = is_bytes(c, &o);
    if (!bytes && (r = cw_lower_any_value(c, &o)) < 0)
        return r;
    int most = bytes ? 1 : reg_of(c, o.reg)->type.ndim;
    for (const struct cw_node *item = node->first->sibling; item; item = item->sibling) {
        struct cw_type type = reg_of(c, o.reg)->type;
        struct cw_instr in = {.kind = CW_I_TAKE, .axis = axis};
        if (type.ndim < 0)
            return CW_LOWER_FAIL(c, node,
                                 "an index needs an array whose number of dimensions is known beforehand");
        if (bytes ? axis > 0 : axis >= type.ndim)
            return CW_LOWER_FAIL(c, item, "too many indices: expected at most %d", most);
        if (item->kind == CW_NODE_SLICE) {
            in.kind = CW_I_SLICE;
            r = lower_slice(c, item, &in.slice);
        } else if (bytes) {
            return CW_LOWER_FAIL(c, item, "an index of bytes: expected a slice, as in s[0:1]");
        } else {
            r = lower_take_index(c, item, &type, axis, &in.b);
        }
        if (r < 0)
            return r;
        if (bytes && in.slice.step != 1)
            return CW_LOWER_FAIL(c, item, "a slice of bytes with a step: expected none");
        in.a = o.reg;
        if (!bytes)
            cw_shape_cut(&type, axis, in.kind == CW_I_SLICE ? &in.slice : NULL);
        axis += in.kind == CW_I_SLICE;
        c->e->crosses = true;
        if ((r = cw_lower_emit(c, node, in, &type, &o)) < 0)
            return r;
    }
    *ret = o;
    return 0;
}

/* ---- bytes ---- */

int cw_lower_text(struct compiler *c, const struct cw_node *node, struct operand a, struct operand *ret)
{
    struct operand b;
    int r;
    if (node->op == CW_X_HASH && !is_bytes(c, &a) && (r = cw_lower_any_value(c, &a)) < 0)
        return r;
    if (node->op == CW_X_HASH ? cw_dtype_is_float(dtype_of(c, &a)) : !is_bytes(c, &a))
        return CW_LOWER_FAIL(c, node->first, "%s of numbers: expected bytes%s", cw_xop_name(node->op),
                             node->op == CW_X_HASH ? ", integers or bool" : "");
    struct cw_type type = reg_of(c, a.reg)->type;
    enum cw_dtype t = type.dtype;
    struct cw_instr in = {.kind = CW_I_UNARY, .op = node->op, .dtype = t, .a = a.reg};
    if (node->op == CW_X_LOWER) {
        in.kind = CW_I_LOWER;
        return cw_lower_emit(c, node, in, &type, ret);
    }
    if (node->n_operands == 2) {
        if ((r = cw_lower_node(c, node->first->sibling, &b)) < 0)
            return r;
        if (!is_bytes(c, &b))
            return CW_LOWER_FAIL(c, node->first->sibling, "%s of numbers: expected bytes or a string",
                                 cw_xop_name(node->op));
        return cw_lower_binary(c, node, node->op, CW_BYTES, CW_BOOL, &a, &b, ret);
    }
    type.dtype = node->op == CW_X_HASH ? CW_UINT64 : node->op == CW_X_LENGTH ? CW_INT64 : CW_BYTES;
    in.kernel = cw_kernel_find(node->op, t);
    return cw_lower_emit(c, node, in, &type, ret);
}

int cw_lower_isin(struct compiler *c, const struct cw_node *node, struct operand x, struct operand *ret)
{
    const struct cw_node *list = node->first->sibling;
    struct operand value, one;
    int r;
    if (list->kind != CW_NODE_LIST)
        return CW_LOWER_FAIL(c, list, "expected a list of values, as in isin(x, [1, 2])");
    if (list->n_operands == 0) { /* false everywhere: nothing is less than itself, or other than itself */
        if (!is_bytes(c, &x) && (r = cw_lower_any_value(c, &x)) < 0)
            return r;
        return cw_lower_compare(c, node, is_bytes(c, &x) ? CW_X_NE : CW_X_LT, x, x, ret);
    }
    for (const struct cw_node *item = list->first; item; item = item->sibling) {
        if ((r = cw_lower_node(c, item, &value)) < 0 ||
            (r = cw_lower_compare(c, node, CW_X_EQ, x, value, &one)) < 0)
            return r;
        if (item == list->first)
            *ret = one;
        else if ((r = cw_lower_logical(c, node, CW_X_OR, *ret, one, ret)) < 0)
            return r;
    }
    return 0;
}
