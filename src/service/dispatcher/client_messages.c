/* Handles messages of clients. */
#include "service/dispatcher/client_messages.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/dispatcher/held.h"
#include "service/dispatcher/job_join.h"
#include "service/dispatcher/job_life.h"
#include "service/dispatcher/prepare.h"
#include "service/dispatcher/state.h"
#include "service/dispatcher/worker_sets.h"

/* ---- attaching ---- */

void cw_dp_client_lost(struct cw_dispatcher *d, struct rank *r)
{
    struct job *j = r->job;
    cw_dp_rank_detach(d, r);
    if (j->ranks.n_attached == 0 && !cw_dp_job_journalled(j))
        cw_dp_job_free(d, j);
}

/* Makes the peer the client of the rank. Sends an earlier client of the rank Ended. */
static void client_take_over(struct cw_dispatcher *d, struct rank *r, struct cw_peer *p)
{
    struct cw_error why = {0};
    if (r->client && r->client != p) {
        if (memcmp(r->incarnation, p->incarnation, sizeof(r->incarnation)) !=
            0) /* else the same process reconnected */
            snprintf(r->took_over, sizeof(r->took_over),
                     "a client on host %.100s, whose last message came %.0f s ago",
                     r->client->host && *r->client->host ? r->client->host : "(unknown)",
                     (double)(d->now_ns - r->heard_ns) / 1e9);
        cw_error_set(&why, CW_E_SERVICE,
                     "rank %" PRIu32 " of job \"%s\" was taken over by another client; if both clients are "
                     "to run, give one of them another rank or job name",
                     r->number, r->job->name);
        cw_dp_rank_end(d, r, &why);
    }
    if (!r->client)
        r->job->ranks.n_attached++;
    r->client = p;
    p->rank = r;
    memcpy(r->incarnation, p->incarnation, sizeof(r->incarnation));
}

/* Attaches the peer to its rank, and answers once the job has a plan and is durable. Returns what
 * cw_dp_job_join returns. */
static int client_attach(struct cw_dispatcher *d, struct cw_peer *p, uint64_t id, const Cachew__Attach *a,
                         uint64_t since_ns, struct cw_error *err)
{
    struct job *j = NULL;
    struct rank *r = NULL;
    Cachew__Place from = CACHEW__PLACE__INIT;
    uint64_t pos;
    if (p->rank && (strcmp(p->rank->job->name, a->job) != 0 || p->rank->number != a->rank))
        return cw_error_set(err, CW_E_SERVICE,
                            "this connection already belongs to rank %" PRIu32
                            " of job \"%s\": expected a new connection for another rank" CW_OTHER_VERSION,
                            p->rank->number, p->rank->job->name);
    int result = cw_dp_job_join(d, a, since_ns, &j, err);
    if (result != 0)
        return result;
    if (a->from)
        from = (Cachew__Place){.base = from.base, .epoch = a->from->epoch, .position = a->from->position};
    if (j->stream->data) /* checked first, so that a bad request takes no rank from an earlier client */
        result = cw_dp_rank_position(j, &from, a->snapshot, &pos, err);
    if (result == 0)
        result = cw_dp_rank_get(d, j, a->rank, &r, err);
    if (result < 0) {
        if (j->ranks.n_attached == 0 && !cw_dp_job_journalled(j))
            cw_dp_job_free(d, j);
        return result;
    }
    client_take_over(d, r, p);
    j->ranks.n_finished -= r->finished;
    r->finished = r->greeted = r->leaves = false;
    r->held = 0;
    r->heard_ns = d->now_ns;
    r->attach_id = id;
    r->from = from;
    r->snapshot = a->snapshot;
    r->progress = (struct progress){0};
    r->pace = (struct rank_pace){.waited = NAN};
    cw_dp_prepare_waiting(d); /* streams that have waited longer come first */
    j->stream->state = STREAM_ACTIVE;
    cw_dp_scaling_due(d);
    cw_dp_prepare_stream(d,
                         j->stream); /* workers that registered while the stream had no job prepare it too */
    if (j->paused || (!j->stream->data && j->stream->wants))
        cw_dp_held_notify(d, j);
    if (!j->stream->data)
        return 0;
    if (!j->durable) {
        cw_dp_job_ready(d, j);
        return 0;
    }
    cw_dp_rank_begin(d, r);
    if (r->client)
        cw_dp_rank_greet(d, r);
    return 0;
}

