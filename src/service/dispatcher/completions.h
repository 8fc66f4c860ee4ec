/* Completions: a worker reports that it has computed a range, and what the range gave. */
#pragma once
#include <stdint.h>

#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Handles Completed; Done is sent when the report is durable. If two runs of the range gave different things,
 * the jobs of the stream fail: nothing that it delivers can be trusted. */
int cw_dp_completed(struct cw_dispatcher *d, struct worker *w, uint64_t re, const Cachew__Completed *c,
                    struct cw_error *err) _must_check_;
