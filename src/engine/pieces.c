/* Pieces of ranges: which is planned next, and its plan. */
#include "engine/internal.h"

#include "base/cost_clock.h"
#include "base/thread.h"
#include "cache/cache.h"

int cw_stopped(void *arg)
{
    struct cw_runner *r = arg;
    return atomic_load_explicit(&r->cancelled, memory_order_relaxed);
}

int cw_range_stopped(void *arg)
{
    struct cw_range *s = arg;
    return atomic_load_explicit(&s->cancelled, memory_order_relaxed) ||
           atomic_load_explicit(&s->runner->cancelled, memory_order_relaxed);
}

static struct piece *piece_new(struct cw_runner *r, struct cw_range *s)
{
    struct piece *p = calloc(1, sizeof(*p));
    if (!p) {
        cw_out_of_memory(r, "a range");
        return NULL;
    }
    uint64_t size = r->sequence->piece_size;
    p->plan.begin = s->position;
    /* what a stream gives is permuted by whole windows */
    if (r->sequence->stream_salt && s->position == s->entry.position)
        p->plan.begin = s->position / size * size;
    p->plan.n = CW_MIN(size - p->plan.begin % size, s->end - p->plan.begin);
    p->carved = s->position - p->plan.begin;
    s->position = p->plan.begin + p->plan.n;
    cw_arena_init(&p->plan.arena, &r->budget);
    p->plan.arena.exact = r->frugal > 0;
    if (s->last)
        s->last->next = p;
    else
        s->first = p;
    s->last = p;
    return p;
}

bool cw_piece_halve(struct cw_runner *r, struct cw_range *s, struct piece *p)
{
    /* no batch lies in two pieces */
    uint64_t size = r->compiled->batch_size, middle = (p->plan.begin + p->plan.n / 2) / size * size;
    struct piece *rest = middle > p->plan.begin && !r->sequence->stream ? calloc(1, sizeof(*rest)) : NULL;
    if (!rest)
        return false;
    *rest = (struct piece){.next = p->next,
                           .plan = {.begin = middle, .n = p->plan.begin + p->plan.n - middle}};
    p->plan.n -= rest->plan.n;
    rest->carved = p->carved - CW_MIN(p->carved, p->plan.n);
    p->carved -= rest->carved;
    cw_arena_init(&rest->plan.arena, &r->budget);
    rest->plan.arena.exact = p->plan.arena.exact;
    p->next = rest;
    if (s->last == p)
        s->last = rest;
    return true;
}

void cw_piece_unplan(struct piece *p)
{
    cw_exec_plan_clear(&p->plan);
    cw_read_in_cancel(p);
    free(CW_STEAL(p->kept));
    p->planned = false;
}

/* The next piece that somebody should plan: the one that blocks are carved from, and one beyond. */
struct piece *cw_piece_to_plan(struct cw_runner *r, struct cw_range **ret_range)
{
    unsigned ahead = 0;
    if (r->planning)
        return NULL;
    for (struct cw_range *s = r->ranges; s; s = s->next) {
        if (r->frugal && (s != r->ranges || r->n_blocks > 0))
            return NULL;
        if (s->over || s->closed)
            continue;
        for (struct piece *p = s->first; ahead < (r->frugal ? 1 : 2); p = p->next) {
            if (!p && s->position < s->end && !(p = piece_new(r, s)))
                return NULL;
            if (!p)
                break;
            if (p->carved == p->plan.n) /* used up, or nothing of it is wanted */
                continue;
            if (!p->planned && !p->read_in) {
                if (r->plan_short && (ahead > 0 || r->n_blocks > 0 || r->n_running > 0 ||
                                      r->n_reading_in > 0 || cw_may_be_released(r)))
                    return NULL;
                *ret_range = s;
                return p;
            }
            ahead++;
        }
        if (ahead >= 2)
            return NULL;
    }
    return NULL;
}

/* The fewest elements that a pull for a piece may return when the stream is slow: as many as are skipped and
 * at least one, or, where the next piece exists, all. */
static size_t least_of(struct cw_runner *r, const struct piece *p)
{
    CW_GUARD(&r->mutex);
    return p->next ? p->plan.n : CW_MAX(p->carved, 1);
}

struct pulling {
    struct cw_runner *runner;
    struct cw_range *range;
};

/* Whether a pull is to be broken off: its range was closed, or an earlier range was opened that has positions
 * to plan. */
static int pull_stopped(void *arg)
{
    const struct pulling *p = arg;
    if (cw_range_stopped(p->range))
        return true;
    CW_GUARD(&p->runner->mutex);
    for (const struct cw_range *x = p->runner->ranges; x && x != p->range; x = x->next)
        if (!x->over && !x->closed && x->position < x->end)
            return true;
    return false;
}

/* The next elements of a stream, in the order of the piece: of a shuffle, all of the window that the piece
 * lies in are read. */
