/* Which cache point of a stream is used: what its workers measured goes to the policy (policy_step.c), and
 * the policy's choice goes to the workers. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/policy.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Takes note of what a heartbeat says of the worker's cache as a whole. */
void cw_dp_caching_store(struct worker *w, const Cachew__Heartbeat *m);
/* Takes note of what it says of a stream's cache points. A worker that uses another cache point than the
 * chosen one is sent it again, so that nothing is lost with a connection. */
void cw_dp_caching_heard(struct cw_dispatcher *d, struct assignment *t, const Cachew__StreamWork *x);
bool cw_dp_caching_open(const struct stream *s); /* there is something to decide */
/* For people: its cache points, what they hold and take; null: there is nothing to decide. New, or NULL: no
 * memory. */
json_t *cw_dp_caching_json(const struct stream *s);
/* Fills in cache points (CW_POLICY_CACHE_POINTS of them), which f points to then, and storage. Names are
 * valid until the next heartbeat. */
void cw_dp_caching_facts(const struct stream *s, double per_batch, struct cw_facts *f,
                         struct cw_cache_point_facts *cache_points);
/* Chooses a cache point of the facts (-1: none), and sends it to the workers. */
void cw_dp_caching_choose(struct cw_dispatcher *d, struct stream *s, int cache_point);
