/*
 * Image operators, one or a run of them, in one pass per row of pixels: decode what is needed, cut and
 * resize, flip, normalise, cast, transpose, and write once. Bit-identical to running them one by one. Any
 * number of threads; an operator's state is immutable.
 */
#pragma once
#include "ops/image/image_role.h"

/* How many operators from ops[0] on can become one: at least 2, or 0. All must work on the same component,
 * each on the one before's result. The caller makes sure that no other operator reads the values between
 * them. */
size_t cw_image_chain_match(const struct cw_op *const *ops, size_t n);

/* Fuses n bound operators (which must outlive the result) into ret: its descriptor is named "image_chain",
 * its input that of the first, its output that of the last; index and position are the first's. 1: they can't
 * be fused. ret->state is freed by ret->desc->free_state. */
int cw_image_chain_new(const struct cw_op *const *ops, unsigned n, struct cw_op *ret,
                       struct cw_error *err) _must_check_;
