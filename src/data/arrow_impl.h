/* Shared by the two files that import Arrow data: arrow_schema.c finds the type of a column, arrow_import.c
 * imports its data. */
#pragma once
#include <cachew/arrow.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/type.h"

struct cw_arrow_column {
    struct ArrowSchema *schema;
    struct cw_type type;
    size_t width;        /* fixed-size binary: bytes of an element; else 0 */
    enum cw_dtype index; /* with a dictionary: dtype of the indices */
    /* the chosen rows of the stream; other rows may have nulls */
    const uint64_t *rows; /* borrowed; NULL: all rows */
    uint64_t n_rows;
    const uint8_t *chosen; /* borrowed; if rows is not NULL: bit i says whether row i is one of them */
};

/* Finds the type of a column. CW_E_DATA: the type is not supported. */
int cw_arrow_column(struct ArrowSchema *s, struct cw_arrow_column *ret, struct cw_error *err) _must_check_;

/* Returns a description of an Arrow format for people, such as "a timestamp". Static. */
const char *cw_arrow_format_name(const char *format);

static inline bool cw_arrow_is_list(const char *format)
{
    return format[0] == '+' && (format[1] == 'l' || format[1] == 'L') && format[2] == 0;
}

/* Sets the error `the column "NAME" ...` and returns CW_E_DATA. fmt gives the rest of the sentence. */
int cw_arrow_bad(struct cw_error *err, const char *column, const char *fmt, ...) _printf_(3, 4);
