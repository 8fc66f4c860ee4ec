/* Compiles a syntax tree to a program: finds types by NumPy's rules, folds constants, and replaces divisions
 * by literals by cheaper operations. Runs once, before the first record. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/convert.h"
#include "ops/expr/expr_lower.h"
#include "pipeline/op.h"

/* ---- functions ---- */

static int lower_where(struct compiler *c, const struct cw_node *node, struct operand cond, struct operand a,
                       struct operand b, struct operand *ret)
{
    int r = cw_lower_truth(c, &cond);
    bool bytes = is_bytes(c, &a) && is_bytes(c, &b);
    if (r < 0 || (!bytes && ((r = cw_lower_no_bytes(c, &a)) < 0 || (r = cw_lower_no_bytes(c, &b)) < 0)))
        return r;
    struct cw_type type = {.dtype = bytes ? CW_BYTES : cw_lower_common_dtype(c, &a, &b)};
    if (bytes && reg_of(c, cond.reg)->type.ndim != 0)
        return CW_LOWER_FAIL(c, node, "where of bytes: expected a condition that is a scalar");
    if ((!bytes && (r = cw_lower_both_values(c, &a, &b, type.dtype)) < 0) ||
        (r = cw_lower_result_shape(c, node, &reg_of(c, a.reg)->type, &reg_of(c, b.reg)->type, &type)) < 0 ||
        (r = cw_lower_result_shape(c, node, &reg_of(c, cond.reg)->type, &type, &type)) < 0)
        return r;
    return cw_lower_emit(
        c, node,
        (struct cw_instr){
            .kind = CW_I_WHERE, .op = CW_X_WHERE, .dtype = type.dtype, .a = cond.reg, .b = a.reg, .c = b.reg},
        &type, ret);
}

static int lower_find_component(struct compiler *c, const struct cw_node *node, struct name **ret);

static int lower_length(struct compiler *c, const struct cw_node *node, struct operand *ret)
{
    const struct cw_node *argument = node->first;
    struct cw_type scalar = cw_type_scalar(CW_INT64);
    struct operand o;
    int r;
    if (argument->kind == CW_NODE_NAME) {
        struct name *n;
        if ((r = lower_find_component(c, argument, &n)) < 0)
            return r;
        if (n->type.dtype != CW_BYTES && (n->type.ndim < 0 || (n->type.ndim > 0 && n->type.dims[0] < 0))) {
            return cw_lower_emit(c, node,
                                 (struct cw_instr){.kind = CW_I_COLUMN_LENGTH,
                                                   .op = CW_X_LENGTH,
                                                   .dtype = n->type.dtype,
                                                   .a = (unsigned)n->port},
                                 &scalar, ret);
        }
    }
    if ((r = cw_lower_node(c, argument, &o)) < 0)
        return r;
    if (is_bytes(c, &o))
        return cw_lower_text(c, node, o, ret);
    if ((r = cw_lower_any_value(c, &o)) < 0)
        return r;
    const struct cw_type *type = &reg_of(c, o.reg)->type;
    if (type->ndim == 0)
        return CW_LOWER_FAIL(c, argument, "length of a scalar: expected bytes or an array");
    if (type->ndim > 0 && type->dims[0] >= 0) {
        uint64_t n = (uint64_t)type->dims[0];
        *ret = (struct operand){.node = node};
        return cw_lower_reg_constant(c, CW_INT64, &n, 8, ret);
    }
    c->e->crosses = true;
    return cw_lower_emit(c, node, (struct cw_instr){.kind = CW_I_LENGTH, .op = CW_X_LENGTH, .a = o.reg},
                         &scalar, ret);
}

static int lower_call(struct compiler *c, const struct cw_node *node, struct operand *ret)
{
    struct operand a, b, third;
    int r;
    if (node->op == CW_X_LENGTH)
        return lower_length(c, node, ret);
    if ((r = cw_lower_node(c, node->first, &a)) < 0)
        return r;
    if (node->op == CW_X_MIN || node->op == CW_X_MAX) {
        if (node->n_operands == 1)
            return cw_lower_reduce(c, node, a, ret);
        for (const struct cw_node *next = node->first->sibling; next; next = next->sibling)
            if ((r = cw_lower_node(c, next, &b)) < 0 ||
                (r = cw_lower_arithmetic(c, node, node->op, a, b, &a)) < 0)
                return r;
        *ret = a;
        return 0;
    }
    if (node->op == CW_X_WHERE) {
        if ((r = cw_lower_node(c, node->first->sibling, &b)) < 0 ||
            (r = cw_lower_node(c, node->first->sibling->sibling, &third)) < 0)
            return r;
        return lower_where(c, node, a, b, third, ret);
    }
    if (node->op == CW_X_SUM || node->op == CW_X_MEAN)
        return cw_lower_reduce(c, node, a, ret);
    if (node->op == CW_X_ISIN)
        return cw_lower_isin(c, node, a, ret);
    if (node->op >= CW_X_HASH && node->op <= CW_X_ENDSWITH)
        return cw_lower_text(c, node, a, ret);
    if ((r = cw_lower_any_value(c, &a)) < 0)
        return r;
    if (node->op == CW_X_ISNAN)
        return cw_lower_compare(c, node, CW_X_NE, a, a, ret);
    enum cw_dtype t = dtype_of(c, &a);
    bool same = node->op == CW_X_ABS || node->op == CW_X_FLOOR || node->op == CW_X_CEIL ||
                node->op == CW_X_ROUND;
    if (!same || cw_dtype_is_float(t) || (node->op == CW_X_ABS && cw_dtype_is_signed(t)))
        return cw_lower_unary(c, node, node->op, same ? t : cw_float_for(t), &a, ret);
    *ret = a; /* an integer has no fraction, and an unsigned one no sign: nothing to compute */
    return t == CW_BOOL && node->op == CW_X_ROUND ? cw_lower_convert(c, ret, CW_FLOAT16) : 0;
}

