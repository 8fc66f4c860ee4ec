/* The attribute `pad` of batchers: how the components of a batch are padded. */
#pragma once
#include "pipeline/roles.h"

/* The attributes of batch and rebatch. */
#define CW_BATCH_ATTRS \
    {.name = "size", .kind = CW_ATTR_INT, .min = 1, .max = 1 << 20, .doc = "elements per batch"}, \
        {.name = "drop_remainder", \
         .kind = CW_ATTR_BOOL, \
         .def = "false", \
         .doc = "true: leave out the last batch if it is not full"}, \
        {.name = "pad", \
         .kind = CW_ATTR_OBJECT, \
         .def = "{}", \
         .choices = cw_padding_longest, \
         .scalar_too = true, \
         .doc = \
             "\"longest\": pad components whose shape varies with 0, to the largest size in the batch; a " \
             "number: pad them with it; {component: number}, or {component: {\"value\": number, \"to\": " \
             "[size of each dimension, or null]}}: pad only these components, and to these sizes"}
extern const char *const cw_padding_longest[]; /* the choices of their attribute `pad` */

/* Checks the attribute, for bind. */
int cw_padding_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err) _must_check_;
/* cw_batcher.padding of these operators. */
int cw_padding_read(const struct cw_op *op, const char *component, const struct cw_type *type,
                    struct cw_padding *ret, struct cw_error *err) _must_check_;
