/* Syntax tree to program: types by NumPy's rules, constants folded, divisions by literals made cheap. Runs once, before any record. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "ops/convert.h"
#include "ops/expr_impl.h"
#include "pipeline/op.h"

/* What a node gives. Literals stay apart from values as long as they can: their dtype is that of what they meet. */
struct operand {
    enum { O_INT, O_FLOAT, O_REG, O_BYTES, O_STRING } kind;
    cw_i128 integer;
    double real;
    unsigned reg;  /* or port of a bytes component */
    const struct cw_node *node;
};

struct slots { unsigned *free; unsigned n, capacity; };

struct compiler {
    struct cw_expr *e;
    cw_expr_lookup lookup;
    void *arg;
    struct cw_error *err;
    unsigned regs_capacity, instrs_capacity;
    struct slots slots[CW_LEVEL_ELEMENT + 1];
    struct name { struct name *next; const struct cw_node *node; int port; struct cw_type type; unsigned reg; bool loaded; } *names;
};

#define FAIL(c, node, ...) cw_tree_error(&(c)->e->tree, (node)->at, (c)->err, __VA_ARGS__)

static struct cw_reg *reg_of(const struct compiler *c, unsigned r) { return &c->e->regs[r]; }
static enum cw_dtype dtype_of(const struct compiler *c, const struct operand *o) { return reg_of(c, o->reg)->type.dtype; }

/* ---- registers and instructions ---- */

static int grow(struct compiler *c, void *array, unsigned n, unsigned *capacity, size_t size)
{
    void *old, *grown;
    memcpy(&old, array, sizeof(old));
    if (n < *capacity)
        return 0;
    unsigned more = *capacity ? *capacity * 2 : 16;
    grown = realloc(old, more * size);
    if (!grown)
        return cw_error_nomem(c->err, more * size, "an expression");
    memcpy(array, &grown, sizeof(grown));
    *capacity = more;
    return 0;
}

static int reg_new(struct compiler *c, const struct cw_reg *reg, unsigned *ret)
{
    int r = grow(c, &c->e->regs, c->e->n_regs, &c->regs_capacity, sizeof(*reg));
    if (r < 0)
        return r;
    *ret = c->e->n_regs;
    c->e->regs[c->e->n_regs++] = *reg;
    return 0;
}

static int reg_constant(struct compiler *c, enum cw_dtype dtype, const void *value, size_t size, struct operand *ret)
{
    struct cw_reg reg = {.kind = CW_REG_CONSTANT, .level = CW_LEVEL_CONSTANT, .type = cw_type_scalar(dtype)};
    memcpy(reg.constant, value, size);
    ret->kind = O_REG;
    return reg_new(c, &reg, &ret->reg);
}

static int bool_constant(struct compiler *c, bool value, struct operand *ret)
{
    uint8_t v = value;
    return reg_constant(c, CW_BOOL, &v, 1, ret);
}

static void release(struct compiler *c, unsigned r, enum cw_level reader)
{
    struct cw_reg *reg = reg_of(c, r);
    if (reg->kind != CW_REG_TEMP || --reg->refs > 0)
        return;
    /* Values per row may be computed before those per element of the same rows: then they have to last. */
    if (reg->level == CW_LEVEL_ROW && reader == CW_LEVEL_ELEMENT)
        return;
    struct slots *s = &c->slots[reg->level];
    s->free[s->n++] = reg->slot; /* room for all slots is made when a slot is */
}

static int slot_new(struct compiler *c, enum cw_level level, unsigned *ret)
{
    struct slots *s = &c->slots[level];
    if (s->n > 0) {
        *ret = s->free[--s->n];
        return 0;
    }
    int r = grow(c, &s->free, c->e->n_slots, &s->capacity, sizeof(*s->free));
    *ret = c->e->n_slots;
    c->e->n_slots += r == 0;
    return r;
}

static enum cw_level level_of(const struct compiler *c, const struct cw_instr *in, const struct cw_type *type, unsigned n_operands)
{
    if (type->ndim != 0)
        return CW_LEVEL_ELEMENT;
    if (in->kind >= CW_I_REDUCE)
        return CW_LEVEL_ROW;
    enum cw_level level = reg_of(c, in->a)->level;
    if (n_operands > 1)
        level = CW_MAX(level, reg_of(c, in->b)->level);
    if (n_operands > 2)
        level = CW_MAX(level, reg_of(c, in->c)->level);
    return level;
}

static unsigned operands_of(const struct cw_instr *in)
{
    switch (in->kind) {
    case CW_I_BINARY: return 2;
    case CW_I_WHERE: return 3;
    case CW_I_COLUMN_LENGTH:
    case CW_I_BYTES_EQUAL: return 0;
    default: return 1;
    }
}

/* An instruction all of whose operands are constants is carried out here and now. */
static int fold(struct compiler *c, const struct cw_node *node, const struct cw_instr *in, enum cw_dtype dtype, struct operand *ret)
{
    uint64_t value[4] = {0};
    const void *a = reg_of(c, in->a)->constant, *b = reg_of(c, in->b)->constant;
    if (in->kind == CW_I_CONVERT)
        cw_convert(in->dtype, dtype, value, a, 1);
    else if (in->kind == CW_I_WHERE)
        cw_kernel_where(cw_dtype_size(dtype), value, a, b, reg_of(c, in->c)->constant, 1, 1, 1, 1);
    else if (in->kernel(value, a, b, 1, CW_VV))
        return FAIL(c, node, in->op == CW_X_POW ? "a negative integer power of an integer" : "integer division by zero");
    return reg_constant(c, dtype, value, sizeof(value), ret);
}