static int pull_piece(struct cw_runner *r, struct cw_range *s, struct piece *p, struct cw_error *err)
{
    struct cw_source *source = r->sequence->stream;
    bool shuffled = r->sequence->stream_salt;
    size_t n = shuffled ? r->sequence->window - p->plan.begin % r->sequence->window : p->plan.n,
           least = shuffled ? n : least_of(r, p);
    p->plan.raw = calloc(p->plan.n, sizeof(*p->plan.raw));
    _cleanup_free_ struct cw_tensor *raw = malloc(n * sizeof(*raw));
    _cleanup_free_ uint32_t *order = malloc(n * sizeof(*order));
    int status = p->plan.raw && raw && order ? 0
                                             : cw_error_nomem(err, n * sizeof(*raw), "elements of a stream");
    unsigned frugal = atomic_load(&r->frugal);
    for (size_t most = frugal ? CW_MAX(CW_MIN(n, frugal), least) : n; status >= 0;
         most = CW_MAX(most / 2, least)) {
        /* fewer where memory is short */
        status = source->ops->pull(source,
                                   &(struct cw_pull){.epoch = s->epoch->epoch.epoch,
                                                     .from = p->plan.begin,
                                                     .n = most,
                                                     .least = least,
                                                     .keep = p->plan.begin,
                                                     .cancelled = pull_stopped,
                                                     .cancel_arg = &(struct pulling){r, s},
                                                     .away = r->options.away},
                                   &p->plan.arena, raw, &n, err);
        if (status != CW_E_BUDGET || most == least || !frugal)
            break;
        status = 0;
    }
    if (status >= 0) {
        CW_WITH (&r->mutex) { /* others look how much of it is carved, planned or not */
            p->cut = n < p->plan.n;
            p->plan.n = CW_MIN(p->plan.n, n);
        }
        cw_epoch_stream_order(&s->epoch->epoch, p->plan.begin / r->sequence->window, order, n);
        for (size_t i = 0; i < p->plan.n; i++) {
            p->plan.refs[i].row = p->plan.begin + order[i];
            p->plan.raw[i] = raw[order[i]];
        }
    }
    return status;
}

/* ---- what the cache has of a piece ---- */

/* Of a piece, where it is enough to know about how many are there. */
#define SAMPLES 64

/* How many positions of a piece from `at` on have one source, as far as they are looked up at a time. */
static uint64_t same_source(const struct piece *p, uint64_t at)
{
    uint64_t n = 1;
    while (n < CW_CACHED_LOOK_UP && at + n < p->plan.n && p->plan.refs[at + n].leaf == p->plan.refs[at].leaf)
        n++;
    return n;
}

struct looking { /* under a choice, in the set of one source after the other */
    const struct cw_runner *r;
    const struct choice *choice;
    const struct cw_epoch *epoch;
    struct cw_cache_set *set;
    unsigned leaf;
};

/* The set of a source, or NULL. */
static struct cw_cache_set *set_of(struct looking *l, unsigned leaf)
{
    struct cw_error err = {0};
    struct cw_cached *c = l->choice->ways[leaf].cached;
    if (leaf != l->leaf) {
        cw_cache_set_unref(l->set);
        l->set = c ? cw_cached_set(c, l->epoch, &err) : NULL;
        l->leaf = leaf;
    }
    return l->set;
}

static size_t look_at(struct looking *l, const struct piece *p, uint64_t at, uint64_t n, uint8_t *found)
{
    unsigned leaf = p->plan.refs[at].leaf;
    struct cw_cache_set *set = set_of(l, leaf);
    return set ? cw_cached_look_up(l->choice->ways[leaf].cached, set, l->epoch, p->plan.refs + at, n, found)
               : 0;
}

/* Of the choices that are not in use it is enough to know about how much the cache has. */
static void look_elsewhere(struct cw_runner *r, const struct cw_range *s, const struct piece *p)
{
    uint64_t step = CW_MAX(p->plan.n / SAMPLES, (uint64_t)1);
    for (unsigned k = 1; k < r->n_choices; k++) {
        struct looking l = {.r = r, .choice = &r->choices[k], .epoch = &s->epoch->epoch, .leaf = UINT32_MAX};
        uint64_t looked = 0, found = 0;
        if (k == p->choice)
            continue;
        for (uint64_t i = 0; i < p->plan.n; i += step, looked++)
            found += look_at(&l, p, i, 1, NULL);
        cw_cache_set_unref(l.set);
        CW_WITH (&r->mutex)
            cw_choice_looked(&r->choices[k], s->epoch->epoch.epoch, looked, found);
    }
}

void cw_piece_look_up(struct cw_runner *r, const struct cw_range *s, struct piece *p)
{
    struct looking l = {.r = r, .epoch = &s->epoch->epoch, .leaf = UINT32_MAX};
    free(CW_STEAL(p->kept));
    p->choice = atomic_load(&r->choice);
    if (r->options.adaptive)
        look_elsewhere(r, s, p);
    l.choice = &r->choices[p->choice];
    if (p->choice == 0 || !(p->kept = calloc(CW_MAX(p->plan.n, 1), 1)))
        return;
    for (uint64_t i = 0, n; i < p->plan.n; i += n) {
        n = same_source(p, i);
        (void)look_at(&l, p, i, n, p->kept + i);
    }
    cw_cache_set_unref(l.set);
}

int cw_piece_plan(struct cw_runner *r, struct thread *t, struct cw_range *s, struct piece *p,
                  struct cw_error *err)
{
    uint64_t start = cw_cost_now_ns();
    size_t bytes = cw_exec_plan_bytes(r->sequence, p->plan.n);
    int status = cw_budget_take(&r->budget, bytes, "the plan of a range", err);
    if (status < 0)
        return status;
    p->plan.charged = bytes;
    CW_WITH (&r->mutex)
        /* all pieces are of one size: saves the kernel from zeroing pages for each */
        p->plan.room = CW_STEAL(r->spare_plan);
    s->epoch->epoch.stopped = cw_stopped;
    s->epoch->epoch.stop_arg = r;
    status = cw_exec_plan_refs(&p->plan, r->sequence, &s->epoch->epoch, err);
    if (status >= 0 && r->sequence->needs_load)
        status = r->sequence->stream ? pull_piece(r, s, p, err)
                                     : cw_exec_plan_load(&p->plan, r->sequence, err);
    if (status >= 0)
        cw_piece_look_up(r, s, p);
    t->counts.plan_ns += cw_cost_now_ns() - start;
    return status;
}
