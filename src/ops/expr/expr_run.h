/* A program on its way through a block: what planning (expr_plan.c) and computing (expr_eval.c) share. */
#pragma once
#include <string.h>

#include "ops/expr/expr_impl.h"
#include "pipeline/op.h"

#define PIECE \
    1024 /* values; 8 KiB of the widest dtype, so that a handful of registers fit the first-level cache */

enum fault { FAULT_NONE, FAULT_DIVISION, FAULT_MODULO, FAULT_POWER, FAULT_EMPTY, FAULT_LENGTH, FAULT_SHAPE };

struct value {       /* a register at run time */
    uint8_t *p;      /* of the piece being computed */
    uint8_t *gather; /* loads: where rows that do not lie one after another are collected */
    size_t taken;    /* bytes of memory that is this register's own */
    size_t n;        /* values per row */
    struct cw_type shape;
};

struct run {
    const struct cw_expr *e;
    const struct cw_port *in;
    const char *op;
    struct cw_block *b;
    struct cw_error *err;
    struct value *values;
    uint8_t *(*spread)[3]; /* per instruction: memory for operands that are broadcast */
    uint8_t *faults;       /* enum fault by row */
    bool faulted;          /* any of them */
    size_t since_look;     /* values computed since cancellation was last looked at */
    size_t rows_at_once, max_n;
    bool in_pieces;             /* one row at a time, its elements PIECE at a time */
    size_t row;                 /* first row of the piece */
    struct cw_type left, right; /* of a shape fault */
};

static inline const struct cw_reg *reg_of(const struct run *x, unsigned r)
{
    return &x->e->regs[r];
}

static inline size_t size_of(const struct run *x, unsigned r)
{
    return cw_dtype_size(reg_of(x, r)->type.dtype);
}

static inline void fault(struct run *x, size_t row, enum fault f)
{
    if (x->faults[row] == FAULT_NONE)
        x->faults[row] = (uint8_t)f;
    x->faulted = true;
}

/* Scratch in the block's arena; NULL and *r < 0 when there is none, or *r was < 0 before. */
void *cw_run_take(struct run *x, size_t bytes, int *r);
/* Values of a shape; false when there are too many. */
bool cw_run_count(const struct cw_type *t, size_t *ret);
/* Shapes of all registers for a row (any row, when none varies). False when operands do not match: x->left,
 * x->right. */
bool cw_run_plan_shapes(struct run *x, size_t row);
/* How many rows at once, and memory for registers. */
int cw_run_plan_memory(struct run *x);
/* Makes a load's values for rows [x->row, x->row + rows) lie one after another: where they are, or gathered.
 */
int cw_run_load(struct run *x, unsigned r, size_t rows);