/* Appends an instruction whose result has this type; its operands lose a reference. */
static int emit(struct compiler *c, const struct cw_node *node, struct cw_instr in, const struct cw_type *type, struct operand *ret)
{
    unsigned n = operands_of(&in);
    struct operand result = {.kind = O_REG, .node = node};
    in.level = level_of(c, &in, type, n);
    if (n < 3)
        in.c = in.a;
    if (n < 2 && n > 0)
        in.b = in.a;
    int r;
    if (in.level == CW_LEVEL_CONSTANT) {
        r = fold(c, node, &in, type->dtype, &result);
        *ret = result;
        return r;
    }
    struct cw_reg reg = {.kind = CW_REG_TEMP, .level = in.level, .type = *type, .refs = 1};
    if ((r = slot_new(c, in.level, &reg.slot)) < 0 || (r = reg_new(c, &reg, &in.dst)) < 0)
        return r;
    if ((r = grow(c, &c->e->instrs, c->e->n_instrs, &c->instrs_capacity, sizeof(in))) < 0)
        return r;
    c->e->instrs[c->e->n_instrs++] = in;
    if (n > 0)
        release(c, in.a, in.level);
    if (n > 1)
        release(c, in.b, in.level);
    if (n > 2)
        release(c, in.c, in.level);
    result.reg = in.dst;
    *ret = result;
    return 0;
}

/* ---- operands to values of a dtype ---- */

static int convert(struct compiler *c, struct operand *o, enum cw_dtype to)
{
    const struct cw_reg *reg = reg_of(c, o->reg);
    if (reg->type.dtype == to)
        return 0;
    struct cw_type type = reg->type;
    type.dtype = to;
    return emit(c, o->node, (struct cw_instr){.kind = CW_I_CONVERT, .dtype = reg->type.dtype, .a = o->reg}, &type, o);
}

static int no_bytes(struct compiler *c, const struct operand *o)
{
    if (o->kind == O_BYTES)
        return FAIL(c, o->node, "component \"%.60s\" is bytes: expected in length(), == or != only", o->node->text);
    if (o->kind == O_STRING)
        return FAIL(c, o->node, "a string: expected beside == or != only");
    return 0;
}

/* The dtype a literal has by itself. */
static enum cw_dtype literal_dtype(const struct operand *o)
{
    if (o->kind == O_FLOAT)
        return CW_FLOAT64;
    return cw_integer_fits(o->integer, CW_INT64) || !cw_integer_fits(o->integer, CW_UINT64) ? CW_INT64 : CW_UINT64;
}

static void print_i128(cw_i128 v, char out[48])
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

/* Makes o a register of this dtype. */
static int value(struct compiler *c, struct operand *o, enum cw_dtype dtype)
{
    int r = no_bytes(c, o);
    if (r < 0)
        return r;
    if (o->kind == O_REG)
        return convert(c, o, dtype);
    if (o->kind == O_INT && !cw_dtype_is_float(dtype)) {
        if (!cw_integer_fits(o->integer, dtype)) {
            char text[48], low[48] = "0", high[48];
            int bits = (int)cw_dtype_size(dtype) * 8 - cw_dtype_is_signed(dtype);
            print_i128(o->integer, text);
            print_i128(((cw_i128)1 << bits) - 1, high);
            if (cw_dtype_is_signed(dtype))
                print_i128(-((cw_i128)1 << bits), low);
            return FAIL(c, o->node, "%s is out of range for %s: expected %s to %s, or a cast of the other operand", text, cw_dtype_name(dtype), low, high);
        }
        uint64_t v = (uint64_t)o->integer;
        struct operand wide = *o;
        cw_convert(CW_UINT64, dtype, &v, &(uint64_t){v}, 1);
        r = reg_constant(c, dtype, &v, 8, &wide);
        *o = wide;
        return r;
    }
    double d = o->kind == O_INT ? (double)o->integer : o->real;
    uint64_t v = 0;
    cw_convert(CW_FLOAT64, dtype, &v, &d, 1);
    return reg_constant(c, dtype, &v, 8, o);
}

/* A register, whatever the dtype. */
static int any_value(struct compiler *c, struct operand *o)
{
    int r = no_bytes(c, o);
    return r < 0 || o->kind == O_REG ? r : value(c, o, literal_dtype(o));
}

/* numpy.result_type with literals that adapt. */
static enum cw_dtype common_dtype(const struct compiler *c, const struct operand *a, const struct operand *b)
{
    if (a->kind == O_REG && b->kind == O_REG)
        return cw_promote(dtype_of(c, a), dtype_of(c, b));
    if (a->kind != O_REG && b->kind != O_REG)
        return cw_promote(literal_dtype(a), literal_dtype(b));
    enum cw_dtype t = dtype_of(c, a->kind == O_REG ? a : b);
    const struct operand *literal = a->kind == O_REG ? b : a;
    if (cw_dtype_is_float(t))
        return t;
    return literal->kind == O_FLOAT ? CW_FLOAT64 : t == CW_BOOL ? CW_INT64 : t;
}

