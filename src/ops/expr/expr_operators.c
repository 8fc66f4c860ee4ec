/* Compiles each operator: NumPy's dtypes for values, Python's arithmetic between two literals. */
#include <string.h>

#include "data/convert.h"
#include "ops/expr/expr_lower.h"

/* ---- two literals: Python's arithmetic ---- */

static int operator_literal_integer(struct compiler *c, const struct cw_node *node, enum cw_xop op, cw_i128 a,
                                    cw_i128 b, struct operand *ret)
{
    const cw_i128 limit = (cw_i128)1 << 120;
    cw_i128 v = 0;
    bool over = false;
    bool divides = op == CW_X_FLOORDIV || op == CW_X_MOD, shifts = op == CW_X_SHL || op == CW_X_SHR;
    if (divides && b == 0)
        return CW_LOWER_FAIL(c, node, "integer division by zero");
    if (shifts && b < 0)
        return CW_LOWER_FAIL(c, node, "a negative shift count");
    if (divides) {
        v = a % b;
        v += v != 0 && (v < 0) != (b < 0) ? b : 0;
        v = op == CW_X_FLOORDIV ? (a - v) / b : v;
    } else if (op == CW_X_POW) {
        for (v = 1; b > 0 && !over; b >>= 1) {
            if (b & 1)
                over = __builtin_mul_overflow(v, a, &v);
            if (b > 1)
                over |= __builtin_mul_overflow(a, a, &a);
        }
    } else if (op == CW_X_MUL || op == CW_X_SHL) {
        over = op == CW_X_MUL ? __builtin_mul_overflow(a, b, &v)
               : b > 126      ? a != 0
                              : __builtin_mul_overflow(a, (cw_i128)1 << b, &v);
    } else if (op == CW_X_SHR) {
        v = a >> CW_MIN(b, 126);
    } else { /* there are no other operators here */
        v = op == CW_X_ADD      ? a + b
            : op == CW_X_SUB    ? a - b
            : op == CW_X_BITAND ? (a & b)
            : op == CW_X_BITOR  ? (a | b)
                                : (a ^ b);
    }
    if (over || v > limit || v < -limit)
        return CW_LOWER_FAIL(c, node, "this constant is too large: expected at most 120 bits");
    *ret = (struct operand){.kind = O_INT, .integer = v, .node = node};
    return 0;
}

static double operator_literal_real(const struct operand *o)
{
    return o->kind == O_INT ? (double)o->integer : o->real;
}

static int operator_literal_binary(struct compiler *c, const struct cw_node *node, enum cw_xop op,
                                   const struct operand *a, const struct operand *b, struct operand *ret)
{
    bool integers = a->kind == O_INT && b->kind == O_INT;
    if (integers && op != CW_X_DIV && !(op == CW_X_POW && b->integer < 0))
        return operator_literal_integer(c, node, op, a->integer, b->integer, ret);
    double x = operator_literal_real(a), y = operator_literal_real(b), v = 0;
    cw_kernel kernel = cw_kernel_find(op, CW_FLOAT64);
    if (!kernel)
        return CW_LOWER_FAIL(c, node, "%s is not defined for floating point", cw_xop_name(op));
    if (y == 0 && (op == CW_X_DIV || op == CW_X_FLOORDIV || op == CW_X_MOD))
        return CW_LOWER_FAIL(c, node, "division by zero");
    kernel(&v, &x, &y, 1, CW_VV);
    *ret = (struct operand){.kind = O_FLOAT, .real = v, .node = node};
    return 0;
}

static bool operator_literal_compare(enum cw_xop op, const struct operand *a, const struct operand *b)
{
    int order;
    if (a->kind == O_INT && b->kind == O_INT) {
        order = (a->integer > b->integer) - (a->integer < b->integer);
    } else {
        double x = operator_literal_real(a), y = operator_literal_real(b);
        order = (x > y) - (x < y);
    }
    return op == CW_X_LT   ? order < 0
           : op == CW_X_LE ? order <= 0
           : op == CW_X_GT ? order > 0
           : op == CW_X_GE ? order >= 0
                           : (order == 0) == (op == CW_X_EQ);
}

/* ---- operators ---- */

/* Compiles x // d and x % d for a constant d: masks and shifts for powers of two, a multiplication for other
 * divisors. Returns 1 if it did. */
