/* What a verb prints at its end: a result as JSON, or an error. */
#pragma once
#include <jansson.h>

#include "base/error.h"

/* Prints a value as one line and releases it. Returns 0, or 1 when there is no memory. main.c checks that
 * stdout could be written. */
int cli_print(json_t *value);
/* Prints an error to stderr and, with json, {"error": {...}, counts...} as the last line of stdout (counts:
 * may be NULL; stays the caller's). Returns the exit code. */
int cli_fail(const struct cw_error *err, bool json, json_t *counts);
