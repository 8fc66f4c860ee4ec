/*
 * The connection to the dispatcher, which is made again for ever, and messages over it. The loop's thread
 * only; owned by worker.c. control.c handles what comes, reports.c, heartbeat.c and control.c send.
 */
#pragma once
#include "net/conn.h"
#include "service/worker/common.h"

struct cw_uplink {
    struct cw_worker_common *common;
    const struct cw_conn_ops *ops; /* control.c's */
    void *user;
    struct cw_conn *conn; /* NULL: none */

    enum {
        CW_UPLINK_AWAY,       /* not registered, and tried again */
        CW_UPLINK_REFUSED,    /* the same, and the reason stays: token, version or TLS */
        CW_UPLINK_REGISTERED, /* everything may be sent */
    } state;

    char why[400]; /* why it is not registered, as far as known */
    uint64_t next_id, register_id, backoff_ns;
    struct cw_timer *reconnect;
    uint32_t jitter;
};

/* u is zeros; on errors it is to be freed, too. */
int cw_uplink_init(struct cw_uplink *u, struct cw_worker_common *common, const struct cw_conn_ops *ops,
                   void *user, struct cw_error *err) _must_check_;
void cw_uplink_deinit(struct cw_uplink *u);
/* Begins to connect. */
void cw_uplink_connect(struct cw_uplink *u);
/* Sends a message, if the worker is registered or registers; else it is dropped, as everything is sent anew
 * after registering. */
void cw_uplink_send(struct cw_uplink *u, const Cachew__Envelope *m);
/* The same for a failure, as the answer to request `re`. */
void cw_uplink_send_failure(struct cw_uplink *u, uint64_t re, const struct cw_error *why);
/* The dispatcher accepted the worker under this id. */
void cw_uplink_registered(struct cw_uplink *u, uint64_t id);
/* The connection is over: it is made again later, unless the worker stops. */
void cw_uplink_lost(struct cw_uplink *u, const struct cw_error *why);
/* Sends nothing more, and closes the connection, after what is queued was sent. */
void cw_uplink_close(struct cw_uplink *u);
/* Ends at once a connection that cw_uplink_close did not end. */
void cw_uplink_cut(struct cw_uplink *u);
