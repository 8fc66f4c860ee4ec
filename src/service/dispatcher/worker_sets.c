/*
 * Worker sets: with a policy, a stream is computed by as many workers as its job got of the pool, and a
 * worker serves one stream where there are enough of them. Who is in a worker set stays there as long as
 * possible: another worker has to open the data first.
 */
#include <string.h>

#include "base/hash.h"
#include "service/dispatcher/internal.h"

void cw_dp_worker_sets_later(struct cw_dispatcher *d)
{
    d->worker_sets_due = d->scales;
}

static bool able(const struct worker *w)
{
    return w->ready && !w->draining;
}

/* Of a worker set, and of use to it. */
static bool serves(const struct assignment *t)
{
    return t->granted && able(t->worker) && t->state != ASSIGNMENT_UNFIT && t->shunned_until == 0;
}

int cw_dp_worker_set_running(const struct stream *s)
{
    int n = 0;
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments)
        n += serves(t) && t->state == ASSIGNMENT_READY;
    return n;
}

void cw_dp_worker_set_running_of(const struct stream *s, int *ret)
{
    memset(ret, 0, DP_SLOTS * sizeof(*ret));
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments)
        ret[t->worker->slot] += serves(t) && t->state == ASSIGNMENT_READY;
}

bool cw_dp_worker_set_comes(const struct cw_dispatcher *d, const struct stream *s)
{
    bool comes = false;
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments)
        comes |= serves(t) && t->state != ASSIGNMENT_READY;
    return d->scales && comes;
}

/* ---- shares ---- */

static size_t n_active(const struct cw_dispatcher *d)
{
    size_t n = 0;
    CW_LIST_EACH_OF (j, struct job, link, &d->jobs)
        n += cw_dp_scale_active(j);
    return n;
}

/* A job that needs workers: how many of each slot, what it has been given so far, and the sum of that. */
struct party {
    struct job *job;
    int want[DP_SLOTS], share[DP_SLOTS], sum;
};

/* Whether anything changed that shares follow from: a hash of it all. */
static void note_claims(struct cw_dispatcher *d, const struct party *parties, size_t n, const int *most)
{
    uint64_t hash = cw_hash64(most, DP_SLOTS * sizeof(*most));
    for (size_t i = 0; i < n; i++) {
        const struct scaling *x = &parties[i].job->scaling;

        const struct {
            double weight;
            int want, priority, quota, none;
        } what = {x->claim.weight, x->claim.want, x->claim.priority, x->claim.quota, 0};

        hash = hash * 31 + cw_hash64(&what, sizeof(what));
        hash = hash * 31 + cw_hash64(x->want, sizeof(x->want));
    }
    d->claims_serial += hash != d->claims_hash || d->claims_serial == 0;
    d->claims_hash = hash;
}

static int sum_of(const int *workers)
{
    int n = 0;
    for (int i = 0; i < DP_SLOTS; i++)
        n += workers[i];
    return n;
}

/* As its policy said, as far as there are so many; the rest, and where it has not said so yet, of the first
 * slots that have some. */
static void take_wants(struct party *p, const int *most)
{
    const struct scaling *x = &p->job->scaling;
    int missing = x->claim.want;
    for (int slot = 0; slot < DP_SLOTS; slot++)
        missing -= p->want[slot] = CW_MIN(x->want[slot], most[slot]);
    for (int slot = 0; slot < DP_SLOTS; slot++) {
        int more = CW_MAX(CW_MIN(missing, most[slot] - p->want[slot]), 0);
        p->want[slot] += more;
        missing -= more;
    }
}

/* Of a slot, what a job wants; then, of any, what others have taken of that. A quota counts over all of them.
 */
static int want_of(const struct party *p, const struct job *whole, int slot, int left, bool of_any)
{
    const struct scaling *x = &p->job->scaling;
    int want = p->job == whole ? left : of_any ? x->claim.want - p->sum : p->want[slot];
    return CW_MAX(x->claim.quota > 0 ? CW_MIN(want, x->claim.quota - p->sum) : want, 0);
}

static void divide_slot(struct party *parties, size_t n, struct cw_claim *claims, const struct job *whole,
                        int slot, int *left, bool of_any)
{
    for (size_t i = 0; i < n; i++) {
        claims[i] = parties[i].job->scaling.claim;
        claims[i].want = want_of(&parties[i], whole, slot, *left, of_any);
        claims[i].quota = 0;
    }
    cw_share(claims, (int)n, *left);
    for (size_t i = 0; i < n; i++) {
        parties[i].share[slot] += claims[i].share;
        parties[i].sum += claims[i].share;
        *left -= claims[i].share;
    }
}

