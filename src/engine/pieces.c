/* Pieces of ranges: which is planned next, and its plan. */
#include "engine/internal.h"

#include "base/cost_clock.h"
#include "base/thread.h"

static struct piece *piece_new(struct cw_runner *r, struct cw_range *s)
{
    struct piece *p = calloc(1, sizeof(*p));
    if (!p) {
        cw_out_of_memory(r, "a range");
        return NULL;
    }
    uint64_t size = r->sequence->piece_size;
    p->begin = s->position;
    /* what a stream gives is permuted by whole windows */
    if (r->sequence->stream_salt && s->position == s->entry.position)
        p->begin = s->position / size * size;
    p->n = CW_MIN(size - p->begin % size, s->end - p->begin);
    p->carved = s->position - p->begin;
    s->position = p->begin + p->n;
    cw_arena_init(&p->arena, &r->budget);
    p->arena.exact = r->frugal > 0;
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
    uint64_t size = r->compiled->batch_size, middle = (p->begin + p->n / 2) / size * size;
    struct piece *rest = middle > p->begin && !r->sequence->stream ? calloc(1, sizeof(*rest)) : NULL;
    if (!rest)
        return false;
    *rest = (struct piece){.next = p->next, .begin = middle, .n = p->begin + p->n - middle};
    p->n -= rest->n;
    rest->carved = p->carved - CW_MIN(p->carved, p->n);
    p->carved -= rest->carved;
    cw_arena_init(&rest->arena, &r->budget);
    rest->arena.exact = p->arena.exact;
    p->next = rest;
    if (s->last == p)
        s->last = rest;
    return true;
}

