/* Sends clients the worker addresses, placements and reports of their stream. */
#include "service/dispatcher/notify.h"

#include "service/dispatcher/state.h"

/* up to this number of clients, each turn sends news; with more clients news is sent less often, ... */
#define SENT_AT_ONCE 64
/* ... after this number of ns per client, so that sending takes a small part of the time */
#define SENT_NS UINT64_C(20000)
#define PER_MESSAGE 512 /* items of one message: they fit the stack and one frame */
#define ALL UINT64_MAX

/* Sends a message to the attached ranks of a stream. from ALL: to all; else to the ranks whose next report is
 * at position `from`. */
static void notify_ranks(struct cw_dispatcher *d, const struct stream *s, uint64_t from,
                         const Cachew__Envelope *m)
{
    struct cw_peer *peers[CW_DISPATCHER_SENDS];
    size_t n = 0;
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs) {
        DP_RANKS_EACH (r, j) {
            if (r->greeted && (from == ALL || r->next_report == from))
                peers[n++] = r->client;
            if (n == CW_COUNT_OF(peers)) {
                cw_dp_peer_send_all(d, peers, n, m);
                n = 0;
            }
        }
    }
    cw_dp_peer_send_all(d, peers, n, m);
}

/* Sends worker addresses to one client, or (client NULL) to all clients of the stream. */
static void notify_workers(struct cw_dispatcher *d, struct stream *s, struct cw_peer *client,
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
        cw_dp_peer_send(d, client, &m);
    else
        notify_ranks(d, s, ALL, &m);
}

void cw_dp_notify_worker(struct cw_dispatcher *d, struct assignment *t)
{
    t->announced = true;
    notify_workers(d, t->stream, NULL, &t->worker, 1, false);
}

void cw_dp_notify_gone(struct cw_dispatcher *d, struct worker *w)
{
    CW_LIST_EACH_OF (t, struct assignment, by_worker, &w->assignments)
        if (t->announced)
            notify_workers(d, t->stream, NULL, &w, 1, true);
}

/* ---- placements ---- */

struct placements {
    Cachew__Placement of[PER_MESSAGE], *pointers[PER_MESSAGE];
    uint64_t end[PER_MESSAGE]; /* position counted over all epochs */
    size_t n;
};

/* The ranks of a job that need batches of a range: n ranks from `first` on, modulo the world size. */
struct turns {
    uint32_t first, n;
};

static struct turns turns_find(const struct stream *s, const struct job *j, const Cachew__Placement *a)
{
    uint64_t size = cw_dp_stream_align(s), first = a->begin / size, last = (a->end - 1) / size;
    uint32_t n = j->terms.world_size;
    uint64_t before = a->epoch == j->round.epoch ? n - j->round.batch % n : 0;
    /* any rank may need the epoch's first batches: they pad the last round */
    bool all = !cw_dp_stream_counted(s) || first < n;
    return (struct turns){(uint32_t)((first + before) % n),
                          all ? n : (uint32_t)CW_MIN(last - first + 1, (uint64_t)n)};
}

static bool turns_include(const struct turns *t, const struct rank *r)
{
    uint32_t wrapped = r->number >= t->first ? 0 : r->job->terms.world_size;
    return r->number + wrapped - t->first < t->n;
}

/* Sends each of the n ranks those placements whose batches it may still need. */
static void placements_send(struct cw_dispatcher *d, const struct placements *p, const struct job *j,
                            struct rank *const *ranks, size_t n)
{
    struct turns turns[PER_MESSAGE];
    Cachew__Placement *own[PER_MESSAGE];
    Cachew__Placements list = {CW_MESSAGE(placements), .placements = own};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_PLACEMENTS,
                          .placements = &list};
    for (size_t i = 0; i < p->n; i++)
        turns[i] = turns_find(j->stream, j, &p->of[i]);
    for (size_t k = 0; k < n && p->n > 0; k++) {
        if (!ranks[k]->greeted)
            continue;
        list.n_placements = 0;
        for (size_t i = 0; i < p->n; i++)
            if (p->end[i] > ranks[k]->pos && turns_include(&turns[i], ranks[k]))
                own[list.n_placements++] = p->pointers[i];
        if (list.n_placements > 0)
            cw_dp_peer_send(d, ranks[k]->client, &m);
    }
}

/* Sends the placements to one rank, or (only NULL) to all ranks of the stream, and empties the list. */
static void placements_flush(struct cw_dispatcher *d, const struct stream *s, struct rank *only,
                             struct placements *p)
{
    Cachew__Placements list = {CW_MESSAGE(placements), .placements = p->pointers, .n_placements = p->n};
    if (only)
        placements_send(d, p, only->job, &only, 1);
    else if (p->n > 0 && !cw_dp_stream_counted(s))
        notify_ranks(d, s, ALL,
                     &(Cachew__Envelope){CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_PLACEMENTS,
                                         .placements = &list});
    else
        CW_LIST_EACH_OF (j, const struct job, by_stream, &s->jobs)
            placements_send(d, p, j, j->ranks.items, j->ranks.n);
    p->n = 0;
}

/* Adds the placement of range x to the list, and sends the list when it fills a message. only: as in
 * placements_flush. */
static void placements_add(struct cw_dispatcher *d, const struct stream *s, struct rank *only,
                           struct placements *p, const struct range *x)
{
    Cachew__Place at = cw_dp_stream_place(s, x->begin);
    p->pointers[p->n] = &p->of[p->n];
    p->of[p->n] = (Cachew__Placement){CW_MESSAGE(placement),
                                      .worker = x->holder[0].assignment ? x->holder[0].assignment->worker->id
                                                                        : 0,
                                      .lost = (x->flags & RANGE_LOST) != 0,
                                      .epoch = at.epoch,
                                      .begin = at.position,
                                      .end = at.position + (x->end - x->begin)};
    p->end[p->n++] = x->end;
    if (p->n == PER_MESSAGE)
        placements_flush(d, s, only, p);
}

