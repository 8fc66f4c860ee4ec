/*
 * Decides which cache point a pipeline that runs in this process uses. The dispatcher's policy
 * (policy/policy.h) decides, from one batch to the next; the runner measures what each cache point gives
 * (engine/runner.h). local.c owns the struct. Only the consumer's thread calls these functions, unless a
 * comment says otherwise.
 */
#pragma once
#include "session/local.h"

struct cw_autocache;
/* l must have a cache and an iterator that was made with these options and an adaptive runner. NULL: out of
 * memory; then the first cache point stays in use. */
struct cw_autocache *cw_autocache_new(const struct cw_local *l, const struct cw_iterator_options *o);
struct cw_autocache *cw_autocache_free(struct cw_autocache *a);
/* The consumer calls _requested before it waits for a batch, and _received when it has the batch. */
void cw_autocache_requested(struct cw_autocache *a);
void cw_autocache_received(struct cw_autocache *a, const struct cw_batch *b);
/* Returns decision number i (from 0) and its reason, as text that the caller frees. NULL: there is no
 * decision of that number yet, or it is not kept any more. Any thread. */
char *cw_autocache_why(struct cw_autocache *a, unsigned i);
/* Adds to a report: the number of the cache point in use (or null), the measurements of each cache point, and
 * the decisions, each as {t, record}. Any thread. */
void cw_autocache_report(struct cw_autocache *a, json_t *report);