static int both_values(struct compiler *c, struct operand *a, struct operand *b, enum cw_dtype dtype)
{
    int r = value(c, a, dtype);
    return r < 0 ? r : value(c, b, dtype);
}

/* x != 0, as bool. */
static int truth(struct compiler *c, struct operand *o)
{
    int r = no_bytes(c, o);
    if (r < 0)
        return r;
    if (o->kind == O_INT)
        return bool_constant(c, o->integer != 0, o);
    if (o->kind == O_FLOAT)
        return bool_constant(c, o->real != 0, o);
    return convert(c, o, CW_BOOL);
}

/* "[2,3]": without the dtype, which may be one that was promoted to. */
static const char *shape_text(const struct cw_type *t, char buf[160])
{
    struct cw_type plain = *t;
    plain.dtype = CW_BOOL;
    return cw_type_print(&plain, buf) + strlen(cw_dtype_name(CW_BOOL));
}

static int result_shape(struct compiler *c, const struct cw_node *node, unsigned a, unsigned b, struct cw_type *ret)
{
    const struct cw_type *x = &reg_of(c, a)->type, *y = &reg_of(c, b)->type;
    struct cw_type type = *ret;
    if (!cw_broadcast(x, y, &type)) {
        char left[160], right[160];
        return FAIL(c, node, "shapes don't match: %s and %s", shape_text(x, left), shape_text(y, right));
    }
    /* Where a dimension is not known, the shapes may turn out not to match. */
    if (x->ndim != 0 && y->ndim != 0 && (x->ndim < 0 || y->ndim < 0 || !cw_type_fixed(x) || !cw_type_fixed(y)))
        c->e->can_fail = true;
    if (cw_type_fixed(&type) && cw_type_bytes(&type) > SIZE_MAX / 16)
        return FAIL(c, node, "the result is too large");
    *ret = type;
    return 0;
}

/* A binary instruction over registers of one dtype, with a result of another. */
static int binary(struct compiler *c, const struct cw_node *node, enum cw_xop op, unsigned kernel_dtype, enum cw_dtype result,
                  const struct operand *a, const struct operand *b, struct operand *ret)
{
    struct cw_type type = {.dtype = result};
    cw_kernel kernel = cw_kernel_arithmetic(op, kernel_dtype);
    if (!kernel)
        kernel = cw_kernel_math(op, kernel_dtype);
    if (!kernel)
        return FAIL(c, node, "%s is not defined for %s", cw_xop_name(op), cw_dtype_name((enum cw_dtype)kernel_dtype));
    int r = result_shape(c, node, a->reg, b->reg, &type);
    if (r < 0)
        return r;
    return emit(c, node, (struct cw_instr){.kind = CW_I_BINARY, .op = op, .dtype = (enum cw_dtype)kernel_dtype, .kernel = kernel, .a = a->reg, .b = b->reg},
                &type, ret);
}

static bool is_half(enum cw_dtype t) { return t == CW_FLOAT16 || t == CW_BFLOAT16; }

/* The dtype to compute in: half precisions borrow one wide enough for a single rounding at the end. */
static enum cw_dtype computing_dtype(enum cw_xop op, enum cw_dtype t)
{
    if (!is_half(t))
        return t;
    return op == CW_X_EXP || op == CW_X_LOG || op == CW_X_POW ? CW_FLOAT64 : CW_FLOAT32;
}

static int unary(struct compiler *c, const struct cw_node *node, enum cw_xop op, enum cw_dtype t, struct operand *o, struct operand *ret)
{
    enum cw_dtype computing = computing_dtype(op, t);
    int r = value(c, o, t);
    if (r == 0)
        r = convert(c, o, computing);
    if (r < 0)
        return r;
    cw_kernel kernel = cw_kernel_math(op, computing);
    if (!kernel)
        return FAIL(c, node, "%s is not defined for %s", cw_xop_name(op), cw_dtype_name(t));
    struct cw_type type = reg_of(c, o->reg)->type;
    r = emit(c, node, (struct cw_instr){.kind = CW_I_UNARY, .op = op, .dtype = computing, .kernel = kernel, .a = o->reg}, &type, ret);
    return r < 0 ? r : convert(c, ret, t);
}

/* ---- literals among themselves: Python's arithmetic ---- */

static int literal_integer(struct compiler *c, const struct cw_node *node, enum cw_xop op, cw_i128 a, cw_i128 b, struct operand *ret)
{
    const cw_i128 limit = (cw_i128)1 << 120;
    cw_i128 v = 0;
    bool over = false;
    switch (op) {
    case CW_X_ADD: v = a + b; break;
    case CW_X_SUB: v = a - b; break;
    case CW_X_MUL: over = __builtin_mul_overflow(a, b, &v); break;
    case CW_X_FLOORDIV:
    case CW_X_MOD:
        if (b == 0)
            return FAIL(c, node, "integer division by zero");
        v = a % b;
        if (v != 0 && (v < 0) != (b < 0))
            v += b;
        if (op == CW_X_FLOORDIV)
            v = (a - v) / b;
        break;
    case CW_X_POW:
        for (v = 1; b > 0 && !over; b >>= 1) {
            if (b & 1)
                over = __builtin_mul_overflow(v, a, &v);
            if (b > 1)
                over |= __builtin_mul_overflow(a, a, &a);
        }
        break;
    case CW_X_BITAND: v = a & b; break;
    case CW_X_BITOR: v = a | b; break;
    case CW_X_BITXOR: v = a ^ b; break;
    case CW_X_SHL:
    case CW_X_SHR:
        if (b < 0)
            return FAIL(c, node, "a negative shift count");
        if (op == CW_X_SHR)
            v = a >> CW_MIN(b, 126);
        else
            over = b > 126 ? a != 0 : __builtin_mul_overflow(a, (cw_i128)1 << b, &v);
        break;
    default:
        return FAIL(c, node, "%s is not defined for integer literals", cw_xop_name(op));
    }
    if (over || v > limit || v < -limit)
        return FAIL(c, node, "this constant is too large: expected at most 120 bits");
    *ret = (struct operand){.kind = O_INT, .integer = v, .node = node};
    return 0;
}

