/* Tuning records: values that a worker adjusts by itself, in the runners of its streams and on its
 * connections to clients. This module writes them to the log, and returns them as JSON for pages.c. The
 * loop's thread only. */
#pragma once
#include <jansson.h>

struct cw_worker;

/* Logs new tuning records. A kind of record that changes often is logged when its count has doubled. */
void cw_tuning_log(struct cw_worker *w);
/* Returns {"streams": [{"stream", "tuning"}], "clients": [{"client", "tuning"}]}; NULL: out of memory. */
json_t *cw_tuning_status(const struct cw_worker *w);
