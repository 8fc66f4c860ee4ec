/*
 * Expressions over components: docs/expressions.md is their definition.
 *
 * An expression is compiled against the types of the components that arrive, into a short program whose
 * instructions are loops over runs of values. A compiled expression is immutable and may be used by all
 * threads at once.
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
#define CW_EXPR_MAX_NESTING 200             /* parentheses, calls, signs inside one another */

/* Finds a component: its port number >= 0 and its type, or a negative status with err filled (the message
 * names the component and its nearest neighbour). cw_bind_read has this shape. Asked once per name and
 * expression. */
typedef int (*cw_expr_lookup)(void *arg, const char *name, struct cw_type *ret_type, struct cw_error *err);

enum cw_expr_use {
    CW_EXPR_VALUE,     /* whatever the expression gives */
    CW_EXPR_CONDITION, /* must be scalar, not bytes; converted to bool: x != 0 */
    CW_EXPR_INTEGER,   /* must be a scalar of an integer dtype or bool; converted to int64 */
};

/* Parses and types an expression. CW_E_PIPELINE with position and reason, or CW_E_MEMORY. */
int cw_expr_compile(const char *text, enum cw_expr_use use, cw_expr_lookup lookup, void *arg,
                    struct cw_expr **ret, struct cw_error *err) _must_check_;
/* The same for an attribute of an operator that is being bound: reads through cw_bind_read; errors name
 * operator, attribute and value. */
struct cw_bind;
int cw_expr_bind(struct cw_bind *b, const struct cw_op *op, const char *attribute, const char *text,
                 enum cw_expr_use use, struct cw_expr **ret, struct cw_error *err) _must_check_;
/* The same for the attribute `where`, a condition. The expression is op->state. cw_op_desc.bind */
int cw_expr_bind_where(struct cw_bind *b, struct cw_op *op, struct cw_error *err) _must_check_;
/* NULL is fine. cw_op_desc.free_state */
void cw_expr_free(void *expr);

/* Type of the result. */
const struct cw_type *cw_expr_type(const struct cw_expr *e);

/* For an operator bound so: whether the condition holds, by row, in the block's arena. */
int cw_expr_where(const struct cw_op *op, struct cw_block *b, const uint8_t **ret,
                  struct cw_error *err) _must_check_;
/*
 * Evaluates over the rows of a block into column `value`, which is made here: dense (in the batch slab where
 * its slots are known) when the type is fixed, else ragged. `in` maps port numbers to value numbers:
 * in[port].value. Rows that are not CW_ROW_OK are never failed; rows that can't be computed are, under the
 * name op. Returns 0, or what ends the run: CW_E_MEMORY, CW_E_BUDGET, CW_E_INTERRUPTED.
 */
int cw_expr_eval(const struct cw_expr *e, const struct cw_port *in, const char *op, struct cw_block *b,
                 unsigned value, struct cw_error *err) _must_check_;
/* The same into an array of the caller: n values of the type (bool bytes or int64 for conditions and
 * integers); the type must be fixed. Rows that are not OK get
 * unspecified values. */
int cw_expr_eval_into(const struct cw_expr *e, const struct cw_port *in, const char *op, struct cw_block *b,
                      void *out, struct cw_error *err) _must_check_;
