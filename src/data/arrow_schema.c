/* Finds the component types of Arrow columns. Pure functions. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "data/arrow_impl.h"

int cw_arrow_bad(struct cw_error *err, const char *column, const char *fmt, ...)
{
    char what[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return cw_error_set(err, CW_E_DATA, "the column \"%.60s\" %s", column ? column : "", what);
}

static bool arrow_number_format(const char *format, enum cw_dtype *ret)
{
    static const struct {
        char letter;
        enum cw_dtype dtype;
    } formats[] = {
        {'b', CW_BOOL},   {'c', CW_INT8},    {'C', CW_UINT8},   {'s', CW_INT16},
        {'S', CW_UINT16}, {'i', CW_INT32},   {'I', CW_UINT32},  {'l', CW_INT64},
        {'L', CW_UINT64}, {'e', CW_FLOAT16}, {'f', CW_FLOAT32}, {'g', CW_FLOAT64},
    };

    for (size_t i = 0; i < CW_COUNT_OF(formats); i++)
        if (format[0] == formats[i].letter && format[1] == 0) {
            *ret = formats[i].dtype;
            return true;
        }
    return false;
}

const char *cw_arrow_format_name(const char *format)
{
    static const struct {
        const char *prefix, *name;
    } names[] = {
        {"n", "null"},
        {"td", "a date"},
        {"tt", "a time"},
        {"ts", "a timestamp"},
        {"tD", "a duration"},
        {"ti", "an interval"},
        {"d:", "a decimal"},
        {"+s", "a struct"},
        {"+m", "a map"},
        {"+u", "a union"},
        {"+r", "run-end encoded"},
        {"+v", "a list view"},
        {"+l", "a list whose items are not numbers"},
        {"+L", "a list whose items are not numbers"},
        {"+w", "a fixed-size list whose items are not numbers"},
        {"u", "strings"},
        {"U", "strings"},
        {"vu", "strings"},
        {"z", "binary"},
        {"Z", "binary"},
        {"vz", "binary"},
    };

    for (size_t i = 0; i < CW_COUNT_OF(names); i++)
        if (strncmp(format, names[i].prefix, strlen(names[i].prefix)) == 0)
            return names[i].name;
    return "of an unknown type";
}

static int arrow_unsupported(const struct ArrowSchema *top, const struct ArrowSchema *what,
                             struct cw_error *err)
{
    return cw_arrow_bad(err, top->name,
                        "is or holds %s (Arrow format \"%.40s\"), which is not supported: select other "
                        "columns, or cast this one",
                        cw_arrow_format_name(what->format), what->format);
}

static bool arrow_is_binary(const char *format)
{
    format += format[0] == 'v'; /* vu and vz (views) become u and z; vU and vZ do not exist */
    return format[0] && strchr("uUzZ", format[0]) && format[1] == 0;
}

/* Appends the dimensions of nested fixed-size lists of numbers to a type. */
static int arrow_read_numbers(const struct ArrowSchema *top, const struct ArrowSchema *s,
                              struct cw_type *type, struct cw_error *err)
{
    for (; strncmp(s->format, "+w:", 3) == 0 && s->n_children == 1; s = s->children[0]) {
        char *end;
        long long n = strtoll(s->format + 3, &end, 10);
        if (*end || n < 1 || type->ndim == CW_MAX_NDIM)
            return cw_arrow_bad(
                err, top->name,
                "has elements of a shape that is not supported (at most 6 dimensions, each at least 1)");
        type->dims[type->ndim++] = n;
    }
    return !s->dictionary && arrow_number_format(s->format, &type->dtype) ? 0
                                                                          : arrow_unsupported(top, s, err);
}

int cw_arrow_column(struct ArrowSchema *s, struct cw_arrow_column *c, struct cw_error *err)
{
    *c = (struct cw_arrow_column){.schema = s, .type = cw_type_scalar(CW_BYTES)};
    const struct ArrowSchema *values = s;
    if (s->dictionary) {
        if (!arrow_number_format(s->format, &c->index) || !cw_dtype_is_integer(c->index))
            return arrow_unsupported(s, s, err);
        values = s->dictionary;
        if (arrow_is_binary(values->format))
            return 0;
        return arrow_number_format(values->format, &c->type.dtype) && !values->dictionary
                   ? 0
                   : arrow_unsupported(s, values, err);
    }
    if (arrow_is_binary(s->format))
        return 0;
    if (strncmp(s->format, "w:", 2) == 0) {
        char *end;
        long long n = strtoll(s->format + 2, &end, 10);
        c->width = (size_t)n;
        return *end || n < 1 ? arrow_unsupported(s, s, err) : 0;
    }
    if (cw_arrow_is_list(s->format) && s->n_children == 1) {
        c->type.dims[c->type.ndim++] = CW_VARIES;
        return arrow_read_numbers(s, s->children[0], &c->type, err);
    }
    return arrow_read_numbers(s, s, &c->type, err);
}
