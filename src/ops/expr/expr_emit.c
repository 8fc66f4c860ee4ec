/* Makes the registers and instructions of a program, and converts operands to the dtypes that instructions
 * need. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "data/convert.h"
#include "ops/expr/expr_lower.h"

/* ---- registers and instructions ---- */

int cw_lower_reg_new(struct compiler *c, const struct cw_reg *reg, unsigned *ret)
{
    int r = CW_ARRAY_ROOM(c->e->regs, c->regs_capacity, c->e->n_regs + (size_t)1, "an expression", c->err);
    if (r < 0)
        return r;
    *ret = c->e->n_regs;
    c->e->regs[c->e->n_regs++] = *reg;
    return 0;
}

int cw_lower_reg_constant(struct compiler *c, enum cw_dtype dtype, const void *value, size_t size,
                          struct operand *ret)
{
    struct cw_reg reg = {.kind = CW_REG_CONSTANT, .level = CW_LEVEL_CONSTANT, .type = cw_type_scalar(dtype)};
    memcpy(reg.constant, value, size);
    ret->kind = O_REG;
    return cw_lower_reg_new(c, &reg, &ret->reg);
}

int cw_lower_bool_constant(struct compiler *c, bool value, struct operand *ret)
{
    uint8_t v = value;
    return cw_lower_reg_constant(c, CW_BOOL, &v, 1, ret);
}

static enum cw_level emit_level_of(const struct compiler *c, const struct cw_instr *in,
                                   const struct cw_type *type)
{
    if (type->ndim != 0)
        return CW_LEVEL_ELEMENT;
    if (in->kind >= CW_I_REDUCE)
        return CW_LEVEL_ROW;
    enum cw_level ab = CW_MAX(reg_of(c, in->a)->level, reg_of(c, in->b)->level);
    return CW_MAX(ab, reg_of(c, in->c)->level);
}

/* Carries out an instruction whose operands are all constants. Returns 1 if that is not possible (a zero
 * divisor, for example): the instruction then fails each record. */
static int emit_fold(struct compiler *c, const struct cw_instr *in, enum cw_dtype dtype, struct operand *ret)
{
    uint64_t value[4] = {0};
    const void *a = reg_of(c, in->a)->constant, *b = reg_of(c, in->b)->constant;
    if (in->kind == CW_I_CONVERT)
        cw_convert(in->dtype, dtype, value, a, 1);
    else if (in->kind == CW_I_WHERE)
        cw_kernel_where(cw_value_size(dtype), value, a, b, reg_of(c, in->c)->constant, 1, 1, 1, 1);
    else if (in->kernel(value, a, b, 1, CW_VV))
        return 1;
    return cw_lower_reg_constant(c, dtype, value, sizeof(value), ret);
}

int cw_lower_emit(struct compiler *c, const struct cw_node *node, struct cw_instr in,
                  const struct cw_type *type, struct operand *ret)
{
    /* the registers that it reads; operands that it does not have are set to the first one */
    static const uint8_t n_operands[] = {
        [CW_I_UNARY] = 1,  [CW_I_BINARY] = 2,        [CW_I_WHERE] = 3, [CW_I_CONVERT] = 1, [CW_I_REDUCE] = 1,
        [CW_I_LENGTH] = 1, [CW_I_COLUMN_LENGTH] = 0, [CW_I_TAKE] = 2,  [CW_I_SLICE] = 1,   [CW_I_LOWER] = 1};
    unsigned n = n_operands[in.kind];
    struct operand result = {.kind = O_REG, .node = node};
    if (n < 3)
        in.c = in.a;
    if (n == 1)
        in.b = in.a;
    in.level = emit_level_of(c, &in, type);
    int r;
    if (in.level == CW_LEVEL_CONSTANT) {
        if ((r = emit_fold(c, &in, type->dtype, &result)) != 1) {
            *ret = result;
            return r;
        }
        in.level = CW_LEVEL_ROW;
    }
    struct cw_reg reg = {.kind = CW_REG_TEMP, .level = in.level, .type = *type};
    if ((r = cw_lower_reg_new(c, &reg, &in.dst)) < 0 ||
        (r = CW_ARRAY_ROOM(c->e->instrs, c->instrs_capacity, c->e->n_instrs + (size_t)1, "an expression",
                           c->err)) < 0)
        return r;
    c->e->instrs[c->e->n_instrs++] = in;
    result.reg = in.dst;
    *ret = result;
    return 0;
}

