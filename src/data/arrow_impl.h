/* What the two files of Arrow's import share: arrow_schema.c says what a column is, arrow_import.c takes its
 * data. */
#pragma once
#include <cachew/arrow.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "data/type.h"

struct cw_arrow_column {
    struct ArrowSchema *schema;
    struct cw_type type;
    size_t width;        /* fixed-size binary: bytes; else 0 */
    enum cw_dtype index; /* with a dictionary: of its indices */
};

/* CW_E_DATA where the type can't be taken. */
int cw_arrow_column(struct ArrowSchema *s, struct cw_arrow_column *ret, struct cw_error *err) _must_check_;

/* What people call a format, "a timestamp". Static. */
const char *cw_arrow_format_name(const char *format);

static inline bool cw_arrow_is_list(const char *format)
{
    return format[0] == '+' && (format[1] == 'l' || format[1] == 'L') && format[2] == 0;
}

/* CW_E_DATA: the column "NAME" ... */
int cw_arrow_bad(struct cw_error *err, const char *column, const char *fmt, ...) _printf_(3, 4);