/* ---- Attach requests that wait ---- */

void cw_dp_client_forget_waiting(struct cw_dispatcher *d, struct cw_peer *p)
{
    if (!p->waiting.attach)
        return;
    d->peers.waiting_bytes -= cachew__attach__get_packed_size(p->waiting.attach);
    cachew__attach__free_unpacked(CW_STEAL(p->waiting.attach), NULL);
}

/* Keeps a copy of the Attach, to be tried again by cw_dp_client_tick. -1: no memory. */
static int client_wait(struct cw_dispatcher *d, struct cw_peer *p, uint64_t id, const Cachew__Attach *a)
{
    p->waiting = (struct waiting_attach){
        .attach = cw_dp_message_copy(&a->base, DP_WAITING - d->peers.waiting_bytes),
        .id = id,
        .since_ns = d->now_ns,
        .last_tick_ns = d->now_ns};
    if (!p->waiting.attach)
        return -1;
    d->peers.waiting_bytes += cachew__attach__get_packed_size(p->waiting.attach);
    return 0;
}

/* While a job has ranks, an Attach with other terms is refused. But the ranks' clients may be gone, which is
 * noticed late. So such an Attach waits, until a rank of the job sends a message or DP_SILENT has passed. */
static void client_attach_or_wait(struct cw_dispatcher *d, struct cw_peer *p, uint64_t id,
                                  const Cachew__Attach *a)
{
    struct cw_error refused = {0};
    cw_dp_client_forget_waiting(d, p);
    int r = client_attach(d, p, id, a, d->now_ns, &refused);
    if (r < 0 || (r > 0 && client_wait(d, p, id, a) < 0))
        cw_dp_peer_fail(d, p, id, &refused);
}

void cw_dp_client_tick(struct cw_dispatcher *d)
{
    if (d->peers.waiting_bytes == 0)
        return;
    CW_LIST_EACH_OF (p, struct cw_peer, link, &d->peers.list) {
        struct waiting_attach *x = &p->waiting;
        struct cw_error refused = {0};
        if (!x->attach)
            continue;
        /* if the dispatcher process was stopped for a while, messages of that time are not read yet */
        x->waited_ns += CW_MIN(d->now_ns - x->last_tick_ns, DP_S);
        x->last_tick_ns = d->now_ns;
        bool last = x->waited_ns >= DP_SILENT;
        int r = client_attach(d, p, x->id, x->attach, x->since_ns, &refused);
        if (r < 0 || (r > 0 && last))
            cw_dp_peer_fail(d, p, x->id, &refused);
        if (r <= 0 || last)
            cw_dp_client_forget_waiting(d, p);
    }
}

/* ---- attached ---- */

/* Tells a rank that waits for a batch which rank of the job is furthest behind, unless that is the same rank.
 */
static void client_notify_lagging(struct cw_dispatcher *d, struct rank *r)
{
    const struct job *j = r->job;
    Cachew__Place at = {CW_MESSAGE(place)};
    Cachew__Lagging l = {CW_MESSAGE(lagging), .at = &at};
    uint64_t least = r->pos;
    uint32_t missing = 0;
    DP_RANKS_EACH (x, j) {
        missing += missing == x->number;
        if (x->finished || !x->began || x->pos >= least)
            continue;
        least = x->pos;
        l.rank = x->number;
        l.attached = x->client != NULL;
    }
    if (missing < j->terms.world_size && !j->missing_over && j->first_from < least) {
        least = j->first_from;
        l.rank = missing;
        l.attached = false;
    }
    if (least == r->pos)
        return;
    at = cw_dp_stream_place(j->stream, least);
    cw_dp_peer_send(
        d, r->client,
        &(Cachew__Envelope){CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_LAGGING, .lagging = &l});
}