static int operator_divide_by_constant(struct compiler *c, const struct cw_node *node, enum cw_xop op,
                                       enum cw_dtype t, const struct operand *a, const struct operand *b,
                                       struct operand *ret)
{
    if (reg_of(c, b->reg)->kind != CW_REG_CONSTANT)
        return 0;
    uint64_t d;
    cw_convert(t, CW_UINT64, &d, reg_of(c, b->reg)->constant, 1);
    if (d == 0 || (cw_dtype_is_signed(t) && d >> 63))
        return 0;
    struct operand k = *b;
    uint64_t constant[4] = {0};
    enum cw_xop how = op == CW_X_MOD ? CW_X_MOD_BY : CW_X_FLOORDIV_BY;
    if ((d & (d - 1)) == 0) {
        how = op == CW_X_MOD ? CW_X_BITAND : CW_X_SHR;
        cw_convert(CW_UINT64, t, constant, &(uint64_t){op == CW_X_MOD ? d - 1 : (uint64_t)__builtin_ctzll(d)},
                   1);
    } else {
        struct cw_divisor by = cw_divisor_make(d, t == CW_UINT64);
        memcpy(constant, &by, sizeof(by));
    }
    int r = cw_lower_reg_constant(c, t, constant, sizeof(constant), &k);
    if (r == 0)
        r = cw_lower_binary(c, node, how, t, t, a, &k, ret);
    return r < 0 ? r : 1;
}

int cw_lower_arithmetic(struct compiler *c, const struct cw_node *node, enum cw_xop op, struct operand a,
                        struct operand b, struct operand *ret)
{
    int r;
    if ((r = cw_lower_no_bytes(c, &a)) < 0 || (r = cw_lower_no_bytes(c, &b)) < 0)
        return r;
    if (a.kind != O_REG && b.kind != O_REG && op != CW_X_MIN && op != CW_X_MAX)
        return operator_literal_binary(c, node, op, &a, &b, ret);
    enum cw_dtype t = cw_lower_common_dtype(c, &a, &b);
    bool boolean = t == CW_BOOL, real = cw_dtype_is_float(t);
    bool square = op == CW_X_POW &&
                  ((b.kind == O_INT && b.integer == 2) || (b.kind == O_FLOAT && b.real == 2.0));
    if (boolean && op == CW_X_SUB)
        return CW_LOWER_FAIL(c, node, "- is not defined for bool: use ^ or !=");
    if (boolean && (op == CW_X_ADD || op == CW_X_MUL))
        op = op == CW_X_ADD ? CW_X_BITOR : CW_X_BITAND;
    else if (boolean &&
             (op == CW_X_FLOORDIV || op == CW_X_MOD || op == CW_X_POW || op == CW_X_SHL || op == CW_X_SHR))
        t = CW_INT8;
    else if (op == CW_X_DIV && !real)
        t = CW_FLOAT64;
    else if (real && op >= CW_X_BITAND && op <= CW_X_SHR)
        return CW_LOWER_FAIL(c, node, "%s is not defined for %s: expected integers", cw_xop_name(op),
                             cw_dtype_name(t));
    if (op == CW_X_POW && !real && b.kind == O_INT && b.integer < 0)
        return CW_LOWER_FAIL(
            c, node, "a negative integer power of an integer: make one of them floating, as in %s ** %lld.0",
            "x", (long long)b.integer);
    if (square) {
        if ((r = cw_lower_value(c, &a, t)) < 0)
            return r;
        b = a;
        op = CW_X_MUL;
    } else if ((r = cw_lower_both_values(c, &a, &b, t)) < 0) {
        return r;
    }
    if ((op == CW_X_FLOORDIV || op == CW_X_MOD) && !cw_dtype_is_float(t) &&
        (r = operator_divide_by_constant(c, node, op, t, &a, &b, ret)) != 0)
        return CW_MIN(r, 0);
    enum cw_dtype computing = cw_lower_computing_dtype(op, t);
    if ((r = cw_lower_both_values(c, &a, &b, computing)) < 0)
        return r;
    /* Of 0.0 and -0.0 NumPy's float16 takes the first operand, its wider types the second. */
    bool exchange = (op == CW_X_MIN || op == CW_X_MAX) && is_half(t);
    r = cw_lower_binary(c, node, op, computing, computing, exchange ? &b : &a, exchange ? &a : &b, ret);
    return r < 0 ? r : cw_lower_convert(c, ret, t);
}

static enum cw_xop operator_mirrored(enum cw_xop op)
{
    return op == CW_X_LT   ? CW_X_GT
           : op == CW_X_LE ? CW_X_GE
           : op == CW_X_GT ? CW_X_LT
           : op == CW_X_GE ? CW_X_LE
                           : op;
}

static int operator_compare_bytes(struct compiler *c, const struct cw_node *node, enum cw_xop op,
                                  const struct operand *a, const struct operand *b, struct operand *ret)
{
    if (op == CW_X_NOT_IN) {
        struct operand in;
        int r = operator_compare_bytes(c, node, CW_X_IN, a, b, &in);
        return r < 0 ? r : cw_lower_unary(c, node, CW_X_NOT, CW_BOOL, &in, ret);
    }
    if (op != CW_X_EQ && op != CW_X_NE && op != CW_X_IN)
        return CW_LOWER_FAIL(c, node, "bytes are compared with == and != only");
    if (!is_bytes(c, a) || !is_bytes(c, b))
        return CW_LOWER_FAIL(c, node, "%s of bytes: expected bytes or strings on both sides",
                             cw_xop_name(op));
    return cw_lower_binary(c, node, op, CW_BYTES, CW_BOOL, a, b, ret);
}

