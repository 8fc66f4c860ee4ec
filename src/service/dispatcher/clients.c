/* Clients: a rank attaches, moves its cursor, leaves. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/array.h"
#include "service/dispatcher/internal.h"
#include "net/conn.h"

/* Where the rank is, or would be, among the ranks of its job. */
static size_t rank_index(const struct job *j, uint32_t number)
{
    return CW_FIRST(i, 0, j->n_ranks, j->ranks[i]->number >= number);
}

int cw_dp_rank_get(struct cw_dispatcher *d, struct job *j, uint32_t number, struct rank **ret,
                   struct cw_error *err)
{
    size_t i = rank_index(j, number);
    if (i < j->n_ranks && j->ranks[i]->number == number) {
        *ret = j->ranks[i];
        return 0;
    }
    if (d->n_ranks >= DP_RANKS)
        return cw_error_set(err, CW_E_SERVICE, "%" PRIu32 " ranks are known already", DP_RANKS);
    if (CW_ARRAY_ROOM(j->ranks, j->ranks_room, j->n_ranks + 1, "the ranks of a job", err) < 0)
        return CW_E_MEMORY;
    struct rank *r = malloc(sizeof(*r));
    if (!r)
        return cw_error_nomem(err, sizeof(*r), "a rank");
    *r = (struct rank){.job = j, .number = number};
    memmove(j->ranks + i + 1, j->ranks + i, (j->n_ranks - i) * sizeof(struct rank *));
    j->ranks[i] = r;
    j->n_ranks++;
    j->n_at_mark = 0;
    d->n_ranks++;
    *ret = r;
    return 0;
}

static void rank_detach(struct cw_dispatcher *d, struct rank *r)
{
    struct job *j = r->job;
    if (!r->client)
        return;
    r->client->rank = NULL;
    r->client = NULL;
    r->attach_id = 0;
    r->greeted = false;
    if (--j->n_attached == 0)
        j->since_ns = d->now_ns;
    j->left = r->leaves;
    if (j->stream)
        cw_dp_stream_dirty(d, j->stream);
}

void cw_dp_client_lost(struct cw_dispatcher *d, struct rank *r)
{
    struct job *j = r->job;
    rank_detach(d, r);
    if (j->n_attached == 0 && !j->durable && j->writing == 0) /* nobody waits for it any more */
        cw_dp_job_free(d, j);
}

void cw_dp_client_refuse(struct cw_dispatcher *d, struct rank *r, const struct cw_error *why)
{
    cw_dp_fail(d, r->client, r->attach_id, why);
    rank_detach(d, r);
}

void cw_dp_client_ended(struct cw_dispatcher *d, struct rank *r, const struct cw_error *why)
{
    Cachew__Failure f;
    cw_failure_init(&f, why);
    Cachew__Ended e = {CW_MESSAGE(ended), .why = &f};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_ENDED, .ended = &e};
    cw_dp_send(d, r->client, &m);
    if (r->attach_id != 0)
        cw_dp_fail(d, r->client, r->attach_id, why);
    rank_detach(d, r);
}

/* ---- attaching ---- */

/* Whether who comes from a place, with a snapshot, fits the plan, which is known now: its position. */
static int place_fits(const struct job *j, const Cachew__Place *from, uint64_t snapshot, uint64_t *ret,
                      struct cw_error *err)
{
    const struct stream *s = j->stream;
    int result = cw_dp_stream_position(s, from, ret, err);
    if (result < 0)
        return result;
    if (*ret > cw_dp_job_total(s, j->epochs))
        return cw_error_set(err, CW_E_OPTION, "epoch %" PRIu64 " is behind the last of %" PRIu64, from->epoch,
                            j->epochs);
    if (snapshot != 0 && snapshot != s->data->plan->snapshot)
        return cw_error_set(err, CW_E_STATE,
                            "the state was saved with other data: its snapshot is %016" PRIx64
                            ", expected %016" PRIx64,
                            snapshot, s->data->plan->snapshot);
    return 0;
}