/* Sends all placements that changed since the last call. */
static void notify_placements(struct cw_dispatcher *d, struct stream *s)
{
    struct placements p;
    p.n = 0;
    DP_RANGES_EACH (x, &s->ranges, cw_dp_range_index(&s->ranges, s->news.first)) {
        if (x->begin >= s->news.end)
            break;
        if (!(x->flags & RANGE_ANNOUNCE) || (x->flags & RANGE_UNSENT))
            continue;
        x->flags &= (uint8_t)~RANGE_ANNOUNCE;
        placements_add(d, s, NULL, &p, x);
    }
    placements_flush(d, s, NULL, &p);
    s->news.placements = false;
}

/* ---- reports ---- */

static void notify_send_reports(struct cw_dispatcher *d, struct stream *s, uint64_t from,
                                Cachew__Report **reports, size_t n)
{
    Cachew__Reports list = {CW_MESSAGE(reports), .reports = reports, .n_reports = n};
    if (n > 0)
        notify_ranks(d, s, from,
                     &(Cachew__Envelope){CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_REPORTS,
                                         .reports = &list});
}

/* Sends reports of finished ranges, in order, to the ranks whose next report is at `from`. In a counted plan,
 * where batches follow from positions, clients need no reports. */
static void notify_reports(struct cw_dispatcher *d, struct stream *s, uint64_t from)
{
    Cachew__Report reports[PER_MESSAGE], *pointers[PER_MESSAGE];
    uint64_t sums[PER_MESSAGE], to = from;
    size_t n = 0;
    const struct range *x;
    for (; !cw_dp_stream_counted(s) && (x = cw_dp_range_find(&s->ranges, to)) &&
           (x->flags & (RANGE_DURABLE | RANGE_LOST));
         to = x->end) {
        if (!(x->flags & RANGE_DURABLE)) /* the range was lost before it had a report */
            continue;
        sums[n] = cw_dp_elements_sum(x->elements, x->n_elements);
        pointers[n] = &reports[n];
        Cachew__Place at = cw_dp_stream_place(s, x->begin);
        reports[n] = (Cachew__Report){CW_MESSAGE(report),        .epoch = at.epoch,
                                      .begin = at.position,      .end = at.position + (x->end - x->begin),
                                      .n_batches = x->n_batches, .elements = &sums[n],
                                      .n_elements = sums[n] > 0};
        if (++n == PER_MESSAGE) {
            notify_send_reports(d, s, from, pointers, n);
            n = 0;
        }
    }
    notify_send_reports(d, s, from, pointers, n);
    if (to == from)
        return;
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        DP_RANKS_EACH (r, j)
            if (r->greeted && r->next_report == from)
                r->next_report = to;
}

/* ---- placements and reports ---- */

uint64_t cw_dp_notify_stream(struct cw_dispatcher *d, struct stream *s)
{
    size_t n = 0;
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        n += j->ranks.n_attached;
    uint64_t due_ns = n > SENT_AT_ONCE ? s->news.last_sent_ns + n * SENT_NS : 0;
    if (!s->news.placements && !s->news.reports)
        return 0;
    if (due_ns > d->now_ns)
        return due_ns - d->now_ns;
    s->news.last_sent_ns = d->now_ns;
    if (s->news.placements)
        notify_placements(d, s);
    if (s->news.reports) {
        s->news.reports = false;
        CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
            DP_RANKS_EACH (r, j)
                if (r->greeted)
                    notify_reports(d, s, r->next_report);
    }
    return 0;
}

/* At-most-once: tells the rank that positions before the range table are lost: they were given out before. */
static void notify_passed(struct cw_dispatcher *d, struct rank *r, struct placements *p)
{
    struct stream *s = r->job->stream;
    uint64_t n = cw_dp_stream_epoch(s), end = cw_dp_range_begin(&s->ranges);
    struct range lost = {.begin = r->pos, .flags = RANGE_LOST};
    if (!s->at_most_once || s->ranges.state == RANGES_UNPLACED)
        return;
    for (; lost.begin < end; lost.begin = lost.end) {
        lost.end = CW_MIN(end, lost.begin + (n - cw_dp_stream_place(s, lost.begin).position));
        placements_add(d, s, r, p, &lost);
    }
    r->next_report = CW_MAX(r->next_report, s->ranges.base);
}

void cw_dp_notify_rank(struct cw_dispatcher *d, struct rank *r)
{
    struct stream *s = r->job->stream;
    struct placements p;
    struct worker *workers[PER_MESSAGE];
    size_t n = 0;
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list) {
        if (t->announced)
            workers[n++] = t->worker;
        if (n == PER_MESSAGE) {
            notify_workers(d, s, r->client, workers, n, false);
            n = 0;
        }
    }
    if (n > 0)
        notify_workers(d, s, r->client, workers, n, false);
    p.n = 0;
    notify_passed(d, r, &p);
    DP_RANGES_EACH (x, &s->ranges, cw_dp_range_index(&s->ranges, r->pos))
        if ((x->holder[0].assignment && !(x->flags & RANGE_UNSENT)) || (x->flags & RANGE_LOST))
            placements_add(d, s, r, &p, x);
    placements_flush(d, s, r, &p);
    notify_reports(d, s, r->next_report);
}