static double literal_real(const struct operand *o) { return o->kind == O_INT ? (double)o->integer : o->real; }

static int literal_binary(struct compiler *c, const struct cw_node *node, enum cw_xop op, const struct operand *a, const struct operand *b,
                          struct operand *ret)
{
    bool integers = a->kind == O_INT && b->kind == O_INT;
    if (integers && op != CW_X_DIV && !(op == CW_X_POW && b->integer < 0))
        return literal_integer(c, node, op, a->integer, b->integer, ret);
    double x = literal_real(a), y = literal_real(b), v = 0;
    cw_kernel kernel = cw_kernel_arithmetic(op, CW_FLOAT64);
    if (!kernel)
        kernel = cw_kernel_math(op, CW_FLOAT64);
    if (!kernel)
        return FAIL(c, node, "%s is not defined for floating point", cw_xop_name(op));
    if (y == 0 && (op == CW_X_DIV || op == CW_X_FLOORDIV || op == CW_X_MOD))
        return FAIL(c, node, "division by zero");
    kernel(&v, &x, &y, 1, CW_VV);
    *ret = (struct operand){.kind = O_FLOAT, .real = v, .node = node};
    return 0;
}

static bool literal_compare(enum cw_xop op, const struct operand *a, const struct operand *b)
{
    int less, greater;
    if (a->kind == O_INT && b->kind == O_INT) {
        less = a->integer < b->integer;
        greater = a->integer > b->integer;
    } else {
        less = literal_real(a) < literal_real(b);
        greater = literal_real(a) > literal_real(b);
    }
    switch (op) {
    case CW_X_LT: return less;
    case CW_X_LE: return !greater;
    case CW_X_GT: return greater;
    case CW_X_GE: return !less;
    case CW_X_EQ: return !less && !greater;
    default: return less || greater;
    }
}

/* ---- operators ---- */

/* x // d and x % d by a constant d: masks and shifts for powers of two, a multiplication for others. Returns 1 when it did. */
static int divide_by_constant(struct compiler *c, const struct cw_node *node, enum cw_xop op, enum cw_dtype t, const struct operand *a,
                              const struct operand *b, struct operand *ret)
{
    if (reg_of(c, b->reg)->kind != CW_REG_CONSTANT)
        return 0;
    uint64_t d;
    cw_convert(t, CW_UINT64, &d, reg_of(c, b->reg)->constant, 1);
    if (d == 0 || (cw_dtype_is_signed(t) && d >> 63))
        return 0;
    struct operand k = *b;
    int r;
    if ((d & (d - 1)) == 0) {
        uint64_t v = op == CW_X_MOD ? d - 1 : (uint64_t)__builtin_ctzll(d);
        cw_convert(CW_UINT64, t, &v, &(uint64_t){v}, 1);
        r = reg_constant(c, t, &v, 8, &k);
        if (r == 0)
            r = binary(c, node, op == CW_X_MOD ? CW_X_BITAND : CW_X_SHR, t, t, a, &k, ret);
    } else {
        struct cw_divisor by = cw_divisor_make(d, t == CW_UINT64);
        r = reg_constant(c, t, &by, sizeof(by), &k);
        if (r == 0)
            r = binary(c, node, op == CW_X_MOD ? CW_X_MOD_BY : CW_X_FLOORDIV_BY, t, t, a, &k, ret);
    }
    return r < 0 ? r : 1;
}

/* Whether constant b makes it certain that no record fails: not 0 for divisions, not negative for powers. */
static bool harmless(const struct compiler *c, enum cw_xop op, enum cw_dtype t, const struct operand *b)
{
    const struct cw_reg *reg = reg_of(c, b->reg);
    int64_t v;
    if (cw_dtype_is_float(t) || (op == CW_X_POW && !cw_dtype_is_signed(t)))
        return true;
    if (reg->kind != CW_REG_CONSTANT)
        return false;
    cw_convert(t, CW_INT64, &v, reg->constant, 1);
    return op == CW_X_POW ? v >= 0 : v != 0;
}

