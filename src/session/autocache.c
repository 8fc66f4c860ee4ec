#include "session/autocache.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/cost_clock.h"
#include "base/thread.h"
#include "cache/cache.h"
#include "session/caching.h"
#include "policy/plan.h"
#include "policy/policies.h"

/* The policy decides once a second, as a dispatcher's does; sooner at first, because epochs may be short. */
#define DECISION_NS UINT64_C(1000000000)
#define FIRST_NS UINT64_C(200000000)
#define SOONER 4     /* at first, the next decision comes after this part of the time that has passed */
#define DECISIONS 32 /* the last ones are kept */
/* A step this many times as long as the mean, and longer than PAUSE_S, is an evaluation or a checkpoint. The
 * step after it is not. */
#define PAUSE_STEPS 10
#define PAUSE_S 1.0
/* Stands for the batches of an endless epoch, and for endless epochs. */
#define ENDLESS 1e12

struct sums {
    double n, step_s, step_sq, wait_s, wait_sq;
};

/* Where costs are modelled: what autocache_now_ns returned last. */
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
    /* the consumer's */
    struct cw_policy_memory memory;
    struct sums sums; /* since the last report */
    bool requested, paused;
    uint64_t requested_ns, received_ns;
    uint64_t next_decision_ns, last_decision_ns;
    /* batches that were taken; the present epoch, and its batches that are behind */
    double batches, epoch, done;
    double known_steps, known_step_s;
    struct cw_effort effort; /* at the last report */
    struct modelled modelled;
    struct cw_write_rate written;

    pthread_mutex_t mutex;
    json_t *decisions;    /* guarded by mutex */
    unsigned n_forgotten; /* decisions that are not kept any more; guarded by mutex */
};

/* The facts that the policy gets, and what they point to. */
struct collected {
    struct cw_facts facts;
    struct cw_client_facts client;
    struct cw_cache_point_facts cache_points[CW_POLICY_CACHE_POINTS];
    char names[CW_POLICY_CACHE_POINTS][CW_CACHE_POINT_NAME];
    int64_t numbers[CW_POLICY_CACHE_POINTS];
    double compute_s; /* of a batch with nothing cached; 0: not known */
    bool stored;      /* an earlier run measured one of the cache points */
};

/* ---- facts ---- */

/* Returns the positions that are computed for a batch of this rank: those of other ranks' batches are among
 * them. */
static double autocache_positions_per_batch(const struct cw_autocache *a, const struct cw_effort *e)
{
    const struct cw_compiled *c = a->local->compiled;
    if (c->counted || !(a->batches > 0))
        return (double)c->batch_size * a->world_size;
    return CW_MAX((double)e->positions / a->batches, 1);
}

/*
 * Returns the time by the clock of the consumer's waits, and sets *ret (may be NULL) to the work done so far.
 * Where costs are modelled (base/cost_clock.h), both count only the part for the batches that were taken.
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

/* Returns the cache's reading speed in bytes per second: measured at the cache point in use, else at another
 * one, else by the store's probe. 0: as fast as memory. */
static double facts_read_speed(const struct cw_choice *choices, unsigned n, int64_t in_use,
                               const struct cw_cache_facts *store)
{
    const struct cw_choice *known = NULL;
    for (unsigned k = 1; k < n; k++)
        if (choices[k].was_read && (!known || choices[k].cache_point == in_use))
            known = &choices[k];
    if (known)
        return known->store_s > 0 ? known->bytes / known->store_s : 0;
    return store->probe_ns ? (double)store->probe_bytes * 1e9 / (double)store->probe_ns : 0;
}

static void facts_add_store(struct cw_autocache *a, const struct cw_cache_facts *store,
                            struct cw_storage_facts *f)
{
    f->write_bytes_per_s = cw_write_rate(&a->written, store);
    f->cache_bytes = (double)cw_cache_quota(a->local->cache);
}

