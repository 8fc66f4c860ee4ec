/* Chooses the cache point of a run in this process with the dispatcher's policy `auto`. */
#include "session/autocache.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/cost_clock.h"
#include "base/thread.h"
#include "cache/cache.h"
#include "session/caching.h"
#include "policy/cache_stats.h"
#include "policy/pace.h"
#include "policy/plan.h"
#include "policy/policies.h"

/* The policy decides once a second, like a dispatcher's policy, and more often at first, because epochs may
 * be short. */
#define DECISION_NS UINT64_C(1000000000)
#define FIRST_NS UINT64_C(200000000)
#define SOONER 4     /* at first, the next decision comes after 1/SOONER of the time that has passed */
#define DECISIONS 32 /* the number of decisions kept */
/* Used as the number of batches of an endless epoch, and of endless epochs. */
#define ENDLESS 1e12

/* If costs are modelled: the last results of autocache_now_ns. */
struct modelled {
    uint64_t ns;
    struct cw_effort effort;
};

struct cw_autocache {
    /* immutable */
    const struct cw_local *local;
    struct cw_runner *runner;
    double epochs, first_epoch, world_size;
    uint64_t began_ns;
    /* used by the consumer's thread only */
    struct cw_policy_memory memory;
    /* pace: the consumer's pace so far; pace_before: at the last decision */
    struct cw_pace pace, pace_before;
    bool requested;
    uint64_t requested_ns, received_ns;
    uint64_t next_decision_ns, last_decision_ns;
    /* batches: taken so far; epoch: number of the present epoch; done: its batches before the next one */
    double batches, epoch, done;
    struct cw_effort effort; /* work of the runner when facts were last collected */
    struct modelled modelled;
    struct cw_write_rate written;

    pthread_mutex_t mutex;
    json_t *decisions;    /* guarded by mutex */
    unsigned n_forgotten; /* number of old decisions that were removed; guarded by mutex */
};

/* The facts that the policy gets, and the structs to which they point. */
struct collected {
    struct cw_facts facts;
    struct cw_client_facts client;
    struct cw_cache_point_facts cache_points[CW_POLICY_CACHE_POINTS];
    struct cw_cache_stats stats;
    double compute_s; /* time to compute a batch with nothing cached; 0: not known */
};

/* ---- facts ---- */

/* Returns the positions that are computed for each batch of this rank, including those of other ranks'
 * batches. */
static double autocache_positions_per_batch(const struct cw_autocache *a, const struct cw_effort *e)
{
    const struct cw_compiled *c = a->local->compiled;
    if (c->counted || !(a->batches > 0))
        return (double)c->batch_size * a->world_size;
    return CW_MAX((double)e->positions / a->batches, 1);
}

/*
 * Returns the time of the clock of the consumer's waits, and sets *ret (may be NULL) to the work done so far.
 * If costs are modelled (base/cost_clock.h), both count only the share for the batches that were taken.
 */
static uint64_t autocache_now_ns(struct cw_autocache *a, struct cw_effort *ret)
{
    struct modelled *m = &a->modelled;
    uint64_t now = cw_runner_now_ns(a->runner);
    struct cw_effort e;
    if (ret || cw_cost_modelled())
        cw_runner_effort(a->runner, &e);
    if (!cw_cost_modelled()) {
        if (ret)
            *ret = e;
        return now;
    }
    double taken = a->batches * autocache_positions_per_batch(a, &e),
           part = CW_MIN(taken / (double)CW_MAX(e.positions, 1), 1);
    m->ns = CW_MAX(m->ns, (uint64_t)((double)now * part));
    m->effort.positions = CW_MAX(m->effort.positions, (uint64_t)((double)e.positions * part));
    m->effort.busy_ns = CW_MAX(m->effort.busy_ns, (uint64_t)((double)e.busy_ns * part));
    m->effort.cold_ns = CW_MAX(m->effort.cold_ns, (uint64_t)((double)e.cold_ns * part));
    if (ret)
        *ret = m->effort;
    return m->ns;
}

static void facts_add_epochs(const struct cw_autocache *a, double per_batch, struct cw_facts *f)
{
    uint64_t n = a->local->sequence->n_positions;
    f->batches_per_epoch = n >= CW_ENDLESS ? ENDLESS : CW_MAX((double)n / per_batch, 1);
    f->positions_per_batch = per_batch;
    f->epochs = CW_MAX(a->epochs, a->epoch + 1);
    f->epoch = a->epoch;
    f->batches_done = a->epoch * f->batches_per_epoch + CW_MIN(a->done, f->batches_per_epoch);
}