static int arithmetic(struct compiler *c, const struct cw_node *node, enum cw_xop op, struct operand a, struct operand b, struct operand *ret)
{
    int r;
    if ((r = no_bytes(c, &a)) < 0 || (r = no_bytes(c, &b)) < 0)
        return r;
    if (a.kind != O_REG && b.kind != O_REG && op != CW_X_MIN && op != CW_X_MAX)
        return literal_binary(c, node, op, &a, &b, ret);
    enum cw_dtype t = common_dtype(c, &a, &b);
    bool boolean = t == CW_BOOL, real = cw_dtype_is_float(t);
    bool square = op == CW_X_POW && ((b.kind == O_INT && b.integer == 2) || (b.kind == O_FLOAT && b.real == 2.0));
    if (boolean && op == CW_X_SUB)
        return FAIL(c, node, "- is not defined for bool: use ^ or !=");
    if (boolean && (op == CW_X_ADD || op == CW_X_MUL))
        op = op == CW_X_ADD ? CW_X_BITOR : CW_X_BITAND;
    else if (boolean && (op == CW_X_FLOORDIV || op == CW_X_MOD || op == CW_X_POW || op == CW_X_SHL || op == CW_X_SHR))
        t = CW_INT8;
    else if (op == CW_X_DIV && !real)
        t = CW_FLOAT64;
    else if (real && op >= CW_X_BITAND && op <= CW_X_SHR)
        return FAIL(c, node, "%s is not defined for %s: expected integers", cw_xop_name(op), cw_dtype_name(t));
    if (op == CW_X_POW && !real && b.kind == O_INT && b.integer < 0)
        return FAIL(c, node, "a negative integer power of an integer: make one of them floating, as in %s ** %lld.0", "x", (long long)b.integer);
    if (square) {
        if ((r = value(c, &a, t)) < 0)
            return r;
        b = a;
        reg_of(c, a.reg)->refs++;
        op = CW_X_MUL;
    } else if ((r = both_values(c, &a, &b, t)) < 0) {
        return r;
    }
    if (op == CW_X_FLOORDIV || op == CW_X_MOD || op == CW_X_POW) {
        c->e->can_fail |= !harmless(c, op, t, &b);
        if (!cw_dtype_is_float(t) && op != CW_X_POW && (r = divide_by_constant(c, node, op, t, &a, &b, ret)) != 0)
            return CW_MIN(r, 0);
    }
    enum cw_dtype computing = computing_dtype(op, t);
    if (square && computing != t) { /* one conversion serves both sides */
        reg_of(c, a.reg)->refs--;
        if ((r = convert(c, &a, computing)) < 0)
            return r;
        reg_of(c, a.reg)->refs++;
        b = a;
    } else if ((r = both_values(c, &a, &b, computing)) < 0) {
        return r;
    }
    /* Of 0.0 and -0.0 NumPy's float16 takes the first operand, its wider types the second. */
    bool exchange = (op == CW_X_MIN || op == CW_X_MAX) && is_half(t);
    r = binary(c, node, op, computing, computing, exchange ? &b : &a, exchange ? &a : &b, ret);
    return r < 0 ? r : convert(c, ret, t);
}

static enum cw_xop mirrored(enum cw_xop op)
{
    return op == CW_X_LT ? CW_X_GT : op == CW_X_LE ? CW_X_GE : op == CW_X_GT ? CW_X_LT : op == CW_X_GE ? CW_X_LE : op;
}

static int compare_bytes(struct compiler *c, const struct cw_node *node, enum cw_xop op, struct operand a, struct operand b, struct operand *ret)
{
    if (a.kind == O_STRING && b.kind == O_BYTES) {
        struct operand t = a;
        a = b;
        b = t;
    }
    if (op != CW_X_EQ && op != CW_X_NE)
        return FAIL(c, node, "bytes are compared with == and != only");
    if (a.kind != O_BYTES || (b.kind != O_BYTES && b.kind != O_STRING))
        return FAIL(c, node, "bytes are compared with bytes components and strings only");
    struct cw_instr in = {.kind = CW_I_BYTES_EQUAL, .op = op, .a = a.reg, .b = b.reg};
    if (b.kind == O_STRING) {
        in.string = b.node->text;
        in.string_length = b.node->length;
    }
    struct cw_type type = cw_type_scalar(CW_BOOL);
    return emit(c, node, in, &type, ret);
}

static int compare(struct compiler *c, const struct cw_node *node, enum cw_xop op, struct operand a, struct operand b, struct operand *ret)
{
    if (a.kind >= O_BYTES || b.kind >= O_BYTES)
        return compare_bytes(c, node, op, a, b, ret);
    if (a.kind != O_REG && b.kind != O_REG)
        return bool_constant(c, literal_compare(op, &a, &b), ret);
    struct operand *literal = a.kind == O_INT ? &a : b.kind == O_INT ? &b : NULL, *other = literal == &a ? &b : &a;
    int r;
    if (literal) {
        enum cw_dtype t = common_dtype(c, &a, &b);
        if (!cw_dtype_is_float(t) && !cw_integer_fits(literal->integer, t)) {
            /* Out of the dtype's range: the same for all values. x == x is true everywhere, in the shape of x. */
            bool above = literal->integer > 0;
            struct operand big = {.kind = O_INT, .integer = above ? 1 : -1}, zero = {.kind = O_INT};
            bool always = literal == &b ? literal_compare(op, &zero, &big) : literal_compare(op, &big, &zero);
            reg_of(c, other->reg)->refs++;
            return binary(c, node, always ? CW_X_EQ : CW_X_NE, dtype_of(c, other), CW_BOOL, other, other, ret);
        }
    } else if (a.kind == O_REG && b.kind == O_REG) {
        enum cw_dtype ta = dtype_of(c, &a), tb = dtype_of(c, &b);
        if (cw_dtype_is_signed(ta) && tb == CW_UINT64) {
            struct operand t = a;
            a = b;
            b = t;
            op = mirrored(op);
            ta = CW_UINT64;
            tb = dtype_of(c, &b);
        }
        if (ta == CW_UINT64 && cw_dtype_is_signed(tb)) {
            if ((r = value(c, &b, CW_INT64)) < 0)
                return r;
            return binary(c, node, op, CW_DTYPE_MIXED, CW_BOOL, &a, &b, ret);
        }
    }
    enum cw_dtype t = common_dtype(c, &a, &b), computing = computing_dtype(op, t);
    if ((r = both_values(c, &a, &b, t)) < 0 || (r = both_values(c, &a, &b, computing)) < 0)
        return r;
    if (op == CW_X_GT || op == CW_X_GE)
        return binary(c, node, mirrored(op), computing, CW_BOOL, &b, &a, ret);
    return binary(c, node, op, computing, CW_BOOL, &a, &b, ret);
}

