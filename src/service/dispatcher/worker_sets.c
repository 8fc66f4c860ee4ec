/* Divides the workers among jobs (shares), and adds and removes members of worker sets accordingly. */
#include "service/dispatcher/worker_sets.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "service/dispatcher/prepare.h"
#include "service/dispatcher/provisioners.h"
#include "service/dispatcher/state.h"

/* ---- shares ---- */

/* A job that needs workers. By pool index: how many workers it wants, and how many it got so far; sum: all
 * that it got. */
struct party {
    struct job *job;
    int want[DP_POOL_INDEXES], share[DP_POOL_INDEXES], sum;
};

/* Increments claims_serial if anything that shares depend on has changed since the last call; compares a
 * hash. */
static void claims_note(struct cw_dispatcher *d, const struct party *parties, size_t n, const int *most)
{
    uint64_t hash = cw_hash64(most, DP_POOL_INDEXES * sizeof(*most));
    for (size_t i = 0; i < n; i++) {
        const struct scaling *x = &parties[i].job->scaling;

        const struct {
            double weight;
            int want, priority, quota, none;
        } what = {x->claim.weight, x->claim.want, x->claim.priority, x->claim.quota, 0};

        hash = hash * 31 + cw_hash64(&what, sizeof(what));
        hash = hash * 31 + cw_hash64(x->want, sizeof(x->want));
    }
    d->scaler.claims_serial += hash != d->scaler.claims_hash || d->scaler.claims_serial == 0;
    d->scaler.claims_hash = hash;
}

/* Fills in p->want: what the policy wants of each pool, limited to the pool's workers. The missing number is
 * added to the first pools that have workers left. */
static void claims_take_wants(struct party *p, const int *most)
{
    const struct scaling *x = &p->job->scaling;
    int missing = x->claim.want;
    for (int pool = 0; pool < DP_POOL_INDEXES; pool++)
        missing -= p->want[pool] = CW_MIN(x->want[pool], most[pool]);
    for (int pool = 0; pool < DP_POOL_INDEXES; pool++) {
        int more = CW_MAX(CW_MIN(missing, most[pool] - p->want[pool]), 0);
        p->want[pool] += more;
        missing -= more;
    }
}

/* Returns how many workers the job still wants of one pool; of_any: how many it is still missing in all. The
 * job's quota limits its sum. */
static int claims_want(const struct party *p, const struct job *whole, int pool, int left, bool of_any)
{
    const struct scaling *x = &p->job->scaling;
    int want = p->job == whole ? left : of_any ? x->claim.want - p->sum : p->want[pool];
    return CW_MAX(x->claim.quota > 0 ? CW_MIN(want, x->claim.quota - p->sum) : want, 0);
}

/* Divides the `left` workers of one pool index among the jobs. */
static void claims_divide_pool(struct party *parties, size_t n, struct cw_claim *claims,
                               const struct job *whole, int pool, int *left, bool of_any)
{
    for (size_t i = 0; i < n; i++) {
        claims[i] = parties[i].job->scaling.claim;
        claims[i].want = claims_want(&parties[i], whole, pool, *left, of_any);
        claims[i].quota = 0;
    }
    cw_share(claims, (int)n, *left);
    for (size_t i = 0; i < n; i++) {
        parties[i].share[pool] += claims[i].share;
        parties[i].sum += claims[i].share;
        *left -= claims[i].share;
    }
}

/* Divides all workers among the jobs. whole (may be NULL): this job gets what it could get if it wanted all
 * workers. */
static void claims_divide(const struct cw_dispatcher *d, struct party *parties, size_t n,
                          struct cw_claim *claims, const struct job *whole)
{
    int left[DP_POOL_INDEXES];
    cw_dp_pools_most(d, left);
    for (size_t i = 0; i < n; i++)
        claims_take_wants(&parties[i], left);
    for (int any = 0; any <= 1; any++)
        for (int pool = 0; pool < DP_POOL_INDEXES; pool++)
            claims_divide_pool(parties, n, claims, whole, pool, &left[pool], any);
    for (size_t i = 0; i < n; i++)
        if (parties[i].sum == 0) { /* too few workers: the job shares a worker with other jobs */
            int pool = 0;
            while (pool + 1 < DP_POOL_INDEXES && parties[i].job->scaling.want[pool] == 0)
                pool++;
            parties[i].share[pool] = parties[i].sum = 1;
        }
}

