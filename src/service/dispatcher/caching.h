/* Chooses the cache point of a stream: passes the workers' measurements to the policy (policy_step.c), and
 * the policy's choice to the workers. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/policy.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Stores a heartbeat's numbers about the worker's whole cache. */
void cw_dp_caching_store(struct worker *w, const Cachew__Heartbeat *m);
/* Stores a heartbeat's numbers about a stream's cache points. If the worker does not use the chosen cache
 * point, sends the choice again: the message may have been lost with a connection. */
void cw_dp_caching_heard(struct cw_dispatcher *d, struct assignment *t, const Cachew__StreamWork *x);
bool cw_dp_caching_open(const struct stream *s); /* a worker measured cache points to choose from */
/* Returns the stream's cache points with their measurements as JSON for status pages; null: there is nothing
 * to choose. New reference; NULL: no memory. */
json_t *cw_dp_caching_json(const struct stream *s);
/* Fills in f->storage and cache_points (room for CW_POLICY_CACHE_POINTS), and points f to them. per_batch:
 * positions of a batch. Names are valid until the next heartbeat. */
void cw_dp_caching_facts(const struct stream *s, double per_batch, struct cw_facts *f,
                         struct cw_cache_point_facts *cache_points);
/* Makes a cache point of the facts (its index; -1: no caching) the stream's choice, and sends it to the
 * workers. */
void cw_dp_caching_choose(struct cw_dispatcher *d, struct stream *s, int cache_point);