static int logical(struct compiler *c, const struct cw_node *node, enum cw_xop op, struct operand a, struct operand b, struct operand *ret)
{
    int r;
    if ((r = truth(c, &a)) < 0 || (r = truth(c, &b)) < 0)
        return r;
    return binary(c, node, op == CW_X_AND ? CW_X_BITAND : CW_X_BITOR, CW_BOOL, CW_BOOL, &a, &b, ret);
}

static int prefix(struct compiler *c, const struct cw_node *node, struct operand o, struct operand *ret)
{
    int r = no_bytes(c, &o);
    if (r < 0)
        return r;
    if (node->op == CW_X_NOT) {
        struct cw_type type = {.dtype = CW_BOOL};
        if ((r = truth(c, &o)) < 0)
            return r;
        type = reg_of(c, o.reg)->type;
        return emit(c, node, (struct cw_instr){.kind = CW_I_UNARY, .op = CW_X_NOT, .dtype = CW_BOOL, .kernel = cw_kernel_math(CW_X_NOT, CW_BOOL), .a = o.reg},
                    &type, ret);
    }
    if (o.kind != O_REG) {
        if (node->op == CW_X_INVERT && o.kind == O_FLOAT)
            return FAIL(c, node, "~ is not defined for floating point");
        o.integer = node->op == CW_X_NEG ? -o.integer : node->op == CW_X_INVERT ? ~o.integer : o.integer;
        o.real = node->op == CW_X_NEG ? -o.real : o.real;
        o.node = node;
        *ret = o;
        return 0;
    }
    enum cw_dtype t = dtype_of(c, &o);
    if (t == CW_BOOL && node->op != CW_X_INVERT)
        return FAIL(c, node, "%s is not defined for bool: use not or ~", cw_xop_name(node->op));
    if (node->op == CW_X_POS) {
        *ret = o;
        return 0;
    }
    return unary(c, node, t == CW_BOOL ? CW_X_NOT : node->op, t, &o, ret);
}

/* ---- functions ---- */

static int reduce(struct compiler *c, const struct cw_node *node, struct operand o, struct operand *ret)
{
    int r = any_value(c, &o);
    if (r < 0)
        return r;
    *ret = o;
    const struct cw_type from = reg_of(c, o.reg)->type;
    if (from.ndim == 0)
        return 0;
    enum cw_dtype t = from.dtype, computing = computing_dtype(node->op, t);
    if ((r = convert(c, &o, computing)) < 0)
        return r;
    c->e->crosses = true;
    c->e->can_fail |= !cw_type_fixed(&from) || cw_type_bytes(&from) == 0;
    struct cw_type type = cw_type_scalar(computing);
    r = emit(c, node, (struct cw_instr){.kind = CW_I_REDUCE, .op = node->op, .dtype = computing, .a = o.reg}, &type, ret);
    return r < 0 ? r : convert(c, ret, t);
}

static int where(struct compiler *c, const struct cw_node *node, struct operand cond, struct operand a, struct operand b, struct operand *ret)
{
    int r;
    if ((r = truth(c, &cond)) < 0 || (r = no_bytes(c, &a)) < 0 || (r = no_bytes(c, &b)) < 0)
        return r;
    struct cw_type type = {.dtype = common_dtype(c, &a, &b)};
    if ((r = both_values(c, &a, &b, type.dtype)) < 0 || (r = result_shape(c, node, a.reg, b.reg, &type)) < 0)
        return r;
    struct cw_reg branches = {.type = type}; /* the branches' shape, as if it were a register's */
    unsigned joint;
    if ((r = reg_new(c, &branches, &joint)) < 0 || (r = result_shape(c, node, cond.reg, joint, &type)) < 0)
        return r;
    c->e->n_regs--;
    return emit(c, node, (struct cw_instr){.kind = CW_I_WHERE, .op = CW_X_WHERE, .dtype = type.dtype, .a = cond.reg, .b = a.reg, .c = b.reg}, &type, ret);
}

static int lower(struct compiler *c, const struct cw_node *node, struct operand *ret);
static int find_component(struct compiler *c, const struct cw_node *node, struct name **ret);