static int lower_cast(struct compiler *c, const struct cw_node *node, struct operand *ret)
{
    int r = cw_lower_node(c, node->first, ret);
    if (r == 0)
        r = cw_lower_no_bytes(c, ret);
    if (r < 0)
        return r;
    if (ret->kind != O_REG && node->dtype == CW_BOOL)
        return cw_lower_truth(c, ret);
    if (ret->kind == O_FLOAT && !cw_dtype_is_float(node->dtype) &&
        (r = cw_lower_value(c, ret, CW_FLOAT64)) < 0)
        return r;
    r = cw_lower_value(c, ret, node->dtype);
    ret->node = node;
    return r;
}

/* ---- the walk ---- */

static int lower_find_component(struct compiler *c, const struct cw_node *node, struct name **ret)
{
    for (struct name *n = c->names; n; n = n->next)
        if (strcmp(n->node->text, node->text) == 0) {
            *ret = n;
            return 0;
        }
    struct cw_error why = {0};
    struct cw_type type = {0};
    int port = c->lookup(c->arg, node->text, &type, &why);
    if (port < 0) {
        if (port != CW_E_PIPELINE) {
            if (c->err)
                *c->err = why;
            return port;
        }
        cw_error_attribute(c->err, NULL, NULL, why.expected);
        return CW_LOWER_FAIL(c, node, "%s", why.message);
    }
    struct name *n = calloc(1, sizeof(*n));
    if (!n)
        return cw_error_nomem(c->err, sizeof(*n), "an expression");
    *n = (struct name){.next = c->names, .node = node, .port = port, .type = type};
    c->names = n;
    *ret = n;
    return 0;
}

static int lower_component(struct compiler *c, const struct cw_node *node, struct operand *ret)
{
    struct name *n;
    int r = lower_find_component(c, node, &n);
    if (r < 0)
        return r;
    *ret = (struct operand){.kind = O_REG, .node = node};
    if (!n->loaded) {
        struct cw_reg reg = {.kind = CW_REG_LOAD,
                             .level = n->type.ndim == 0 ? CW_LEVEL_ROW : CW_LEVEL_ELEMENT,
                             .type = n->type,
                             .port = (unsigned)n->port};
        if ((r = cw_lower_reg_new(c, &reg, &n->reg)) < 0)
            return r;
        n->loaded = true;
        c->e->varies |= n->type.dtype != CW_BYTES && !cw_type_fixed(&n->type);
    }
    ret->reg = n->reg;
    return 0;
}

static int lower_comparison(struct compiler *c, const struct cw_node *node, struct operand *ret)
{
    struct operand left, right, all, one;
    int r = cw_lower_node(c, node->first, &left);
    for (const struct cw_node *next = node->first->sibling; r == 0 && next; next = next->sibling) {
        if ((r = cw_lower_node(c, next, &right)) < 0)
            return r;
        if ((r = cw_lower_compare(c, node, next->before, left, right, &one)) < 0)
            return r;
        if (next == node->first->sibling)
            all = one;
        else
            r = cw_lower_logical(c, node, CW_X_AND, all, one, &all);
        left = right;
    }
    if (r == 0)
        *ret = all;
    return r;
}

int cw_lower_node(struct compiler *c, const struct cw_node *node, struct operand *ret)
{
    struct operand a, b;
    int r;
    *ret = (struct operand){.node = node};
    switch (node->kind) {
    case CW_NODE_INT:
        ret->kind = O_INT;
        ret->integer = node->integer;
        return 0;
    case CW_NODE_FLOAT:
        ret->kind = O_FLOAT;
        ret->real = node->real;
        return 0;
    case CW_NODE_BOOL:
        return cw_lower_bool_constant(c, node->integer != 0, ret);
    case CW_NODE_STRING:
        return cw_lower_reg_constant(c, CW_BYTES, &(struct cw_span){node->text, node->length},
                                     sizeof(struct cw_span), ret);
    case CW_NODE_INDEX:
        return cw_lower_index(c, node, ret);
    case CW_NODE_LIST:
        return CW_LOWER_FAIL(c, node, "a list may be used only in isin(x, [...])");
    case CW_NODE_SLICE: /* parts of an index only */
    case CW_NODE_NONE:
        break;
    case CW_NODE_NAME:
        return lower_component(c, node, ret);
    case CW_NODE_UNARY:
        if ((r = cw_lower_node(c, node->first, &a)) < 0)
            return r;
        return cw_lower_prefix(c, node, a, ret);
    case CW_NODE_BINARY:
        if ((r = cw_lower_node(c, node->first, &a)) < 0 ||
            (r = cw_lower_node(c, node->first->sibling, &b)) < 0)
            return r;
        return node->op == CW_X_AND || node->op == CW_X_OR
                   ? cw_lower_logical(c, node, node->op, a, b, ret)
                   : cw_lower_arithmetic(c, node, node->op, a, b, ret);
    case CW_NODE_COMPARE:
        return lower_comparison(c, node, ret);
    case CW_NODE_CALL:
        return lower_call(c, node, ret);
    case CW_NODE_CAST:
        return lower_cast(c, node, ret);
    }
    return CW_E_BUG;
}