/* Its place in the plan. */
void cw_dp_client_begin(struct cw_dispatcher *d, struct rank *r)
{
    struct job *j = r->job;
    struct stream *s = j->stream;
    struct cw_error err = {0};
    uint64_t pos;
    if (place_fits(j, &r->from, r->snapshot, &pos, &err) < 0) {
        cw_dp_client_refuse(d, r, &err);
        return;
    }
    if (!j->began)
        j->first_from = pos;
    j->began = r->began = true;
    r->pos = r->began_at = r->next_report = pos;
    j->n_at_mark = 0;
    cw_dp_range_begin_at(d, s, pos);
    cw_dp_stream_dirty(d, s);
}

void cw_dp_client_greet(struct cw_dispatcher *d, struct rank *r)
{
    struct stream *s = r->job->stream;
    Cachew__Attached a = {CW_MESSAGE(attached), .stream = {16, s->id}, .plan = s->data->plan,
                          .took_over = r->took_over};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .re = r->attach_id, .of_case = CACHEW__ENVELOPE__OF_ATTACHED,
                          .attached = &a};
    cw_dp_send(d, r->client, &m);
    r->attach_id = 0;
    r->took_over[0] = '\0';
    r->greeted = true;
    cw_dp_tell_all(d, r);
}

static void take_over(struct cw_dispatcher *d, struct rank *r, struct cw_peer *p)
{
    struct cw_error why = {0};
    if (r->client && r->client != p) {
        /* else its own, by another connection */
        if (memcmp(r->incarnation, p->incarnation, sizeof(r->incarnation)) != 0)
            snprintf(r->took_over, sizeof(r->took_over), "a client on %.100s, last heard of %.0f s ago",
                     r->client->host && *r->client->host ? r->client->host : "a host that is not known",
                     (double)(d->now_ns - r->heard_ns) / 1e9);
        cw_error_set(&why, CW_E_SERVICE, "rank %" PRIu32 " of job \"%s\" was taken over by another client",
                     r->number, r->job->name);
        cw_dp_client_ended(d, r, &why);
    }
    if (!r->client)
        r->job->n_attached++;
    r->client = p;
    p->rank = r;
    memcpy(r->incarnation, p->incarnation, sizeof(r->incarnation));
}

/* As cw_dp_job_get. */
static int client_attach(struct cw_dispatcher *d, struct cw_peer *p, uint64_t id, const Cachew__Attach *a,
                         uint64_t since_ns, struct cw_error *err)
{
    struct job *j = NULL;
    struct rank *r = NULL;
    Cachew__Place from = CACHEW__PLACE__INIT;
    uint64_t pos;
    if (p->rank && (strcmp(p->rank->job->name, a->job) != 0 || p->rank->number != a->rank))
        return cw_error_set(err, CW_E_SERVICE, "this connection is that of rank %" PRIu32 " of job \"%s\"",
                            p->rank->number, p->rank->job->name);
    int result = cw_dp_job_get(d, a, since_ns, &j, err);
    if (result != 0)
        return result;
    if (a->from)
        from = (Cachew__Place){.base = from.base, .epoch = a->from->epoch, .position = a->from->position};
    if (j->stream->data) /* before it takes anybody's place */
        result = place_fits(j, &from, a->snapshot, &pos, err);
    if (result == 0)
        result = cw_dp_rank_get(d, j, a->rank, &r, err);
    if (result < 0) {
        if (j->n_attached == 0 && !j->durable && j->writing == 0)
            cw_dp_job_free(d, j);
        return result;
    }
    take_over(d, r, p);
    j->n_finished -= r->finished;
    r->finished = r->greeted = r->leaves = false;
    r->held = 0;
    r->heard_ns = d->now_ns;
    r->attach_id = id;
    r->from = from;
    r->snapshot = a->snapshot;
    r->progress = (struct progress){0};
    r->pace = r->paced = r->looked = (struct pace){0};
    r->paces = r->waits = false;
    r->looked_batches = 0;
    r->waited = NAN;
    r->would_take = 0;
    cw_dp_assignment_room(d); /* who waits for it comes first */
    j->stream->parked = false;
    cw_dp_worker_sets_later(d);
    cw_dp_assignment_ask(d, j->stream); /* also workers that came while it had no job */
    if (j->paused || (!j->stream->data && j->stream->wants))
        cw_dp_tell_held(d, j);
    if (!j->stream->data)
        return 0;
    if (!j->durable) {
        cw_dp_job_ready(d, j);
        return 0;
    }
    cw_dp_client_begin(d, r);
    if (r->client)
        cw_dp_client_greet(d, r);
    return 0;
}

