/*
 * Message Prepared of a stream that is ready: its plan, and the files that it is made from, with what is in
 * them. The loop's thread; called by control.c.
 */
#pragma once
#include "service/worker/streams.h"

/* Fills *m and *plan. What they point to stays until the result is freed with free(). NULL: out of memory,
 * and the files are not named. */
void *cw_prepared_message(const struct cw_worker_stream *s, Cachew__Prepared *m, Cachew__Plan *plan);
