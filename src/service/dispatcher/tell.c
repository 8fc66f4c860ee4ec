/*
 * What the clients of a stream are told: where workers are, where ranges are, what finished ones gave, and
 * what keeps them. One message of a kind per client and turn.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "service/dispatcher/internal.h"

#define TOLD_AT_ONCE 64 /* clients; more are told of all that came within */
#define TELL_NS \
    UINT64_C(20000)     /* for each of them, so that telling takes a small part of the dispatcher's time */
#define PER_MESSAGE 512 /* so that what is sent at a time fits the stack, and one frame */

#define ALL UINT64_MAX

/* To the attached ranks of a stream; not ALL: to those that were sent the reports before position `from`. */
static void send_ranks(struct cw_dispatcher *d, struct stream *s, uint64_t from, const Cachew__Envelope *m)
{
    struct cw_peer *peers[CW_DISPATCHER_SENDS];
    size_t n = 0;
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs) {
        for (size_t i = 0; i < j->n_ranks; i++) {
            if (j->ranks[i]->greeted && (from == ALL || j->ranks[i]->next_report == from))
                peers[n++] = j->ranks[i]->client;
            if (n == CW_COUNT_OF(peers)) {
                cw_dp_send_all(d, peers, n, m);
                n = 0;
            }
        }
    }
    cw_dp_send_all(d, peers, n, m);
}

Cachew__WorkerAddress cw_dp_worker_address(const struct worker *w)
{
    return (Cachew__WorkerAddress){
        CW_MESSAGE(worker_address), .worker = w->id,           .host = w->host,
        .unix_path = w->unix_path,  .addresses = w->addresses, .n_addresses = w->n_addresses};
}

/* To one client, or all of a stream. */
static void tell_workers(struct cw_dispatcher *d, struct stream *s, struct cw_peer *client,
                         struct worker *const *workers, size_t n, bool gone)
{
    Cachew__WorkerAddress addresses[PER_MESSAGE], *pointers[PER_MESSAGE];
    Cachew__Workers list = {CW_MESSAGE(workers), .workers = pointers, .n_workers = n};
    for (size_t i = 0; i < n; i++) {
        Cachew__WorkerAddress *a = pointers[i] = &addresses[i];
        *a = cw_dp_worker_address(workers[i]);
        a->gone = gone;
    }
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_WORKERS, .workers = &list};
    if (client)
        cw_dp_send(d, client, &m);
    else
        send_ranks(d, s, ALL, &m);
}

void cw_dp_tell_assignment(struct cw_dispatcher *d, struct assignment *t)
{
    t->announced = true;
    tell_workers(d, t->stream, NULL, &t->worker, 1, false);
}

void cw_dp_tell_gone(struct cw_dispatcher *d, struct worker *w)
{
    CW_LIST_EACH_OF (t, struct assignment, by_worker, &w->assignments)
        if (t->announced)
            tell_workers(d, t->stream, NULL, &w, 1, true);
}

/* ---- placements ---- */

struct placements {
    Cachew__Placement of[PER_MESSAGE], *pointers[PER_MESSAGE];
    uint64_t end[PER_MESSAGE]; /* through the epochs */
    size_t n;
};

static void placements_add(struct placements *p, const struct stream *s, const struct range *x)
{
    Cachew__Placement *a = p->pointers[p->n] = &p->of[p->n];
    *a = (Cachew__Placement){CW_MESSAGE(placement),
                             .worker = x->holder[0].assignment ? x->holder[0].assignment->worker->id : 0,
                             .lost = (x->flags & RANGE_LOST) != 0};
    cw_dp_stream_place(s, x->begin, &a->epoch, &a->begin);
    a->end = a->begin + (x->end - x->begin);
    p->end[p->n++] = x->end;
}

/* Where batches follow from positions: the ranks of a job that ask for a batch of a range, from rank `first`
 * on. */
struct turns {
    uint32_t first, n;
};

static struct turns turns_of(const struct stream *s, const struct job *j, const Cachew__Placement *a)
{
    uint64_t size = cw_dp_stream_align(s), first = a->begin / size, last = (a->end - 1) / size;
    uint64_t before = a->epoch == j->round.epoch ? j->world_size - j->round.batch % j->world_size : 0;
    /* the first batches fill up an epoch's last round, for any rank */
    bool all = !cw_dp_stream_counted(s) || first < j->world_size;
    return (struct turns){(uint32_t)((first + before) % j->world_size),
                          all ? j->world_size : (uint32_t)CW_MIN(last - first + 1, (uint64_t)j->world_size)};
}

static bool has_turn(const struct turns *t, const struct rank *r)
{
    uint32_t after = r->number >= t->first ? r->number - t->first : r->number + r->job->world_size - t->first;
    return after < t->n;
}

