/*
 * Decides which cache point a pipeline uses that runs in this process. The dispatcher's policy
 * (policy/policy.h) decides between two batches; the runner measures what each cache point gives
 * (engine/runner.h). local.c owns it. The consumer's thread, unless a comment says otherwise.
 */
#pragma once
#include "session/local.h"

struct cw_autocache;
/* l has a cache and its iterator, made with these options; its runner is adaptive. NULL: out of memory; the
 * first cache point stays in use. */
struct cw_autocache *cw_autocache_new(const struct cw_local *l, const struct cw_iterator_options *o);
struct cw_autocache *cw_autocache_free(struct cw_autocache *a);
/* The consumer requests the next batch; it received the batch. */
void cw_autocache_requested(struct cw_autocache *a);
void cw_autocache_received(struct cw_autocache *a, const struct cw_batch *b);
/* Returns decision number i (from 0) and its reason, as text that the caller frees; NULL: there is none of
 * that number (yet). Any thread. */
char *cw_autocache_why(struct cw_autocache *a, unsigned i);
/* Adds to a report: the number of the cache point in use (or null), the measurements of each, and the
 * decisions, each {t, record}. Any thread. */
void cw_autocache_report(struct cw_autocache *a, json_t *report);