/* ---- attachments that wait ---- */

void cw_dp_client_forget_waiting(struct cw_dispatcher *d, struct cw_peer *p)
{
    if (!p->waiting)
        return;
    cachew__attach__free_unpacked(p->waiting, NULL);
    d->waiting_bytes -= p->waiting_bytes;
    p->waiting = NULL;
}

static int wait_later(struct cw_dispatcher *d, struct cw_peer *p, uint64_t id, const Cachew__Attach *a)
{
    size_t size = cachew__attach__get_packed_size(a);
    _cleanup_free_ uint8_t *packed = d->waiting_bytes + size <= DP_WAITING ? malloc(size + 1) : NULL;
    if (packed)
        cachew__attach__pack(a, packed);
    p->waiting = packed ? cachew__attach__unpack(NULL, size, packed) : NULL;
    if (!p->waiting)
        return -1;
    p->waiting_id = id;
    p->waiting_since_ns = p->waited_at_ns = d->now_ns;
    p->waited_ns = 0;
    p->waiting_bytes = size;
    d->waiting_bytes += size;
    return 0;
}

/* Who comes with other options than a job has is refused while the job has ranks. But they may all be gone,
 * and their connections not have noticed: who was not heard of since is waited for. */
static void attach(struct cw_dispatcher *d, struct cw_peer *p, uint64_t id, const Cachew__Attach *a)
{
    struct cw_error refused = {0};
    cw_dp_client_forget_waiting(d, p);
    int r = client_attach(d, p, id, a, d->now_ns, &refused);
    if (r < 0 || (r > 0 && wait_later(d, p, id, a) < 0))
        cw_dp_fail(d, p, id, &refused);
}

void cw_dp_client_tick(struct cw_dispatcher *d)
{
    if (d->waiting_bytes == 0)
        return;
    CW_LIST_EACH_OF (p, struct cw_peer, link, &d->peers) {
        struct cw_error refused = {0};
        /* what came while the dispatcher stood still is not read yet */
        p->waited_ns += CW_MIN(d->now_ns - p->waited_at_ns, DP_S);
        p->waited_at_ns = d->now_ns;
        bool last = p->waiting && p->waited_ns >= DP_SILENT;
        int r = p->waiting ? client_attach(d, p, p->waiting_id, p->waiting, p->waiting_since_ns, &refused)
                           : 1;
        if (r < 0 || (r > 0 && last))
            cw_dp_fail(d, p, p->waiting_id, &refused);
        if (r <= 0 || last)
            cw_dp_client_forget_waiting(d, p);
    }
}

/* ---- attached ---- */

/* Whom the others wait for, when they wait; if it is this rank itself, nobody has to be told. */
static void tell_lagging(struct cw_dispatcher *d, struct rank *r)
{
    const struct job *j = r->job;
    Cachew__Place at = {CW_MESSAGE(place)};
    Cachew__Lagging l = {CW_MESSAGE(lagging), .at = &at};
    uint64_t least = r->pos;
    uint32_t missing = 0;
    for (size_t i = 0; i < j->n_ranks; i++) {
        const struct rank *x = j->ranks[i];
        missing += missing == x->number;
        if (x->finished || !x->began || x->pos >= least)
            continue;
        least = x->pos;
        l.rank = x->number;
        l.attached = x->client != NULL;
    }
    if (missing < j->world_size && !j->missing_over && j->first_from < least) {
        least = j->first_from;
        l.rank = missing;
        l.attached = false;
    }
    if (least == r->pos)
        return;
    cw_dp_stream_place(j->stream, least, &at.epoch, &at.position);
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_LAGGING, .lagging = &l};
    cw_dp_send(d, r->client, &m);
}

