/*
 * An image chain: several image operators that follow one another, fused into one operator. It passes over
 * the rows of an image once: decodes the needed part, cuts and resizes, flips, normalises, casts, transposes,
 * and writes the result once. The result has the same bits as that of the operators one by one. The
 * operators' annotations move too, each operator's separately. Its state is immutable; any number of threads
 * may run it.
 */
#pragma once
#include "ops/image/image_role.h"

/* Returns the number of operators from ops[0] on that can be fused into one: at least 2, or 0. All must work
 * on the same component, each on the result of the operator before it. The caller makes sure that no other
 * operator reads the values between them. */
size_t cw_image_chain_match(const struct cw_op *const *ops, size_t n);

/* Fuses n bound operators (which must outlive the result) into ret: its descriptor is named "image_chain",
 * its input that of the first, its output that of the last, followed by the annotations of all; index and
 * position are the first's. Returns 1 if
 * they can't be fused. ret->state is freed by ret->desc->free_state. */
int cw_image_chain_new(const struct cw_op *const *ops, unsigned n, struct cw_op *ret,
                       struct cw_error *err) _must_check_;
