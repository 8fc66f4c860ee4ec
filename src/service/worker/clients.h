/*
 * Connections of clients: listening, and requests, which go on to streams. The loop's thread only; owned by
 * worker.c.
 */
#pragma once
#include "service/worker/client.h"

/* all is zeros; on errors it is to be freed, too. Listens. */
int cw_clients_init(struct cw_clients *all, struct cw_worker_common *common, struct cw_streams *streams,
                    struct cw_error *err) _must_check_;
/* After the loop has ended. Accepts zeros. */
void cw_clients_deinit(struct cw_clients *all);
/* Stops listening and ends all connections, after what is queued was sent. */
void cw_clients_close(struct cw_clients *all);
/* Ends at once the connections that cw_clients_close did not end. */
void cw_clients_cut(struct cw_clients *all);
/* Returns the bytes of payloads, as they went over connections. */
uint64_t cw_clients_wire_bytes(const struct cw_clients *all);
