/* Cache statistics: measures how long elements take with each cache variant (without a cache point, or with a
 * certain one), and chooses the variant of each block. The runner owns the statistics; its mutex guards them.
 */
#include "engine/cache_stats.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "base/cost_clock.h"
#include "base/crash.h"
#include "base/thread.h"
#include "cache/cache.h"
#include "engine/internal.h"
#include "policy/cache_stats.h"

/* A pace (recent costs) covers about WINDOW_NS of the time of threads and storage. Mean sizes of rows cover
 * about WINDOW_ROWS positions. */
#define WINDOW_NS 2e9
#define WINDOW_ROWS 8192.0
/* A pace with fewer positions than this is not used. */
#define KNOWN_ROWS 16.0
/* Probes take at most 1/64 of the time. The first probe of each variant is exempt. */
#define PROBE_PART 64.0
/* The most blocks of a probe. They are consecutive, so that storage meets the load that it would have. If the
 * speed of reading is known, a probe takes at most 1/PROBE_PART of the time so far, but has a block for each
 * read thread. */
#define PROBE_BLOCKS STORE_DEPTH
/* After KNOWN_LOOKS positions of an epoch it is known which share of the epoch is cached. The share is taken
 * from about the last WINDOW_LOOKS positions. */
#define KNOWN_LOOKS 256.0
#define WINDOW_LOOKS 2048.0
/* A block is computed when storage takes more than PATIENCE times as long to give its rows as computing them
 * takes, because storage then hangs or is gone. The wait is not shorter than a busy disk may need, and not so
 * long that a user would notice it. */
#define PATIENCE 32
#define PATIENCE_LEAST_NS UINT64_C(100000000)
#define PATIENCE_MOST_NS UINT64_C(1000000000)
/* ns to read a byte from memory: it is copied and summed up. Used until reading is measured. */
#define COPY_NS 0.3
/* Measurements of an earlier run count as much as this many ns of measurements of this run. */
#define STORED_NS 2e8
/* A stored measurement larger than this (ns or bytes) is rejected. */
#define STORED_MOST 1e15

/* ---- paces ---- */

/* Returns the time per position when all threads work. */
static double pace_row_ns(const struct cw_runner *r, const struct pace *p)
{
    return fmax(p->ns / r->options.threads, p->cold_ns) / p->rows;
}

static void pace_scale(struct pace *p, double by)
{
    p->rows *= by;
    p->ns *= by;
    p->cold_ns *= by;
    p->prefix_ns *= by;
}

static void pace_add(struct pace *p, const struct cw_exec *x, uint64_t spent_ns, uint64_t cold_ns)
{
    p->rows += (double)x->n_refs;
    p->ns += (double)spent_ns;
    p->cold_ns += (double)cold_ns;
    p->prefix_ns += (double)CW_MIN(x->prefix_ns, spent_ns);
    if (p->ns + p->cold_ns > WINDOW_NS)
        pace_scale(p, 0.5);
}

/* ---- what earlier runs measured, and what this one leaves to later ones ---- */

/* Reads n numbers of a list. False: they are missing or not plausible. */
static bool stored_numbers(const json_t *profile, const char *key, double *ret, size_t n)
{
    const json_t *list = json_object_get(profile, key);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        ret[i] = json_number_value(v);
        if (!json_is_number(v) || !(ret[i] >= 0) || ret[i] > STORED_MOST)
            return false;
    }
    return true;
}

static void stored_pace(const json_t *profile, const char *key, struct pace *ret)
{
    double v[3];
    if (!stored_numbers(profile, key, v, CW_COUNT_OF(v)) || !(v[0] > 0))
        return;
    *ret = (struct pace){.rows = 1, .ns = v[0], .cold_ns = v[1], .prefix_ns = fmin(v[2], v[0])};
    pace_scale(ret, fmax(STORED_NS / (v[0] + v[1]), KNOWN_ROWS));
}

void cw_cache_variant_recall(struct cache_variant *none, struct cache_variant *v, const char *text)
{
    json_auto_t *profile = text ? json_loads(text, 0, NULL) : NULL;
    double bytes;
    stored_pace(profile, "none", &none->computed);
    stored_pace(profile, "computed", &v->computed);
    stored_pace(profile, "read", &v->hit);
    v->stored = v->computed.rows > 0 || v->hit.rows > 0;
    if (stored_numbers(profile, "bytes", &bytes, 1)) {
        v->content_rows = 1;
        v->content_bytes = bytes;
    }
}