int cw_lower_compare(struct compiler *c, const struct cw_node *node, enum cw_xop op, struct operand a,
                     struct operand b, struct operand *ret)
{
    if (is_bytes(c, &a) || is_bytes(c, &b))
        return operator_compare_bytes(c, node, op, &a, &b, ret);
    if (op == CW_X_IN || op == CW_X_NOT_IN)
        return CW_LOWER_FAIL(c, node, "in is for bytes; for numbers write isin(x, [...])");
    if (a.kind != O_REG && b.kind != O_REG)
        return cw_lower_bool_constant(c, operator_literal_compare(op, &a, &b), ret);
    struct operand *literal = a.kind == O_INT   ? &a
                              : b.kind == O_INT ? &b
                                                : NULL,
                   *other = literal == &a ? &b : &a;
    int r;
    if (literal) {
        enum cw_dtype t = cw_lower_common_dtype(c, &a, &b);
        if (!cw_dtype_is_float(t) && !cw_integer_fits(literal->integer, t)) {
            /* The literal is out of the dtype's range, so the result is the same for all values. x == x gives
             * true in the shape of x. */
            bool above = literal->integer > 0;
            struct operand big = {.kind = O_INT, .integer = above ? 1 : -1}, zero = {.kind = O_INT};
            bool always = literal == &b ? operator_literal_compare(op, &zero, &big)
                                        : operator_literal_compare(op, &big, &zero);
            return cw_lower_binary(c, node, always ? CW_X_EQ : CW_X_NE, dtype_of(c, other), CW_BOOL, other,
                                   other, ret);
        }
    } else if (a.kind == O_REG && b.kind == O_REG) {
        enum cw_dtype ta = dtype_of(c, &a), tb = dtype_of(c, &b);
        if (cw_dtype_is_signed(ta) && tb == CW_UINT64)
            return cw_lower_compare(c, node, operator_mirrored(op), b, a, ret);
        if (ta == CW_UINT64 && cw_dtype_is_signed(tb)) {
            if ((r = cw_lower_value(c, &b, CW_INT64)) < 0)
                return r;
            return cw_lower_binary(c, node, op, CW_DTYPE_MIXED, CW_BOOL, &a, &b, ret);
        }
    }
    enum cw_dtype t = cw_lower_common_dtype(c, &a, &b), computing = cw_lower_computing_dtype(op, t);
    if ((r = cw_lower_both_values(c, &a, &b, t)) < 0 || (r = cw_lower_both_values(c, &a, &b, computing)) < 0)
        return r;
    if (op == CW_X_GT || op == CW_X_GE)
        return cw_lower_binary(c, node, operator_mirrored(op), computing, CW_BOOL, &b, &a, ret);
    return cw_lower_binary(c, node, op, computing, CW_BOOL, &a, &b, ret);
}

int cw_lower_logical(struct compiler *c, const struct cw_node *node, enum cw_xop op, struct operand a,
                     struct operand b, struct operand *ret)
{
    int r;
    if ((r = cw_lower_truth(c, &a)) < 0 || (r = cw_lower_truth(c, &b)) < 0)
        return r;
    return cw_lower_binary(c, node, op == CW_X_AND ? CW_X_BITAND : CW_X_BITOR, CW_BOOL, CW_BOOL, &a, &b, ret);
}

int cw_lower_prefix(struct compiler *c, const struct cw_node *node, struct operand o, struct operand *ret)
{
    int r = cw_lower_no_bytes(c, &o);
    if (r < 0)
        return r;
    if (node->op == CW_X_NOT) {
        r = cw_lower_truth(c, &o);
        return r < 0 ? r : cw_lower_unary(c, node, CW_X_NOT, CW_BOOL, &o, ret);
    }
    if (o.kind != O_REG) {
        if (node->op == CW_X_INVERT && o.kind == O_FLOAT)
            return CW_LOWER_FAIL(c, node, "~ is not defined for floating point");
        o.integer = node->op == CW_X_NEG ? -o.integer : node->op == CW_X_INVERT ? ~o.integer : o.integer;
        o.real = node->op == CW_X_NEG ? -o.real : o.real;
        o.node = node;
        *ret = o;
        return 0;
    }
    enum cw_dtype t = dtype_of(c, &o);
    if (t == CW_BOOL && node->op != CW_X_INVERT)
        return CW_LOWER_FAIL(c, node, "%s is not defined for bool: use not or ~", cw_xop_name(node->op));
    if (node->op == CW_X_POS) {
        *ret = o;
        return 0;
    }
    return cw_lower_unary(c, node, t == CW_BOOL ? CW_X_NOT : node->op, t, &o, ret);
}
