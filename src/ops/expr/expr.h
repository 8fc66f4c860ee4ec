/*
 * Expressions over components; docs/expressions.md defines the language.
 *
 * An expression is compiled, for the types of the components that arrive, into a short program. Each
 * instruction is a loop over many values. A compiled expression is immutable, and all threads may use it at
 * once.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macro.h"
#include "data/block.h"
#include "data/type.h"

struct cw_expr;
struct cw_op;
struct cw_port;

#define CW_EXPR_MAX_TEXT ((size_t)64 << 10) /* bytes of an expression */
#define CW_EXPR_MAX_NESTING 200             /* levels of parentheses, calls and signs */

/* Finds a component: returns its port number >= 0 and sets *ret_type, or returns a negative status with err
 * set (the message names the component, and the existing component with the most similar name). cw_bind_read
 * has this type. Called once for each name in an expression. */
typedef int (*cw_expr_lookup)(void *arg, const char *name, struct cw_type *ret_type, struct cw_error *err);

enum cw_expr_use {
    CW_EXPR_VALUE,     /* any result */
    CW_EXPR_CONDITION, /* must be scalar, not bytes; converted to bool: x != 0 */
    CW_EXPR_INTEGER,   /* must be a scalar of an integer dtype or bool; converted to int64 */
};

/* Parses and compiles an expression. The caller frees *ret with cw_expr_free. CW_E_PIPELINE with position and
 * reason, or CW_E_MEMORY. */
int cw_expr_compile(const char *text, enum cw_expr_use use, cw_expr_lookup lookup, void *arg,
                    struct cw_expr **ret, struct cw_error *err) _must_check_;
/* cw_expr_compile for an attribute of an operator that is being bound: finds components by cw_bind_read;
 * errors name the operator, the attribute and its value. */
struct cw_bind;
int cw_expr_bind(struct cw_bind *b, const struct cw_op *op, const char *attribute, const char *text,
                 enum cw_expr_use use, struct cw_expr **ret, struct cw_error *err) _must_check_;
/* cw_op_desc.bind of operators with the attribute `where`, a condition: stores the expression in op->state.
 */
int cw_expr_bind_where(struct cw_bind *b, struct cw_op *op, struct cw_error *err) _must_check_;
/* cw_op_desc.free_state. expr may be NULL. */
void cw_expr_free(void *expr);

/* The type of the result, owned by e. */
const struct cw_type *cw_expr_type(const struct cw_expr *e);

/* For an operator bound by cw_expr_bind_where: sets *ret to an array, in the block's arena, with the value of
 * the condition (0 or 1) for each row. */
int cw_expr_where(const struct cw_op *op, struct cw_block *b, const uint8_t **ret,
                  struct cw_error *err) _must_check_;
/*
 * Evaluates an expression over the rows of a block, and makes column `value` of the results: dense if their
 * type is fixed (in the batch's memory if the slots are known), otherwise ragged. `in` gives the value of
 * each port: in[port].value. A row that can't be computed fails, with `op` as the operator; rows that are not
 * CW_ROW_OK never fail. Returns 0, or an error that ends the run: CW_E_MEMORY, CW_E_BUDGET, CW_E_INTERRUPTED.
 */
int cw_expr_eval(const struct cw_expr *e, const struct cw_port *in, const char *op, struct cw_block *b,
                 unsigned value, struct cw_error *err) _must_check_;
/* Evaluates into the caller's array `out`: a value of the expression's type for each row of the block (for
 * conditions a bool byte, for integers an int64). The type must be fixed. Rows that are not CW_ROW_OK get
 * unspecified values. */
int cw_expr_eval_into(const struct cw_expr *e, const struct cw_port *in, const char *op, struct cw_block *b,
                      void *out, struct cw_error *err) _must_check_;
