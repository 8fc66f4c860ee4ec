/* A piece: at most piece_size positions of a range, which are planned together. */
#include "engine/piece.h"

#include "base/cost_clock.h"
#include "base/thread.h"
#include "cache/cache.h"
#include "engine/internal.h"

bool cw_piece_halve(struct cw_runner *r, struct piece *p)
{
    /* no batch lies in two pieces */
    uint64_t size = cw_piece_unit(r->compiled), middle = (p->plan.begin + p->plan.n / 2) / size * size;
    struct piece *rest = middle > p->plan.begin && !r->sequence->stream ? calloc(1, sizeof(*rest)) : NULL;
    if (!rest)
        return false;
    *rest = (struct piece){.next = p->next,
                           .plan = {.begin = middle, .n = p->plan.begin + p->plan.n - middle}};
    p->plan.n -= rest->plan.n;
    rest->carved = p->carved - CW_MIN(p->carved, p->plan.n);
    p->carved -= rest->carved;
    cw_arena_init(&rest->plan.arena, &r->memory.budget);
    rest->plan.arena.exact = p->plan.arena.exact;
    p->next = rest;
    return true;
}

void cw_piece_unplan(struct piece *p)
{
    cw_exec_plan_clear(&p->plan);
    if (p->read_in)
        p->read_in->piece = NULL;
    p->read_in = NULL;
    free(CW_STEAL(p->kept));
    p->planned = false;
}

struct piece *cw_piece_free(struct piece *p)
{
    cw_piece_unplan(p);
    free(p);
    return NULL;
}

/* Returns the fewest elements that a pull for a piece may return when the stream is slow: enough for those
 * that are skipped and one more; or, if the next piece exists, all. */
static size_t pull_least(struct cw_runner *r, const struct piece *p)
{
    CW_GUARD(&r->sched.mutex);
    return p->next ? p->plan.n : CW_MAX(p->carved, 1);
}

struct pulling {
    struct cw_runner *runner;
    struct cw_range *range;
};

/* Returns whether to cancel a pull: its range was closed, or an earlier range was opened that has positions
 * to plan. */
static int pull_stopped(void *arg)
{
    const struct pulling *p = arg;
    if (cw_range_stopped(p->range))
        return true;
    CW_GUARD(&p->runner->sched.mutex);
    for (const struct cw_range *x = p->runner->ranges; x && x != p->range; x = x->next)
        if (x->state == RANGE_OPEN && !x->closed && x->position < x->end)
            return true;
    return false;
}

/* Pulls the next elements of a stream into the piece's order. With a shuffle, the whole window in which the
 * piece lies is read. */