static void facts_add_cache_points(const struct cw_autocache *a, double per_batch,
                                   const struct cw_cache_facts *store, struct collected *t)
{
    struct cw_choice choices[CW_CHOICES_MAX];
    struct cw_facts *f = &t->facts;
    int64_t in_use = cw_runner_cache_point(a->runner);
    unsigned n = cw_runner_choices(a->runner, choices);
    double compute_s = choices[0].compute_s;
    f->cache_point = -1;
    f->cache_points = t->cache_points;
    for (unsigned k = 1; k < n; k++) {
        const struct cw_choice *c = &choices[k];
        int i = f->n_cache_points++;
        if (c->cache_point == in_use && !c->unread) /* one that is not read counts as none */
            f->cache_point = i;
        if (!(compute_s > 0))
            compute_s = c->compute_s;
        cw_caching_name(c->op, t->names[i]);
        t->numbers[i] = c->cache_point;
        t->stored |= c->stored;
        bool known = compute_s > 0 && (c->was_read || c->read_s > 0);
        t->cache_points[i] = (struct cw_cache_point_facts){
            .name = t->names[i],
            .prefix_s = known ? per_batch * (compute_s - c->read_s) : 0,
            .bytes = per_batch * c->bytes,
            .cached = c->cached,
            .written = c->written};
    }
    t->compute_s = per_batch * compute_s;
    f->storage.read_bytes_per_s = facts_read_speed(choices, n, in_use, store);
}

/* Adds a pool of one worker, which is this process: what it computed since the last decision. */
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
    const struct sums *s = &a->sums;
    struct cw_effort e;
    struct cw_cache_facts store;
    *t = (struct collected){.facts = {.n_clients = 1, .n_pools = 1, .fixed = true}};
    t->facts.clients = &t->client;
    t->client = (struct cw_client_facts){.step = cw_mean_of(s->n, s->step_s, s->step_sq),
                                         .wait = cw_mean_of(s->n, s->wait_s, s->wait_sq)};
    cw_runner_effort(a->runner, &e);
    double per_batch = autocache_positions_per_batch(a, &e);
    facts_add_pool(a, per_batch, now, &t->facts.pools[0]);
    facts_add_epochs(a, per_batch, &t->facts);
    cw_cache_facts(a->local->cache, &store);
    facts_add_store(a, &store, &t->facts.storage);
    facts_add_cache_points(a, per_batch, &store, t);
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

static bool autocache_has_no_decision(struct cw_autocache *a)
{
    CW_GUARD(&a->mutex);
    return json_array_size(a->decisions) == 0;
}

static void autocache_carry_out(struct cw_autocache *a, struct cw_decision *d, const struct collected *t)
{
    int64_t number = d->cache_point >= 0 ? t->numbers[d->cache_point] : CW_CACHE_POINT_NONE;
    bool changes = t->facts.n_cache_points > 0 && number != cw_runner_cache_point(a->runner);
    if (changes && !*d->why) /* the engine decided already */
        snprintf(d->why, sizeof(d->why), "reading the cached elements takes longer than recomputing them");
    if (changes)
        cw_runner_set_cache_point(a->runner, number);
    if (changes || (d->concluded && autocache_has_no_decision(a)) || d->replanned)
        autocache_record(a, d, &t->facts);
}

static void autocache_decide(struct cw_autocache *a, uint64_t now)
{
    struct collected t;
    struct cw_decision d = {.cache_point = -1};
    facts_collect(a, now, &t);
    d.cache_point = t.facts.cache_point;
    cw_policy_auto.decide(&cw_policy_auto, &a->memory, &t.facts, (double)now * 1e-9, &d);
    d.workers[0] = 1;
    autocache_carry_out(a, &d, &t);
    a->sums = (struct sums){0};
    a->last_decision_ns = now;
    a->next_decision_ns = now + CW_MAX(CW_MIN((now - a->began_ns) / SOONER, DECISION_NS), FIRST_NS / 2);
}

/* Where an earlier run measured the cache points: decides by its numbers, for a consumer that takes no time.
 */
