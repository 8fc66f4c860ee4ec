/* Objects of a workload file: a table of fields says what may stand in one, and where it goes. */
#pragma once
#include <jansson.h>
#include <stddef.h>

#include "base/error.h"

struct cw_sim_field {
    const char *name; /* NULL: the end */
    double *to;       /* a number; NULL: something else, that who reads the object looks at himself */
    double least, most;

    /* any number; more than `least`, and CW_SIM_LEAST; a whole number */
    enum { CW_SIM_ANY, CW_SIM_MORE, CW_SIM_WHOLE } kind;

    /* of numbers; who reads something else himself says what was expected where it is missing */
    bool required;
};

/* Reads the numbers of an object and finds keys that it should not have. `where` is its name in errors: "",
 * "model.", "jobs[2].". */
int cw_sim_fields(const json_t *object, const char *where, const struct cw_sim_field *fields,
                  struct cw_error *err) _must_check_;
/* The error for a value that is not what was expected; NULL: that is missing. */
int cw_sim_expected(const char *where, const char *name, const json_t *value, const char *expected,
                    struct cw_error *err) _must_check_;