/* Those that the rank may still ask for. */
static void placements_send(struct cw_dispatcher *d, struct rank *r, struct placements *p,
                            const struct turns *turns)
{
    Cachew__Placement *own[PER_MESSAGE];
    Cachew__Placements list = {CW_MESSAGE(placements), .placements = own};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_PLACEMENTS,
                          .placements = &list};
    for (size_t i = 0; i < p->n; i++)
        if (p->end[i] > r->pos && has_turn(&turns[i], r))
            own[list.n_placements++] = p->pointers[i];
    if (list.n_placements > 0)
        cw_dp_send(d, r->client, &m);
}

static void placements_flush(struct cw_dispatcher *d, const struct job *j, struct rank *const *ranks,
                             size_t n, struct placements *p)
{
    struct turns turns[PER_MESSAGE];
    for (size_t i = 0; i < p->n; i++)
        turns[i] = turns_of(j->stream, j, &p->of[i]);
    for (size_t i = 0; i < n && p->n > 0; i++)
        if (ranks[i]->greeted)
            placements_send(d, ranks[i], p, turns);
}

static void placements_to_all(struct cw_dispatcher *d, struct stream *s, struct placements *p)
{
    Cachew__Placements list = {CW_MESSAGE(placements), .placements = p->pointers, .n_placements = p->n};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_PLACEMENTS,
                          .placements = &list};
    if (!cw_dp_stream_counted(s)) {
        send_ranks(d, s, ALL, &m);
        p->n = 0;
        return;
    }
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        placements_flush(d, j, j->ranks, j->n_ranks, p);
    p->n = 0;
}

static void tell_changes(struct cw_dispatcher *d, struct stream *s)
{
    struct placements p;
    p.n = 0;
    struct range *x;
    size_t i = cw_dp_range_index(s, s->announce_first);
    for (; (x = cw_dp_range_at(s, i)) && x->begin < s->announce_end; i++) {
        if (!(x->flags & RANGE_ANNOUNCE) || (x->flags & RANGE_UNSENT))
            continue;
        x->flags &= (uint8_t)~RANGE_ANNOUNCE;
        placements_add(&p, s, x);
        if (p.n == PER_MESSAGE)
            placements_to_all(d, s, &p);
    }
    if (p.n > 0)
        placements_to_all(d, s, &p);
    s->announce = false;
}

/* ---- reports ---- */

static void send_reports(struct cw_dispatcher *d, struct stream *s, uint64_t from, Cachew__Report **reports,
                         size_t n)
{
    Cachew__Reports list = {CW_MESSAGE(reports), .reports = reports, .n_reports = n};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_REPORTS, .reports = &list};
    if (n > 0)
        send_ranks(d, s, from, &m);
}

/* Sends what ranges gave, in order, to the ranks that were sent what is before `from`. Where batches follow
 * from positions, clients need none. */
static void tell_reports(struct cw_dispatcher *d, struct stream *s, uint64_t from)
{
    Cachew__Report reports[PER_MESSAGE], *pointers[PER_MESSAGE];
    uint64_t sums[PER_MESSAGE], to = from;
    size_t n = 0;
    struct range *x;
    for (; !cw_dp_stream_counted(s) && (x = cw_dp_range(s, to)) && (x->flags & (RANGE_DURABLE | RANGE_LOST));
         to = x->end) {
        if (!(x->flags & RANGE_DURABLE)) /* lost before its end: there is nothing to tell */
            continue;
        sums[n] = cw_dp_elements_sum(x->elements, x->n_elements);
        pointers[n] = &reports[n];
        reports[n] = (Cachew__Report){CW_MESSAGE(report), .n_batches = x->n_batches, .elements = &sums[n],
                                      .n_elements = sums[n] > 0};
        cw_dp_stream_place(s, x->begin, &reports[n].epoch, &reports[n].begin);
        reports[n].end = reports[n].begin + (x->end - x->begin);
        if (++n == PER_MESSAGE) {
            send_reports(d, s, from, pointers, n);
            n = 0;
        }
    }
    send_reports(d, s, from, pointers, n);
    if (to == from)
        return;
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        for (size_t i = 0; i < j->n_ranks; i++)
            if (j->ranks[i]->greeted && j->ranks[i]->next_report == from)
                j->ranks[i]->next_report = to;
}

/* ---- both ---- */

uint64_t cw_dp_tell_stream(struct cw_dispatcher *d, struct stream *s)
{
    size_t n = 0;
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        n += j->n_attached;
    uint64_t due_ns = n > TOLD_AT_ONCE ? s->told_ns + n * TELL_NS : 0;
    if (!s->announce && !s->reports_came)
        return 0;
    if (due_ns > d->now_ns)
        return due_ns - d->now_ns;
    s->told_ns = d->now_ns;
    if (s->announce)
        tell_changes(d, s);
    if (s->reports_came) {
        s->reports_came = false;
        CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
            for (size_t i = 0; i < j->n_ranks; i++)
                if (j->ranks[i]->greeted)
                    tell_reports(d, s, j->ranks[i]->next_report);
    }
    return 0;
}

/* ---- what keeps a job ---- */

