/* Prints the result of a verb as JSON, or the error that ended the verb. */
#pragma once
#include <jansson.h>

#include "base/error.h"

/* Prints a value as one line of JSON, and drops the caller's reference to it. Returns 0, or 1 if memory is
 * exhausted. main.c checks at the end that stdout could be written. */
int cli_print(json_t *value);
/* Prints an error to stderr and, if json is set, {"error": {...}, counts...} as the last line of stdout.
 * counts: more keys for that object; may be NULL; the caller keeps its reference. Returns the exit code. */
int cli_fail(const struct cw_error *err, bool json, json_t *counts);