/* Updates the shares of all jobs; or (whole not NULL) only x->most of that job. */
static void claims_share(struct cw_dispatcher *d, struct job *whole)
{
    size_t n = 0;
    int most[DP_POOL_INDEXES];
    _cleanup_free_ struct cw_claim *claims = calloc(d->jobs.n + 1, sizeof(*claims));
    _cleanup_free_ struct party *parties = calloc(d->jobs.n + 1, sizeof(*parties));
    if (!claims || !parties)
        return; /* shares stay as they are */
    CW_LIST_EACH_OF (j, struct job, link, &d->jobs.list)
        if (cw_dp_scaling_active(j))
            parties[n++].job = j;
    claims_divide(d, parties, n, claims, whole);
    for (size_t i = 0; i < n; i++) {
        struct scaling *x = &parties[i].job->scaling;
        if (!whole) {
            memcpy(x->share, parties[i].share, sizeof(x->share));
            x->claim.share = parties[i].sum;
        } else if (parties[i].job == whole)
            memcpy(x->most, parties[i].share, sizeof(x->most));
    }
    cw_dp_pools_most(d, most);
    if (!whole)
        claims_note(d, parties, n, most);
}

const int *cw_dp_worker_sets_most(struct cw_dispatcher *d, struct job *j)
{
    struct scaling *x = &j->scaling;
    if (x->most_serial == 0 || x->most_serial != d->scaler.claims_serial) {
        /* otherwise nothing has changed since the job's last query */
        claims_share(d, j);
        x->most_serial = d->scaler.claims_serial;
    }
    return x->most;
}

/* ---- members ---- */

/* Removes a member from its worker set. */
static void member_leave(struct cw_dispatcher *d, struct assignment *t)
{
    if (!t->granted)
        return;
    t->granted = false;
    t->worker->n_worker_sets--;
    cw_dp_assignment_usable(d, t);
    cw_dp_scaling_due(d);
}

/* Removes a member from its worker set. It finishes the ranges that it has begun; the remaining members get
 * its other ranges. */
static void member_dismiss(struct cw_dispatcher *d, struct assignment *t)
{
    member_leave(d, t);
    if (t->stream->assignments.heap.n + t->stream->assignments.n_shunned > 0 && !t->stream->at_most_once)
        cw_dp_lease_drop_unbegun(d, t);
}

/* Whether member a should be removed before b: a also serves other streams; else a holds fewer ranges; else a
 * is the younger worker. */
static bool member_goes_before(const struct assignment *a, const struct assignment *b)
{
    if ((a->worker->n_worker_sets > 1) != (b->worker->n_worker_sets > 1))
        return a->worker->n_worker_sets > 1;
    return a->n_held != b->n_held ? a->n_held < b->n_held : a->worker->id > b->worker->id;
}

/* Counts the members that can serve the stream, by pool index. */
static void member_count(const struct stream *s, int *ret)
{
    memset(ret, 0, DP_POOL_INDEXES * sizeof(*ret));
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments.list)
        ret[t->worker->pool_index] += cw_dp_assignment_serves(t);
}

/* Removes members in excess of the target. A worker that is still opening its data does not count towards the
 * target, so that members of one pool stay until those of another pool are ready. Sets n to the number of
 * remaining members, by pool index. */
static void worker_set_shrink(struct cw_dispatcher *d, struct stream *s, const int *target, int *n)
{
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list)
        if (t->granted &&
            !cw_dp_worker_able(t->worker)) /* worker_life.c handles the ranges of a draining worker */
            member_leave(d, t);
    member_count(s, n);
    int all = cw_dp_pools_sum(target);
    for (int ready = cw_dp_worker_set_running(s); all > 0 ? ready > all : cw_dp_pools_sum(n) > 0;) {
        struct assignment *first = NULL;
        CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list)
            if (cw_dp_assignment_serves(t) && n[t->worker->pool_index] > target[t->worker->pool_index] &&
                (!first || member_goes_before(t, first)))
                first = t;
        ready -= first->state == ASSIGNMENT_READY;
        n[first->worker->pool_index]--;
        member_dismiss(d, first);
    }
}

