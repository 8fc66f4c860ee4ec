/* Copies rows of Arrow's columns. */
#pragma once
#include "formats/arrow.h"
#include "ops/source/row_groups.h"

/* The buffers of a column of a batch in memory. */
struct arrow_values {
    struct cw_arrow_array *array;
    void **buffers; /* owned, with the array */
    size_t n_buffers;
    size_t bytes;
};

/* row_group_format.decode and .free_values. */
int arrow_values_read(const struct row_group_at *at, struct cw_arena *arena, void **ret, size_t *ret_bytes,
                      struct cw_error *err);
void arrow_values_free(void *values);
/* A row_group_format.gather. values NULL: the rows are read in place. */
int arrow_gather(const struct row_group_at *at, const void *values, const struct row_group_wanted *w,
                 size_t n, struct row_group_column *out, size_t n_rows, struct cw_arena *arena,
                 struct cw_error *err);