/* ---- operands to values of a dtype ---- */

int cw_lower_convert(struct compiler *c, struct operand *o, enum cw_dtype to)
{
    const struct cw_reg *reg = reg_of(c, o->reg);
    if (reg->type.dtype == to)
        return 0;
    struct cw_type type = reg->type;
    type.dtype = to;
    return cw_lower_emit(
        c, o->node, (struct cw_instr){.kind = CW_I_CONVERT, .dtype = reg->type.dtype, .a = o->reg}, &type, o);
}

int cw_lower_no_bytes(struct compiler *c, const struct operand *o)
{
    if (!is_bytes(c, o))
        return 0;
    if (o->node->kind == CW_NODE_NAME)
        return CW_LOWER_FAIL(c, o->node, "component \"%.60s\" is bytes: expected numbers or bool",
                             o->node->text);
    return CW_LOWER_FAIL(c, o->node, "this is bytes: expected numbers or bool");
}

enum cw_dtype cw_lower_literal_dtype(const struct operand *o)
{
    if (o->kind == O_FLOAT)
        return CW_FLOAT64;
    return cw_integer_fits(o->integer, CW_INT64) || !cw_integer_fits(o->integer, CW_UINT64) ? CW_INT64
                                                                                            : CW_UINT64;
}

static void emit_print_i128(cw_i128 v, char out[48])
{
    char digits[48], *p = digits + sizeof(digits);
    bool negative = v < 0;
    unsigned __int128 u = negative ? -(unsigned __int128)v : (unsigned __int128)v;
    *--p = 0;
    do
        *--p = (char)('0' + (int)(u % 10));
    while ((u /= 10));
    if (negative)
        *--p = '-';
    memcpy(out, p, (size_t)(digits + sizeof(digits) - p));
}

int cw_lower_value(struct compiler *c, struct operand *o, enum cw_dtype dtype)
{
    int r = cw_lower_no_bytes(c, o);
    if (r < 0)
        return r;
    if (o->kind == O_REG)
        return cw_lower_convert(c, o, dtype);
    if (o->kind == O_INT && !cw_dtype_is_float(dtype)) {
        if (!cw_integer_fits(o->integer, dtype)) {
            char text[48], low[48] = "0", high[48];
            int bits = (int)cw_dtype_size(dtype) * 8 - cw_dtype_is_signed(dtype);
            emit_print_i128(o->integer, text);
            emit_print_i128(((cw_i128)1 << bits) - 1, high);
            if (cw_dtype_is_signed(dtype))
                emit_print_i128(-((cw_i128)1 << bits), low);
            return CW_LOWER_FAIL(
                c, o->node, "%s is out of range for %s: expected %s to %s, or a cast of the other operand",
                text, cw_dtype_name(dtype), low, high);
        }
        uint64_t v = (uint64_t)o->integer;
        struct operand wide = *o;
        cw_convert(CW_UINT64, dtype, &v, &(uint64_t){v}, 1);
        r = cw_lower_reg_constant(c, dtype, &v, 8, &wide);
        *o = wide;
        return r;
    }
    double d = o->kind == O_INT ? (double)o->integer : o->real;
    uint64_t v = 0;
    cw_convert(CW_FLOAT64, dtype, &v, &d, 1);
    return cw_lower_reg_constant(c, dtype, &v, 8, o);
}

int cw_lower_any_value(struct compiler *c, struct operand *o)
{
    int r = cw_lower_no_bytes(c, o);
    return r < 0 || o->kind == O_REG ? r : cw_lower_value(c, o, cw_lower_literal_dtype(o));
}

static bool emit_any_fits(const struct operand *o)
{
    return cw_integer_fits(o->integer, CW_INT64) || cw_integer_fits(o->integer, CW_UINT64);
}

enum cw_dtype cw_lower_common_dtype(const struct compiler *c, const struct operand *a,
                                    const struct operand *b)
{
    if (a->kind == O_REG && b->kind == O_REG)
        return cw_promote(dtype_of(c, a), dtype_of(c, b));
    if (a->kind == O_INT && b->kind == O_INT && !(emit_any_fits(a) && emit_any_fits(b)))
        return CW_INT64; /* and the literal that is out of range becomes an error */
    if (a->kind != O_REG && b->kind != O_REG)
        return cw_promote(cw_lower_literal_dtype(a), cw_lower_literal_dtype(b));
    enum cw_dtype t = dtype_of(c, a->kind == O_REG ? a : b);
    const struct operand *literal = a->kind == O_REG ? b : a;
    if (cw_dtype_is_float(t))
        return t;
    return literal->kind == O_FLOAT ? CW_FLOAT64 : t == CW_BOOL ? CW_INT64 : t;
}