static int length(struct compiler *c, const struct cw_node *node, struct operand *ret)
{
    const struct cw_node *argument = node->first;
    struct cw_type scalar = cw_type_scalar(CW_INT64);
    struct operand o;
    int r;
    if (argument->kind == CW_NODE_NAME) {
        struct name *n;
        if ((r = find_component(c, argument, &n)) < 0)
            return r;
        if (n->type.dtype == CW_BYTES || n->type.ndim < 0 || (n->type.ndim > 0 && n->type.dims[0] < 0)) {
            c->e->can_fail |= n->type.dtype != CW_BYTES && n->type.ndim < 0;
            return emit(c, node, (struct cw_instr){.kind = CW_I_COLUMN_LENGTH, .op = CW_X_LENGTH, .dtype = n->type.dtype, .a = (unsigned)n->port}, &scalar, ret);
        }
    }
    if ((r = lower(c, argument, &o)) < 0 || (r = any_value(c, &o)) < 0)
        return r;
    const struct cw_type *type = &reg_of(c, o.reg)->type;
    if (type->ndim == 0)
        return FAIL(c, argument, "length of a scalar: expected bytes or an array");
    if (type->ndim > 0 && type->dims[0] >= 0) {
        uint64_t n = (uint64_t)type->dims[0];
        release(c, o.reg, CW_LEVEL_ROW);
        *ret = (struct operand){.node = node};
        return reg_constant(c, CW_INT64, &n, 8, ret);
    }
    c->e->crosses = true;
    c->e->can_fail |= type->ndim < 0;
    return emit(c, node, (struct cw_instr){.kind = CW_I_LENGTH, .op = CW_X_LENGTH, .a = o.reg}, &scalar, ret);
}

static int call(struct compiler *c, const struct cw_node *node, struct operand *ret)
{
    struct operand a, b, third;
    int r;
    if (node->op == CW_X_LENGTH)
        return length(c, node, ret);
    if ((r = lower(c, node->first, &a)) < 0)
        return r;
    if (node->op == CW_X_MIN || node->op == CW_X_MAX) {
        if (node->n_operands == 1)
            return reduce(c, node, a, ret);
        for (const struct cw_node *next = node->first->sibling; next; next = next->sibling)
            if ((r = lower(c, next, &b)) < 0 || (r = arithmetic(c, node, node->op, a, b, &a)) < 0)
                return r;
        *ret = a;
        return 0;
    }
    if (node->op == CW_X_WHERE) {
        if ((r = lower(c, node->first->sibling, &b)) < 0 || (r = lower(c, node->first->sibling->sibling, &third)) < 0)
            return r;
        return where(c, node, a, b, third, ret);
    }
    if ((r = any_value(c, &a)) < 0)
        return r;
    enum cw_dtype t = dtype_of(c, &a);
    bool real = cw_dtype_is_float(t);
    switch (node->op) {
    case CW_X_ABS:
        if (!real && !cw_dtype_is_signed(t))
            break;
        return unary(c, node, CW_X_ABS, t, &a, ret);
    case CW_X_FLOOR:
    case CW_X_CEIL:
    case CW_X_ROUND:
        if (real)
            return unary(c, node, node->op, t, &a, ret);
        if (t == CW_BOOL && node->op == CW_X_ROUND && (r = convert(c, &a, CW_FLOAT16)) < 0)
            return r;
        break;
    default:
        return unary(c, node, node->op, cw_float_for(t), &a, ret);
    }
    *ret = a;
    return 0;
}

static int cast(struct compiler *c, const struct cw_node *node, struct operand *ret)
{
    int r = lower(c, node->first, ret);
    if (r == 0)
        r = no_bytes(c, ret);
    if (r < 0)
        return r;
    if (ret->kind != O_REG && node->dtype == CW_BOOL)
        return truth(c, ret);
    if (ret->kind == O_FLOAT && !cw_dtype_is_float(node->dtype) && (r = value(c, ret, CW_FLOAT64)) < 0)
        return r;
    r = value(c, ret, node->dtype);
    ret->node = node;
    return r;
}

/* ---- the walk ---- */

static int find_component(struct compiler *c, const struct cw_node *node, struct name **ret)
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
        return FAIL(c, node, "%s", why.message);
    }
    struct name *n = calloc(1, sizeof(*n));
    if (!n)
        return cw_error_nomem(c->err, sizeof(*n), "an expression");
    *n = (struct name){.next = c->names, .node = node, .port = port, .type = type};
    c->names = n;
    *ret = n;
    return 0;
}

static int component(struct compiler *c, const struct cw_node *node, struct operand *ret)
{
    struct name *n;
    int r = find_component(c, node, &n);
    if (r < 0)
        return r;
    *ret = (struct operand){.kind = O_BYTES, .reg = (unsigned)n->port, .node = node};
    if (n->type.dtype == CW_BYTES)
        return 0;
    ret->kind = O_REG;
    if (!n->loaded) {
        struct cw_reg reg = {.kind = CW_REG_LOAD, .level = n->type.ndim == 0 ? CW_LEVEL_ROW : CW_LEVEL_ELEMENT, .type = n->type, .port = (unsigned)n->port};
        if ((r = reg_new(c, &reg, &n->reg)) < 0)
            return r;
        n->loaded = true;
        c->e->varies |= !cw_type_fixed(&n->type);
    }
    ret->reg = n->reg;
    return 0;
}

