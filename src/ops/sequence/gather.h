/* Reads elements of inputs whose records an operator puts together itself (zip, window), in its source's
 * `load`. */
#pragma once
#include "dataset/seq.h"

/* A record of an input that is loaded. */
struct cw_gathered {
    uint64_t row; /* row of the input's source */
    /* the bytes of the record; none if the source computes its records */
    void *data;
    size_t size;
};

static inline struct cw_tensor cw_gathered_raw(const struct cw_gathered *g)
{
    return (struct cw_tensor){.data = g->data, .size = g->size};
}

/* Returns whether the records of a source have bytes. */
static inline bool cw_gather_has_bytes(const struct cw_source *s)
{
    return s->ops->locate || s->ops->load;
}

/* Finds and reads the records of input k at the positions l->rows, and stores them in to[i * stride]. e is an
 * epoch of the inputs' sequence, in which input k has source k, and child k of the root. */
int cw_gather_load(struct cw_epoch *e, unsigned k, const struct cw_load *l, struct cw_gathered *to,
                   size_t stride, struct cw_error *err) _must_check_;