/* Stores the rank's pace: sums over its batches. Sums that decreased, or are not finite, are ignored. */
static void client_note_pace(struct cw_dispatcher *d, struct rank *r, const Cachew__Pace *m)
{
    const struct cw_pace p = r->pace.now;
    struct cw_pace now = {.n = (double)m->n,
                          .step_s = m->step_s,
                          .step_sq = m->step_sq,
                          .wait_s = m->wait_s,
                          .wait_sq = m->wait_sq,
                          .late = (double)m->late,
                          .ready = (double)m->ready};
    if (now.n >= p.n && now.step_s >= p.step_s && now.step_sq >= p.step_sq && now.wait_s >= p.wait_s &&
        now.wait_sq >= p.wait_sq && now.late >= p.late && now.ready >= p.ready && now.step_s < 1e18 &&
        now.wait_s < 1e18 && now.step_sq < 1e18 && now.wait_sq < 1e18)
        r->pace.now = now;
    if (!r->pace.known) {
        r->pace.at_policy = r->pace.at_point = r->pace.now;
        r->pace.batches_at_point = r->progress.n_batches;
    } else {
        d->history.paces.n += r->pace.now.n - p.n;
        d->history.paces.step_s += r->pace.now.step_s - p.step_s;
        d->history.paces.wait_s += r->pace.now.wait_s - p.wait_s;
    }
    r->pace.known = true;
}

static int client_progress(struct cw_dispatcher *d, struct rank *r, const Cachew__Progress *m,
                           struct cw_error *err)
{
    struct job *j = r->job;
    uint64_t pos;
    if (!r->greeted || !m->from)
        return cw_error_set(err, CW_E_SERVICE,
                            "the client reported progress before it had joined a job, or without a "
                            "position" CW_OTHER_VERSION);
    r->heard_ns = d->now_ns;
    int result = cw_dp_stream_position(j->stream, m->from, &pos, err);
    if (result < 0)
        return result;
    if (pos < r->pos || pos > cw_dp_stream_epochs(j->stream, j->terms.epochs))
        return cw_error_set(err, CW_E_SERVICE,
                            "the client reported progress to position %" PRIu64 " of epoch %" PRIu64
                            ": expected a position that is not before the last reported one, and not after "
                            "the end of the last epoch" CW_OTHER_VERSION,
                            m->from->position, m->from->epoch);
    if (pos != r->pos && r->pos == j->mark.pos && j->mark.n > 0 && --j->mark.n == 0)
        cw_dp_stream_dirty(d, j->stream);
    r->pos = pos;
    if (pos > r->next_report) {
        /* The rank passed a range whose report is not durable yet: the range has only batches of other ranks,
         * or the client got the report from the worker. Later ranges may have durable reports. */
        r->next_report = pos;
        cw_dp_stream_reports(d, j->stream);
    }
    r->from.epoch = m->from->epoch;
    r->from.position = m->from->position;
    r->progress = (struct progress){m->n_batches, m->n_lost, m->wait_ns, m->g, m->digest_lo, m->digest_hi};
    r->pace.waiting = m->waiting;
    if (m->pace)
        client_note_pace(d, r, m->pace);
    if (m->waiting)
        client_notify_lagging(d, r);
    return 0;
}

/* Returns the rank of a Detach that came over another connection than the rank's Attach. NULL: the Detach was
 * handled before, another client has the rank, or the job does not run. */
static struct rank *client_find_detached(struct cw_dispatcher *d, const struct cw_peer *p,
                                         const Cachew__Detach *m)
{
    struct job *j = cw_dp_job_find(d, m->job);
    struct rank *r;
    if (!j || j->state != JOB_RUNNING || m->rank >= j->terms.world_size)
        return NULL;
    size_t n = j->ranks.n;
    if (cw_dp_rank_get(d, j, m->rank, &r, NULL) < 0)
        return NULL;
    /* a rank that is new here attached to an earlier process of the dispatcher */
    return j->ranks.n > n || memcmp(r->incarnation, p->incarnation, sizeof(r->incarnation)) == 0 ? r : NULL;
}