static void facts_add_cache(struct cw_autocache *a, double per_batch, struct collected *t)
{
    struct cw_cache_sum sums[CW_POLICY_CACHE_POINTS] = {0};
    struct cw_storage_facts *f = &t->facts.storage;
    struct cw_cache_facts store;
    cw_cache_facts(a->local->cache, &store);
    f->read_bytes_per_s = store.probe_ns ? (double)store.probe_bytes * 1e9 / (double)store.probe_ns : 0;
    f->write_bytes_per_s = cw_write_rate(&a->written, &store);
    f->cache_bytes = (double)cw_cache_quota(a->local->cache);
    cw_runner_cache_stats(a->runner, &t->stats);
    cw_cache_sums_add(sums, &t->stats, &t->stats);
    cw_cache_facts_of(&t->stats, sums, t->stats.cache_point, per_batch, &t->facts, t->cache_points);
    t->compute_s = per_batch * cw_cache_compute_s(&t->stats);
}

/* Sets p to a pool of one worker, which is this process, with what it computed since the last decision. */
static void facts_add_pool(struct cw_autocache *a, double per_batch, uint64_t now, struct cw_pool_facts *p)
{
    struct cw_effort before = a->effort;
    (void)autocache_now_ns(a, &a->effort);
    double n = (double)(a->effort.positions - before.positions) / per_batch,
           wall_s = (double)(now - a->last_decision_ns) * 1e-9;
    double busy_s = (double)(a->effort.busy_ns - before.busy_ns) * 1e-9 / cw_runner_threads(a->runner),
           cold_s = (double)(a->effort.cold_ns - before.cold_ns) * 1e-9;
    *p = (struct cw_pool_facts){.name = "here", .running = 1, .maximum = 1};
    if (n > 0)
        p->compute = (struct cw_mean){n, CW_MAX(busy_s, cold_s) / n, 0};
    p->busy = wall_s > 0 ? CW_MIN(CW_MAX(busy_s, cold_s) / wall_s, 1) : 0;
}

static void facts_collect(struct cw_autocache *a, uint64_t now, struct collected *t)
{
    struct cw_effort e;
    *t = (struct collected){.client = cw_pace_facts(&a->pace, &a->pace_before),
                            .facts = {.n_clients = 1, .n_pools = 1, .fixed = true}};
    t->facts.clients = &t->client;
    cw_runner_effort(a->runner, &e);
    double per_batch = autocache_positions_per_batch(a, &e);
    facts_add_pool(a, per_batch, now, &t->facts.pools[0]);
    facts_add_epochs(a, per_batch, &t->facts);
    facts_add_cache(a, per_batch, t);
}

/* ---- deciding ---- */

static void autocache_record(struct cw_autocache *a, const struct cw_decision *d, const struct cw_facts *f)
{
    json_t *o = json_pack("{s:f, s:o}", "t", (double)(autocache_now_ns(a, NULL) - a->began_ns) * 1e-9,
                          "record", cw_decision_json(d, f));
    CW_GUARD(&a->mutex);
    if (o && json_array_size(a->decisions) == DECISIONS) {
        json_array_remove(a->decisions, 0);
        a->n_forgotten++;
    }
    if (o)
        json_array_append_new(a->decisions, o);
}

static void autocache_carry_out(struct cw_autocache *a, struct cw_decision *d, const struct collected *t)
{
    bool changes = t->facts.n_cache_points > 0 && d->cache_point != t->facts.cache_point;
    if (changes)
        cw_runner_set_cache_point(a->runner, t->stats.variants[d->cache_point + 1].cache_point);
    bool first = CW_LOCKED(&a->mutex, json_array_size(a->decisions) == 0);
    if (changes || (d->concluded && first) || d->replanned)
        autocache_record(a, d, &t->facts);
}

static void autocache_decide(struct cw_autocache *a, uint64_t now)
{
    struct collected t;
    struct cw_decision d;
    facts_collect(a, now, &t);
    cw_policy_decide(&cw_policy_auto, &a->memory, &t.facts, (double)now * 1e-9, &d);
    d.workers[0] = 1;
    autocache_carry_out(a, &d, &t);
    a->pace_before = a->pace;
    a->last_decision_ns = now;
    a->next_decision_ns = now + CW_MAX(CW_MIN((now - a->began_ns) / SOONER, DECISION_NS), FIRST_NS / 2);
}

/* Makes a first decision from the measurements of an earlier run, if there are any, assuming a consumer that
 * takes no time. */
