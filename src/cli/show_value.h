/* The value of a component in one element, as text for people. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "data/batch.h"

struct cli_value {
    const char *name;
    enum cw_dtype dtype;
    int ndim;
    int64_t dims[CW_MAX_NDIM + 1];
    const uint8_t *data;
    size_t size; /* bytes */
};

/* Sets ret to row `row` of a component of a batch. *offset: where the row begins in the data of a component
 * of bytes; the caller sets it to 0 for row 0. */
void cli_value_of(struct cli_value *ret, const struct cw_batch *b, const struct cw_batch_component *c,
                  uint32_t row, size_t *offset);
/* Adds dtype and shape, such as "uint8[224, 224, 3]"; for bytes their number. */
void cli_value_add_type(const struct cli_value *v, struct cw_text *t);
/* Adds what the value is: up to eight numbers, or the range of the numbers; text, or the first bytes. All of
 * it can be printed. */
void cli_value_add_content(const struct cli_value *v, struct cw_text *t);
/* Adds the peaks of a long series of floats, such as audio, as a row of bars. Nothing: it is none. */
void cli_value_add_peaks(const struct cli_value *v, struct cw_text *t);
