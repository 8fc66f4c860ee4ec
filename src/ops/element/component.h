/* Shared by operators that compute one component of numbers from another one. */
#pragma once
#include "base/macro.h"
#include "pipeline/op.h"

#define CW_COMPONENT_ATTR {.name = "component", .kind = CW_ATTR_COMPONENT, .doc = "the component"}

/* bind: reads the component that `attribute` names, which must not be bytes. Returns the port. */
int cw_component_read(struct cw_bind *b, const struct cw_op *op, const char *attribute, const char *name,
                      struct cw_type *ret, struct cw_error *err) _must_check_;
/* bind: reads the component that the attribute `component` names as port 0, as cw_component_read does. */
int cw_component_bind(struct cw_bind *b, const struct cw_op *op, struct cw_type *ret,
                      struct cw_error *err) _must_check_;
/* bind: writes a result under the name in the attribute `name_attribute`. CW_E_PIPELINE if the type has more
 * than CW_MAX_NDIM dimensions or is too large. */
int cw_component_write(struct cw_bind *b, const struct cw_op *op, const char *name_attribute,
                       const struct cw_type *type, struct cw_error *err) _must_check_;

/* A shape as text, "[2,3]", for messages. */
const char *cw_component_shape(const int64_t *dims, int ndim, char buf[160]);

/* Returns the error's status after a function that has no result has set err. */
static inline int cw_component_status(const struct cw_error *err)
{
    return err && err->status < 0 ? err->status : CW_E_MEMORY;
}

/* Returns the number of values of a tensor. */
static inline size_t cw_component_values(const struct cw_tensor *t, enum cw_dtype dtype)
{
    return t->size / cw_dtype_size(dtype);
}

/* Computes n values of port 0 into dst. state: op->state. */
typedef void (*cw_component_values_fn)(const struct cw_op *op, void *dst, const void *src, size_t n,
                                       void *scratch);
/* run of an operator that computes each row's values by themselves, into output port 0 of the same shape:
 * calls `values` for all rows at once if both columns are dense, else row by row. If scratch_bytes is not 0,
 * `values` gets so many bytes of scratch memory per value. */
int cw_component_run(const struct cw_op *op, struct cw_block *block, cw_component_values_fn values,
                     size_t scratch_bytes, struct cw_error *err) _must_check_;
