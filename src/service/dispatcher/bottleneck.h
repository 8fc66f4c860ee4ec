/* The bottleneck of a job: why its ranks wait for batches, from the measurements of the last seconds. For the
 * dashboard and `cachew jobs explain`. */
#pragma once
#include <jansson.h>

#include "service/dispatcher/types.h"

/* Returns {"kind", "waited", "says", "remedy"}, as docs/cli.md describes them; null: the job does not run, or
 * it is not known how long its ranks wait. New reference; NULL: no memory. */
json_t *cw_dp_bottleneck_json(const struct cw_dispatcher *d, const struct job *j);
