/* Compiles a syntax tree to a program: shared by the walk over the tree (expr_compile.c), the operators
 * (expr_operators.c) and the making of instructions (expr_emit.c). All functions return 0, or a negative
 * status with the error set. */
#pragma once
#include "ops/expr/expr_impl.h"

/* The result of a node. A literal stays a literal as long as possible, because it takes its dtype from the
 * other operand. */
struct operand {
    enum { O_INT, O_FLOAT, O_REG } kind;

    cw_i128 integer;
    double real;
    unsigned reg;
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

static inline bool is_bytes(const struct compiler *c, const struct operand *o)
{
    return o->kind == O_REG && dtype_of(c, o) == CW_BYTES;
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

/* Fails if o is bytes. */
int cw_lower_no_bytes(struct compiler *c, const struct operand *o);
/* Returns the dtype of a literal without another operand. */
enum cw_dtype cw_lower_literal_dtype(const struct operand *o);
/* Makes o a register of this dtype, to which its own dtype can be promoted. A literal must fit the dtype. */
int cw_lower_value(struct compiler *c, struct operand *o, enum cw_dtype dtype);
/* Makes o a register of its own dtype. */
int cw_lower_any_value(struct compiler *c, struct operand *o);
/* cw_lower_value for two operands. */
int cw_lower_both_values(struct compiler *c, struct operand *a, struct operand *b, enum cw_dtype dtype);
/* Casts o, a register, to another dtype. */
int cw_lower_convert(struct compiler *c, struct operand *o, enum cw_dtype to);
/* Makes o the bool o != 0. */
int cw_lower_truth(struct compiler *c, struct operand *o);
/* Returns the common dtype of two operands (numpy.result_type); a literal adapts to the other operand. */
enum cw_dtype cw_lower_common_dtype(const struct compiler *c, const struct operand *a,
                                    const struct operand *b);
/* Returns the dtype to compute op in: for float16 and bfloat16 a wider one, so that the result is rounded
 * only once, at the end. */
enum cw_dtype cw_lower_computing_dtype(enum cw_xop op, enum cw_dtype t);

/* ---- instructions ---- */

/* Appends an instruction whose result has this type, or carries it out when all operands are constants. */
int cw_lower_emit(struct compiler *c, const struct cw_node *node, struct cw_instr in,
                  const struct cw_type *type, struct operand *ret);
/* Sets *ret to the shape of the broadcast of x and y; keeps ret's dtype. ret may be x or y. */
int cw_lower_result_shape(struct compiler *c, const struct cw_node *node, const struct cw_type *x,
                          const struct cw_type *y, struct cw_type *ret);
/* Emits a binary instruction on two registers of dtype kernel_dtype (or CW_DTYPE_MIXED), with a result of
 * dtype `result`. */
int cw_lower_binary(struct compiler *c, const struct cw_node *node, enum cw_xop op, unsigned kernel_dtype,
                    enum cw_dtype result, const struct operand *a, const struct operand *b,
                    struct operand *ret);
/* Emits a function of one value of dtype t, with a result of the same dtype. */
int cw_lower_unary(struct compiler *c, const struct cw_node *node, enum cw_xop op, enum cw_dtype t,
                   struct operand *o, struct operand *ret);
/* Compiles any node of the tree (expr_compile.c). */
int cw_lower_node(struct compiler *c, const struct cw_node *node, struct operand *ret);
/* Sets *ret to the integer literal that the node must be; what: its name in the error. Numbers that int64
 * can't hold become the nearest one within +- 2^62. */
int cw_lower_literal_integer(struct compiler *c, const struct cw_node *node, const char *what, int64_t *ret);

/* ---- arrays and bytes (expr_lower_across.c) ---- */

/* min, max, sum or mean of the values of o, over all of them or along node->axis. */
int cw_lower_reduce(struct compiler *c, const struct cw_node *node, struct operand o, struct operand *ret);
/* x[...]: indices and slices, one dimension after the other. */
int cw_lower_index(struct compiler *c, const struct cw_node *node, struct operand *ret);
/* hash, lower, strip, startswith, endswith. */
int cw_lower_text(struct compiler *c, const struct cw_node *node, struct operand a, struct operand *ret);
/* isin(x, [...]): x compared with each value of the list. */
int cw_lower_isin(struct compiler *c, const struct cw_node *node, struct operand x, struct operand *ret);

/* ---- operators (expr_operators.c) ---- */

/* Arithmetic, bitwise operators, shifts, and min and max of two. */
int cw_lower_arithmetic(struct compiler *c, const struct cw_node *node, enum cw_xop op, struct operand a,
                        struct operand b, struct operand *ret);
int cw_lower_compare(struct compiler *c, const struct cw_node *node, enum cw_xop op, struct operand a,
                     struct operand b, struct operand *ret);
int cw_lower_logical(struct compiler *c, const struct cw_node *node, enum cw_xop op, struct operand a,
                     struct operand b, struct operand *ret);
/* The node's prefix operator: a sign, ~ or not. */
int cw_lower_prefix(struct compiler *c, const struct cw_node *node, struct operand o, struct operand *ret);
