/*
 * Which cache point is used of a pipeline that runs in this process: the policy of the dispatcher
 * (policy/policy.h), asked between two batches. What each cache point gives, the runner measures
 * (engine/runner.h). The consumer's thread, but for cw_autocache_report.
 */
#pragma once
#include "session/local.h"

struct cw_autocache;
/* l has its iterator, made with these options, and a cache; its runner is adaptive. NULL without memory: then
 * it stays with the cache point that it began with. */
struct cw_autocache *cw_autocache_new(const struct cw_local *l, const struct cw_iterator_options *o);
struct cw_autocache *cw_autocache_free(struct cw_autocache *a);
/* The next batch is asked for; it came. */
void cw_autocache_asked(struct cw_autocache *a);
void cw_autocache_got(struct cw_autocache *a, const struct cw_batch *b);
/* Why number i (from 0) was decided so, and what: new, the caller's; NULL: there is none of that number
 * (yet). Any thread. */
char *cw_autocache_why(struct cw_autocache *a, unsigned i);
/* Adds to a report: the cache point in use by name (or null), what was measured of each, and the decisions,
 * each {t, record}. Any thread. */
void cw_autocache_report(struct cw_autocache *a, json_t *report);