/* Sums that go back, or are no numbers, are not believed. */
static void note_pace(struct cw_dispatcher *d, struct rank *r, const Cachew__Pace *m)
{
    const struct pace *p = &r->pace;
    const struct pace before = *p;
    struct pace now = {.n = (double)m->n,
                       .step_s = m->step_s,
                       .step_sq = m->step_sq,
                       .wait_s = m->wait_s,
                       .wait_sq = m->wait_sq,
                       .late = (double)m->late,
                       .ready = (double)m->ready};
    if (now.n >= p->n && now.step_s >= p->step_s && now.step_sq >= p->step_sq && now.wait_s >= p->wait_s &&
        now.wait_sq >= p->wait_sq && now.late >= p->late && now.ready >= p->ready && now.step_s < 1e18 &&
        now.wait_s < 1e18 && now.step_sq < 1e18 && now.wait_sq < 1e18)
        r->pace = now;
    if (!r->paces) {
        r->paced = r->looked = r->pace;
        r->looked_batches = r->progress.n_batches;
    } else {
        d->paces.n += p->n - before.n;
        d->paces.step_s += p->step_s - before.step_s;
        d->paces.wait_s += p->wait_s - before.wait_s;
    }
    r->paces = true;
}

static int client_progress(struct cw_dispatcher *d, struct rank *r, const Cachew__Progress *m,
                           struct cw_error *err)
{
    struct job *j = r->job;
    uint64_t pos;
    if (!r->greeted || !m->from)
        return cw_error_set(err, CW_E_SERVICE, "Progress before Attached, or without a place");
    r->heard_ns = d->now_ns;
    int result = cw_dp_stream_position(j->stream, m->from, &pos, err);
    if (result < 0)
        return result;
    if (pos < r->pos || pos > cw_dp_job_total(j->stream, j->epochs))
        return cw_error_set(err, CW_E_SERVICE,
                            "Progress to position %" PRIu64 " of epoch %" PRIu64
                            ": it went back, or behind the last epoch",
                            m->from->position, m->from->epoch);
    if (pos != r->pos && r->pos == j->mark && j->n_at_mark > 0 && --j->n_at_mark == 0)
        cw_dp_stream_dirty(d, j->stream);
    r->pos = pos;
    if (pos > r->next_report) {
        /* past a range that is not done: one that is another rank's, or a worker told it of. Those behind it
         * may have been done before. */
        r->next_report = pos;
        cw_dp_stream_reports(d, j->stream);
    }
    r->from.epoch = m->from->epoch;
    r->from.position = m->from->position;
    r->progress = (struct progress){m->n_batches, m->n_lost, m->wait_ns, m->g, m->digest_lo, m->digest_hi};
    r->waits = m->waiting;
    if (m->pace)
        note_pace(d, r, m->pace);
    if (m->waiting)
        tell_lagging(d, r);
    return 0;
}

/* Whose Detach came without its connection: of a rank that no other client has. NULL: it was heard before, or
 * nobody wants to know. */
static struct rank *rank_of_detach(struct cw_dispatcher *d, const struct cw_peer *p, const Cachew__Detach *m)
{
    struct job *j = cw_dp_job_find(d, m->job);
    struct rank *r;
    if (!j || j->state != JOB_RUNNING || m->rank >= j->world_size)
        return NULL;
    size_t n = j->n_ranks;
    if (cw_dp_rank_get(d, j, m->rank, &r, NULL) < 0)
        return NULL;
    /* Where it was not known, this dispatcher is younger than the rank's last word. */
    return j->n_ranks > n || memcmp(r->incarnation, p->incarnation, sizeof(r->incarnation)) == 0 ? r : NULL;
}

