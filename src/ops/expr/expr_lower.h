/* From syntax tree to program: what the walk over the tree (expr_compile.c) and the making of instructions
 * (expr_emit.c) share. */
#pragma once
#include "ops/expr/expr_impl.h"

/* What a node gives. Literals stay apart from values as long as they can: their dtype is that of what they
 * meet. */
struct operand {
    enum { O_INT, O_FLOAT, O_REG, O_BYTES, O_STRING } kind;

    cw_i128 integer;
    double real;
    unsigned reg; /* or port of a bytes component */
    const struct cw_node *node;
};

struct compiler {
    struct cw_expr *e;
    cw_expr_lookup lookup;
    void *arg;
    struct cw_error *err;
    size_t regs_capacity, instrs_capacity;

    struct name {
        struct name *next;
        const struct cw_node *node;
        int port;
        struct cw_type type;
        unsigned reg;
        bool loaded;
    } *names;
};

#define CW_LOWER_FAIL(c, node, ...) cw_tree_error(&(c)->e->tree, (node)->at, (c)->err, __VA_ARGS__)

static inline struct cw_reg *reg_of(const struct compiler *c, unsigned r)
{
    return &c->e->regs[r];
}

static inline enum cw_dtype dtype_of(const struct compiler *c, const struct operand *o)
{
    return reg_of(c, o->reg)->type.dtype;
}

static inline bool is_half(enum cw_dtype t)
{
    return t == CW_FLOAT16 || t == CW_BFLOAT16;
}

/* ---- registers ---- */

int cw_lower_reg_new(struct compiler *c, const struct cw_reg *reg, unsigned *ret);
int cw_lower_reg_constant(struct compiler *c, enum cw_dtype dtype, const void *value, size_t size,
                          struct operand *ret);
int cw_lower_bool_constant(struct compiler *c, bool value, struct operand *ret);

/* ---- operands ---- */

/* Fails for bytes and strings. */
int cw_lower_no_bytes(struct compiler *c, const struct operand *o);
/* The dtype a literal has by itself. */
enum cw_dtype cw_lower_literal_dtype(const struct operand *o);
/* Makes o a register of this dtype, which holds it by promotion: literals must fit. */
int cw_lower_value(struct compiler *c, struct operand *o, enum cw_dtype dtype);
/* A register, whatever the dtype. */
int cw_lower_any_value(struct compiler *c, struct operand *o);
int cw_lower_both_values(struct compiler *c, struct operand *a, struct operand *b, enum cw_dtype dtype);
/* A register in another dtype. */
int cw_lower_convert(struct compiler *c, struct operand *o, enum cw_dtype to);
/* x != 0, as bool. */
int cw_lower_truth(struct compiler *c, struct operand *o);
/* numpy.result_type with literals that adapt. */
enum cw_dtype cw_lower_common_dtype(const struct compiler *c, const struct operand *a,
                                    const struct operand *b);
/* The dtype to compute in: half precisions borrow one wide enough for a single rounding at the end. */
enum cw_dtype cw_lower_computing_dtype(enum cw_xop op, enum cw_dtype t);

/* ---- instructions ---- */

/* Appends an instruction whose result has this type, or carries it out when all operands are constants. */
int cw_lower_emit(struct compiler *c, const struct cw_node *node, struct cw_instr in,
                  const struct cw_type *type, struct operand *ret);
/* Shape of two values together; keeps ret's dtype. ret may be one of them. */
int cw_lower_result_shape(struct compiler *c, const struct cw_node *node, const struct cw_type *x,
                          const struct cw_type *y, struct cw_type *ret);
/* A binary instruction over registers of one dtype (or CW_DTYPE_MIXED), with a result of another. */
int cw_lower_binary(struct compiler *c, const struct cw_node *node, enum cw_xop op, unsigned kernel_dtype,
                    enum cw_dtype result, const struct operand *a, const struct operand *b,
                    struct operand *ret);
/* A function of one value of dtype t, with a result of the same. */
int cw_lower_unary(struct compiler *c, const struct cw_node *node, enum cw_xop op, enum cw_dtype t,
                   struct operand *o, struct operand *ret);

/* ---- operators (expr_operators.c) ---- */

/* Arithmetic, bitwise operators, shifts, and min and max of two. */
int cw_lower_arithmetic(struct compiler *c, const struct cw_node *node, enum cw_xop op, struct operand a,
                        struct operand b, struct operand *ret);
int cw_lower_compare(struct compiler *c, const struct cw_node *node, enum cw_xop op, struct operand a,
                     struct operand b, struct operand *ret);
int cw_lower_logical(struct compiler *c, const struct cw_node *node, enum cw_xop op, struct operand a,
                     struct operand b, struct operand *ret);
/* Signs, ~ and not: the node's operator. */
int cw_lower_prefix(struct compiler *c, const struct cw_node *node, struct operand o, struct operand *ret);