int cw_lower_both_values(struct compiler *c, struct operand *a, struct operand *b, enum cw_dtype dtype)
{
    int r = cw_lower_value(c, a, dtype);
    return r < 0 ? r : cw_lower_value(c, b, dtype);
}

int cw_lower_truth(struct compiler *c, struct operand *o)
{
    int r = cw_lower_no_bytes(c, o);
    if (r < 0)
        return r;
    if (o->kind != O_REG)
        return cw_lower_bool_constant(c, o->kind == O_INT ? o->integer != 0 : o->real != 0, o);
    return cw_lower_convert(c, o, CW_BOOL);
}

/* A shape as "[2,3]", without the dtype, which may be the result of a promotion. */
static const char *emit_shape_text(const struct cw_type *t, char buf[160])
{
    struct cw_type plain = *t;
    plain.dtype = CW_BOOL;
    return cw_type_print(&plain, buf) + strlen(cw_dtype_name(CW_BOOL));
}

int cw_lower_result_shape(struct compiler *c, const struct cw_node *node, const struct cw_type *x,
                          const struct cw_type *y, struct cw_type *ret)
{
    struct cw_type type = *ret;
    if (!cw_broadcast(x, y, &type)) {
        char left[160], right[160];
        return CW_LOWER_FAIL(c, node, "shapes don't match: %s and %s", emit_shape_text(x, left),
                             emit_shape_text(y, right));
    }
    if (cw_type_fixed(&type) && cw_type_bytes(&type) > SIZE_MAX / 16)
        return CW_LOWER_FAIL(c, node, "the array that results is too large");
    *ret = type;
    return 0;
}

int cw_lower_binary(struct compiler *c, const struct cw_node *node, enum cw_xop op, unsigned kernel_dtype,
                    enum cw_dtype result, const struct operand *a, const struct operand *b,
                    struct operand *ret)
{
    struct cw_type type = {.dtype = result};
    cw_kernel kernel = cw_kernel_find(op, kernel_dtype);
    if (!kernel)
        return CW_LOWER_FAIL(c, node, "%s is not defined for %s", cw_xop_name(op),
                             cw_dtype_name((enum cw_dtype)kernel_dtype));
    int r = cw_lower_result_shape(c, node, &reg_of(c, a->reg)->type, &reg_of(c, b->reg)->type, &type);
    if (r < 0)
        return r;
    return cw_lower_emit(c, node,
                         (struct cw_instr){.kind = CW_I_BINARY,
                                           .op = op,
                                           .dtype = (enum cw_dtype)kernel_dtype,
                                           .kernel = kernel,
                                           .a = a->reg,
                                           .b = b->reg},
                         &type, ret);
}

enum cw_dtype cw_lower_computing_dtype(enum cw_xop op, enum cw_dtype t)
{
    if (!is_half(t))
        return t;
    return op == CW_X_EXP || op == CW_X_LOG || op == CW_X_POW ? CW_FLOAT64 : CW_FLOAT32;
}

int cw_lower_unary(struct compiler *c, const struct cw_node *node, enum cw_xop op, enum cw_dtype t,
                   struct operand *o, struct operand *ret)
{
    enum cw_dtype computing = cw_lower_computing_dtype(op, t);
    int r = cw_lower_value(c, o, t);
    if (r == 0)
        r = cw_lower_convert(c, o, computing);
    if (r < 0)
        return r;
    cw_kernel kernel = cw_kernel_find(op, computing);
    if (!kernel)
        return CW_LOWER_FAIL(c, node, "%s is not defined for %s", cw_xop_name(op), cw_dtype_name(t));
    struct cw_type type = reg_of(c, o->reg)->type;
    r = cw_lower_emit(
        c, node,
        (struct cw_instr){.kind = CW_I_UNARY, .op = op, .dtype = computing, .kernel = kernel, .a = o->reg},
        &type, ret);
    return r < 0 ? r : cw_lower_convert(c, ret, t);
}