static int client_detach(struct cw_dispatcher *d, struct cw_peer *p, uint64_t id, const Cachew__Detach *m,
                         struct cw_error *err)
{
    struct rank *r = p->rank ? p->rank : m->finished ? rank_of_detach(d, p, m) : NULL;
    struct action then = {.kind = ACTION_DONE, .peer = p, .re = id};
    if (r) {
        struct job *j = r->job;
        bool finished = m->finished && !r->finished && (r->greeted || !p->rank);
        if (finished) {
            r->finished = true;
            j->n_finished++;
            j->n_at_mark = 0;
        }
        r->leaves = true;
        cw_dp_client_lost(d, r);
        if (finished && j->n_finished == j->world_size)
            cw_dp_job_over(d, j, JOB_DONE, NULL);
        else if (finished)
            /* else the others would wait for it after a restart */
            cw_dp_journal_tried(d, cw_dp_journal_job(d, j, NULL, NULL));
    }
    return id != 0 ? cw_dp_journal_then(d, &then, err) : 0;
}

/* A client says that a worker keeps answering NotHere for a range that the table says it holds. The lease is
 * dropped and given again. Nothing else finds this: a range that is marked complete is never late. */
static void range_not_there(struct cw_dispatcher *d, struct assignment *t, const Cachew__Range *m)
{
    struct span span;
    struct cw_error err = {0};
    bool known = cw_dp_stream_span(t->stream, m->epoch, m->begin, m->end, &span, &err) == 0;
    struct range *x = known ? cw_dp_range(t->stream, span.begin) : NULL;
    if (!x)
        return;
    cw_dp_range_announce(d, t->stream, x);
    if (x->begin != span.begin || x->end != span.end || x->holder[0].assignment != t ||
        d->now_ns - x->leased_ns < DP_S)
        return; /* it is another one's by now, or was leased again: others are told the same */
    cw_dp_log(d, true,
              "worker %" PRIu64 " has not the positions %" PRIu64 " to %" PRIu64 " of epoch %" PRIu64
              " that it was leased: they are leased again",
              t->worker->id, m->begin, m->end, m->epoch);
    cw_dp_lease_drop(d, t, x, DROP_REVOKED);
}

static void client_unreachable(struct cw_dispatcher *d, struct rank *r, const Cachew__Unreachable *m)
{
    struct worker *w = cw_dp_worker_find(d, m->worker);
    struct stream *s = r->job->stream;
    struct assignment *t = w && s ? cw_dp_assignment_find(w, s) : NULL;
    if (t && m->not_here && !s->at_most_once)
        range_not_there(d, t, m->not_here);
    if (!t || m->not_here || !r->greeted || s->at_most_once ||
        (s->n_heap <= (size_t)(t->heap_at > 0) && !cw_dp_worker_sets_spare(d, s)))
        return; /* nobody else could do better */
    if (t->shunned_until == 0)
        cw_dp_log(d, true,
                  "rank %" PRIu32 " of job \"%s\" does not get through to worker %" PRIu64 ": %.200s",
                  r->number, r->job->name, m->worker, m->reason);
    cw_dp_assignment_shun(d, t);
    cw_dp_lease_drop_from(d, t, r->pos, DROP_REVOKED);
    cw_dp_stream_dirty(d, s);
}

int cw_dp_client_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                         struct cw_error *err)
{
    switch (m->of_case) {
    case CACHEW__ENVELOPE__OF_ATTACH:
        if (m->id == 0)
            return cw_error_set(err, CW_E_SERVICE, "Attach is a request and needs an id");
        attach(d, p, m->id, m->attach);
        return 0;
    case CACHEW__ENVELOPE__OF_PROGRESS:
        /* none: its end is on the way to it */
        return p->rank ? client_progress(d, p->rank, m->progress, err) : 0;
    case CACHEW__ENVELOPE__OF_DETACH:
        return client_detach(d, p, m->id, m->detach, err);
    case CACHEW__ENVELOPE__OF_UNREACHABLE:
        if (p->rank)
            client_unreachable(d, p->rank, m->unreachable);
        return 0;
    default:
        return cw_error_set(err, CW_E_SERVICE,
                            "a client does not say this (field %d of Envelope) to a dispatcher",
                            (int)m->of_case);
    }
}
