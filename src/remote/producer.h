/* The producer of a job, as the iterator sees it: its life, and the table of its functions. */
#pragma once
#include "remote/remote.h"

struct remote;

extern const struct cw_producer_ops cw_remote_ops;

/* Makes the job of o, where state (may be NULL) says how far it is. Nothing runs yet. */
int cw_remote_new(const struct cw_compiled *compiled, const struct cw_remote_options *o,
                  const struct cw_iterator_options *io, const json_t *state, struct remote **ret,
                  struct cw_error *err) _must_check_;
/* Ends its thread and connections, and frees it. */
void cw_remote_free(struct remote *r);