static void autocache_recall(struct cw_autocache *a)
{
    struct collected t;
    facts_collect(a, a->began_ns, &t);
    bool stored = false;
    for (size_t k = 1; k < t.stats.n; k++)
        stored |= t.stats.variants[k].stored;
    if (!stored || !(t.compute_s > 0))
        return;
    const struct cw_point point = {1, t.compute_s, 1};
    struct cw_facts f = t.facts;
    f.cache_point = f.unread ? -1 : f.cache_point;
    struct cw_outlook o = {.facts = &f, .compute_s = t.compute_s};
    const int here[CW_POLICY_POOLS] = {1};
    cw_supply_init(&o.supply, &f, NULL, 1);
    cw_curve_fit(&point, 1, 0, &o.curve);
    struct cw_alternative best = cw_outlook_best(&o, 0), stay = cw_outlook_rest(&o, here, f.cache_point);
    struct cw_decision d = {.workers = {1},
                            .cache_point = best.cache_point,
                            .concluded = true,
                            .alternatives = {best, stay},
                            .n_alternatives = best.cache_point == stay.cache_point ? 1 : 2};
    d.seen = (struct cw_seen){
        .compute_s = t.compute_s, .error = 1, .workers = 1, .cache_point = f.cache_point};
    if (best.cache_point >= 0)
        snprintf(d.why, sizeof(d.why),
                 "measured by an earlier run: %.4g s to compute a batch, %.4g s to read one at %.60s",
                 t.compute_s, t.compute_s - t.cache_points[best.cache_point].prefix_s,
                 t.cache_points[best.cache_point].name);
    else
        snprintf(
            d.why, sizeof(d.why),
            "measured by an earlier run: %.4g s to compute a batch; reading is not faster at any cache point",
            t.compute_s);
    autocache_carry_out(a, &d, &t);
}

/* ---- the consumer ---- */

void cw_autocache_requested(struct cw_autocache *a)
{
    if (!a->requested) /* otherwise an earlier wait ended without a batch */
        a->requested_ns = cw_cost_modelled() ? a->received_ns
                                             : cw_now_ns(); /* a modelled consumer takes no time */
    a->requested = true;
}

void cw_autocache_received(struct cw_autocache *a, const struct cw_batch *b)
{
    a->requested = false;
    a->batches++;
    uint64_t now = autocache_now_ns(a, NULL);
    a->epoch = CW_MAX((double)b->epoch - a->first_epoch, 0);
    a->done = (double)b->g / a->world_size + 1;
    if (a->received_ns)
        cw_pace_add(&a->pace, (double)(a->requested_ns - a->received_ns) * 1e-9,
                    (double)(now - a->requested_ns) * 1e-9, 0);
    a->received_ns = now;
    if (now >= a->next_decision_ns) {
        autocache_decide(a, now);
        /* the time of the decision does not count as the user's step */
        a->received_ns = autocache_now_ns(a, NULL);
    }
}

struct cw_autocache *cw_autocache_new(const struct cw_local *l, const struct cw_iterator_options *o)
{
    struct cw_autocache *a = calloc(1, sizeof(*a));
    if (!a)
        return NULL;
    *a = (struct cw_autocache){.local = l,
                               .runner = cw_iterator_runner(l->iterator),
                               .epochs = (double)CW_MIN(o->epochs, (uint64_t)ENDLESS),
                               .first_epoch = (double)o->first_epoch,
                               .world_size = o->world_size,
                               .decisions = json_array()};
    a->began_ns = cw_runner_now_ns(a->runner);
    a->last_decision_ns = a->began_ns;
    a->next_decision_ns = a->began_ns + FIRST_NS;
    pthread_mutex_init(&a->mutex, NULL);
    autocache_recall(a);
    return a;
}

struct cw_autocache *cw_autocache_free(struct cw_autocache *a)
{
    if (!a)
        return NULL;
    pthread_mutex_destroy(&a->mutex);
    json_decref(a->decisions);
    free(a);
    return NULL;
}

char *cw_autocache_why(struct cw_autocache *a, unsigned i)
{
    char *why = NULL;
    CW_GUARD(&a->mutex);
    const json_t *record = i < a->n_forgotten
                               ? NULL
                               : json_object_get(json_array_get(a->decisions, i - a->n_forgotten), "record");
    const char *cache_point = json_string_value(json_object_get(json_object_get(record, "chosen"), "cache"));
    if (record && asprintf(&why, "%s: %s", cache_point ? cache_point : "none",
                           json_string_value(json_object_get(record, "why"))) < 0)
        why = NULL;
    return why;
}

/* Returns the number of a cache point from its number as in Prepare; null: none. */
static json_t *cache_point_json(int32_t cache_point)
{
    return cache_point > 0 ? json_integer(cache_point - 1) : json_null();
}

void cw_autocache_report(struct cw_autocache *a, json_t *to)
{
    struct cw_cache_stats stats;
    cw_runner_cache_stats(a->runner, &stats);
    json_t *list = json_array();
    json_object_set_new(to, "cache_point", cache_point_json(stats.cache_point));
    for (size_t k = 0; k < stats.n; k++) {
        const struct cw_cache_variant_stats *c = &stats.variants[k];
        json_array_append_new(list, json_pack("{s:o, s:f, s:f, s:f, s:b, s:f, s:f}", "cache_point",
                                              cache_point_json(c->cache_point), "compute_s", c->compute_s,
                                              "read_s", c->read_s, "store_s", c->store_s, "was_read",
                                              c->was_read, "bytes", c->bytes, "cached", c->cached));
    }
    json_object_set_new(to, "choices", list);
    CW_GUARD(&a->mutex);
    json_object_set_new(to, "decisions", json_deep_copy(a->decisions));
}