/* What each job that needs workers gets of them. `whole` gets what it could get if it wanted all. */
static void divide(const struct cw_dispatcher *d, struct party *parties, size_t n, struct cw_claim *claims,
                   const struct job *whole)
{
    int left[DP_SLOTS];
    cw_dp_pools_most(d, left);
    for (size_t i = 0; i < n; i++)
        take_wants(&parties[i], left);
    for (int any = 0; any <= 1; any++)
        for (int slot = 0; slot < DP_SLOTS; slot++)
            divide_slot(parties, n, claims, whole, slot, &left[slot], any);
    for (size_t i = 0; i < n; i++)
        if (parties[i].sum == 0) { /* where there are fewer workers than jobs, they have one together */
            int slot = 0;
            while (slot + 1 < DP_SLOTS && parties[i].job->scaling.want[slot] == 0)
                slot++;
            parties[i].share[slot] = parties[i].sum = 1;
        }
}

/* Shares of all jobs; or, with `whole`, only what that one could have. */
static void share(struct cw_dispatcher *d, struct job *whole)
{
    size_t n = n_active(d), i = 0;
    int most[DP_SLOTS];
    _cleanup_free_ struct cw_claim *claims = calloc(n + 1, sizeof(*claims));
    _cleanup_free_ struct party *parties = calloc(n + 1, sizeof(*parties));
    if (!claims || !parties)
        return; /* shares stay as they are */
    CW_LIST_EACH_OF (j, struct job, link, &d->jobs)
        if (cw_dp_scale_active(j))
            parties[i++].job = j;
    divide(d, parties, n, claims, whole);
    for (i = 0; i < n; i++) {
        struct scaling *x = &parties[i].job->scaling;
        if (!whole) {
            memcpy(x->share, parties[i].share, sizeof(x->share));
            x->claim.share = parties[i].sum;
        } else if (parties[i].job == whole)
            memcpy(x->most, parties[i].share, sizeof(x->most));
    }
    cw_dp_pools_most(d, most);
    if (!whole)
        note_claims(d, parties, n, most);
}

const int *cw_dp_worker_sets_most(struct cw_dispatcher *d, struct job *j)
{
    struct scaling *x = &j->scaling;
    if (x->most_serial == 0 || x->most_serial != d->claims_serial) {
        /* each job asks each second, and mostly nothing changed */
        share(d, j);
        x->most_serial = d->claims_serial;
    }
    return x->most;
}

/* ---- worker sets ---- */

static void leave(struct cw_dispatcher *d, struct assignment *t)
{
    if (!t->granted)
        return;
    t->granted = false;
    t->worker->n_worker_sets--;
    cw_dp_assignment_usable(d, t);
    cw_dp_worker_sets_later(d);
}

/* What it has begun it finishes, as it has to be read from somewhere; the rest goes to those that stay. */
static void dismiss(struct cw_dispatcher *d, struct assignment *t)
{
    leave(d, t);
    if (t->stream->n_heap + t->stream->n_shunned > 0 && !t->stream->at_most_once)
        cw_dp_lease_drop_unbegun(d, t);
    cw_dp_stream_dirty(d, t->stream);
}

/* Who is of least use goes first: who serves others too, who has least of it, who came last. */
static bool goes_before(const struct assignment *a, const struct assignment *b)
{
    if ((a->worker->n_worker_sets > 1) != (b->worker->n_worker_sets > 1))
        return a->worker->n_worker_sets > 1;
    return a->n_held != b->n_held ? a->n_held < b->n_held : a->worker->id > b->worker->id;
}

static void count_serving(const struct stream *s, int *ret)
{
    memset(ret, 0, DP_SLOTS * sizeof(*ret));
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments)
        ret[t->worker->slot] += serves(t);
}

/*
 * Who is still opening the data takes nobody's place: one more may be there meanwhile. So those that are too
 * many of a slot stay until those of another one are there. Returns how many serve then, of each slot.
 */
static void shrink(struct cw_dispatcher *d, struct stream *s, const int *target, int *n)
{
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments)
        if (t->granted && !able(t->worker)) /* who drains hands back what it has by itself */
            leave(d, t);
    count_serving(s, n);
    int all = sum_of(target);
    for (int ready = cw_dp_worker_set_running(s); all > 0 ? ready > all : sum_of(n) > 0;) {
        struct assignment *first = NULL;
        CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments)
            if (serves(t) && n[t->worker->slot] > target[t->worker->slot] &&
                (!first || goes_before(t, first)))
                first = t;
        ready -= first->state == ASSIGNMENT_READY;
        n[first->worker->slot]--;
        dismiss(d, first);
    }
}

