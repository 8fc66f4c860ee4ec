/*
 * What an operator takes from each record, by name: the attribute `features` of parse_example, and
 * those like it of other sources. {name: DTYPE}, or {name: {key, dtype, shape, variable, default}}
 */
#pragma once
#include "pipeline/op.h"

struct cw_feature_spec {
    const char *key; /* in the record; owned by the attributes */
    size_t key_size;
    enum cw_dtype dtype;
    bool variable;    /* any number of values, in multiples of n_values; the component's first dimension */
    int64_t n_values; /* values of each element, unless variable */
    unsigned port;    /* output */
    bool has_default;
    int64_t n_default;
    void *def;        /* numbers: n_default of the dtype */
    const char *text; /* bytes; owned by the attributes */
    size_t text_size;
};

struct cw_feature_specs {
    unsigned n;
    struct cw_feature_spec items[CW_OP_MAX_PORTS];
};

struct cw_feature_words {
    const char *attr;     /* "features" */
    const char *noun;     /* "feature": what messages call one */
    unsigned long dtypes; /* bit 1 << dtype: allowed */
};

#define CW_FEATURE_ALL ((1ul << CW_N_DTYPES) - 1)

/* Reads the attribute and declares an output per name. The specs are op->state, in case of error too. */
int cw_feature_specs_bind(const struct cw_feature_words *words, struct cw_bind *b, struct cw_op *op,
                          struct cw_error *err) _must_check_;
/* cw_op_desc.free_state */
void cw_feature_specs_free(void *state);

/* Columns for the outputs that are live. */
int cw_feature_columns(const struct cw_feature_specs *specs, const struct cw_op *op, struct cw_block *b,
                       struct cw_error *err) _must_check_;
/* Memory for a row of n values of numbers, whose first dimension follows from n where it varies; NULL with
 * err filled. */
void *cw_feature_row(const struct cw_feature_spec *f, const struct cw_port *port, struct cw_block *b,
                     size_t row, int64_t n, struct cw_error *err);
/* The default as a row. */
int cw_feature_default(const struct cw_feature_spec *f, const struct cw_port *port, struct cw_block *b,
                       size_t row, struct cw_error *err) _must_check_;

/* Bytes as a row; they are kept by reference. */
static inline void cw_feature_bytes_row(const struct cw_port *port, struct cw_block *b, size_t row,
                                        const void *data, size_t size)
{
    b->columns[port->value].rows[row] = (struct cw_tensor){.data = (void *)data, .size = size};
}
