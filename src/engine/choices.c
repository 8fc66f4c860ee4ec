/*
 * What can be done about cache points: the choice that a block is carved under, and what each choice takes.
 * With options.adaptive a small part of the time goes to choices that are not in use (probes), so that it is
 * known what they would give when conditions change; and what takes longer to read than to compute is
 * computed, as is what storage is too far behind to read.
 */
#include <math.h>

#include "engine/internal.h"

#include "base/cost_clock.h"
#include "base/crash.h"
#include "base/thread.h"
#include "cache/cache.h"

/* What is known is what was measured in about so long, of threads and storage; of sizes, of so many
 * positions. */
#define WINDOW_NS 2e9
#define WINDOW_ROWS 8192.0
/* Probes may take so small a part of the time, but for each choice's first one. */
#define PROBE_PART 64.0
/* In a row, so that storage meets the load that it would have; of a store whose speed is known, no more than
 * that part of the time so far, but one for each read thread. */
#define PROBE_BLOCKS STORE_DEPTH
/* Reading that takes so many times as long as computing does not pay. */
#define SLOWER 1.25
/* Where it takes so many times as long, fewer positions tell: those that read threads begin with. */
#define MUCH_SLOWER 4.0
#define MUCH_SLOWER_ROWS ((double)STORE_THREADS)
/* Positions of an epoch that tell how much of it is cached; and how many of the last ones do. */
#define KNOWN_LOOKS 256.0
#define WINDOW_LOOKS 2048.0
/* Storage that takes so many times as long as computing, but no less than a busy disk may and no more than is
 * felt, has a hitch or is gone: the block is computed. */
#define PATIENCE 32
#define PATIENCE_LEAST_NS UINT64_C(100000000)
#define PATIENCE_MOST_NS UINT64_C(1000000000)
/* Of a byte that is read: copied, and summed up. Until it is measured. */
#define COPY_NS 0.3

/* ---- what there is ---- */

static const struct cw_cache_point *usable(const struct cw_program *g, int64_t number)
{
    const struct cw_cache_point *m = cw_cache_point_choose(g, number);
    return m && m->n ? m : NULL;
}

/* Elements that do not pass the cache point of a choice pass others: those that they would use by themselves.
 */
static const struct cw_cache_point *cache_point_of(const struct cw_program *g, int64_t number)
{
    const struct cw_cache_point *m = usable(g, number);
    return m || number == CW_CACHE_POINT_NONE ? m : usable(g, CW_CACHE_POINT_AUTO);
}

static bool any_usable(const struct cw_compiled *c, int64_t number)
{
    for (unsigned i = 0; i < c->n_programs; i++)
        if (usable(&c->programs[i], number))
            return true;
    return false;
}

static int ways_new(struct cw_runner *r, struct choice *c, struct cw_error *err)
{
    const struct cw_compiled *compiled = r->compiled;
    if (!(c->ways = calloc(compiled->n_programs, sizeof(*c->ways))))
        return cw_error_nomem(err, compiled->n_programs * sizeof(*c->ways), "the engine");
    int status = 0;
    for (unsigned i = 0; i < compiled->n_programs && status >= 0; i++) {
        const struct cw_program *g = &compiled->programs[i];
        const struct cw_cache_point *m = cache_point_of(g, c->number);
        struct cw_variant *way = &c->ways[i];
        if (m)
            status = cw_cached_new(&r->env, i, m, r->options.cache, &way->cached, err);
        if (status >= 0)
            status = cw_optimize(g, compiled->n_limits, compiled->pipeline->n_ops, r->options.optimize,
                                 cw_cached_cache_point(way->cached), &way->optimized, err);
    }
    return status;
}

static int add(struct cw_runner *r, int64_t number, struct cw_error *err)
{
    struct choice *c = &r->choices[r->n_choices++];
    *c = (struct choice){.number = number, .found_before = -1};
    return ways_new(r, c, err);
}

/* The choice to begin with. */
static unsigned first_choice(const struct cw_runner *r)
{
    for (unsigned i = 0; i < r->compiled->n_programs; i++) {
        const struct cw_cache_point *m = usable(&r->compiled->programs[i], r->options.cache_point);
        for (unsigned k = 1; m && k < r->n_choices; k++)
            if (r->choices[k].number == m->number || r->choices[k].number == r->options.cache_point)
                return k;
    }
    return 0;
}

static int check(struct cw_runner *r, const struct choice *c, struct cw_error *err)
{
    int status = 0;
    for (unsigned i = 0; i < r->compiled->n_programs && status >= 0; i++)
        if (c->ways[i].cached)
            status = cw_cached_check(c->ways[i].cached, err);
    return status;
}

/* ---- from the start to the end ---- */