static void store_pace(json_t *profile, const char *key, const struct pace *p)
{
    if (p->rows > 0)
        json_object_set_new(
            profile, key,
            json_pack("[f, f, f]", p->ns / p->rows, p->cold_ns / p->rows, p->prefix_ns / p->rows));
}

/* Stores the measurements of a variant with its cache set. If the key of the set changes with the epoch,
 * nothing is stored. */
static void variant_store(const struct cache_variant *none, const struct cache_variant *v,
                          struct cw_cached *to)
{
    json_auto_t *profile = json_object();
    store_pace(profile, "none", &none->computed);
    store_pace(profile, "computed", &v->computed);
    store_pace(profile, "read", &v->hit);
    if (v->content_rows > 0)
        json_object_set_new(profile, "bytes", json_pack("[f]", v->content_bytes / v->content_rows));
    _cleanup_free_ char *text = profile ? json_dumps(profile, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    if (text && json_object_size(profile))
        cw_cached_put_profile(to, text);
}

/* ---- variants ---- */

/* Returns the cache point with this number, if a program has it and it can be used. */
static const struct cw_cache_point *program_cache_point(const struct cw_program *g, int64_t number)
{
    const struct cw_cache_point *m = cw_cache_point_choose(g, number);
    return m && m->n ? m : NULL;
}

static bool cache_point_is_usable(const struct cw_compiled *c, int64_t number)
{
    for (unsigned i = 0; i < c->n_programs; i++)
        if (program_cache_point(&c->programs[i], number))
            return true;
    return false;
}

/* Adds the variant of a cache point. A program without that cache point uses the one that it would use by
 * default. */
static int variant_add(struct cw_runner *r, int64_t number, struct cw_error *err)
{
    const struct cw_compiled *c = r->compiled;
    struct cache_variant *v = &r->cache.variants[r->cache.n++];
    *v = (struct cache_variant){
        .number = number, .found_before = -1, .programs = calloc(c->n_programs, sizeof(*v->programs))};
    if (!v->programs)
        return cw_error_nomem(err, c->n_programs * sizeof(*v->programs), "the engine");
    int status = 0;
    for (unsigned i = 0; i < c->n_programs && status >= 0; i++) {
        const struct cw_program *g = &c->programs[i];
        struct cw_exec_variant *x = &v->programs[i];
        const struct cw_cache_point *m = program_cache_point(g, number);
        if (!m && number != CW_CACHE_POINT_NONE)
            m = program_cache_point(g, CW_CACHE_POINT_AUTO);
        if (m)
            status = cw_cached_new(&r->env, i, m, r->options.cache, &x->cached, err);
        if (status >= 0)
            status = cw_optimize(g, c->n_limits, c->pipeline->n_ops, r->options.optimize,
                                 cw_cached_cache_point(x->cached), &x->optimized, err);
    }
    return status;
}

/* Returns the index of the variant to begin with. */
static unsigned variant_first(const struct cw_runner *r)
{
    int64_t wanted = r->options.cache_point;
    for (unsigned i = 0; i < r->compiled->n_programs; i++) {
        const struct cw_cache_point *m = program_cache_point(&r->compiled->programs[i], wanted);
        for (unsigned k = 1; m && k < r->cache.n; k++)
            if (r->cache.variants[k].number == m->number || r->cache.variants[k].number == wanted)
                return k;
    }
    return 0;
}

/* Returns the first cache point that a program uses; NULL: no program uses one. */
static struct cw_cached *variant_cached(const struct cw_runner *r, const struct cache_variant *v)
{
    for (unsigned i = 0; i < r->compiled->n_programs; i++)
        if (v->programs[i].cached)
            return v->programs[i].cached;
    return NULL;
}

int cw_cache_stats_new(struct cw_runner *r, struct cw_error *err)
{
    const struct cw_compiled *c = r->compiled;
    struct cw_cache_variants *stats = &r->cache;
    bool cache = r->options.cache != NULL, adaptive = cache && r->options.adaptive;
    if (!(stats->variants = calloc(CW_CACHE_VARIANTS, sizeof(*stats->variants))))
        return cw_error_nomem(err, CW_CACHE_VARIANTS * sizeof(*stats->variants), "the engine");
    int status = variant_add(r, CW_CACHE_POINT_NONE, err);
    if (cache && !adaptive && cache_point_is_usable(c, r->options.cache_point) && status >= 0)
        status = variant_add(r, r->options.cache_point, err);
    for (unsigned k = 0; adaptive && k < c->n_cache_points && stats->n < CW_CACHE_VARIANTS && status >= 0;
         k++)
        if (cache_point_is_usable(c, k))
            status = variant_add(r, k, err);
    if (status < 0)
        return status;
    r->env.uncached = stats->variants[0].programs;
    r->options.adaptive &= stats->n > 1;
    unsigned first = variant_first(r);
    atomic_init(&stats->in_use, first);
    stats->variants[first].probed = true;
    for (unsigned i = 0; i < c->n_programs && status >= 0; i++)
        if (stats->variants[first].programs[i].cached)
            status = cw_cached_check(stats->variants[first].programs[i].cached, err);
    for (unsigned k = 1; k < stats->n && r->options.adaptive && status >= 0; k++) {
        struct cw_cached *cached = variant_cached(r, &stats->variants[k]);
        _cleanup_free_ char *text = cached ? cw_cached_profile(cached) : NULL;
        cw_cache_variant_recall(&stats->variants[0], &stats->variants[k], text);
    }
    return status;
}

void cw_cache_stats_free(struct cw_runner *r)
{
    for (unsigned k = 0; k < r->cache.n; k++) {
        struct cache_variant *v = &r->cache.variants[k];
        for (unsigned i = 0; v->programs && i < r->compiled->n_programs; i++) {
            struct cw_exec_variant *x = &v->programs[i];
            if (r->options.adaptive && x->cached)
                variant_store(&r->cache.variants[0], v, x->cached);
            cw_cached_free(x->cached);
            cw_optimized_free(x->optimized);
        }
        free(v->programs);
    }
    free(r->cache.variants);
}

/* ---- which variant a block runs under ---- */

/* Returns whether reading rows under a variant takes longer than computing them. */
static bool variant_is_slow(const struct cw_runner *r, const struct cache_variant *v)
{
    const struct pace *none = &r->cache.variants[0].computed,
                      *computed = none->rows >= KNOWN_ROWS ? none : &v->computed;
    return cw_cache_is_slow(v->hit.rows, pace_row_ns(r, &v->hit), computed->rows, pace_row_ns(r, computed));
}

/* Returns whether storage has as many blocks to read as it can work on; while its speed is not known, a block
 * for each read thread. More blocks would only wait, while compute threads have nothing to do. */
static bool variant_is_behind(const struct cw_runner *r, const struct cache_variant *v)
{
    return r->reads.n_fetching >= (v->hit.rows >= KNOWN_ROWS ? STORE_DEPTH : STORE_THREADS);
}

/* Returns whether a variant, or reading under it, has not been measured yet. */
static bool variant_is_new(const struct cache_variant *v)
{
    return !v->probed || (!v->probed_reading && !(v->hit.rows > 0) && v->found >= KNOWN_ROWS);
}

/* Finds the next variant for a probe. The variant in use is probed only when it is slow, because it is not
 * read then. fresh: only variants that were not measured yet. */
static bool probe_next(const struct cw_runner *r, unsigned in_use, bool fresh, unsigned *ret)
{
    for (unsigned i = 1; i <= r->cache.n; i++) {
        unsigned k = (r->cache.probing + i) % r->cache.n;
        const struct cache_variant *v = &r->cache.variants[k];
        if ((k == in_use && !variant_is_slow(r, v)) || (fresh && !variant_is_new(v)))
            continue;
        *ret = k;
        return true;
    }
    return false;
}

static unsigned probe_blocks(const struct cw_runner *r, const struct cache_variant *v)
{
    /* a block of a slow variant has one row, so the time of a row is that of a block */
    double ns = v->hit.rows > 0 ? (v->hit.ns + v->hit.cold_ns) / v->hit.rows : 0;
    return ns > 0 ? (unsigned)fmin(fmax(r->cache.spent_ns / PROBE_PART / ns, STORE_THREADS), PROBE_BLOCKS)
                  : PROBE_BLOCKS;
}

static void probe_begin(struct cw_runner *r, unsigned in_use)
{
    struct cw_cache_variants *stats = &r->cache;
    unsigned k;
    if (stats->n_probes > 0) /* the results of the last probe are not known yet */
        return;
    if (!probe_next(r, in_use, true, &k) &&
        (stats->probe_ns * PROBE_PART > stats->spent_ns || !probe_next(r, in_use, false, &k)))
        return;
    struct cache_variant *v = &stats->variants[k];
    v->probed = true;
    v->probed_reading = v->found >= KNOWN_ROWS;
    v->stale = true;
    stats->probing = k;
    stats->probe_left = probe_blocks(r, v);
}

uint64_t cw_cache_stats_patience(const struct cw_runner *r, const struct block *b)
{
    uint64_t row_ns = r->block_sizes[2 * b->exec.program->leaf].ns;
    if (cw_cost_modelled()) /* with modelled costs the time of a read is fixed */
        return CW_CACHE_FOREVER;
    return row_ns ? CW_MIN(CW_MAX(PATIENCE * row_ns * b->exec.n_refs, PATIENCE_LEAST_NS), PATIENCE_MOST_NS)
                  : PATIENCE_MOST_NS;
}

void cw_cache_stats_choose(struct cw_runner *r, struct block *b, const struct piece *p)
{
    struct cw_cache_variants *stats = &r->cache;
    const struct cache_variant *v = &stats->variants[p->variant];
    bool probes = r->options.adaptive && !r->memory.low_rows;
    /* in low-memory mode all rows are computed, so that the memory in use does not depend on what the cache
     * has */
    b->variant = r->memory.low_rows ? 0 : p->variant;
    if (cw_mutated("cache_point") && !r->memory.low_rows)
        b->variant = (unsigned)(b->range->next_seq * UINT64_C(0x9e3779b97f4a7c15) >> 32) % stats->n;
    if (probes && stats->probe_left == 0)
        probe_begin(r, p->variant);
    if (stats->probe_left > 0 && !r->memory.low_rows) {
        stats->probe_left--;
        stats->n_probes++;
        b->probe = true;
        b->variant = stats->probing;
    } else if (probes && p->variant && (variant_is_slow(r, v) || variant_is_behind(r, v))) {
        /* if the cache has the rows, they run without a cache point, so that they are not written again */
        bool kept = p->kept && p->kept[p->carved];
        b->exec.cache.use = kept ? CW_CACHE_USE_NONE : CW_CACHE_USE_KEEP;
        b->variant = kept ? 0 : p->variant;
    }
    b->exec.variant = cw_runner_variant(r, b->variant, p->plan.refs[p->carved].leaf);
}

/* ---- measuring ---- */

/* Adds the costs of a block to those of reading or of computing. If the block waited for storage in vain and
 * was then computed, the wait counts as reading. */
static void variant_measured(struct cache_variant *v, const struct block *b)
{
    /* the part of the storage's time that was spent on this block */
    uint64_t late_ns = CW_MIN(b->exec.cache.late_ns, b->cold_ns);
    if (late_ns)
        pace_add(&v->hit, &b->exec, 0, late_ns);
    pace_add(b->exec.cache.hit ? &v->hit : &v->computed, &b->exec, b->spent_ns, b->cold_ns - late_ns);
}

/* Drops measurements from before a probe: all of them, or, for a variant in use, all but enough to know that
 * reading is too slow. */
static void pace_forget(struct pace *p, bool in_use)
{
    double keep = in_use ? KNOWN_ROWS : 0;
    if (p->rows > keep)
        pace_scale(p, keep / p->rows);
}

void cw_cache_stats_measured(struct cw_runner *r, const struct block *b)
{
    struct cw_cache_variants *stats = &r->cache;
    struct cache_variant *v = &stats->variants[b->variant];
    const struct cw_exec_cache *cache = &b->exec.cache;
    uint64_t n = b->exec.n_refs, epoch = b->exec.epoch->epoch;
    double spent_ns = (double)(b->spent_ns + b->cold_ns);
    stats->n_done += n;
    stats->n_cached += cache->hit ? n : 0;
    stats->spent_ns += spent_ns;
    stats->probe_ns += b->probe ? spent_ns : 0;
    stats->busy_ns += b->spent_ns;
    /* the cache has the rows, but they were computed because reading is slow */
    if (cache->use == CW_CACHE_USE_NONE)
        cw_cache_variant_looked(&stats->variants[b->piece->variant], epoch, n, n);
    else if (cache->n_looked)
        cw_cache_variant_looked(v, epoch, cache->n_looked, cache->n_found);
    v->content_rows += (double)cache->content_rows;
    v->content_bytes += (double)cache->content_bytes;
    if (v->content_rows > WINDOW_ROWS) {
        v->content_rows /= 2;
        v->content_bytes /= 2;
    }
    v->n_kept += epoch == v->epoch ? cache->n_kept : 0;
    if (b->exec.plain) /* a sample runs unfused, which takes longer */
        return;
    if (b->probe && v->stale) {
        v->stale = false;
        pace_forget(cache->hit || cache->late_ns ? &v->hit : &v->computed,
                    b->variant == atomic_load(&stats->in_use));
    }
    variant_measured(v, b);
}

void cw_cache_variant_looked(struct cache_variant *v, uint64_t epoch, uint64_t looked, uint64_t found)
{
    if (epoch != v->epoch) {
        v->found_before = v->looked > 0 ? v->found / v->looked : -1;
        v->epoch = epoch;
        v->looked = v->found = 0;
        v->n_kept = 0;
    }
    v->looked += (double)looked;
    v->found += (double)found;
    while (v->looked > WINDOW_LOOKS) {
        v->looked /= 2;
        v->found /= 2;
    }
}

/* ---- what others see ---- */

static double variant_cached_part(const struct cache_variant *v)
{
    if (v->looked < KNOWN_LOOKS && v->found_before >= 0)
        return v->found_before;
    return v->looked > 0 ? v->found / v->looked : 0;
}

static double per_row(double sum, double rows)
{
    return rows > 0 ? sum / rows : 0;
}

/* Returns the number of a variant as in Prepare. */
static int32_t variant_code(const struct cache_variant *v)
{
    return v->number == CW_CACHE_POINT_NONE ? -1 : v->number < 0 ? 0 : (int32_t)v->number + 1;
}

static void variant_stats(const struct cw_runner *r, const struct cache_variant *v, bool in_use,
                          struct cw_cache_variant_stats *ret)
{
    const struct cw_op *op = cw_cached_cache_point(variant_cached(r, v));
    const struct pace *hit = &v->hit, *computed = &v->computed;
    double bytes = per_row(v->content_bytes, v->content_rows), read_ns = per_row(hit->ns, hit->rows);
    /* not measured: estimated as computing without the operators before the cache point, plus a copy */
    if (op && !(hit->rows > 0) && computed->rows > 0)
        read_ns = per_row(computed->ns - computed->prefix_ns, computed->rows) + bytes * COPY_NS;
    *ret = (struct cw_cache_variant_stats){
        .cache_point = variant_code(v),
        .compute_s = computed->rows > 0 ? pace_row_ns(r, computed) * 1e-9 : 0,
        .read_s = read_ns / r->options.threads * 1e-9,
        .store_s = per_row(hit->cold_ns, hit->rows) * 1e-9,
        .was_read = hit->rows > 0,
        .stored = v->stored,
        .unread = in_use && variant_is_slow(r, v),
        .bytes = bytes,
        .cached = variant_cached_part(v),
        .written = fmin((double)v->n_kept / (double)CW_MAX(r->sequence->n_positions, (uint64_t)1), 1),
    };
    if (op)
        snprintf(ret->name, sizeof(ret->name), "%.40s (operator %u)", op->desc->name, op->position);
}

void cw_runner_cache_stats(struct cw_runner *r, struct cw_cache_stats *ret)
{
    CW_GUARD(&r->sched.mutex);
    ret->cache_point = cw_runner_cache_point(r);
    ret->n = r->options.adaptive ? r->cache.n : 0;
    for (unsigned k = 0; k < ret->n; k++)
        variant_stats(r, &r->cache.variants[k], k == atomic_load(&r->cache.in_use), &ret->variants[k]);
}

void cw_runner_effort(struct cw_runner *r, struct cw_effort *ret)
{
    CW_GUARD(&r->sched.mutex);
    *ret = (struct cw_effort){
        .positions = r->cache.n_done, .busy_ns = r->cache.busy_ns, .cold_ns = r->reads.busy_ns};
}

void cw_runner_set_cache_point(struct cw_runner *r, int32_t cache_point)
{
    for (unsigned k = 0; k < r->cache.n; k++)
        if (variant_code(&r->cache.variants[k]) == cache_point)
            atomic_store(&r->cache.in_use, k);
}

int32_t cw_runner_cache_point(const struct cw_runner *r)
{
    return variant_code(&r->cache.variants[atomic_load(&r->cache.in_use)]);
}
