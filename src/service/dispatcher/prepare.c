/* Sends Prepare and Forget to workers, and shuns workers after faults. */
#include "service/dispatcher/prepare.h"

#include <inttypes.h>

#include "net/limits.h"
#include "service/dispatcher/state.h"

/* Whether Prepare must wait until the worker has answered earlier ones: the bytes of pipelines on their way
 * to a worker are limited. */
static bool prepare_too_large(const struct worker *w, const struct stream *s)
{
    return w->room.asked_bytes > 0 && w->room.asked_bytes + s->pipeline->size > CW_PIPELINE_BYTES;
}

void cw_dp_prepare_forget(struct cw_dispatcher *d, struct worker *w, ProtobufCBinaryData stream)
{
    Cachew__Forget f = {CW_MESSAGE(forget), .stream = stream};
    cw_dp_peer_send(
        d, w->peer,
        &(Cachew__Envelope){CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_FORGET, .forget = &f});
}

static void prepare_send(struct cw_dispatcher *d, struct assignment *t)
{
    struct stream *s = t->stream;
    Cachew__Prepare p = {
        CW_MESSAGE(prepare),           .stream = {16, s->id},   .fingerprint = {16, s->pipeline->fingerprint},
        .pipeline = s->pipeline->json, .base_dir = s->base_dir, .seed = s->seed,
        .cache_point = s->cache_point};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_PREPARE, .prepare = &p};
    m.id = t->request = ++t->worker->last_request;
    cw_dp_assignment_set_state(d, t, ASSIGNMENT_ASKED);
    t->beside = t->worker->room.n_streams > 1;
    cw_dp_peer_send(d, t->worker->peer, &m);
}

void cw_dp_prepare_stream(struct cw_dispatcher *d, struct stream *s)
{
    bool waiting = false;
    struct assignment *first = NULL;
    s->wants = false;
    if (s->state != STREAM_ACTIVE || cw_list_empty(&s->jobs))
        return;
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list)
        t->worker->here = t;
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers.list) {
        struct assignment *t = w->here;
        w->here = NULL;
        if (!cw_dp_worker_able(w) || (d->scaler.enabled && !(t && t->granted)))
            continue;
        if (!t && !(t = cw_dp_assignment_new(d, w, s))) {
            cw_dp_log(
                d, true,
                "worker %" PRIu64
                " can't be assigned to another stream: out of memory, or the table of assignments is full",
                w->id);
            continue;
        }
        waiting |= t->state == ASSIGNMENT_ASKED;
        if (t->state != ASSIGNMENT_IDLE)
            continue;
        w->room.turned_away |= prepare_too_large(w, s);
        if (cw_dp_worker_full(w) || prepare_too_large(w, s))
            s->wants = true;
        else if (s->data)
            prepare_send(d, t);
        else if (!first || t->order < first->order)
            first = t;
    }
    if (s->data || !first || (waiting && d->now_ns - s->asked_ns < DP_ASK_MORE))
        return;
    s->asked_ns = d->now_ns;
    prepare_send(d, first);
}

void cw_dp_prepare_all(struct cw_dispatcher *d, bool waiting)
{
    for (int ready = 0; ready < 2; ready++)
        CW_LIST_EACH_OF (s, struct stream, link, &d->streams.list)
            if ((s->wants || !waiting) && (s->assignments.n_ready > 0) == ready)
                cw_dp_prepare_stream(d, s);
}

void cw_dp_prepare_waiting(struct cw_dispatcher *d)
{
    if (d->workers.has_room) {
        d->workers.has_room = false;
        cw_dp_prepare_all(d, true);
    }
}

void cw_dp_prepare_shun(struct cw_dispatcher *d, struct assignment *t)
{
    t->stream->assignments.n_shunned += t->shunned_until == 0;
    t->shunned_until = d->now_ns + DP_SHUN;
    cw_dp_assignment_usable(d, t);
    cw_dp_scaling_due(d);
}

void cw_dp_prepare_unshun(struct cw_dispatcher *d, struct stream *s, bool all)
{
    bool again = false;
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list) {
        if (t->shunned_until == 0 || (t->shunned_until > d->now_ns && (!all || t->state == ASSIGNMENT_UNFIT)))
            continue;
        t->shunned_until = 0;
        s->assignments.n_shunned--;
        if (t->state == ASSIGNMENT_UNFIT) {
            cw_dp_assignment_set_state(d, t, ASSIGNMENT_IDLE);
            again = true;
        }
        cw_dp_assignment_usable(d, t);
        cw_dp_scaling_due(d);
    }
    if (again)
        cw_dp_prepare_stream(d, s);
}
