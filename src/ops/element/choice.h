/*
 * Lists of operators of which each element goes through one: what one_of and maybe share. The operators of a
 * list are bound here and run on the rows that chose the list; the rest of Cachew sees one operator.
 */
#pragma once
#include "pipeline/op.h"

/* bind: makes op->state from n lists of operators and their weights, none of which is negative, with a
 * positive sum. A list may be empty. attribute: that of the lists, for errors. */
int cw_choice_bind(struct cw_bind *b, struct cw_op *op, const char *attribute, const json_t *const *lists,
                   const double *weights, size_t n, struct cw_error *err) _must_check_;
/* cw_op_desc.run and cw_op_desc.free_state */
int cw_choice_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err) _must_check_;
void cw_choice_free(void *state);
