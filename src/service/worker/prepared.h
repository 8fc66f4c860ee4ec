/* Makes the message Prepared for a stream that is ready: its plan, and its data files with the keys of their
 * contents. The loop's thread; called by control.c. */
#pragma once
#include "service/worker/streams.h"

/* Fills in *m and *plan. Free the result with free() when the message is sent, as *m points into it. NULL:
 * out of memory; the message is complete except for the files. */
void *cw_prepared_message(const struct cw_worker_stream *s, Cachew__Prepared *m, Cachew__Plan *plan);