int cw_choices_new(struct cw_runner *r, struct cw_error *err)
{
    const struct cw_compiled *c = r->compiled;
    bool cache = r->options.cache != NULL;
    r->choices = calloc(CW_CHOICES_MAX, sizeof(*r->choices));
    if (!r->choices)
        return cw_error_nomem(err, CW_CHOICES_MAX * sizeof(*r->choices), "the engine");
    int status = add(r, CW_CACHE_POINT_NONE, err);
    if (cache && !r->options.adaptive && any_usable(c, r->options.cache_point) && status >= 0)
        status = add(r, r->options.cache_point, err);
    for (unsigned k = 0; cache && r->options.adaptive && k < c->n_cache_points &&
                         r->n_choices < CW_CHOICES_MAX && status >= 0;
         k++)
        if (any_usable(c, k))
            status = add(r, k, err);
    if (status < 0)
        return status;
    r->env.uncached = r->choices[0].ways;
    r->options.adaptive &= r->n_choices > 1;
    atomic_init(&r->choice, first_choice(r));
    r->choices[first_choice(r)].probed = true;
    status = check(r, &r->choices[first_choice(r)], err);
    if (status >= 0 && r->options.adaptive)
        cw_choices_load(r);
    return status;
}

void cw_choices_free(struct cw_runner *r)
{
    for (unsigned k = 0; k < r->n_choices; k++) {
        struct choice *c = &r->choices[k];
        for (unsigned i = 0; c->ways && i < r->compiled->n_programs; i++) {
            if (r->options.adaptive && c->ways[i].cached)
                cw_choice_save(&r->choices[0], c, c->ways[i].cached);
            cw_cached_free(c->ways[i].cached);
            cw_optimized_free(c->ways[i].optimized);
        }
        free(c->ways);
    }
    free(r->choices);
}

/* ---- choosing ---- */

/* What a position takes, with all threads at it. */
static double row_ns(const struct cw_runner *r, const struct pace *p)
{
    return fmax(p->ns / r->options.threads, p->cold_ns) / p->rows;
}

/* Whether reading under a choice takes longer than computing. */
static bool is_slow(const struct cw_runner *r, const struct choice *c)
{
    const struct pace *computed = r->choices[0].computed.rows >= CW_CHOICE_KNOWN_ROWS
                                      ? &r->choices[0].computed
                                      : &c->computed;
    if (c->hit.rows < MUCH_SLOWER_ROWS || computed->rows < CW_CHOICE_KNOWN_ROWS)
        return false;
    return row_ns(r, &c->hit) >
           (c->hit.rows >= CW_CHOICE_KNOWN_ROWS ? SLOWER : MUCH_SLOWER) * row_ns(r, computed);
}

/* Nothing is known yet of a choice, or of reading there. */
static bool is_new(const struct choice *c)
{
    return !c->probed || (!c->probed_reading && !(c->hit.rows > 0) && c->found >= CW_CHOICE_KNOWN_ROWS);
}

/* The next choice that a probe would tell something about; the one in use only where it is not read any more.
 */
static bool next_probe(const struct cw_runner *r, unsigned in_use, bool fresh, unsigned *ret)
{
    for (unsigned i = 1; i <= r->n_choices; i++) {
        unsigned k = (r->probing + i) % r->n_choices;
        if ((k == in_use && !is_slow(r, &r->choices[k])) || (fresh && !is_new(&r->choices[k])))
            continue;
        *ret = k;
        return true;
    }
    return false;
}

static unsigned probe_blocks(const struct cw_runner *r, const struct choice *c)
{
    /* blocks of what is slow have one row */
    double ns = c->hit.rows > 0 ? (c->hit.ns + c->hit.cold_ns) / c->hit.rows : 0;
    return ns > 0 ? (unsigned)fmin(fmax(r->spent_ns / PROBE_PART / ns, STORE_THREADS), PROBE_BLOCKS)
                  : PROBE_BLOCKS;
}

static void begin_probe(struct cw_runner *r, unsigned in_use)
{
    unsigned k;
    if (r->n_probes > 0) /* what the last one tells is not known yet */
        return;
    if (!next_probe(r, in_use, true, &k) &&
        (r->probe_ns * PROBE_PART > r->spent_ns || !next_probe(r, in_use, false, &k)))
        return;
    r->choices[k].probed = true;
    r->choices[k].probed_reading = r->choices[k].found >= CW_CHOICE_KNOWN_ROWS;
    r->choices[k].stale = true;
    r->probing = k;
    r->probe_left = probe_blocks(r, &r->choices[k]);
}