void cw_piece_unplan(struct piece *p)
{
    if (p->charged)
        cw_budget_give(p->arena.budget, p->charged);
    p->charged = 0;
    cw_arena_deinit(&p->arena);
    cw_read_in_cancel(p);
    free(p->plan);
    free(p->raw);
    free(CW_STEAL(p->kept));
    p->plan = p->refs = NULL;
    p->raw = NULL;
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
            if (p->carved == p->n) /* used up, or nothing of it is wanted */
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

int cw_piece_load(struct cw_runner *r, struct piece *p, struct cw_error *err)
{
    const struct cw_compiled *c = r->compiled;
    p->raw = calloc(p->n, sizeof(*p->raw));
    _cleanup_free_ uint64_t *rows = malloc(p->n * sizeof(*rows)), *at = malloc(p->n * sizeof(*at));
    _cleanup_free_ struct cw_tensor *raw = malloc(p->n * sizeof(*raw));
    int status = p->raw && rows && at && raw ? 0 : cw_error_nomem(err, p->n * sizeof(*p->raw), "records");
    for (unsigned leaf = 0; leaf < c->n_programs && status >= 0; leaf++) {
        const struct cw_source *source = r->sequence->sources[leaf];
        size_t n = 0;
        if (!source->ops->load)
            continue;
        for (uint64_t i = 0; i < p->n; i++)
            if (p->refs[i].leaf == leaf) {
                rows[n] = p->refs[i].row;
                at[n++] = i;
            }
        status = n ? source->ops->load(source, rows, n, &p->arena, raw, err) : 0;
        if (status < 0 && status != CW_E_BUDGET)
            cw_error_op(err, c->programs[leaf].ops[0]->desc->name);
        for (size_t i = 0; i < n && status >= 0; i++)
            p->raw[at[i]] = raw[i];
    }
    return status;
}

/* The fewest elements that a pull for a piece may return when the stream is slow: as many as are skipped and
 * at least one, or, where the next piece exists, all. */
static size_t least_of(struct cw_runner *r, const struct piece *p)
{
    CW_GUARD(&r->mutex);
    return p->next ? p->n : CW_MAX(p->carved, 1);
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
    size_t n = shuffled ? r->sequence->window - p->begin % r->sequence->window : p->n,
           least = shuffled ? n : least_of(r, p);
    p->raw = calloc(p->n, sizeof(*p->raw));
    _cleanup_free_ struct cw_tensor *raw = malloc(n * sizeof(*raw));
    _cleanup_free_ uint32_t *order = malloc(n * sizeof(*order));
    int status = p->raw && raw && order ? 0 : cw_error_nomem(err, n * sizeof(*raw), "elements of a stream");
    unsigned frugal = atomic_load(&r->frugal);
    for (size_t most = frugal ? CW_MAX(CW_MIN(n, frugal), least) : n; status >= 0;
         most = CW_MAX(most / 2, least)) {
        /* fewer where memory is short */
        status = source->ops->pull(source,
                                   &(struct cw_pull){.epoch = s->epoch->epoch.epoch,
                                                     .from = p->begin,
                                                     .n = most,
                                                     .least = least,
                                                     .keep = p->begin,
                                                     .cancelled = pull_stopped,
                                                     .cancel_arg = &(struct pulling){r, s},
                                                     .away = r->options.away},
                                   &p->arena, raw, &n, err);
        if (status != CW_E_BUDGET || most == least || !frugal)
            break;
        status = 0;
    }
    if (status >= 0) {
        CW_WITH (&r->mutex) { /* others look how much of it is carved, planned or not */
            p->cut = n < p->n;
            p->n = CW_MIN(p->n, n);
        }
        cw_epoch_stream_order(&s->epoch->epoch, p->begin / r->sequence->window, order, n);
        for (size_t i = 0; i < p->n; i++) {
            p->refs[i].row = p->begin + order[i];
            p->raw[i] = raw[order[i]];
        }
    }
    return status;
}

static bool replaces(const struct cw_sequence *s)
{
    return s->compiled->pipeline->on_error == CW_ON_ERROR_REPLACE;
}

/* Positions that the plan of n of them has at most. */
static uint64_t planned_most(const struct cw_sequence *s, uint64_t n)
{
    return CW_MIN(n + (replaces(s) ? 2 * CW_REPLACE_POSITIONS : 0), s->n_positions);
}

size_t cw_plan_bytes(const struct cw_sequence *s, uint64_t n)
{
    const struct piece *p = NULL;
    return planned_most(s, n) * sizeof(*p->plan) +
           (s->needs_load ? CW_MIN(n, s->n_positions) * sizeof(*p->raw) : 0);
}

int cw_piece_refs(const struct cw_sequence *s, struct cw_epoch *e, struct piece *p, struct cw_error *err)
{
    uint64_t window = replaces(s) ? CW_REPLACE_POSITIONS : 1, end = p->begin + p->n;
    if (!p->plan && !(p->plan = malloc(planned_most(s, CW_MAX(p->n, s->piece_size)) * sizeof(*p->plan))))
        return cw_error_nomem(err, cw_plan_bytes(s, p->n), "the plan of a range");
    p->plan_begin = p->begin / window * window;
    p->refs = p->plan + (p->begin - p->plan_begin);
    end = CW_MIN((end + window - 1) / window * window, s->n_positions);
    return cw_epoch_refs(e, p->plan_begin, end - p->plan_begin, p->plan, err);
}

int cw_piece_plan(struct cw_runner *r, struct thread *t, struct cw_range *s, struct piece *p,
                  struct cw_error *err)
{
    uint64_t start = cw_cost_now_ns();
    size_t bytes = cw_plan_bytes(r->sequence, p->n);
    int status = cw_budget_take(&r->budget, bytes, "the plan of a range", err);
    if (status < 0)
        return status;
    p->charged = bytes;
    CW_WITH (&r->mutex)
        /* all pieces are of one size: saves the kernel from zeroing pages for each */
        p->plan = CW_STEAL(r->spare_plan);
    s->epoch->epoch.stopped = cw_stopped;
    s->epoch->epoch.stop_arg = r;
    status = cw_piece_refs(r->sequence, &s->epoch->epoch, p, err);
    if (status >= 0 && r->sequence->needs_load)
        status = r->sequence->stream ? pull_piece(r, s, p, err) : cw_piece_load(r, p, err);
    if (status >= 0)
        cw_piece_look_up(r, s, p);
    t->plan_ns += cw_cost_now_ns() - start;
    return status;
}
