/* A client of simulated workers: a rank of a job over an endless stream, which takes no batches. */
#include <stdio.h>
#include <unistd.h>

#include "load.h"

static int send(struct swarm_client *c, const Cachew__Envelope *e, struct cw_error *err) { return cw_conn_send(c->conn, e, NULL, 0, NULL, NULL, NULL, 0, err); }

static int client_open(void *user, struct cw_conn *conn CW_UNUSED, const Cachew__Envelope *peer CW_UNUSED, struct cw_error *err)
{
    struct swarm_client *c = user;
    Cachew__Attach m = CACHEW__ATTACH__INIT;
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    char job[64];
    snprintf(job, sizeof(job), "%s-%d", c->job, (int)getpid());
    m.job = job;
    m.rank = c->rank;
    m.world_size = c->swarm->o->n_ranks;
    m.epochs = 1;
    m.fingerprint = (ProtobufCBinaryData){.data = c->swarm->fingerprint, .len = sizeof(c->swarm->fingerprint)};
    m.pipeline = (char *)(uintptr_t)"{}";
    m.base_dir = (char *)(uintptr_t)"/";
    e.id = 1;
    e.of_case = CACHEW__ENVELOPE__OF_ATTACH;
    e.attach = &m;
    return send(c, &e, err);
}

static int client_message(void *user, struct cw_conn *conn CW_UNUSED, const Cachew__Envelope *m, void *payload CW_UNUSED, size_t size CW_UNUSED,
                          const int *fds CW_UNUSED, size_t n_fds CW_UNUSED, struct cw_error *err)
{
    struct swarm_client *c = user;
    if (m->of_case == CACHEW__ENVELOPE__OF_FAILURE)
        return cw_failure_error(m->failure, err);
    if (m->of_case == CACHEW__ENVELOPE__OF_ENDED && !c->swarm->closing)
        return cw_error_set(err, CW_E_SERVICE, "the job was ended");
    if (m->of_case == CACHEW__ENVELOPE__OF_ATTACHED && !c->attached) {
        c->attached = true;
        c->begin(c->swarm->user);
    }
    return 0;
}

static void client_closed(void *user, struct cw_conn *conn CW_UNUSED, const struct cw_error *why)
{
    struct swarm_client *c = user;
    c->conn = NULL;
    swarm_closed(c->swarm, why);
}

static const struct cw_conn_ops client_ops = {.open = client_open, .message = client_message, .closed = client_closed};

void swarm_attach(struct swarm_client *c)
{
    struct cw_error err = {0};
    if (swarm_connect(c->swarm, CACHEW__ROLE__ROLE_CLIENT, &client_ops, c, &c->conn, &err) < 0)
        swarm_fail(c->swarm, &err);
}

int swarm_progress(struct swarm_client *c, uint64_t position, Cachew__Pace *pace, struct cw_error *err)
{
    Cachew__Progress m = CACHEW__PROGRESS__INIT;
    Cachew__Place place = CACHEW__PLACE__INIT;
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    place.position = position;
    m.from = &place;
    m.pace = pace;
    e.of_case = CACHEW__ENVELOPE__OF_PROGRESS;
    e.progress = &m;
    return c->conn ? send(c, &e, err) : 0;
}

void swarm_detach(struct swarm_client *c)
{
    Cachew__Detach m = CACHEW__DETACH__INIT;
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    m.finished = true;
    e.of_case = CACHEW__ENVELOPE__OF_DETACH;
    e.detach = &m;
    if (c->conn && c->attached && send(c, &e, NULL) < 0)
        return; /* it is over already */
    if (c->conn)
        cw_conn_close(c->conn, NULL);
}