/* Nobody takes ranges of it, and no assignment tells why: what is with the workers. */
static void held_by_workers(const struct cw_dispatcher *d, char *buf, size_t size)
{
    size_t n_draining = 0;
    CW_LIST_EACH_OF (w, const struct worker, link, &d->workers) {
        if (w->ready && !w->draining)
            return;
        n_draining += w->peer && w->draining;
    }
    if (n_draining > 0)
        snprintf(buf, size, "no worker takes ranges: %zu %s being drained", n_draining,
                 n_draining == 1 ? "is" : "are");
    else
        snprintf(buf, size, "no worker is there");
    CW_LIST_EACH_OF (p, const struct pool, link, &d->pools)
        if (p->why && n_draining == 0)
            snprintf(buf, size, "no worker is there, and pool \"%s\" can't start one: %.500s", p->name,
                     p->why);
}

static void held_find(const struct cw_dispatcher *d, const struct job *j, char *buf, size_t size)
{
    const struct stream *s = j->stream;
    const struct assignment *unfit = NULL;
    size_t n_asked = 0;
    *buf = '\0';
    if (d->retry_ns != 0) {
        snprintf(buf, size,
                 "the dispatcher can't write its journal, and nothing is acknowledged until it can: %.600s",
                 d->journal_error.message);
        return;
    }
    if (j->paused) {
        snprintf(buf, size, "the job is paused (`cachew jobs --resume` lets it go on)");
        return;
    }
    if (s->n_heap > 0 || cw_dp_grace(d, s))
        return;
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments) {
        n_asked += t->state == ASSIGNMENT_ASKED;
        if (t->state == ASSIGNMENT_UNFIT && (!unfit || t->worker->id < unfit->worker->id))
            unfit = t;
    }
    if (n_asked > 0)
        snprintf(buf, size, "a worker is opening the data");
    else if (s->wants)
        snprintf(buf, size,
                 "workers have as many streams as they may have at a time (their --max-streams), or as fit "
                 "into their --memory: it is the job's turn when others end");
    else if (unfit)
        snprintf(buf, size, "worker %" PRIu64 " can't serve it: %.600s", unfit->worker->id,
                 unfit->why ? unfit->why : "out of memory");
    else
        held_by_workers(d, buf, size);
}

void cw_dp_held_why(const struct cw_dispatcher *d, const struct job *j, char *buf, size_t size)
{
    held_find(d, j, buf, size);
    cw_text_clean(buf, size);
}

void cw_dp_tell_held(struct cw_dispatcher *d, struct job *j)
{
    char why[800];
    if (!j->stream)
        return;
    cw_dp_held_why(d, j, why, sizeof(why));
    uint64_t hash = *why ? cw_hash64(why, strlen(why)) | 1 : 0;
    Cachew__Held held = {CW_MESSAGE(held), .why = why, .paused = j->paused};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_HELD, .held = &held};
    for (size_t i = 0; i < j->n_ranks; i++) {
        struct rank *r = j->ranks[i];
        if (!r->client || r->held == hash)
            continue;
        r->held = hash;
        cw_dp_send(d, r->client, &m);
    }
}

/* at-most-once: what was given out before the table begins, and is over for good. */
static void tell_passed(struct cw_dispatcher *d, struct rank *r, struct placements *p)
{
    struct stream *s = r->job->stream;
    uint64_t n = cw_dp_stream_epoch(s), end = cw_dp_range_begin(s), epoch, position;
    struct range lost = {.begin = r->pos, .flags = RANGE_LOST};
    for (; s->at_most_once && s->based && lost.begin < end; lost.begin = lost.end) {
        cw_dp_stream_place(s, lost.begin, &epoch, &position);
        lost.end = CW_MIN(end, lost.begin + (n - position));
        placements_add(p, s, &lost);
        if (p->n == PER_MESSAGE) {
            placements_flush(d, r->job, &r, 1, p);
            p->n = 0;
        }
    }
    r->next_report = s->at_most_once && s->based ? CW_MAX(r->next_report, s->base) : r->next_report;
}

void cw_dp_tell_all(struct cw_dispatcher *d, struct rank *r)
{
    struct stream *s = r->job->stream;
    struct placements p;
    struct worker *workers[PER_MESSAGE];
    size_t n = 0;
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments) {
        if (t->announced)
            workers[n++] = t->worker;
        if (n == PER_MESSAGE) {
            tell_workers(d, s, r->client, workers, n, false);
            n = 0;
        }
    }
    if (n > 0)
        tell_workers(d, s, r->client, workers, n, false);
    p.n = 0;
    tell_passed(d, r, &p);
    struct range *x;
    for (size_t i = cw_dp_range_index(s, r->pos); (x = cw_dp_range_at(s, i)); i++) {
        if ((x->holder[0].assignment && !(x->flags & RANGE_UNSENT)) || (x->flags & RANGE_LOST))
            placements_add(&p, s, x);
        if (p.n == PER_MESSAGE) {
            placements_flush(d, r->job, &r, 1, &p);
            p.n = 0;
        }
    }
    placements_flush(d, r->job, &r, 1, &p);
    tell_reports(d, s, r->next_report);
}
