/* Parses objects of a workload file. A table of fields says which keys an object may have, and where their
 * values are stored. Called by workload.c, pools.c and table.c. */
#pragma once
#include <jansson.h>
#include <stddef.h>

#include "base/error.h"

struct cw_sim_field {
    const char *name; /* NULL: the end */
    /* At most one of `to`, `fields` and `text` is set. If none is, the caller parses the value. */
    double *to;         /* where the number is stored; NULL: the field is not a number */
    double least, most; /* bounds of the number */

    /* any number; a number of more than `least`, and at least CW_SIM_LEAST; a whole number */
    enum { CW_SIM_ANY, CW_SIM_MORE, CW_SIM_WHOLE } kind;

    bool required; /* the number must be given */
    /* the fields of an object; the object may be missing */
    const struct cw_sim_field *fields;
    const char **text; /* where the string is stored, which must be given; least 1: it must not be empty */
};

/* Parses the numbers, objects and strings of an object, in this order, and rejects unknown keys. where: the
 * prefix of the object's fields in errors, for example "", "model.", "jobs[2].". */
int cw_sim_fields(const json_t *object, const char *where, const struct cw_sim_field *fields,
                  struct cw_error *err) _must_check_;
/* Sets and returns the error for a value that is not as expected. value NULL: the field is missing. */
int cw_sim_expected(const char *where, const char *name, const json_t *value, const char *expected,
                    struct cw_error *err) _must_check_;
