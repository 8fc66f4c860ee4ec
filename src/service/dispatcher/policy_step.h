/* Queries the policy. Its input is what clients and workers measured since the last query. Its output is a
 * number of workers and a cache point, with the reasons. worker_sets.c and caching.c carry the decision out.
 * Policies are pure functions (policy/policy.h); the simulator runs the same ones. If the
 * dispatcher was started without a policy, the number of workers is not changed: the policy auto is queried
 * with that number, and only its choice of the cache point counts. */
#pragma once
#include "service/dispatcher/types.h"

/* Queries the policy once a second for each job that needs workers and whose measurements are valid. Call on
 * each tick. */
void cw_dp_policy_tick(struct cw_dispatcher *d);
