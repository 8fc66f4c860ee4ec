/*
 * Rows of a placed range that were sent or given away: which rows the runner may drop, and which need the
 * range to be computed again. The stream's thread only; called by lease.c and rows.c.
 */
#pragma once
#include "service/worker/lease.h"

/* Returns the span of a request's rows, made where there is none. NULL: out of memory. */
struct cw_span *cw_span_get(struct cw_lease *l, const struct cw_request *r);
/* Returns whether rows that r requests were dropped, or given away for another request. */
bool cw_spans_rows_gone(const struct cw_lease *l, const struct cw_request *r);
/* Drops rows of a key before `upto`, but for those that are requested. Returns whether any were there. */
bool cw_spans_give_up(struct cw_leases *s, struct cw_lease *l, uint32_t key, uint64_t upto);
/* Notes that the rows of r were sent. Without memory to note that, the rows stay until the range is revoked.
 */
void cw_spans_note_sent(struct cw_lease *l, const struct cw_request *r);
/* Drops the rows of a key that were sent, and their spans. */
void cw_spans_drop(struct cw_leases *s, struct cw_lease *l, uint32_t key);
/* The range was begun again: rows that will not be requested again are not kept. */
void cw_spans_restart(struct cw_leases *s, struct cw_lease *l);
/* Returns whether the range is computed and all its rows were dropped. */
bool cw_spans_all_dropped(const struct cw_leases *s, const struct cw_lease *l);
