/* A program that runs over a block: shared by planning (expr_plan.c) and computing (expr_eval.c). */
#pragma once
#include <string.h>

#include "ops/expr/expr_impl.h"
#include "pipeline/op.h"

#define PIECE \
    1024 /* values computed at a time: 8 KiB of the widest dtype, so that several registers fit the \
            first-level cache */

enum fault {
    FAULT_NONE,
    FAULT_DIVISION,
    FAULT_MODULO,
    FAULT_POWER,
    FAULT_EMPTY,
    FAULT_LENGTH,
    FAULT_SHAPE,
    FAULT_INDEX
};

struct value {       /* a register at run time */
    uint8_t *p;      /* values of the current piece: the rows or elements that are computed at a time */
    uint8_t *gather; /* buffer for rows or values that are not contiguous in memory */
    size_t taken;    /* bytes of memory that this register owns */
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
    bool faulted;          /* a row has a fault */
    int status;            /* < 0: an instruction got no memory; err says why */
    size_t since_look;     /* values computed since cancellation was last checked */
    size_t rows_at_once, max_n;
    bool in_pieces;             /* one row at a time, its elements PIECE at a time */
    size_t row;                 /* first row of the piece */
    struct cw_type left, right; /* FAULT_SHAPE: the shapes that don't match */
};

static inline const struct cw_reg *reg_of(const struct run *x, unsigned r)
{
    return &x->e->regs[r];
}

static inline size_t size_of(const struct run *x, unsigned r)
{
    return cw_value_size(reg_of(x, r)->type.dtype);
}

/* Records the first fault of a row. */
static inline void fault(struct run *x, size_t row, enum fault f)
{
    if (x->faults[row] == FAULT_NONE)
        x->faults[row] = (uint8_t)f;
    x->faulted = true;
}

/* Returns scratch memory in the block's arena. NULL: *r was < 0 already, or memory is short and *r is set. */
void *cw_run_take(struct run *x, size_t bytes, int *r);
/* Sets *ret to the number of values of a shape; false: too many. */
bool cw_run_count(const struct cw_type *t, size_t *ret);
/* Computes the shapes of all registers for a row (if no shape varies, any row will do). False: the operands
 * x->left and x->right don't match, or there are too many values. */
bool cw_run_plan_shapes(struct run *x, size_t row);
/* Chooses the number of rows computed at once, and allocates memory for registers. */
int cw_run_plan_memory(struct run *x);
/* Makes the values of load r for rows [x->row, x->row + rows) contiguous: in place if they are, otherwise
 * copied to `gather`.
 */
int cw_run_load(struct run *x, unsigned r, size_t rows);
/* Computes an instruction from CW_I_REDUCE on for `rows` rows. May set x->status. */
void cw_run_across(struct run *x, const struct cw_instr *in, size_t rows);
