/*
 * Sends what streams answer to the clients that requested it: batches by descriptor to clients on this host,
 * else gathered from where they lie. The loop's thread only; called by clients.c and worker.c.
 */
#pragma once
#include "service/worker/client.h"

/* Sends an answer, which it takes over, to its client, if that is still connected. */
void cw_answers_send(struct cw_worker_stream *s, struct cw_answer *a);
/* Answers request `re`: this worker has no such range. */
int cw_answers_send_not_here(struct cw_client *c, uint64_t re, uint64_t epoch, uint64_t begin,
                             struct cw_error *err) _must_check_;
