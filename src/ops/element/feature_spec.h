/*
 * Feature specs: the values that an operator takes from each record. They come from the attribute `features`
 * of parse_example and jsonl, or `components` of tar: {name: DTYPE}, or {name: {key, dtype, shape, variable,
 * default}}.
 */
#pragma once
#include "pipeline/op.h"

struct cw_feature_spec {
    const char *key; /* name of the values in the record; owned by the attributes */
    size_t key_size;
    enum cw_dtype dtype;
    bool variable; /* the record may have any multiple of n_values; the component's first dimension varies */
    int64_t
        n_values;  /* number of values of an element; if variable, of each step along the first dimension */
    unsigned port; /* output port of the operator */
    bool has_default;
    int64_t n_default; /* values in def */
    void *def;         /* the default of numbers, converted to dtype */
    const char *text;  /* the default of bytes; owned by the attributes */
    size_t text_size;
};

struct cw_feature_specs {
    unsigned n;
    struct cw_feature_spec items[CW_OP_MAX_PORTS];
};

struct cw_feature_words {
    const char *attr;     /* "features" */
    const char *noun;     /* "feature": the word for one of them in messages */
    unsigned long dtypes; /* allowed dtypes: the bits 1 << dtype */
};

#define CW_FEATURE_ALL ((1ul << CW_N_DTYPES) - 1)

/* Reads the attribute and declares an output for each name. Stores the specs in op->state, also after an
 * error; cw_feature_specs_free frees them. */
int cw_feature_specs_bind(const struct cw_feature_words *words, struct cw_bind *b, struct cw_op *op,
                          struct cw_error *err) _must_check_;
/* cw_op_desc.free_state */
void cw_feature_specs_free(void *state);

/* Makes columns for the outputs that are live (a later operator or the batch reads them). */
int cw_feature_columns(const struct cw_feature_specs *specs, const struct cw_op *op, struct cw_block *b,
                       struct cw_error *err) _must_check_;
/* Returns memory for a row of n numbers; if the first dimension varies, it is computed from n. NULL: out of
 * memory, err is set. */
void *cw_feature_row(const struct cw_feature_spec *f, const struct cw_port *port, struct cw_block *b,
                     size_t row, int64_t n, struct cw_error *err);
/* Writes the default as the value of a row. */
int cw_feature_default(const struct cw_feature_spec *f, const struct cw_port *port, struct cw_block *b,
                       size_t row, struct cw_error *err) _must_check_;

/* Makes bytes the value of a row. They are not copied: data must live as long as the block. */
static inline void cw_feature_bytes_row(const struct cw_port *port, struct cw_block *b, size_t row,
                                        const void *data, size_t size)
{
    b->columns[port->value].rows[row] = (struct cw_tensor){.data = (void *)data, .size = size};
}
