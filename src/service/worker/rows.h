/*
 * Serves requests for placed ranges: elements by key, as batches or as rows that the client joins, and the
 * keys of the elements in order. Elements stay in the runner until they were sent once. The stream's thread
 * only; called by leases.c.
 */
#pragma once
#include "service/worker/lease.h"

/* Answers requests of one range as far as possible now. Returns whether anything was done; not where the
 * stream failed. */
bool cw_rows_serve(struct cw_leases *s, struct cw_lease *l);
/* Returns the first request for rows of l that are computed. NULL: there is none. */
struct cw_request *cw_rows_first_ready(struct cw_leases *s, const struct cw_lease *l);

/* ---- when nothing can be computed before rows are taken ---- */

/* Sends clients the keys of elements so far, so that they know which rows to take. Returns whether any were
 * sent; not where the stream failed. */
bool cw_rows_send_keys(struct cw_leases *s);
/* Memory is full of rows of l, and a client requests rows or keys behind them: it needs no more of the rows
 * before than it requested. Drops rows that no client requested; they are computed again for one that does.
 * Returns whether any were dropped. Of pipelines with one key they stay. */
bool cw_rows_give_up(struct cw_leases *s, struct cw_lease *l);
/* Memory is short for the request `first` of l: the last request of a range behind l that has a part gives it
 * back, and no other request begins one before `first` is done. Returns whether there was any. */
bool cw_rows_give_up_part(struct cw_leases *s, const struct cw_lease *l, const struct cw_request *first);
