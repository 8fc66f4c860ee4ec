/*
 * Queries the policy: what clients and workers measured since the last query goes in; a number of workers and
 * a cache point come out, with a record of why. worker_sets.c and caching.c carry it out. Policies are pure
 * functions (policy/policy.h), the same ones that the simulator plays. A dispatcher without a policy queries
 * auto where to cache, for the workers that there are.
 */
#pragma once
#include "service/dispatcher/types.h"

/* Queries the policy for each job whose time has come: once a second, as clients and workers report. */
void cw_dp_policy_tick(struct cw_dispatcher *d);
