/* A worker's connection to its dispatcher: connects, sends, and connects again after a random delay that
 * grows. Owns the connection and the timer of struct cw_uplink. control.c and worker.c call these functions
 * on the loop's thread; messages that arrive go to the callbacks u->ops. */
#include "service/worker/uplink.h"

#include <string.h>

#include "base/text.h"
#include "net/conn.h"
#include "net/limits.h"
#include "remote/addresses.h"

/* Time between two attempts to connect: at first, and at most. */
#define BACKOFF_FIRST_NS UINT64_C(50000000)
#define BACKOFF_MAX_NS UINT64_C(1000000000)

void cw_uplink_send(struct cw_uplink *u, const Cachew__Envelope *m)
{
    struct cw_error err = {0};
    if (u->state != CW_UPLINK_REGISTERED && m->of_case != CACHEW__ENVELOPE__OF_REGISTER)
        return;
    if (u->conn && cw_conn_send(u->conn, m, NULL, 0, NULL, NULL, NULL, 0, &err) < 0) {
        cw_common_log(u->common, "a message to the dispatcher can't be sent: %s", err.message);
        cw_uplink_close(u); /* once the worker is registered again, it reports its whole state anew */
    }
}

void cw_uplink_send_failure(struct cw_uplink *u, uint64_t re, const struct cw_error *why)
{
    Cachew__Failure failure;
    Cachew__Envelope m;
    cw_failure_envelope(&m, &failure, re, why);
    cw_uplink_send(u, &m);
}

void cw_uplink_registered(struct cw_uplink *u, uint64_t id)
{
    if (u->common->id != id)
        cw_common_log(u->common, "registered as worker %llu", (unsigned long long)id);
    u->common->id = id;
    u->state = CW_UPLINK_REGISTERED;
    u->why[0] = '\0';
    u->backoff_ns = BACKOFF_FIRST_NS;
}

/* Connects again after a time that doubles with each attempt, with a random part so that workers do not
 * connect all at once. */
static void uplink_connect_later(struct cw_uplink *u)
{
    uint64_t wait = u->backoff_ns;
    u->jitter = u->jitter * 1664525u + 1013904223u;
    wait = wait / 2 + wait / 2 * (u->jitter >> 16) / 65536;
    u->backoff_ns = CW_MIN(u->backoff_ns * 2, BACKOFF_MAX_NS);
    cw_timer_start(u->reconnect, wait, 0);
}

void cw_uplink_lost(struct cw_uplink *u, const struct cw_error *why)
{
    const char *reason = why->status ? why->message : "the dispatcher closed it";
    u->conn = NULL;
    u->state = cw_failure_is_final(why) ? CW_UPLINK_REFUSED : CW_UPLINK_AWAY;
    if (!u->common->stopping) {
        cw_text_show(u->why, sizeof(u->why), reason);
        if (u->backoff_ns == BACKOFF_FIRST_NS || why->status != CW_E_SERVICE)
            cw_common_log(u->common, "the connection to the dispatcher ended: %s", reason);
        uplink_connect_later(u);
    }
    cw_common_changed(u->common);
}

void cw_uplink_connect(struct cw_uplink *u)
{
    const struct cw_worker_options *own = &u->common->options;
    struct cw_error err = {0};
    Cachew__Hello hello;
    cw_hello_init(&hello, CACHEW__ROLE__ROLE_WORKER, own->name, u->common->incarnation, u->common->host);
    struct cw_conn_options o = {.hello = &hello,
                                .limits = CW_LIMITS_WORKER_CONTROL,
                                .timeout_ns = own->timeout_ns,
                                .token = own->token,
                                .tls = cw_address_is_local(own->dispatcher) ? NULL : own->dispatcher_tls};
    if (cw_conn_connect(u->common->loop, own->dispatcher, &o, u->ops, u->user, &u->conn, &err) < 0) {
        u->conn = NULL;
        cw_common_log(u->common, "the dispatcher can't be reached: %s", err.message);
        uplink_connect_later(u);
    }
}

static void uplink_on_reconnect(void *arg)
{
    struct cw_uplink *u = arg;
    if (!u->common->stopping)
        cw_uplink_connect(u);
}

void cw_uplink_close(struct cw_uplink *u)
{
    if (u->state == CW_UPLINK_REGISTERED)
        u->state = CW_UPLINK_AWAY;
    if (u->conn)
        cw_conn_close(u->conn, NULL);
}

void cw_uplink_cut(struct cw_uplink *u)
{
    if (u->conn)
        cw_conn_abort(u->conn);
}

int cw_uplink_init(struct cw_uplink *u, struct cw_worker_common *common, const struct cw_conn_ops *ops,
                   void *user, struct cw_error *err)
{
    u->common = common;
    u->ops = ops;
    u->user = user;
    u->backoff_ns = BACKOFF_FIRST_NS;
    memcpy(&u->jitter, common->incarnation, sizeof(u->jitter));
    return cw_timer_new(common->loop, uplink_on_reconnect, u, &u->reconnect, err);
}

void cw_uplink_deinit(struct cw_uplink *u)
{
    if (u->conn)
        cw_conn_close(u->conn, NULL); /* closing takes time; the loop ends once the connection is closed */
    if (u->reconnect)
        u->reconnect = cw_timer_free(u->reconnect);
}
