/* What workers answer to Prepare, and that they fail at a stream. The first answer makes the stream's plan
 * known and starts its jobs; if no worker can serve it, its jobs end. */
#pragma once
#include <stdint.h>

#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Handles Prepared or Failure in answer to request `re`. */
int cw_dp_prepare_answer(struct cw_dispatcher *d, struct worker *w, uint64_t re, const Cachew__Envelope *m,
                         struct cw_error *err) _must_check_;
/* The worker has the stream, as Prepared or Holdings says. */
int cw_dp_prepare_ready(struct cw_dispatcher *d, struct assignment *t, const Cachew__Prepared *p,
                        struct cw_error *err) _must_check_;
/* Handles StreamFailed: the worker has nothing of the stream any more. */
int cw_dp_prepare_failed(struct cw_dispatcher *d, struct worker *w, const Cachew__StreamFailed *m,
                         struct cw_error *err) _must_check_;
