/*
 * Crews: with a policy, a stream is computed by as many workers as its job got of the pool, and a worker serves one stream where there are enough of them. Who is in a
 * crew stays there as long as possible: another worker has to open the data first.
 */
#include "base/hash.h"
#include "dispatcher/internal.h"

void cw_dp_crews_later(struct cw_dispatcher *d) { d->crews_due = d->scales; }

static bool able(const struct worker *w) { return w->ready && !w->draining; }
/* Of a crew, and of use to it. */
static bool serves(const struct seat *t) { return t->granted && able(t->worker) && t->state != SEAT_UNFIT && t->shunned_until == 0; }

int cw_dp_crew_running(const struct stream *s)
{
    int n = 0;
    CW_LIST_EACH(at, &s->seats) {
        const struct seat *t = CW_CONTAINER(at, struct seat, by_stream);
        n += serves(t) && t->state == SEAT_READY;
    }
    return n;
}

bool cw_dp_crew_comes(const struct cw_dispatcher *d, const struct stream *s)
{
    bool comes = false;
    CW_LIST_EACH(at, &s->seats) {
        const struct seat *t = CW_CONTAINER(at, struct seat, by_stream);
        comes |= serves(t) && t->state != SEAT_READY;
    }
    return d->scales && comes;
}

/* ---- shares ---- */

static size_t n_active(const struct cw_dispatcher *d)
{
    size_t n = 0;
    CW_LIST_EACH(at, &d->jobs)
        n += cw_dp_scale_active(CW_CONTAINER(at, struct job, link));
    return n;
}

/* Whether anything changed that shares follow from: a hash of it all. */
static void note_claims(struct cw_dispatcher *d, const struct cw_claim *claims, size_t n, int most)
{
    uint64_t hash = cw_hash64(&most, sizeof(most));
    for (size_t i = 0; i < n; i++) {
        const struct { double weight; int want, priority, quota, none; } what = {claims[i].weight, claims[i].want, claims[i].priority, claims[i].quota, 0};
        hash = hash * 31 + cw_hash64(&what, sizeof(what));
    }
    d->claims_serial += hash != d->claims_hash;
    d->claims_hash = hash;
}

/* What each job that needs workers gets of them. `whole` gets what it could get if it wanted all: its share is returned, and no other one changes. */
static int divide(struct cw_dispatcher *d, const struct job *whole)
{
    size_t n = n_active(d), i = 0;
    int most = cw_dp_pools_most(d), of_whole = 1;
    _cleanup_free_ struct cw_claim *claims = calloc(n + 1, sizeof(*claims));
    if (!claims)
        return 1; /* shares stay as they are */
    CW_LIST_EACH(at, &d->jobs) {
        const struct job *j = CW_CONTAINER(at, struct job, link);
        if (!cw_dp_scale_active(j))
            continue;
        claims[i] = j->scaling.claim;
        if (j == whole)
            claims[i].want = CW_MAX(most, 1);
        i++;
    }
    if (!whole)
        note_claims(d, claims, n, most);
    cw_share(claims, (int)n, most);
    i = 0;
    CW_LIST_EACH(at, &d->jobs) {
        struct job *j = CW_CONTAINER(at, struct job, link);
        if (!cw_dp_scale_active(j))
            continue;
        int share = CW_MAX(claims[i].share, 1); /* where there are fewer workers than jobs, they have one together */
        i++;
        if (!whole)
            j->scaling.claim.share = share;
        else if (j == whole)
            of_whole = share;
    }
    return of_whole;
}

int cw_dp_crews_most(struct cw_dispatcher *d, struct job *j)
{
    struct scaling *x = &j->scaling;
    if (x->most == 0 || x->most_serial != d->claims_serial) { /* each job asks each second, and mostly nothing changed */
        x->most = divide(d, j);
        x->most_serial = d->claims_serial;
    }
    return x->most;
}

/* ---- crews ---- */

static void leave(struct cw_dispatcher *d, struct seat *t)
{
    if (!t->granted)
        return;
    t->granted = false;
    t->worker->n_crews--;
    cw_dp_seat_usable(d, t);
    cw_dp_crews_later(d);
}

/* What it has begun it finishes, as it has to be read from somewhere; the rest goes to those that stay. */
static void dismiss(struct cw_dispatcher *d, struct seat *t)
{
    leave(d, t);
    if (t->stream->n_heap + t->stream->n_shunned > 0 && !t->stream->at_most_once)
        cw_dp_lease_drop_unbegun(d, t);
    cw_dp_stream_dirty(d, t->stream);
}

/* Who is of least use goes first: who serves others too, who has least of it, who came last. */
static bool goes_before(const struct seat *a, const struct seat *b)
{
    if ((a->worker->n_crews > 1) != (b->worker->n_crews > 1))
        return a->worker->n_crews > 1;
    return a->n_held != b->n_held ? a->n_held < b->n_held : a->worker->id > b->worker->id;
}

