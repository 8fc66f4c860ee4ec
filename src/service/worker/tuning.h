/*
 * What a worker sets by itself, in the runners of its streams and on its connections to clients: for the log
 * and for pages.c. The loop's thread only.
 */
#pragma once
#include <jansson.h>

struct cw_worker;

/* Logs what is new. A kind of record that changes often is logged each time its number has doubled. */
void cw_tuning_log(struct cw_worker *w);
/* Returns {"streams": [{"stream", "tuning"}], "clients": [{"client", "tuning"}]}; NULL: out of memory. */
json_t *cw_tuning_status(const struct cw_worker *w);
