/* Answers of workers to Prepare, and failures at a stream. The first Prepared sets the stream's plan and
 * starts its jobs. If no worker can serve the stream, its jobs end. */
#pragma once
#include <stdint.h>

#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Handles Prepared or Failure in answer to request `re`. */
int cw_dp_prepare_answer(struct cw_dispatcher *d, struct worker *w, uint64_t re, const Cachew__Envelope *m,
                         struct cw_error *err) _must_check_;
/* The worker has opened the stream, as Prepared or Holdings says: compares its plan with the stream's, and
 * makes the assignment ready. */
int cw_dp_prepare_ready(struct cw_dispatcher *d, struct assignment *t, const Cachew__Prepared *p,
                        struct cw_error *err) _must_check_;
/* Handles StreamFailed: the worker gave the stream up. */
int cw_dp_prepare_failed(struct cw_dispatcher *d, struct worker *w, const Cachew__StreamFailed *m,
                         struct cw_error *err) _must_check_;
