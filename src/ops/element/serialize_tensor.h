/* The operators with which the workers' part of a pipeline ends, where it is cut (optimize/cut_point.h). */
#pragma once
#include <jansson.h>
#include <stdbool.h>

#include "base/macro.h"

/* Inserts operators into a chain, from index `at` on, that keep only the n named components, and turn those
 * that are marked into bytes. Returns false if memory is short. */
bool cw_keep_components(json_t *chain, size_t at, const char *const *names, const bool *serialized,
                        unsigned n) _must_check_;
