/* Reads elements of inputs whose records an operator puts together itself (zip, window), in its source's
 * `load`. */
#pragma once
#include "dataset/seq.h"

/* A record of an input that is loaded. */
struct cw_gathered {
    uint64_t row;         /* row of the input's source */
    struct cw_tensor raw; /* the bytes of the record; empty if the source computes its records */
};

/* Finds and reads the records of input k at the positions l->rows, and stores them in to[i * stride]. e is an
 * epoch of the inputs' sequence, in which input k has source k, and child k of the root. */
int cw_gather_load(struct cw_epoch *e, unsigned k, const struct cw_load *l, struct cw_gathered *to,
                   size_t stride, struct cw_error *err) _must_check_;
