/* Parses objects of a workload file. Called by workload.c, pools.c and table.c. */
#include "sim/fields.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "base/text.h"
#include "sim/workload.h"

#define NUMBER_BYTES 32

/* Prints a number with the fewest digits that give the same double: 0.1, and not 0.10000000000000001. */
static const char *number_shortest(double value, char ret[NUMBER_BYTES])
{
    int digits = 15;
    do
        snprintf(ret, NUMBER_BYTES, "%.*g", digits, value);
    while (strtod(ret, NULL) != value && ++digits <= 17);
    return ret;
}

int cw_sim_expected(const char *where, const char *name, const json_t *value, const char *expected,
                    struct cw_error *err)
{
    char path[256], number[NUMBER_BYTES];
    _cleanup_free_ char *text =
        value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) : NULL;
    const char *shown = json_is_real(value) ? number_shortest(json_real_value(value), number)
                        : text              ? text
                                            : "missing";
    snprintf(path, sizeof(path), "%s%s", where, name);
    return cw_error_value(err, CW_E_PIPELINE, path, shown, expected, "%s is %.80s: expected %s", path, shown,
                          expected);
}

static int fields_unknown_key(const char *where, const char *key, const json_t *value,
                              const struct cw_sim_field *fields, struct cw_error *err)
{
    const char *names[32];
    char path[256];
    _cleanup_(cw_text_deinit) struct cw_text expected = {0};
    size_t n = 0;
    for (const struct cw_sim_field *f = fields; f->name && n < CW_COUNT_OF(names); f++)
        names[n++] = f->name;
    const char *near = cw_nearest(key, names, n);
    if (near)
        cw_text_add(&expected, "\"%s\"?", near);
    for (size_t i = 0; i < n && !near; i++)
        cw_text_add(&expected, "%s %s", i ? "," : "one of", names[i]);
    snprintf(path, sizeof(path), "%s%.100s", where, key);
    return cw_error_value(err, CW_E_PIPELINE, path, "unknown", expected.data ? expected.data : "",
                          "unknown key %s: %s %.255s", path, near ? "did you mean" : "expected",
                          expected.data ? expected.data : "");
}

static int fields_number(const char *where, const struct cw_sim_field *f, const json_t *value,
                         struct cw_error *err)
{
    char expected[128], low[NUMBER_BYTES], high[NUMBER_BYTES];
    bool more = f->kind == CW_SIM_MORE && f->least >= CW_SIM_LEAST;
    double v = json_number_value(value),
           least = f->kind == CW_SIM_MORE ? CW_MAX(f->least, CW_SIM_LEAST) : f->least;
    if (json_is_number(value) && (more ? v > least : v >= least) && v <= f->most &&
        (f->kind != CW_SIM_WHOLE || v == floor(v))) {
        *f->to = v;
        return 0;
    }
    if (least == f->most && !more)
        return cw_sim_expected(where, f->name, value, number_shortest(least, low), err);
    snprintf(expected, sizeof(expected), "%s %s %s and at most %s",
             f->kind == CW_SIM_WHOLE ? "a whole number of" : "a number of", more ? "more than" : "at least",
             number_shortest(least, low), number_shortest(f->most, high));
    return cw_sim_expected(where, f->name, value, expected, err);
}

static int fields_text(const char *where, const struct cw_sim_field *f, const json_t *value,
                       struct cw_error *err)
{
    *f->text = json_string_value(value);
    if (*f->text && strlen(*f->text) >= f->least)
        return 0;
    return cw_sim_expected(where, f->name, value, f->least > 0 ? "a string that is not empty" : "a string",
                           err);
}

int cw_sim_fields(const json_t *object, const char *where, const struct cw_sim_field *fields,
                  struct cw_error *err)
{
    const char *key;
    json_t *value;
    char name[200];
    size_t size = strlen(where);
    snprintf(name, sizeof(name), "%.*s", (int)(size ? size - 1 : 0), where);
    if (!json_is_object(object))
        return cw_sim_expected("", size ? name : "the workload", object, "an object", err);
    json_object_foreach((json_t *)object, key, value)
    {
        const struct cw_sim_field *f = fields;
        while (f->name && strcmp(f->name, key) != 0)
            f++;
        if (!f->name)
            return fields_unknown_key(where, key, value, fields, err);
        int r = f->to ? fields_number(where, f, value, err) : 0;
        if (r < 0)
            return r;
    }
    for (const struct cw_sim_field *f = fields; f->name; f++)
        if (f->required && !json_object_get(object, f->name))
            return fields_number(where, f, NULL, err);
    for (const struct cw_sim_field *f = fields; f->name; f++) {
        value = json_object_get(object, f->name);
        snprintf(name, sizeof(name), "%s%s.", where, f->name);
        int r = f->fields && value ? cw_sim_fields(value, name, f->fields, err)
                : f->text          ? fields_text(where, f, value, err)
                                   : 0;
        if (r < 0)
            return r;
    }
    return 0;
}