/* Of a slot, or of any (-1). Who serves nobody comes first; then who still has something of the stream, and
 * who was there before others. */
static struct worker *next_worker(struct cw_dispatcher *d, const struct stream *s, int slot, bool shared)
{
    struct worker *best = NULL;
    const struct assignment *best_assignment = NULL;
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments)
        t->worker->here = t;
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers) {
        const struct assignment *t = w->here;
        w->here = NULL;
        if (!able(w) || (slot >= 0 && w->slot != slot) ||
            (t && (t->granted || t->state == ASSIGNMENT_UNFIT || t->shunned_until != 0)) ||
            (w->n_worker_sets > 0 && !shared))
            continue;
        if (!best || w->n_worker_sets < best->n_worker_sets ||
            (w->n_worker_sets == best->n_worker_sets && (t != NULL) > (best_assignment != NULL))) {
            best = w;
            best_assignment = t;
        }
    }
    return best;
}

bool cw_dp_worker_sets_spare(struct cw_dispatcher *d, const struct stream *s)
{
    return d->scales && next_worker(d, s, -1, true);
}

static bool join(struct cw_dispatcher *d, struct stream *s, struct worker *w)
{
    struct assignment *t = w ? cw_dp_assignment_find(w, s) : NULL;
    if (w && !t)
        t = cw_dp_assignment_new(d, w, s);
    if (!t)
        return false;
    t->granted = true;
    w->n_worker_sets++;
    s->n_joined++;
    cw_dp_assignment_usable(d, t);
    return true;
}

static bool shares(const struct assignment *t)
{
    return serves(t) && t->worker->n_worker_sets > 1;
}

/* Up to the target; better a part of one than none, and one of another slot than none. Who only has a part of
 * one gets one of its own once somebody is free. */
static void grow(struct cw_dispatcher *d, struct stream *s, int *n, const int *target)
{
    bool any = false;
    for (int slot = 0; slot < DP_SLOTS; slot++)
        for (; n[slot] < target[slot] && join(d, s, next_worker(d, s, slot, false)); n[slot]++)
            any = true;
    if (sum_of(n) == 0 && sum_of(target) > 0 && join(d, s, next_worker(d, s, -1, true))) {
        any = true;
        count_serving(s, n);
    }
    bool complete = memcmp(n, target, DP_SLOTS * sizeof(*n)) == 0;
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments)
        if (complete && shares(t) && join(d, s, next_worker(d, s, t->worker->slot, false)))
            any = true, complete = false; /* the one that is shared leaves when this one is ready */
    if (any)
        cw_dp_assignment_ask(d, s);
}

/* As large as the largest share of its jobs: mostly there is one. */
static void target_of(const struct stream *s, int *ret)
{
    memset(ret, 0, DP_SLOTS * sizeof(*ret));
    CW_LIST_EACH_OF (j, const struct job, by_stream, &s->jobs)
        for (int slot = 0; cw_dp_scale_active(j) && slot < DP_SLOTS; slot++)
            ret[slot] = CW_MAX(ret[slot], j->scaling.share[slot]);
}

void cw_dp_worker_sets(struct cw_dispatcher *d)
{
    int needed[DP_SLOTS] = {0}, target[DP_SLOTS], n[DP_SLOTS];
    d->worker_sets_due = false;
    cw_dp_pools_place(d);
    share(d, NULL);
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams) { /* who has too many lets go first */
        target_of(s, target);
        shrink(d, s, target, n);
        for (int slot = 0; slot < DP_SLOTS; slot++)
            needed[slot] += target[slot];
    }
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams) {
        target_of(s, target);
        shrink(d, s, target, n);
        grow(d, s, n, target);
    }
    cw_dp_pools_want(d, needed);
    d->worker_sets_due = false; /* what the above changed is taken care of */
}

void cw_dp_worker_sets_tick(struct cw_dispatcher *d)
{
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams)
        CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments)
            if (!t->granted && t->n_held == 0 && t->state != ASSIGNMENT_UNFIT && t->state != ASSIGNMENT_ASKED)
                cw_dp_assignment_forget(d, t); /* the worker's memory is for those that it serves */
}