static int pull_piece(struct cw_runner *r, struct cw_range *s, struct piece *p, struct cw_error *err)
{
    struct cw_source *source = r->sequence->stream;
    bool shuffled = r->sequence->stream_draw.salt;
    size_t n = shuffled ? r->sequence->window - p->plan.begin % r->sequence->window : p->plan.n,
           least = shuffled ? n : pull_least(r, p);
    p->plan.raw = calloc(p->plan.n, sizeof(*p->plan.raw));
    _cleanup_free_ struct cw_tensor *raw = malloc(n * sizeof(*raw));
    _cleanup_free_ uint32_t *order = malloc(n * sizeof(*order));
    int status = p->plan.raw && raw && order ? 0
                                             : cw_error_nomem(err, n * sizeof(*raw), "elements of a stream");
    unsigned low_rows = atomic_load(&r->memory.low_rows);
    for (size_t most = low_rows ? CW_MAX(CW_MIN(n, low_rows), least) : n; status >= 0;
         most = CW_MAX(most / 2, least)) {
        /* fewer, if memory is short */
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
        if (status != CW_E_BUDGET || most == least || !low_rows)
            break;
        status = 0;
    }
    if (status >= 0) {
        CW_WITH (&r->sched.mutex) { /* other threads read how much of it is carved, planned or not */
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

/* Positions that are looked up in a piece, where an estimate of the cached share is enough. */
#define LOOK_UP_SAMPLES 64

/* Returns how many positions of a piece from `at` on are of one source, at most the number that is looked up
 * at a time. */
static uint64_t piece_same_source(const struct piece *p, uint64_t at)
{
    uint64_t n = 1;
    while (n < CW_CACHED_LOOK_UP && at + n < p->plan.n && p->plan.refs[at + n].leaf == p->plan.refs[at].leaf)
        n++;
    return n;
}

/* A look-up of positions of a piece under a variant, in the cache set of one source after the other. */
struct look_up {
    const struct cache_variant *variant;
    const struct cw_epoch *epoch;
    struct cw_cache_set *set; /* the set of source `leaf`, with a reference; NULL: there is none */
    unsigned leaf;            /* UINT32_MAX: no source yet */
};

/* Returns how many of n positions of one source, from `at` on, the cache has; found may be NULL. */
static size_t look_up_at(struct look_up *l, const struct piece *p, uint64_t at, uint64_t n, uint8_t *found)
{
    struct cw_error ignored = {0};
    unsigned leaf = p->plan.refs[at].leaf;
    struct cw_cached *c = l->variant->programs[leaf].cached;
    if (leaf != l->leaf) {
        cw_cache_set_unref(l->set);
        l->set = c ? cw_cached_set(c, l->epoch, &ignored) : NULL;
        l->leaf = leaf;
    }
    return l->set ? cw_cached_look_up(c, l->set, l->epoch, p->plan.refs + at, n, found) : 0;
}

/* Estimates the share of a piece that the cache has under a variant that is not in use, from a sample. */
static void piece_sample(struct cw_runner *r, const struct cw_range *s, const struct piece *p,
                         struct cache_variant *v)
{
    struct look_up l = {.variant = v, .epoch = &s->epoch->epoch, .leaf = UINT32_MAX};
    uint64_t step = CW_MAX(p->plan.n / LOOK_UP_SAMPLES, (uint64_t)1), looked = 0, found = 0;
    for (uint64_t i = 0; i < p->plan.n; i += step, looked++)
        found += look_up_at(&l, p, i, 1, NULL);
    cw_cache_set_unref(l.set);
    CW_WITH (&r->sched.mutex)
        cw_cache_variant_looked(v, s->epoch->epoch.epoch, looked, found);
}

/* Finds which positions of a piece the cache has. If there is no memory for that, nothing is known (p->kept
 * stays NULL). */
static void piece_look_up(struct cw_runner *r, const struct cw_range *s, struct piece *p)
{
    free(CW_STEAL(p->kept));
    p->variant = atomic_load(&r->cache.in_use);
    for (unsigned k = 1; r->options.adaptive && k < r->cache.n; k++)
        if (k != p->variant)
            piece_sample(r, s, p, &r->cache.variants[k]);
    if (p->variant == 0 || !(p->kept = calloc(CW_MAX(p->plan.n, 1), 1)))
        return;
    struct look_up l = {
        .variant = &r->cache.variants[p->variant], .epoch = &s->epoch->epoch, .leaf = UINT32_MAX};
    for (uint64_t i = 0, n; i < p->plan.n; i += n) {
        n = piece_same_source(p, i);
        (void)look_up_at(&l, p, i, n, p->kept + i);
    }
    cw_cache_set_unref(l.set);
}

int cw_piece_plan(struct cw_runner *r, struct compute_thread *t, struct cw_range *s, struct piece *p,
                  struct cw_error *err)
{
    uint64_t start = cw_cost_now_ns();
    size_t bytes = cw_exec_plan_bytes(r->sequence, p->plan.n);
    int status = cw_budget_take(&r->memory.budget, bytes, "the plan of a range", err);
    if (status < 0)
        return status;
    p->plan.charged = bytes;
    status = cw_exec_plan_refs(&p->plan, r->sequence, &s->epoch->epoch, err);
    if (status >= 0 && r->sequence->needs_load)
        status = r->sequence->stream ? pull_piece(r, s, p, err)
                                     : cw_exec_plan_load(&p->plan, &s->epoch->epoch, err);
    if (status >= 0)
        piece_look_up(r, s, p);
    t->counts.plan_ns += cw_cost_now_ns() - start;
    return status;
}
