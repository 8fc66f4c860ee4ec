/*
 * Worker sets: with a policy, a stream is computed by as many workers as its job got of each pool, and a
 * worker serves one stream where there are enough of them. A member stays as long as possible: another worker
 * has to open the data first.
 */
#pragma once
#include <stdbool.h>

#include "service/dispatcher/types.h"

/* Makes worker sets as large as jobs' shares, and has provisioners start and end workers. */
void cw_dp_worker_sets_update(struct cw_dispatcher *d);
/* Forgets assignments outside the worker set that hold nothing. */
void cw_dp_worker_sets_tick(struct cw_dispatcher *d);
/* Whether another worker could replace a member. */
bool cw_dp_worker_sets_spare(struct cw_dispatcher *d, const struct stream *s);
/* By pool index, how many workers the job could have, whatever it wants. */
const int *cw_dp_worker_sets_most(struct cw_dispatcher *d, struct job *j);
