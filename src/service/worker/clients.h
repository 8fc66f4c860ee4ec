/*
 * Connections of clients: listens, and passes the clients' requests to streams. The loop's thread only; owned
 * by worker.c.
 */
#pragma once
#include "service/worker/client.h"

/* Starts to listen. *all must be all zeros; call cw_clients_deinit after an error, too. */
int cw_clients_init(struct cw_clients *all, struct cw_worker_common *common, struct cw_streams *streams,
                    struct cw_error *err) _must_check_;
/* Frees everything. Call after the loop has ended. Accepts all zeros. */
void cw_clients_deinit(struct cw_clients *all);
/* Stops listening, and closes all connections after their queued messages are sent. */
void cw_clients_close(struct cw_clients *all);
/* Closes at once the connections that are still open after cw_clients_close. */
void cw_clients_cut(struct cw_clients *all);
/* Returns the bytes of payloads that were sent over connections, as compressed. */
uint64_t cw_clients_wire_bytes(const struct cw_clients *all);
