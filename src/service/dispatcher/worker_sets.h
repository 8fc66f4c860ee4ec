/* Worker sets. With a policy, each stream has a worker set: as many workers of each pool as its job's share.
 * If there are enough workers, each serves only one stream. A member stays as long as possible, because a new
 * worker has to open the data first. */
#pragma once
#include <stdbool.h>

#include "service/dispatcher/types.h"

/* Adjusts the worker sets to the jobs' shares, and tells provisioners how many workers are wanted. */
void cw_dp_worker_sets_update(struct cw_dispatcher *d);
/* Call on each tick: forgets assignments that are outside the worker set and hold no range. */
void cw_dp_worker_sets_tick(struct cw_dispatcher *d);
/* Whether there is a worker that could replace a member of the stream's worker set. */
bool cw_dp_worker_sets_spare(struct cw_dispatcher *d, const struct stream *s);
/* Returns, by pool index, how many workers the job would get if it wanted all. */
const int *cw_dp_worker_sets_most(struct cw_dispatcher *d, struct job *j);