static int client_detach(struct cw_dispatcher *d, struct cw_peer *p, uint64_t id, const Cachew__Detach *m,
                         struct cw_error *err)
{
    struct rank *r = p->rank ? p->rank : m->finished ? client_find_detached(d, p, m) : NULL;
    if (r) {
        struct job *j = r->job;
        bool finished = m->finished && !r->finished && (r->greeted || !p->rank);
        if (finished) {
            r->finished = true;
            j->ranks.n_finished++;
            j->mark.n = 0;
        }
        r->leaves = true;
        cw_dp_client_lost(d, r);
        if (finished && j->ranks.n_finished == j->terms.world_size)
            cw_dp_job_end(d, j, JOB_DONE, NULL);
        else if (finished) /* journalled, so that after a restart other ranks do not wait for this one */
            cw_dp_journal_tried(d, cw_dp_journal_job(d, j, NULL, NULL));
    }
    return id != 0 ? cw_dp_journal_then(d, &(struct action){.kind = ACTION_DONE, .peer = p, .re = id}, err)
                   : 0;
}

/* Drops the lease of a range for which the worker keeps answering NotHere, so that the range is leased again.
 * Only the client can notice this for a complete range, which is never late. */
static void client_not_here(struct cw_dispatcher *d, struct assignment *t, const Cachew__Range *m)
{
    struct span span;
    struct cw_error err = {0};
    bool known = cw_dp_stream_span(t->stream, m->epoch, m->begin, m->end, &span, &err) == 0;
    struct range *x = known ? cw_dp_range_find(&t->stream->ranges, span.begin) : NULL;
    if (!x)
        return;
    cw_dp_stream_announce(d, t->stream, x);
    if (x->begin != span.begin || x->end != span.end || x->holder[0].assignment != t ||
        d->now_ns - x->leased_ns < DP_S)
        return; /* the range was leased again since; the client gets its placement again */
    cw_dp_log(d, true,
              "worker %" PRIu64 " does not have the range of positions %" PRIu64 " to %" PRIu64
              " of epoch %" PRIu64 ", which was leased to it: the range is leased again",
              t->worker->id, m->begin, m->end, m->epoch);
    cw_dp_lease_drop(d, t, x, DROP_REVOKED);
}

/* Handles Unreachable: shuns the worker, if another one can serve the stream. */
static void client_unreachable(struct cw_dispatcher *d, struct rank *r, const Cachew__Unreachable *m)
{
    struct worker *w = cw_dp_worker_find(d, m->worker);
    struct stream *s = r->job->stream;
    struct assignment *t = w && s ? cw_dp_assignment_find(w, s) : NULL;
    if (t && m->not_here && !s->at_most_once)
        client_not_here(d, t, m->not_here);
    if (!t || m->not_here || !r->greeted || s->at_most_once ||
        (s->assignments.heap.n <= (size_t)(t->heap_at > 0) && !cw_dp_worker_sets_spare(d, s)))
        return; /* there is no other worker to use instead */
    if (t->shunned_until == 0)
        cw_dp_log(d, true, "rank %" PRIu32 " of job \"%s\" can't reach worker %" PRIu64 ": %.200s", r->number,
                  r->job->name, m->worker, m->reason);
    cw_dp_prepare_shun(d, t);
    cw_dp_lease_drop_from(d, t, r->pos, DROP_REVOKED);
}

int cw_dp_client_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                         struct cw_error *err)
{
    switch (m->of_case) {
    case CACHEW__ENVELOPE__OF_ATTACH:
        if (m->id == 0)
            return cw_error_set(err, CW_E_SERVICE,
                                "the client's request to join a job (Attach) has no id" CW_OTHER_VERSION);
        client_attach_or_wait(d, p, m->id, m->attach);
        return 0;
    case CACHEW__ENVELOPE__OF_PROGRESS:
        /* without a rank: Ended is on its way to the client */
        return p->rank ? client_progress(d, p->rank, m->progress, err) : 0;
    case CACHEW__ENVELOPE__OF_DETACH:
        return client_detach(d, p, m->id, m->detach, err);
    case CACHEW__ENVELOPE__OF_UNREACHABLE:
        if (p->rank)
            client_unreachable(d, p->rank, m->unreachable);
        return 0;
    default:
        return 1;
    }
}