/* Returns how many there are then. Who is still opening the data takes nobody's place: one more may be there meanwhile. */
static int shrink(struct cw_dispatcher *d, struct stream *s, int target)
{
    int n = 0;
    CW_LIST_EACH(at, &s->seats) {
        struct seat *t = CW_CONTAINER(at, struct seat, by_stream);
        if (t->granted && !able(t->worker)) /* who drains hands back what it has by itself */
            leave(d, t);
        n += serves(t);
    }
    for (int ready = cw_dp_crew_running(s); target > 0 ? ready > target : n > 0; n--) {
        struct seat *first = NULL;
        CW_LIST_EACH(at, &s->seats) {
            struct seat *t = CW_CONTAINER(at, struct seat, by_stream);
            if (serves(t) && (!first || goes_before(t, first)))
                first = t;
        }
        ready -= first->state == SEAT_READY;
        dismiss(d, first);
    }
    return n;
}

/* Who serves nobody comes first; then who still has something of the stream, and who was there before others. */
static struct worker *next_worker(struct cw_dispatcher *d, const struct stream *s, bool shared)
{
    struct worker *best = NULL;
    const struct seat *best_seat = NULL;
    CW_LIST_EACH(at, &s->seats)
        CW_CONTAINER(at, struct seat, by_stream)->worker->here = CW_CONTAINER(at, struct seat, by_stream);
    CW_LIST_EACH(at, &d->workers) {
        struct worker *w = CW_CONTAINER(at, struct worker, link);
        const struct seat *t = w->here;
        w->here = NULL;
        if (!able(w) || (t && (t->granted || t->state == SEAT_UNFIT || t->shunned_until != 0)) || (w->n_crews > 0 && !shared))
            continue;
        if (!best || w->n_crews < best->n_crews || (w->n_crews == best->n_crews && (t != NULL) > (best_seat != NULL))) {
            best = w;
            best_seat = t;
        }
    }
    return best;
}

bool cw_dp_crews_spare(struct cw_dispatcher *d, const struct stream *s) { return d->scales && next_worker(d, s, true); }

static bool join(struct cw_dispatcher *d, struct stream *s, struct worker *w)
{
    struct seat *t = w ? cw_dp_seat_find(w, s) : NULL;
    if (w && !t)
        t = cw_dp_seat_new(d, w, s);
    if (!t)
        return false;
    t->granted = true;
    w->n_crews++;
    s->n_joined++;
    cw_dp_seat_usable(d, t);
    return true;
}

static bool shares(const struct seat *t) { return serves(t) && t->worker->n_crews > 1; }

/* Up to the target; better a part of one than none. Who only has a part of one gets one of its own once somebody is free. */
static void grow(struct cw_dispatcher *d, struct stream *s, int n, int target)
{
    bool any = false;
    for (; n < target && join(d, s, next_worker(d, s, n == 0)); n++)
        any = true;
    CW_LIST_EACH(at, &s->seats)
        if (n == target && shares(CW_CONTAINER(at, struct seat, by_stream)) && join(d, s, next_worker(d, s, false))) {
            any = true;
            n++; /* the one that is shared leaves when this one is ready */
        }
    if (any)
        cw_dp_seat_ask(d, s);
}

/* As large as the largest share of its jobs: mostly there is one. */
static int target_of(const struct stream *s)
{
    int target = 0;
    CW_LIST_EACH(at, &s->jobs) {
        const struct job *j = CW_CONTAINER(at, struct job, by_stream);
        if (cw_dp_scale_active(j))
            target = CW_MAX(target, j->scaling.claim.share);
    }
    return target;
}

void cw_dp_crews(struct cw_dispatcher *d)
{
    int needed = 0;
    d->crews_due = false;
    divide(d, NULL);
    CW_LIST_EACH(at, &d->streams) { /* who has too many lets go first */
        struct stream *s = CW_CONTAINER(at, struct stream, link);
        int target = target_of(s);
        shrink(d, s, target);
        needed += target;
    }
    CW_LIST_EACH(at, &d->streams) {
        struct stream *s = CW_CONTAINER(at, struct stream, link);
        int target = target_of(s);
        grow(d, s, shrink(d, s, target), target);
    }
    cw_dp_pools_want(d, needed);
    d->crews_due = false; /* what the above changed is taken care of */
}

void cw_dp_crews_tick(struct cw_dispatcher *d)
{
    CW_LIST_EACH(at, &d->streams) {
        struct stream *s = CW_CONTAINER(at, struct stream, link);
        CW_LIST_EACH(at_seat, &s->seats) {
            struct seat *t = CW_CONTAINER(at_seat, struct seat, by_stream);
            if (!t->granted && t->n_held == 0 && t->state != SEAT_UNFIT && t->state != SEAT_ASKED)
                cw_dp_seat_forget(d, t); /* the worker's memory is for those that it serves */
        }
    }
}
