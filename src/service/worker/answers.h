/*
 * Sends the answers of streams to the clients that made the requests. Clients on this host get batches in
 * shared memory; others get them over the connection, without a copy before. The loop's thread only; called
 * by clients.c and control.c.
 */
#pragma once
#include "service/worker/client.h"

/* Sends an answer to its client, if the client is still connected. Takes ownership of the answer. */
void cw_answers_send(struct cw_worker_stream *s, struct cw_answer *a);
/* Answers request `re` with NotHere: this worker does not have the range that begins there. */
int cw_answers_send_not_here(struct cw_client *c, uint64_t re, uint64_t epoch, uint64_t begin,
                             struct cw_error *err) _must_check_;