uint64_t cw_block_patience(const struct cw_runner *r, const struct block *b)
{
    uint64_t row_ns = r->rows[2 * b->exec.program->leaf].ns;
    if (cw_cost_modelled()) /* what a read takes is stated */
        return CW_CACHE_FOREVER;
    return row_ns ? CW_MIN(CW_MAX(PATIENCE * row_ns * b->exec.n_refs, PATIENCE_LEAST_NS), PATIENCE_MOST_NS)
                  : PATIENCE_MOST_NS;
}

/* Storage has as much to read as it can be at; while little is known of it, as many as there are read
 * threads. More would only wait, and threads have nothing to do. */
static bool is_behind(const struct cw_runner *r, const struct choice *c)
{
    return r->n_fetching >= (c->hit.rows >= CW_CHOICE_KNOWN_ROWS ? STORE_DEPTH : STORE_THREADS);
}

void cw_block_choose(struct cw_runner *r, struct block *b, const struct piece *p)
{
    b->choice = p->choice;
    if (r->frugal) { /* with the memory that it takes to compute them, whatever there is to be read */
        b->choice = 0;
        b->exec.variant = cw_way(r, 0, p->plan.refs[p->carved].leaf);
        return;
    }
    if (cw_mutated("cache_point"))
        b->choice = (unsigned)(b->range->next_seq * UINT64_C(0x9e3779b97f4a7c15) >> 32) % r->n_choices;
    if (r->options.adaptive && r->probe_left == 0)
        begin_probe(r, p->choice);
    if (r->probe_left > 0) {
        r->probe_left--;
        r->n_probes++;
        b->probe = true;
        b->choice = r->probing;
    } else if (r->options.adaptive && p->choice &&
               (is_slow(r, &r->choices[p->choice]) || is_behind(r, &r->choices[p->choice]))) {
        /* rows that the cache has are not to be kept again either: as if there were no cache point */
        bool kept = p->kept && p->kept[p->carved];
        b->exec.cache.use = kept ? CW_CACHE_USE_NONE : CW_CACHE_USE_KEEP;
        b->choice = kept ? 0 : p->choice;
    }
    b->exec.variant = cw_way(r, b->choice, p->plan.refs[p->carved].leaf);
}

/* ---- measuring ---- */

static void pace_scale(struct pace *p, double by)
{
    p->rows *= by;
    p->ns *= by;
    p->cold_ns *= by;
    p->prefix_ns *= by;
}

static void pace_add(struct pace *p, const struct block *b, uint64_t spent_ns, uint64_t cold_ns)
{
    p->rows += (double)b->exec.n_refs;
    p->ns += (double)spent_ns;
    p->cold_ns += (double)cold_ns;
    p->prefix_ns += (double)CW_MIN(b->exec.prefix_ns, spent_ns);
    if (p->ns + p->cold_ns > WINDOW_NS)
        pace_scale(p, 0.5);
}

/* What was read, or computed; or, where it was waited for in vain, took at least so long to read, and was
 * then computed. */
static void pace_measured(struct choice *c, const struct block *b)
{
    /* of storage, as far as it was this block that it was for */
    uint64_t late_ns = CW_MIN(b->exec.cache.late_ns, b->cold_ns);
    if (late_ns)
        pace_add(&c->hit, b, 0, late_ns);
    pace_add(b->exec.cache.hit ? &c->hit : &c->computed, b, b->spent_ns, b->cold_ns - late_ns);
}

/* What was known before a probe gives way to what it finds: all of it, or so much that it is still known that
 * reading does not pay. */
static void pace_forget(struct pace *p, bool in_use)
{
    double keep = in_use ? CW_CHOICE_KNOWN_ROWS : 0;
    if (p->rows > keep)
        pace_scale(p, keep / p->rows);
}

void cw_block_measured(struct cw_runner *r, const struct block *b)
{
    struct choice *c = &r->choices[b->choice];
    double spent_ns = (double)(b->spent_ns + b->cold_ns);
    r->n_positions_done += b->exec.n_refs;
    r->n_positions_cached += b->exec.cache.hit ? b->exec.n_refs : 0;
    r->spent_ns += spent_ns;
    r->probe_ns += b->probe ? spent_ns : 0;
    r->busy_ns += b->spent_ns;
    if (b->exec.cache.use == CW_CACHE_USE_NONE) /* where it was known to be there, and not to be read */
        cw_choice_looked(&r->choices[b->piece->choice], b->range->epoch->epoch.epoch, b->exec.n_refs,
                         b->exec.n_refs);
    else if (b->exec.cache.n_looked)
        cw_choice_looked(c, b->range->epoch->epoch.epoch, b->exec.cache.n_looked, b->exec.cache.n_found);
    c->content_rows += (double)b->exec.cache.content_rows;
    c->content_bytes += (double)b->exec.cache.content_bytes;
    if (c->content_rows > WINDOW_ROWS) {
        c->content_rows /= 2;
        c->content_bytes /= 2;
    }
    c->n_kept += b->range->epoch->epoch.epoch == c->epoch ? b->exec.cache.n_kept : 0;
    if (b->exec.plain) /* a sample takes longer */
        return;
    struct pace *p = b->exec.cache.hit || b->exec.cache.late_ns ? &c->hit : &c->computed;
    if (b->probe && c->stale) {
        c->stale = false;
        pace_forget(p, b->choice == atomic_load(&r->choice));
    }
    pace_measured(c, b);
}

