/* Measures what heartbeats cost a dispatcher, and how fast it answers queries meanwhile. */
#include <stdlib.h>

#include "base/clock.h"
#include "load.h"

#define TICK_NS UINT64_C(2000000)
#define ASK_NS UINT64_C(20000000)

struct pulse {
    struct swarm swarm;
    struct cw_conn *admin_client;
    struct cw_timer *timer;
    bool observed; /* the admin client may query */
    uint64_t began_ns, sent, asked_ns, question, answered;
    struct load_histogram times;
};

static void heartbeats_send(struct pulse *p, uint64_t now)
{
    Cachew__Heartbeat m = CACHEW__HEARTBEAT__INIT;
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    struct cw_error err = {0};
    uint64_t due = (uint64_t)((double)(now - p->began_ns) * 1e-9 * (double)p->swarm.o->n_workers);
    e.of_case = CACHEW__ENVELOPE__OF_HEARTBEAT;
    e.heartbeat = &m;
    m.cpu_ns = now;
    m.memory_bytes = (uint64_t)1 << 30;
    for (; p->sent < due; p->sent++)
        if (cw_conn_send(p->swarm.workers[p->sent % p->swarm.o->n_workers].conn, &e, NULL, 0, NULL, NULL,
                         NULL, 0, &err) < 0) {
            swarm_fail(&p->swarm, &err);
            return;
        }
}

static void heartbeats_query(struct pulse *p, uint64_t now)
{
    Cachew__Query m = CACHEW__QUERY__INIT;
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    struct cw_error err = {0};
    m.what = (char *)(uintptr_t)"status";
    e.id = ++p->question;
    e.of_case = CACHEW__ENVELOPE__OF_QUERY;
    e.query = &m;
    p->asked_ns = now;
    if (cw_conn_send(p->admin_client, &e, NULL, 0, NULL, NULL, NULL, 0, &err) < 0)
        swarm_fail(&p->swarm, &err);
}

static void heartbeats_on_tick(void *user)
{
    struct pulse *p = user;
    uint64_t now = cw_now_ns();
    if ((double)(now - p->began_ns) * 1e-9 >= p->swarm.o->seconds && p->answered == p->question) {
        cw_loop_stop(p->swarm.loop);
        return;
    }
    heartbeats_send(p, now);
    if (p->observed && p->answered == p->question && now - p->asked_ns >= ASK_NS)
        heartbeats_query(p, now);
}

static int heartbeats_on_message(void *user CW_UNUSED, struct swarm_worker *w CW_UNUSED,
                                 const Cachew__Envelope *m CW_UNUSED, struct cw_error *err CW_UNUSED)
{
    return 0;
}

static int admin_client_open(void *user, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *peer CW_UNUSED,
                             struct cw_error *err CW_UNUSED)
{
    struct pulse *p = user;
    p->observed = true;
    return 0;
}

static int admin_client_message(void *user, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *m,
                                void *payload CW_UNUSED, size_t size CW_UNUSED, const int *fds CW_UNUSED,
                                size_t n_fds CW_UNUSED, struct cw_error *err CW_UNUSED)
{
    struct pulse *p = user;
    if (m->re == p->question && p->answered != p->question) {
        p->answered = p->question;
        load_count(&p->times, cw_now_ns() - p->asked_ns);
    }
    return 0;
}

static void admin_client_closed(void *user, struct cw_conn *c CW_UNUSED, const struct cw_error *why)
{
    struct pulse *p = user;
    p->admin_client = NULL;
    swarm_closed(&p->swarm, why);
}

static const struct cw_conn_ops admin_client_ops = {
    .open = admin_client_open, .message = admin_client_message, .closed = admin_client_closed};

static void heartbeats_on_ready(void *user)
{
    struct pulse *p = user;
    struct cw_error err = {0};
    p->began_ns = p->asked_ns = cw_now_ns();
    cw_timer_start(p->timer, TICK_NS, TICK_NS);
    if (swarm_connect(&p->swarm, CACHEW__ROLE__ROLE_ADMIN_CLIENT, &admin_client_ops, p, &p->admin_client,
                      &err) < 0)
        swarm_fail(&p->swarm, &err);
}

int load_heartbeats(const struct load_options *o, uint64_t *ret_sent, struct load_times *ret,
                    struct cw_error *err)
{
    struct pulse *p = calloc(1, sizeof(*p));
    if (!p)
        return cw_error_nomem(err, sizeof(*p), "a load");
    p->swarm = (struct swarm){
        .o = o, .user = p, .ready = heartbeats_on_ready, .message = heartbeats_on_message};
    int r = cw_loop_new(&p->swarm.loop, err);
    if (r >= 0)
        r = cw_timer_new(p->swarm.loop, heartbeats_on_tick, p, &p->timer, err);
    if (r >= 0)
        r = swarm_start(&p->swarm, err);
    if (r >= 0) {
        cw_loop_run(p->swarm.loop);
        load_times(&p->times, ret);
        ret->seconds = (double)(cw_now_ns() - p->began_ns) * 1e-9;
        *ret_sent = p->sent;
    }
    cw_timer_free(p->timer);
    if (p->admin_client)
        cw_conn_close(p->admin_client, NULL);
    r = swarm_end(&p->swarm, r, err);
    free(p);
    return r;
}
