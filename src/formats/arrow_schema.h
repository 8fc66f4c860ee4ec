/* Reads Arrow's schemas: fields to columns. Pure functions over bytes in memory. */
#pragma once
#include "formats/arrow.h"

/* Appends the columns of a schema to *ret. CW_E_DATA: err->message says what is wrong, without the file. */
int cw_arrow_schema(struct cw_flatbuffer *b, struct cw_flat_table schema, int64_t version,
                    struct cw_arrow_column **ret, size_t *ret_n, struct cw_error *err) _must_check_;
void cw_arrow_columns_free(struct cw_arrow_column *columns, size_t n);
