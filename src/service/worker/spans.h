/* Keeps track of the rows of a placed range that were sent, or taken from the runner. From this follows which
 * rows the runner may drop, and for which rows the range must be computed again. The stream's thread only;
 * called by lease.c and rows.c. */
#pragma once
#include "service/worker/lease.h"

/* Returns the span of the rows of request r; adds one if there is none. NULL: out of memory. */
struct cw_span *cw_span_get(struct cw_lease *l, const struct cw_request *r);
/* Returns whether the runner does not have all rows of r any more: some were dropped, or taken for another
 * request. */
bool cw_spans_rows_gone(const struct cw_lease *l, const struct cw_request *r);
/* Drops the rows of a key before element `upto`, but none from the first requested row on. Returns whether
 * any were dropped. */
bool cw_spans_give_up(struct cw_leases *s, struct cw_lease *l, uint32_t key, uint64_t upto);
/* Notes that the rows of r were sent. If memory for the note is short, the rows stay until the range is
 * revoked. */
void cw_spans_note_sent(struct cw_lease *l, const struct cw_request *r);
/* Drops the leading rows of a key that were all sent, and their spans. */
void cw_spans_drop(struct cw_leases *s, struct cw_lease *l, uint32_t key);
/* Call when the range was opened again: drops the rows that will not be requested again. */
void cw_spans_restart(struct cw_leases *s, struct cw_lease *l);
/* Returns whether the range is computed and all its rows were dropped. */
bool cw_spans_all_dropped(const struct cw_leases *s, const struct cw_lease *l);