static void autocache_recall(struct cw_autocache *a)
{
    struct collected t;
    facts_collect(a, a->began_ns, &t);
    if (!t.stored || !(t.compute_s > 0))
        return;
    const struct cw_point point = {1, t.compute_s, 1};
    struct cw_outlook o = {.facts = &t.facts, .compute_s = t.compute_s};
    const int here[CW_POLICY_POOLS] = {1};
    cw_supply_init(&o.supply, &t.facts, NULL, 1);
    cw_curve_fit(&point, 1, 0, &o.curve);
    struct cw_alternative best = cw_outlook_best(&o, 0),
                          stay = cw_outlook_rest(&o, here, t.facts.cache_point);
    struct cw_decision d = {.workers = {1},
                            .cache_point = best.cache_point,
                            .concluded = true,
                            .alternatives = {best, stay},
                            .n_alternatives = best.cache_point == stay.cache_point ? 1 : 2};
    d.seen = (struct cw_seen){
        .compute_s = t.compute_s, .error = 1, .workers = 1, .cache_point = t.facts.cache_point};
    if (best.cache_point >= 0)
        snprintf(d.why, sizeof(d.why),
                 "measured by an earlier run: %.4g s to compute a batch, %.4g s to read one at %.60s",
                 t.compute_s, t.compute_s - t.cache_points[best.cache_point].prefix_s,
                 t.names[best.cache_point]);
    else
        snprintf(d.why, sizeof(d.why),
                 "measured by an earlier run: %.4g s to compute a batch; reading is faster at no cache point",
                 t.compute_s);
    autocache_carry_out(a, &d, &t);
}

/* ---- the consumer ---- */

static bool autocache_is_pause(struct cw_autocache *a, double step_s)
{
    a->paused = !a->paused && a->known_steps >= PAUSE_STEPS && step_s > PAUSE_S &&
                step_s > PAUSE_STEPS * a->known_step_s / a->known_steps;
    return a->paused;
}

void cw_autocache_requested(struct cw_autocache *a)
{
    if (!a->requested) /* else an earlier wait ended without a batch */
        a->requested_ns = cw_cost_modelled() ? a->received_ns
                                             : cw_now_ns(); /* a modelled consumer takes no time */
    a->requested = true;
}

static void autocache_count_step(struct cw_autocache *a, uint64_t now)
{
    double wait_s = (double)(now - a->requested_ns) * 1e-9,
           step_s = (double)(a->requested_ns - a->received_ns) * 1e-9;
    if (!a->received_ns || autocache_is_pause(a, step_s))
        return;
    a->known_steps++;
    a->known_step_s += step_s;
    a->sums.n++;
    a->sums.step_s += step_s;
    a->sums.step_sq += step_s * step_s;
    a->sums.wait_s += wait_s;
    a->sums.wait_sq += wait_s * wait_s;
}

void cw_autocache_received(struct cw_autocache *a, const struct cw_batch *b)
{
    a->requested = false;
    a->batches++;
    uint64_t now = autocache_now_ns(a, NULL);
    a->epoch = CW_MAX((double)b->epoch - a->first_epoch, 0);
    a->done = (double)b->g / a->world_size + 1;
    autocache_count_step(a, now);
    a->received_ns = now;
    if (now >= a->next_decision_ns) {
        autocache_decide(a, now);
        a->received_ns = autocache_now_ns(a, NULL); /* deciding is no part of the user's step */
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

void cw_autocache_report(struct cw_autocache *a, json_t *to)
{
    struct cw_choice choices[CW_CHOICES_MAX];
    int64_t in_use = cw_runner_cache_point(a->runner);
    unsigned n = cw_runner_choices(a->runner, choices);
    json_t *list = json_array();
    json_object_set_new(to, "cache_point", in_use >= 0 ? json_integer((json_int_t)in_use) : json_null());
    for (unsigned k = 0; k < n; k++) {
        const struct cw_choice *c = &choices[k];
        json_array_append_new(
            list, json_pack("{s:o, s:f, s:f, s:f, s:b, s:f, s:f}", "cache_point",
                            c->cache_point >= 0 ? json_integer((json_int_t)c->cache_point) : json_null(),
                            "compute_s", c->compute_s, "read_s", c->read_s, "store_s", c->store_s, "was_read",
                            c->was_read, "bytes", c->bytes, "cached", c->cached));
    }
    json_object_set_new(to, "choices", list);
    CW_GUARD(&a->mutex);
    json_object_set_new(to, "decisions", json_deep_copy(a->decisions));
}