static int expr_finish(struct compiler *c, enum cw_expr_use use, struct operand o)
{
    struct cw_expr *e = c->e;
    char text[160];
    int r;
    if (is_bytes(c, &o) && use == CW_EXPR_VALUE) {
        e->result = o.reg;
        e->type = cw_type_scalar(CW_BYTES);
        return 0;
    }
    if ((r = cw_lower_any_value(c, &o)) < 0)
        return r;
    struct cw_type type = reg_of(c, o.reg)->type;
    if (use != CW_EXPR_VALUE && type.ndim != 0)
        return CW_LOWER_FAIL(c, e->tree.root, "the result is %s: expected a scalar",
                             cw_type_print(&type, text));
    if (use == CW_EXPR_INTEGER && cw_dtype_is_float(type.dtype))
        return CW_LOWER_FAIL(c, e->tree.root, "the result is %s: expected an integer",
                             cw_type_print(&type, text));
    r = use == CW_EXPR_CONDITION ? cw_lower_truth(c, &o)
        : use == CW_EXPR_INTEGER ? cw_lower_value(c, &o, CW_INT64)
                                 : 0;
    if (r < 0)
        return r;
    e->result = o.reg;
    e->type = reg_of(c, o.reg)->type;
    e->canonical_nan = cw_dtype_is_float(e->type.dtype) && reg_of(c, o.reg)->kind != CW_REG_LOAD;
    if (reg_of(c, o.reg)->kind == CW_REG_CONSTANT && e->canonical_nan)
        cw_kernel_canonical_nan(e->type.dtype, reg_of(c, o.reg)->constant, 1);
    return 0;
}

int cw_expr_compile(const char *text, enum cw_expr_use use, cw_expr_lookup lookup, void *arg,
                    struct cw_expr **ret, struct cw_error *err)
{
    struct cw_expr *e = calloc(1, sizeof(*e));
    if (!e)
        return cw_error_nomem(err, sizeof(*e), "an expression");
    struct compiler c = {.e = e, .lookup = lookup, .arg = arg, .err = err};
    struct operand o;
    int r = 0;
    if (strnlen(text, CW_EXPR_MAX_TEXT + 1) <= CW_EXPR_MAX_TEXT && !(e->text = strdup(text)))
        r = cw_error_nomem(err, strlen(text), "an expression");
    if (r == 0)
        r = cw_tree_parse(e->text ? e->text : text, &e->tree, err);
    if (r == 0)
        r = cw_lower_node(&c, e->tree.root, &o);
    if (r == 0)
        r = expr_finish(&c, use, o);
    while (c.names) {
        struct name *next = c.names->next;
        free(c.names);
        c.names = next;
    }
    if (r < 0)
        cw_expr_free(e);
    else
        *ret = e;
    return r;
}

static int expr_lookup_bound(void *arg, const char *name, struct cw_type *ret_type, struct cw_error *err)
{
    return cw_bind_read(arg, name, ret_type, err);
}

int cw_expr_bind(struct cw_bind *b, const struct cw_op *op, const char *attribute, const char *text,
                 enum cw_expr_use use, struct cw_expr **ret, struct cw_error *err)
{
    struct cw_error why = {0};
    int r = cw_expr_compile(text, use, expr_lookup_bound, b, ret, &why);
    if (r >= 0 || !err)
        return r;
    cw_error_op(err, op->desc->name);
    return cw_error_value(err, why.status, attribute, text, why.expected[0] ? why.expected : "an expression",
                          "%s: %s: %.500s", op->desc->name, attribute, why.message);
}

int cw_expr_bind_where(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_expr *e = NULL;
    int r = cw_expr_bind(b, op, "where", cw_attr_string(op, "where"), CW_EXPR_CONDITION, &e, err);
    op->state = e;
    return r;
}

void cw_expr_free(void *expr)
{
    struct cw_expr *e = expr;
    if (!e)
        return;
    cw_tree_deinit(&e->tree);
    free(e->text);
    free(e->regs);
    free(e->instrs);
    free(e);
}

const struct cw_type *cw_expr_type(const struct cw_expr *e)
{
    return &e->type;
}
