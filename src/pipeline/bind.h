/* The components that an operator sees while it is bound. Operators use cw_bind_* of op.h; this is for the
 * compiler. */
#pragma once
#include "pipeline/program.h"

struct cw_bind {
    struct cw_component *components; /* sorted by name */
    unsigned n;
    size_t capacity;
    unsigned next_value;
    struct cw_op *op;         /* being bound */
    const struct cw_op *next; /* the one after it in the chain, unbound, or NULL */
    const struct cw_pipeline *pipeline;
};

void cw_bind_deinit(struct cw_bind *b);
/* The component of a name; NULL: there is none. */
struct cw_component *cw_bind_find(const struct cw_bind *b, const char *name);
/* A component with a given value number, replacing one of the same name. */
int cw_bind_put(struct cw_bind *b, const char *name, unsigned value, const struct cw_type *type,
                struct cw_error *err) _must_check_;