void cw_choice_looked(struct choice *c, uint64_t epoch, uint64_t looked, uint64_t found)
{
    if (epoch != c->epoch) {
        c->found_before = c->looked > 0 ? c->found / c->looked : -1;
        c->epoch = epoch;
        c->looked = c->found = 0;
        c->n_kept = 0;
    }
    c->looked += (double)looked;
    c->found += (double)found;
    while (c->looked > WINDOW_LOOKS) {
        c->looked /= 2;
        c->found /= 2;
    }
}

uint64_t cw_store_enter(struct cw_runner *r)
{
    uint64_t now = cw_cost_now_ns();
    if (r->n_at_store++ == 0)
        r->at_store_ns = now;
    return now;
}

uint64_t cw_store_leave(struct cw_runner *r, uint64_t began_ns)
{
    /* in the model each thread has a clock of its own */
    uint64_t now = cw_cost_now_ns(), ns = now - (cw_cost_modelled() ? began_ns : r->at_store_ns);
    r->at_store_ns = now;
    r->n_at_store--;
    r->cold_ns += ns;
    return ns;
}

/* ---- what others see ---- */

static double cached_part(const struct choice *c)
{
    if (c->looked < KNOWN_LOOKS && c->found_before >= 0)
        return c->found_before;
    return c->looked > 0 ? c->found / c->looked : 0;
}

static const struct cw_op *op_of(const struct cw_runner *r, const struct choice *c)
{
    for (unsigned i = 0; i < r->compiled->n_programs; i++)
        if (c->ways[i].cached)
            return cw_cached_cache_point(c->ways[i].cached);
    return NULL;
}

static double per_row(double sum, double rows)
{
    return rows > 0 ? sum / rows : 0;
}

/* Reading was measured, or it is what computing leaves out, and a copy. */
static void put_reading(const struct cw_runner *r, const struct choice *c, struct cw_choice *ret)
{
    const struct pace *p = &c->hit, *computed = &c->computed;
    ret->was_read = p->rows > 0;
    ret->store_s = per_row(p->cold_ns, p->rows) * 1e-9;
    double ns = per_row(p->ns, p->rows);
    if (!ret->was_read && computed->rows > 0)
        ns = per_row(computed->ns - computed->prefix_ns, computed->rows) + ret->bytes * COPY_NS;
    ret->read_s = ns / r->options.threads * 1e-9;
}

unsigned cw_runner_choices(struct cw_runner *r, struct cw_choice ret[CW_CHOICES_MAX])
{
    double positions = (double)CW_MAX(r->sequence->n_positions, (uint64_t)1);
    if (!r->options.adaptive)
        return 0;
    CW_GUARD(&r->mutex);
    unsigned in_use = atomic_load(&r->choice);
    for (unsigned k = 0; k < r->n_choices; k++) {
        const struct choice *c = &r->choices[k];
        ret[k] = (struct cw_choice){
            .cache_point = c->number,
            .op = op_of(r, c),
            .compute_s = c->computed.rows > 0 ? row_ns(r, &c->computed) * 1e-9 : 0,
            .bytes = per_row(c->content_bytes, c->content_rows),
            .cached = cached_part(c),
            .stored = c->stored,
            .unread = k == in_use && is_slow(r, c),
            .written = fmin((double)c->n_kept / positions, 1),
        };
        if (k)
            put_reading(r, c, &ret[k]);
    }
    return r->n_choices;
}

void cw_runner_effort(struct cw_runner *r, struct cw_effort *ret)
{
    CW_GUARD(&r->mutex);
    *ret = (struct cw_effort){.positions = r->n_positions_done, .busy_ns = r->busy_ns, .cold_ns = r->cold_ns};
}

bool cw_runner_set_cache_point(struct cw_runner *r, int64_t cache_point)
{
    for (unsigned k = 0; k < r->n_choices; k++)
        if (r->choices[k].number == cache_point) {
            atomic_store(&r->choice, k);
            return true;
        }
    return false;
}

int64_t cw_runner_cache_point(const struct cw_runner *r)
{
    return r->choices[atomic_load(&r->choice)].number;
}
