/* The components that elements have where an operator is bound. Operators use cw_bind_* of op.h; this header
 * is for the compiler. */
#pragma once
#include "pipeline/program.h"

struct cw_bind {
    struct cw_component *components; /* sorted by name */
    unsigned n;
    size_t capacity;
    unsigned next_value;
    struct cw_op *op;         /* the operator being bound */
    const struct cw_op *next; /* the operator after `op` in the chain, not bound yet; or NULL */
    const struct cw_pipeline *pipeline;
};

void cw_bind_deinit(struct cw_bind *b);
/* Returns the component with this name; NULL: there is none. It is valid until components are added or
 * removed. */
struct cw_component *cw_bind_find(const struct cw_bind *b, const char *name);
/* Adds a component with this value number, or replaces the component of that name. */
int cw_bind_put(struct cw_bind *b, const char *name, unsigned value, const struct cw_type *type,
                struct cw_error *err) _must_check_;
