/* Serves requests for placed ranges (lease.h): elements by key, as batches or as rows that the client joins,
 * and the keys of all elements in order. Elements stay in the runner until they are sent once. The stream's
 * thread only; called by leases.c. */
#pragma once
#include "service/worker/lease.h"

/* Answers the requests for one range that can be answered now. Returns whether anything was done; false also
 * if the stream failed. */
bool cw_rows_serve(struct cw_leases *s, struct cw_lease *l);
/* Returns the first request for rows of l whose rows are computed. NULL: there is none. */
struct cw_request *cw_rows_first_ready(struct cw_leases *s, const struct cw_lease *l);

/* ---- when memory is full, and nothing can be computed before rows are sent ---- */

/* Sends clients the keys of the elements so far, so that they know which rows to request. Returns whether any
 * were sent; false also if the stream failed. */
bool cw_rows_send_keys(struct cw_leases *s);
/* Call when rows of l fill the memory, and a client requests later rows or keys: of the rows before, it needs
 * only those that it has requested. Drops rows that no client has requested; if one does later, they are
 * computed again. Returns whether any were dropped. Does nothing for pipelines with one key. */
bool cw_rows_give_up(struct cw_leases *s, struct cw_lease *l);
/* Call when memory is short for the request `first` of l. Of the requests for later ranges, drops the part of
 * the last one that has a part. No other request begins a part until `first` is answered. Returns whether
 * there was a part. */
bool cw_rows_give_up_part(struct cw_leases *s, const struct cw_lease *l, const struct cw_request *first);
