/* The attribute `pad` of batch and bucket_by_length: how the components of a batch are padded. */
#pragma once
#include "pipeline/roles.h"

/* Checks the attribute, for bind. */
int cw_padding_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err) _must_check_;
/* cw_batcher.padding of both operators. */
int cw_padding_read(const struct cw_op *op, const char *component, const struct cw_type *type,
                    struct cw_padding *ret, struct cw_error *err) _must_check_;
