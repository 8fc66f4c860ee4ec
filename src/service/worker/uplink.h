/* The uplink: the worker's connection to the dispatcher. If it is lost, it is made again, without limit. The
 * loop's thread only; owned by worker.c. control.c handles messages that arrive; reports.c, heartbeat.c and
 * control.c send. */
#pragma once
#include "net/conn.h"
#include "service/worker/common.h"

struct cw_uplink {
    struct cw_worker_common *common;
    const struct cw_conn_ops *ops; /* callbacks in control.c */
    void *user;
    struct cw_conn *conn; /* NULL: none */

    enum {
        CW_UPLINK_AWAY, /* not registered; tries to connect */
        /* the same, but the dispatcher refused the token, the version or TLS, so trying will not help */
        CW_UPLINK_REFUSED,
        CW_UPLINK_REGISTERED, /* registered: all messages may be sent */
    } state;

    char why[400]; /* why it is not registered; "": not known */
    uint64_t next_id, register_id, backoff_ns;
    struct cw_timer *reconnect;
    uint32_t jitter;
};

/* u must be all zeros. Call cw_uplink_deinit after an error, too. */
int cw_uplink_init(struct cw_uplink *u, struct cw_worker_common *common, const struct cw_conn_ops *ops,
                   void *user, struct cw_error *err) _must_check_;
void cw_uplink_deinit(struct cw_uplink *u);
/* Starts to connect. */
void cw_uplink_connect(struct cw_uplink *u);
/* Sends a message, if the worker is registered, or the message is Register. Otherwise the message is dropped:
 * everything is sent again after registering. */
void cw_uplink_send(struct cw_uplink *u, const Cachew__Envelope *m);
/* Answers the dispatcher's request `re` with Failure. */
void cw_uplink_send_failure(struct cw_uplink *u, uint64_t re, const struct cw_error *why);
/* Call when the dispatcher registered the worker with this id. */
void cw_uplink_registered(struct cw_uplink *u, uint64_t id);
/* Call when the connection is closed: it is made again later, unless the worker stops. */
void cw_uplink_lost(struct cw_uplink *u, const struct cw_error *why);
/* Closes the connection after the queued messages are sent. */
void cw_uplink_close(struct cw_uplink *u);
/* Closes the connection at once, if cw_uplink_close has not done so. */
void cw_uplink_cut(struct cw_uplink *u);
