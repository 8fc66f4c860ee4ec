/* The client of `cachew jobs`, `cachew workers` and similar: sends one query (cw_observe) or command
 * (cw_steer, cw_share_job, cw_aim_job) to the dispatcher, and returns when the answer has come or the time is
 * over. Each call has a loop and a connection of its own. The caller frees the JSON answer. Any thread. */
#include "remote/admin_client.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/conn.h"
#include "net/limits.h"

struct admin_query {
    const struct cw_admin_client_options *options;
    const Cachew__Envelope *request;
    struct cw_loop *loop;
    struct cw_conn *conn;
    bool over, answered;
    char *json;
    int status;
    struct cw_error err;
};

static int query_open(void *user, struct cw_conn *c, const Cachew__Envelope *peer CW_UNUSED,
                      struct cw_error *err)
{
    struct admin_query *q = user;
    return cw_conn_send(c, q->request, NULL, 0, NULL, NULL, NULL, 0, err);
}

static int query_message(void *user, struct cw_conn *c, const Cachew__Envelope *m, void *payload CW_UNUSED,
                         size_t size CW_UNUSED, const int *fds CW_UNUSED, size_t n_fds CW_UNUSED,
                         struct cw_error *err)
{
    struct admin_query *q = user;
    if (m->re != q->request->id)
        return 0;
    q->answered = true;
    if (m->of_case == CACHEW__ENVELOPE__OF_ANSWER && !(q->json = strdup(m->answer->json)))
        return cw_error_nomem(err, 0, "an answer");
    if (m->of_case == CACHEW__ENVELOPE__OF_FAILURE)
        q->status = cw_failure_error(m->failure, &q->err);
    cw_conn_close(c, NULL);
    return 0;
}

static void query_closed(void *user, struct cw_conn *c CW_UNUSED, const struct cw_error *why)
{
    struct admin_query *q = user;
    q->over = true;
    if (!q->answered)
        q->status = cw_error_set(&q->err, CW_E_SERVICE, "the dispatcher at %s can't be reached: %.400s",
                                 q->options->service,
                                 why->status ? why->message : "it closed the connection");
    cw_loop_stop(q->loop);
}

static void query_late(void *user)
{
    struct admin_query *q = user;
    if (!q->answered) {
        q->answered = true;
        q->status = cw_error_set(&q->err, CW_E_DEADLINE, "the dispatcher at %s did not answer within %.1f s",
                                 q->options->service, (double)q->options->timeout_ns / 1e9);
    }
    cw_loop_stop(q->loop);
}

static const struct cw_conn_ops ops = {.open = query_open, .message = query_message, .closed = query_closed};

static int query_run(struct admin_query *q, struct cw_error *err)
{
    struct cw_timer *timer = NULL;
    Cachew__Hello hello;
    char host[80];
    uint8_t incarnation[16] = {0};
    uint64_t now = cw_now_ns();
    memcpy(incarnation, &now, sizeof(now));
    cw_host_identity(host);
    cw_hello_init(&hello, CACHEW__ROLE__ROLE_ADMIN_CLIENT, "", incarnation, host);
    struct cw_conn_options o = {.hello = &hello,
                                .limits = CW_LIMITS_ADMIN_CLIENT,
                                .timeout_ns = q->options->timeout_ns,
                                .token = q->options->token,
                                .tls = q->options->tls};
    int r = cw_loop_new(&q->loop, err);
    if (r < 0)
        return r;
    r = cw_timer_new(q->loop, query_late, q, &timer, err);
    if (r >= 0)
        r = cw_conn_connect(q->loop, q->options->service, &o, &ops, q, &q->conn, err);
    if (r >= 0) {
        cw_timer_start(timer, q->options->timeout_ns, 0);
        cw_loop_run(q->loop);
        if (!q->over)
            cw_conn_close(q->conn, NULL);
        r = q->status < 0 ? cw_error_copy(err, &q->err) : 0;
    }
    if (timer)
        cw_timer_free(timer);
    cw_loop_free(q->loop);
    return r;
}

int cw_observe(const struct cw_admin_client_options *o, const char *what, char **ret, struct cw_error *err)
{
    Cachew__Query m = {CW_MESSAGE(query), .what = (char *)(uintptr_t)what};
    Cachew__Envelope e = {CW_MESSAGE(envelope), .id = 1, .of_case = CACHEW__ENVELOPE__OF_QUERY, .query = &m};
    struct admin_query q = {.options = o, .request = &e};
    int r = query_run(&q, err);
    if (r >= 0 && !q.json)
        r = cw_error_set(err, CW_E_SERVICE,
                         "the dispatcher at %s sent an unexpected answer to a query" CW_OTHER_VERSION,
                         o->service);
    if (r < 0) {
        free(q.json);
        return r;
    }
    *ret = q.json;
    return 0;
}

static int steer_send(const struct cw_admin_client_options *o, Cachew__Steer *m, struct cw_error *err)
{
    Cachew__Envelope e = {CW_MESSAGE(envelope), .id = 1, .of_case = CACHEW__ENVELOPE__OF_STEER, .steer = m};
    struct admin_query q = {.options = o, .request = &e};
    int r = query_run(&q, err);
    free(q.json);
    return r;
}

int cw_steer(const struct cw_admin_client_options *o, const char *verb, const char *name,
             struct cw_error *err)
{
    Cachew__Steer m = {CW_MESSAGE(steer), .verb = (char *)(uintptr_t)verb, .name = (char *)(uintptr_t)name};
    return steer_send(o, &m, err);
}

int cw_share_job(const struct cw_admin_client_options *o, const char *name,
                 const struct cw_claim_options *claim, struct cw_error *err)
{
    Cachew__Steer m = {
        CW_MESSAGE(steer),
        .verb = (char *)(uintptr_t)"share-job",
        .name = (char *)(uintptr_t)name,
        .has_weight_case = claim->has_weight ? CACHEW__STEER__HAS_WEIGHT_WEIGHT
                                             : CACHEW__STEER__HAS_WEIGHT__NOT_SET,
        .weight = claim->weight,
        .has_priority_case = claim->has_priority ? CACHEW__STEER__HAS_PRIORITY_PRIORITY
                                                 : CACHEW__STEER__HAS_PRIORITY__NOT_SET,
        .priority = claim->priority,
        .has_quota_case = claim->has_quota ? CACHEW__STEER__HAS_QUOTA_QUOTA
                                           : CACHEW__STEER__HAS_QUOTA__NOT_SET,
        .quota = claim->quota,
    };
    return steer_send(o, &m, err);
}

int cw_aim_job(const struct cw_admin_client_options *o, const char *name, const char *objective,
               const double *client_price_per_h, struct cw_error *err)
{
    Cachew__Steer m = {
        CW_MESSAGE(steer),
        .verb = (char *)(uintptr_t)"aim-job",
        .name = (char *)(uintptr_t)name,
        .objective = (char *)(uintptr_t)(objective ? objective : ""),
        .has_price_case = client_price_per_h ? CACHEW__STEER__HAS_PRICE_CLIENT_PRICE_PER_H
                                             : CACHEW__STEER__HAS_PRICE__NOT_SET,
        .client_price_per_h = client_price_per_h ? *client_price_per_h : 0,
    };
    return steer_send(o, &m, err);
}
