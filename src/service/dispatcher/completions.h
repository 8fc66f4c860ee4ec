/* Completions: a worker reports that it has computed a range, with the numbers of batches and elements. */
#pragma once
#include <stdint.h>

#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Handles Completed. Done is sent once the report is durable. If two runs of the range had different results,
 * the jobs of the stream fail, because the pipeline is not deterministic. */
int cw_dp_completed(struct cw_dispatcher *d, struct worker *w, uint64_t re, const Cachew__Completed *c,
                    struct cw_error *err) _must_check_;