static int comparison(struct compiler *c, const struct cw_node *node, struct operand *ret)
{
    struct operand left, right, all, one;
    int r = lower(c, node->first, &left);
    for (const struct cw_node *next = node->first->sibling; r == 0 && next; next = next->sibling) {
        if ((r = lower(c, next, &right)) < 0)
            return r;
        if (next->sibling && right.kind == O_REG) /* read once more, as the next left side */
            reg_of(c, right.reg)->refs++;
        if ((r = compare(c, node, next->before, left, right, &one)) < 0)
            return r;
        if (next == node->first->sibling)
            all = one;
        else
            r = logical(c, node, CW_X_AND, all, one, &all);
        left = right;
    }
    if (r == 0)
        *ret = all;
    return r;
}

static int lower(struct compiler *c, const struct cw_node *node, struct operand *ret)
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
        return bool_constant(c, node->integer != 0, ret);
    case CW_NODE_STRING:
        ret->kind = O_STRING;
        return 0;
    case CW_NODE_NAME:
        return component(c, node, ret);
    case CW_NODE_UNARY:
        if ((r = lower(c, node->first, &a)) < 0)
            return r;
        return prefix(c, node, a, ret);
    case CW_NODE_BINARY:
        if ((r = lower(c, node->first, &a)) < 0 || (r = lower(c, node->first->sibling, &b)) < 0)
            return r;
        return node->op == CW_X_AND || node->op == CW_X_OR ? logical(c, node, node->op, a, b, ret) : arithmetic(c, node, node->op, a, b, ret);
    case CW_NODE_COMPARE:
        return comparison(c, node, ret);
    case CW_NODE_CALL:
        return call(c, node, ret);
    case CW_NODE_CAST:
        return cast(c, node, ret);
    }
    return CW_E_BUG;
}

static int finish(struct compiler *c, enum cw_expr_use use, struct operand o)
{
    struct cw_expr *e = c->e;
    char text[160];
    int r;
    if (o.kind == O_BYTES && use == CW_EXPR_VALUE) {
        e->is_bytes = true;
        e->bytes_port = o.reg;
        e->type = cw_type_scalar(CW_BYTES);
        return 0;
    }
    if ((r = any_value(c, &o)) < 0)
        return r;
    struct cw_type type = reg_of(c, o.reg)->type;
    if (use != CW_EXPR_VALUE && type.ndim != 0)
        return FAIL(c, e->tree.root, "the result is %s: expected a scalar", cw_type_print(&type, text));
    if (use == CW_EXPR_INTEGER && cw_dtype_is_float(type.dtype))
        return FAIL(c, e->tree.root, "the result is %s: expected an integer", cw_type_print(&type, text));
    r = use == CW_EXPR_CONDITION ? truth(c, &o) : use == CW_EXPR_INTEGER ? value(c, &o, CW_INT64) : 0;
    if (r < 0)
        return r;
    e->result = o.reg;
    e->type = reg_of(c, o.reg)->type;
    e->canonical_nan = cw_dtype_is_float(e->type.dtype) && reg_of(c, o.reg)->kind != CW_REG_LOAD;
    if (reg_of(c, o.reg)->kind == CW_REG_CONSTANT && e->canonical_nan)
        cw_kernel_canonical_nan(e->type.dtype, reg_of(c, o.reg)->constant, 1);
    return 0;
}

int cw_expr_compile(const char *text, enum cw_expr_use use, cw_expr_lookup lookup, void *arg, struct cw_expr **ret, struct cw_error *err)
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
        r = lower(&c, e->tree.root, &o);
    if (r == 0)
        r = finish(&c, use, o);
    while (c.names) {
        struct name *next = c.names->next;
        free(c.names);
        c.names = next;
    }
    for (unsigned i = 0; i < CW_COUNT_OF(c.slots); i++)
        free(c.slots[i].free);
    if (r < 0)
        cw_expr_free(e);
    else
        *ret = e;
    return r;
}

static int lookup_bound(void *arg, const char *name, struct cw_type *ret_type, struct cw_error *err) { return cw_bind_read(arg, name, ret_type, err); }

int cw_expr_bind(struct cw_bind *b, const struct cw_op *op, const char *attribute, const char *text, enum cw_expr_use use, struct cw_expr **ret,
                 struct cw_error *err)
{
    struct cw_error why = {0};
    int r = cw_expr_compile(text, use, lookup_bound, b, ret, &why);
    if (r >= 0 || !err)
        return r;
    cw_error_op(err, op->desc->name);
    cw_error_attribute(err, attribute, text, why.expected[0] ? why.expected : "an expression");
    return cw_error_set(err, why.status, "%s: %s: %.500s", op->desc->name, attribute, why.message);
}

struct cw_expr *cw_expr_free(struct cw_expr *e)
{
    if (!e)
        return NULL;
    cw_tree_deinit(&e->tree);
    free(e->text);
    free(e->regs);
    free(e->instrs);
    free(e);
    return NULL;
}

const struct cw_type *cw_expr_type(const struct cw_expr *e) { return &e->type; }
bool cw_expr_can_fail(const struct cw_expr *e) { return e->can_fail; }
bool cw_expr_is_constant(const struct cw_expr *e) { return !e->is_bytes && e->regs[e->result].kind == CW_REG_CONSTANT; }

int64_t cw_expr_constant(const struct cw_expr *e)
{
    int64_t v = 0;
    cw_convert(e->type.dtype, CW_INT64, &v, e->regs[e->result].constant, 1);
    return v;
}
