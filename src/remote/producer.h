/* The producer of a job: makes and frees it, and the table of its functions for the iterator
 * (order/producer.h). */
#pragma once
#include "optimize/cut_point.h"
#include "remote/remote.h"

struct remote;

extern const struct cw_producer_ops cw_remote_ops;

/* Makes the client of the job that o describes. compiled: the pipeline as written. cut: the client takes it
 * over, also on failure; NULL: workers run all operators. state: the saved state to continue from; may be
 * NULL. Starts no thread yet. */
int cw_remote_new(const struct cw_compiled *compiled, struct cw_cut_point *cut,
                  const struct cw_remote_options *o, const struct cw_iterator_options *io,
                  const json_t *state, struct remote **ret, struct cw_error *err) _must_check_;
/* Stops the loop's thread, closes the connections, and frees r. */
void cw_remote_free(struct remote *r);
