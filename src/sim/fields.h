/* Objects of a workload file: a table of fields says what an object may hold, and where its numbers go.
 * Called by the parsers of workloads. */
#pragma once
#include <jansson.h>
#include <stddef.h>

#include "base/error.h"

struct cw_sim_field {
    const char *name; /* NULL: the end */
    double *to;       /* where the number goes; NULL: it is no number */
    double least, most;

    /* any number, more than `least` and CW_SIM_LEAST, or a whole number */
    enum { CW_SIM_ANY, CW_SIM_MORE, CW_SIM_WHOLE } kind;

    bool required; /* of numbers */
    /* of an object, which may be missing: its fields. Neither number, object nor text: the caller parses it
     */
    const struct cw_sim_field *fields;
    const char **text; /* where a text goes, which is required; least 1: it must not be empty */
};

/* Reads the numbers, objects and texts of an object, in this order, and rejects unknown keys. where: the
 * object's name in errors: "", "model.", "jobs[2].". */
int cw_sim_fields(const json_t *object, const char *where, const struct cw_sim_field *fields,
                  struct cw_error *err) _must_check_;
/* The error for a value other than expected; NULL: it is missing. */
int cw_sim_expected(const char *where, const char *name, const json_t *value, const char *expected,
                    struct cw_error *err) _must_check_;