/* Returns the worker that joins next, of one pool index or of any (-1). NULL: there is none. A worker that
 * serves no stream is preferred, then one that still has an assignment to this stream, then the older one.
 * shared: a worker that serves other streams may be chosen, too. */
static struct worker *worker_set_candidate(struct cw_dispatcher *d, const struct stream *s, int pool,
                                           bool shared)
{
    struct worker *best = NULL;
    const struct assignment *best_assignment = NULL;
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list)
        t->worker->here = t;
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers.list) {
        const struct assignment *t = w->here;
        w->here = NULL;
        if (!cw_dp_worker_able(w) || (pool >= 0 && w->pool_index != pool) ||
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
    return d->scaler.enabled && worker_set_candidate(d, s, -1, true);
}

/* Makes the worker a member. False: w is NULL, or there is no memory. */
static bool worker_set_join(struct cw_dispatcher *d, struct stream *s, struct worker *w)
{
    struct assignment *t = w ? cw_dp_assignment_find(w, s) : NULL;
    if (w && !t)
        t = cw_dp_assignment_new(d, w, s);
    if (!t)
        return false;
    t->granted = true;
    w->n_worker_sets++;
    s->assignments.n_joined++;
    cw_dp_assignment_usable(d, t);
    return true;
}

static bool member_is_shared(const struct assignment *t)
{
    return cw_dp_assignment_serves(t) && t->worker->n_worker_sets > 1;
}

/* Adds members up to the target. If no worker is free, a shared worker, or one of another pool, is used. A
 * stream that shares a worker gets one of its own once a worker is free. */
static void worker_set_grow(struct cw_dispatcher *d, struct stream *s, int *n, const int *target)
{
    bool any = false;
    for (int pool = 0; pool < DP_POOL_INDEXES; pool++)
        for (; n[pool] < target[pool] && worker_set_join(d, s, worker_set_candidate(d, s, pool, false));
             n[pool]++)
            any = true;
    if (cw_dp_pools_sum(n) == 0 && cw_dp_pools_sum(target) > 0 &&
        worker_set_join(d, s, worker_set_candidate(d, s, -1, true))) {
        any = true;
        member_count(s, n);
    }
    bool complete = memcmp(n, target, DP_POOL_INDEXES * sizeof(*n)) == 0;
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments.list)
        if (complete && member_is_shared(t) &&
            worker_set_join(d, s, worker_set_candidate(d, s, t->worker->pool_index, false))) {
            any = true;
            complete = false; /* the shared worker is removed when the new one is ready */
        }
    if (any)
        cw_dp_prepare_stream(d, s);
}

/* Sets *ret to the target by pool index: the largest share of the stream's jobs. */
static void worker_set_target(const struct stream *s, int *ret)
{
    memset(ret, 0, DP_POOL_INDEXES * sizeof(*ret));
    CW_LIST_EACH_OF (j, const struct job, by_stream, &s->jobs)
        for (int pool = 0; cw_dp_scaling_active(j) && pool < DP_POOL_INDEXES; pool++)
            ret[pool] = CW_MAX(ret[pool], j->scaling.share[pool]);
}

void cw_dp_worker_sets_update(struct cw_dispatcher *d)
{
    int needed[DP_POOL_INDEXES] = {0}, target[DP_POOL_INDEXES], n[DP_POOL_INDEXES];
    d->scaler.worker_sets_due = false;
    cw_dp_pools_assign(d);
    claims_share(d, NULL);
    CW_LIST_EACH_OF (s, struct stream, link,
                     &d->streams.list) { /* first all sets shrink, so that workers become free */
        worker_set_target(s, target);
        worker_set_shrink(d, s, target, n);
        for (int pool = 0; pool < DP_POOL_INDEXES; pool++)
            needed[pool] += target[pool];
    }
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams.list) {
        worker_set_target(s, target);
        worker_set_shrink(d, s, target, n);
        worker_set_grow(d, s, n, target);
    }
    cw_dp_provisioners_want(d, needed);
    d->scaler.worker_sets_due = false; /* the changes made above need no further update */
}

void cw_dp_worker_sets_tick(struct cw_dispatcher *d)
{
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams.list)
        CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list)
            if (!t->granted && t->n_held == 0 && t->state != ASSIGNMENT_UNFIT && t->state != ASSIGNMENT_ASKED)
                cw_dp_lease_forget(d, t); /* frees the worker's memory for the streams that it serves */
}
