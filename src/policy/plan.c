/* Computes time and cost of the rest of a job for a number of workers and a cache point, and finds the best
 * combination. Pure functions, called by auto. */
#include "policy/plan.h"

#include <math.h>

#include "base/macro.h"

#define COST_TOLERANCE 0.005       /* plans that cost more by this part count as equally cheap */
#define CACHE_POINT_TOLERANCE 0.02 /* a change of the cache point must gain more than this part */
/* Weight of a loss in the objective, relative to a gain in the other measure, where a plan has both. */
#define WEIGHT 3
#define GB 1e9        /* bytes, of a price */
#define TAIL_EPOCHS 8 /* epochs of a slowly filling cache that are computed one by one */
#define FULL 0.02     /* a cache counts as full if at most this part of an epoch is missing */
#define HELD_DELAYS 4 /* workers are kept for at least this many start delays, even if epochs are shorter */

static double plan_least(double a, double b)
{
    return a < b ? a : b;
}

double cw_outlook_left(const struct cw_outlook *o, int cache_point, double cached)
{
    if (cache_point < 0 || !(o->compute_s > 0))
        return 1;
    double computed = 1 - cached * o->facts->cache_points[cache_point].prefix_s / o->compute_s;
    return CW_MAX((1 - o->waiting) * computed + o->waiting * (1 - cached), 1e-6);
}

/* Returns the least seconds per batch that storage allows. */
static double outlook_storage_s(const struct cw_outlook *o, int cache_point, double cached)
{
    const struct cw_storage_facts *st = &o->facts->storage;
    const struct cw_cache_point_facts *m = cache_point >= 0 ? &o->facts->cache_points[cache_point] : NULL;
    double source = (m ? 1 - cached : 1) * st->source_bytes,
           ceiling = st->source_bytes_per_s > 0 ? st->source_bytes_per_s : o->source_bytes_per_s, s = 0;
    if (ceiling > 0)
        s = source / ceiling;
    if (m && st->read_bytes_per_s > 0)
        s = CW_MAX(s, cached * m->bytes / st->read_bytes_per_s);
    return CW_MAX(s, o->floor_s);
}

/* Returns the seconds per batch of a job that may have local workers: the mean over all guesses. */
static double outlook_surface_s(const struct cw_outlook *o, double capacity, double local, double left,
                                double storage_s)
{
    double s = 0;
    left *= (1 + o->doubt) * cw_surface_left(&o->surface, capacity, local);
    for (size_t i = 0; i < o->surface.n_guesses; i++) {
        const struct cw_guess *g = &o->surface.guesses[i];
        double supply_s = left * cw_guess_s(g, capacity, local);
        s += g->weight * CW_MAX(CW_MAX(supply_s, storage_s), cw_host_step_s(&o->host, local, supply_s));
    }
    return s;
}

double cw_outlook_batch_s(const struct cw_outlook *o, double capacity, double local, int cache_point,
                          double cached)
{
    double left = cw_outlook_left(o, cache_point, cached),
           storage_s = outlook_storage_s(o, cache_point, cached);
    if (o->surface.n_guesses > 0)
        return outlook_surface_s(o, capacity, local, left, storage_s);
    return CW_MAX(CW_MAX(o->host.step_s, (1 + o->doubt) * left * cw_curve_s(&o->curve, capacity)), storage_s);
}

/* Returns the price of what the workers send per batch. */
static double outlook_network_price(const struct cw_outlook *o, const int *workers)
{
    const struct cw_facts *f = o->facts;
    double price = 0;
    for (int i = 0; i < f->n_pools; i++)
        price += workers[i] * o->supply.speed[i] * f->pools[i].price_per_gb;
    return price > 0 ? price / cw_supply_capacity(&o->supply, workers) * f->bytes_per_batch / GB : 0;
}

struct steady {
    double batch_s, batch_cost;
};

static double outlook_price_s(const struct cw_outlook *o, const int *workers)
{
    return (o->facts->client_price_per_h + cw_supply_price(&o->supply, workers)) / 3600;
}

double cw_outlook_price_s(const struct cw_outlook *o, const struct cw_alternative *a)
{
    return outlook_price_s(o, a->pools);
}

/* Returns seconds and cost per batch with the best number of workers, if conditions stay as they are and
 * start delays do not matter. */
static struct steady outlook_best_steady(const struct cw_outlook *o, int cache_point, double cached)
{
    bool time = o->facts->objective == CW_OBJECTIVE_TIME;
    double best = 1e300;
    struct steady ret = {0};
    struct cw_supply coarse = o->supply; /* computed for many cached parts */
    coarse.coarse = true;
    for (struct cw_rung n = {0}; cw_supply_next(&coarse, 1, &n);) {
        double s = cw_outlook_batch_s(o, cw_supply_capacity(&o->supply, n.workers), n.local, cache_point,
                                      cached);
        best = plan_least(best,
                          time ? s : s * outlook_price_s(o, n.workers) + outlook_network_price(o, n.workers));
    }
    for (struct cw_rung n = {0}; cw_supply_next(&coarse, 1, &n);) {
        double s = cw_outlook_batch_s(o, cw_supply_capacity(&o->supply, n.workers), n.local, cache_point,
                                      cached),
               cost = s * outlook_price_s(o, n.workers) + outlook_network_price(o, n.workers);
        if ((time ? s : cost) > best * (1 + (time ? CW_OUTLOOK_TIME_TOLERANCE : COST_TOLERANCE)))
            continue;
        if (!(ret.batch_s > 0) || (time ? cost < ret.batch_cost : s < ret.batch_s))
            ret = (struct steady){s, cost};
    }
    return ret;
}

/* The part of computed elements that the cache can write in time. */
static double cache_write_part(const struct cw_outlook *o, const struct cw_cache_point_facts *m,
                               double cached, double batch_s)
{
    double bytes = (1 - cached) * m->bytes, speed = o->facts->storage.write_bytes_per_s;
    return speed > 0 && bytes > speed * batch_s ? speed * batch_s / bytes : 1;
}

static double cache_room(const struct cw_outlook *o, const struct cw_cache_point_facts *m)
{
    double all = m->bytes * o->facts->batches_per_epoch;
    return o->facts->storage.cache_bytes > 0 && all > 0 ? plan_least(1, o->facts->storage.cache_bytes / all)
                                                        : 1;
}

/* The tail of a job: the epochs after those in which the workers decided on now stay. Each of them has the
 * best number of workers. Time and cost of the tail depend on the part that is cached at its beginning. They
 * are computed when first needed, for parts in steps of 1/STEPS, and are interpolated. */
#define STEPS 16

struct tail {
    double held;           /* epochs after the current one in which the workers decided on now stay */
    bool known[STEPS + 1]; /* time_s and cost of this step were computed */
    double time_s[STEPS + 1], cost[STEPS + 1];
};

static void tail_compute(const struct cw_outlook *o, int cache_point, int step, struct tail *t)
{
    const struct cw_cache_point_facts *m = &o->facts->cache_points[cache_point];
    double batches = o->facts->batches_per_epoch, cached = (double)step / STEPS,
           epochs = o->facts->epochs - o->facts->epoch - 1 - t->held;
    for (int i = 0; epochs > 0 && i < TAIL_EPOCHS; i++) {
        struct steady s = outlook_best_steady(o, cache_point, cached);
        double more = plan_least(cached + (1 - cached) * cache_write_part(o, m, cached, s.batch_s),
                                 CW_MAX(cache_room(o, m), cached));
        double n = more - cached < 1e-3 || i == TAIL_EPOCHS - 1 ? epochs : 1;
        t->time_s[step] += n * batches * s.batch_s;
        t->cost[step] += n * batches * s.batch_cost;
        epochs -= n;
        cached = more;
    }
    t->known[step] = true;
}

static void tail_add(const struct cw_outlook *o, int cache_point, double cached, struct tail *t,
                     struct cw_alternative *a)
{
    int step = (int)plan_least(cached * STEPS, STEPS - 1);
    double part = cached * STEPS - step;
    for (int i = step; i <= step + 1; i++)
        if (!t->known[i])
            tail_compute(o, cache_point, i, t);
    a->time_s += t->time_s[step] + part * (t->time_s[step + 1] - t->time_s[step]);
    a->cost += t->cost[step] + part * (t->cost[step + 1] - t->cost[step]);
}

/* Whether the cache will not grow: it is full, or has no room. */
static bool cache_is_full(const struct cw_outlook *o, const struct cw_cache_point_facts *m)
{
    return m->cached >= cache_room(o, m) - FULL;
}

bool cw_outlook_fills(const struct cw_outlook *o, int cache_point)
{
    return cache_point >= 0 && o->facts->epoch + 1 < o->facts->epochs &&
           !cache_is_full(o, &o->facts->cache_points[cache_point]);
}

/* Returns for how many epochs after the current one the workers decided on now stay. */
static double outlook_held_epochs(const struct cw_outlook *o, int cache_point)
{
    const struct cw_facts *f = o->facts;
    double epochs = f->epochs - f->epoch - 1;
    if (cache_point < 0 || epochs <= 0 || cache_is_full(o, &f->cache_points[cache_point]))
        return CW_MAX(epochs, 0);
    double epoch_s = f->batches_per_epoch * outlook_best_steady(o, cache_point, 1).batch_s;
    return epoch_s > 0 ? plan_least(epochs, floor(HELD_DELAYS * cw_supply_start_delay_s(f) / epoch_s))
                       : epochs;
}

/* Adds time and cost of batches to an alternative. */
static void alternative_spend(const struct cw_outlook *o, struct cw_alternative *a, double batches,
                              double batch_s)
{
    a->time_s += batches * batch_s;
    a->cost += batches * batch_s * outlook_price_s(o, a->pools) +
               batches * outlook_network_price(o, a->pools);
}

/* The time until all workers decided on have started, as intervals of constant capacity. The workers of a
 * pool start after its start delay; workers that are to be stopped stay until all have started. */
struct starting {
    int n;                                                     /* intervals */
    double left_s[CW_POLICY_POOLS], capacity[CW_POLICY_POOLS]; /* seconds left of each; its capacity */
    double local[CW_POLICY_POOLS];                             /* its local workers */
};

static double starting_delay_s(const struct cw_outlook *o, const int *workers, int pool)
{
    const struct cw_pool_facts *p = &o->facts->pools[pool];
    return workers[pool] <= p->running           ? 0
           : workers[pool] <= o->requested[pool] ? o->requested_delay_s[pool]
                                                 : p->start_delay_s;
}

static struct starting starting_find(const struct cw_outlook *o, const int *workers)
{
    const struct cw_facts *f = o->facts;
    struct starting ret = {0};
    for (double now_s = 0, next_s;; now_s = next_s) {
        int there[CW_POLICY_POOLS] = {0}, any = 0;
        next_s = 1e300;
        for (int i = 0; i < f->n_pools; i++) {
            double delay_s = starting_delay_s(o, workers, i);
            there[i] = delay_s <= now_s ? CW_MAX(workers[i], f->pools[i].running) : f->pools[i].running;
            any |= there[i];
            if (delay_s > now_s)
                next_s = plan_least(next_s, delay_s);
        }
        if (next_s == 1e300)
            return ret;
        ret.left_s[ret.n] = next_s - now_s;
        ret.local[ret.n] = cw_host_local(f, there);
        ret.capacity[ret.n++] = any ? cw_supply_capacity(&o->supply, there) : 1;
    }
}

/* Adds time and cost of batches with the workers decided on. Until these have started (`until`, whose time is
 * used up), the batches are computed by the workers that run. */
static void alternative_pass(const struct cw_outlook *o, struct cw_alternative *a, double batches,
                             double cached, struct starting *until)
{
    for (int i = 0; i < until->n; i++) {
        double now_s = cw_outlook_batch_s(o, until->capacity[i], until->local[i], a->cache_point, cached),
               before = plan_least(until->left_s[i] / now_s, batches);
        until->left_s[i] -= before * now_s;
        alternative_spend(o, a, before, now_s);
        batches -= before;
    }
    alternative_spend(o, a, batches, cw_outlook_batch_s(o, a->capacity, a->local, a->cache_point, cached));
}

/* Adds time and cost of epochs in which the cache fills and the workers decided on stay. Returns the part of
 * the epoch that is cached afterwards. */
static double alternative_hold(const struct cw_outlook *o, struct cw_alternative *a,
                               const struct cw_cache_point_facts *m, double cached, double epochs,
                               struct starting *until)
{
    double most = CW_MAX(cache_room(o, m), cached);
    for (int i = 0; epochs > 0 && i < TAIL_EPOCHS; i++) {
        double batch_s = cw_outlook_batch_s(o, a->capacity, a->local, a->cache_point, cached);
        double more = plan_least(cached + (1 - cached) * cache_write_part(o, m, cached, batch_s), most);
        double n = more - cached < 1e-3 || i == TAIL_EPOCHS - 1 ? epochs : 1;
        alternative_pass(o, a, n * o->facts->batches_per_epoch, cached, until);
        epochs -= n;
        cached = more;
    }
    return cached;
}

/* Returns the rest of the job: first with `workers`, until the number is decided again, then the tail. */
static struct cw_alternative outlook_rest(const struct cw_outlook *o, const int *workers, int cache_point,
                                          struct tail *tail)
{
    const struct cw_facts *f = o->facts;
    const struct cw_cache_point_facts *m = cache_point >= 0 ? &f->cache_points[cache_point] : NULL;
    double all = f->epochs * f->batches_per_epoch - f->batches_done,
           here = CW_MAX(plan_least(all, (f->epoch + 1) * f->batches_per_epoch - f->batches_done), 0);
    double cached = m ? m->cached : 0, left = m && !cache_is_full(o, m) ? here : all;
    struct starting until = starting_find(o, workers);
    struct cw_alternative a = {.capacity = cw_supply_capacity(&o->supply, workers),
                               .local = cw_host_local(f, workers),
                               .cache_point = cache_point};
    for (int i = 0; i < f->n_pools; i++)
        a.workers += a.pools[i] = workers[i];
    a.batch_s = cw_outlook_batch_s(o, a.capacity, a.local, cache_point, cached);
    double written = m ? m->written + left / f->batches_per_epoch * (1 - cached) *
                                          cache_write_part(o, m, cached, a.batch_s)
                       : 0;
    alternative_pass(o, &a, left, cached, &until);
    if (m && !cache_is_full(o, m))
        cached = alternative_hold(
            o, &a, m, plan_least(plan_least(cached + written, CW_MAX(cache_room(o, m), cached)), 1),
            tail->held, &until);
    a.held_s = a.time_s;
    a.held_cost = a.cost;
    if (m && !cache_is_full(o, m))
        tail_add(o, cache_point, cached, tail, &a);
    return a;
}

struct cw_alternative cw_outlook_rest(const struct cw_outlook *o, const int *workers, int cache_point)
{
    struct tail tail = {.held = outlook_held_epochs(o, cache_point)};
    return outlook_rest(o, workers, cache_point, &tail);
}

struct cw_alternative cw_outlook_keep(const struct cw_outlook *o, const int *workers, int cache_point)
{
    struct tail tail = {.held = CW_MAX(o->facts->epochs - o->facts->epoch - 1, 0)};
    return outlook_rest(o, workers, cache_point, &tail);
}

struct cw_alternative cw_outlook_like(const struct cw_outlook *o, const struct cw_alternative *like,
                                      double capacity, int cache_point)
{
    int workers[CW_POLICY_POOLS] = {0}, local = o->supply.local;
    if (local >= 0) { /* the local workers stay, as far as they fit */
        double speed = o->supply.speed[local];
        workers[local] = (int)CW_MIN(like->pools[local], floor(capacity / speed));
        capacity -= workers[local] * speed;
    }
    cw_supply_add(&o->supply, like->order, capacity, workers);
    struct cw_alternative a = cw_outlook_rest(o, workers, cache_point);
    a.order = like->order;
    return a;
}

static double outlook_part(double a, double b, double past)
{
    return past + b > 0 ? (b - a) / (past + b) : 0;
}

double cw_outlook_gain(const struct cw_outlook *o, const struct cw_alternative *a,
                       const struct cw_alternative *b, bool only)
{
    bool by_time = o->facts->objective == CW_OBJECTIVE_TIME;
    double time = outlook_part(a->time_s, b->time_s, o->past_time_s),
           cost = outlook_part(a->cost, b->cost, o->past_cost);
    double first = by_time ? time : cost, second = by_time ? cost : time,
           tolerance = by_time ? CW_OUTLOOK_TIME_TOLERANCE : COST_TOLERANCE;
    if (only || first > tolerance || first < -tolerance)
        return first;
    return CW_MAX(first, first < 0 ? second + WEIGHT * first : second);
}

static double outlook_objective(const struct cw_outlook *o, const struct cw_alternative *a)
{
    return o->facts->objective == CW_OBJECTIVE_TIME ? a->time_s : a->cost;
}

/* Whether an alternative is within tolerance of the best one by the objective, both for the rest of the job
 * and for the time until the number of workers is decided again. */
static bool outlook_as_good(const struct cw_outlook *o, const struct cw_alternative *a,
                            const struct cw_alternative *best)
{
    if (o->facts->objective == CW_OBJECTIVE_TIME)
        return a->time_s <= best->time_s * (1 + CW_OUTLOOK_TIME_TOLERANCE) &&
               a->held_s <= best->held_s * (1 + CW_OUTLOOK_TIME_TOLERANCE);
    return a->cost <= best->cost * (1 + COST_TOLERANCE) &&
           a->held_cost <= best->held_cost * (1 + COST_TOLERANCE);
}

/* Returns the best alternative with this cache point. */
static struct cw_alternative outlook_best(const struct cw_outlook *o, int cache_point)
{
    bool time = o->facts->objective == CW_OBJECTIVE_TIME;
    struct cw_alternative best = {0}, ret = {0};
    struct tail tail = {.held = outlook_held_epochs(o, cache_point)};
    for (struct cw_rung n = {0}; cw_supply_next(&o->supply, CW_SUPPLY_ORDERS, &n);) {
        struct cw_alternative a = outlook_rest(o, n.workers, cache_point, &tail);
        if (!best.workers || outlook_objective(o, &a) < outlook_objective(o, &best))
            best = a;
    }
    for (struct cw_rung n = {0}; cw_supply_next(&o->supply, CW_SUPPLY_ORDERS, &n);) {
        struct cw_alternative a = outlook_rest(o, n.workers, cache_point, &tail);
        a.order = n.order;
        if (outlook_as_good(o, &a, &best) &&
            (!ret.workers || (time ? a.cost < ret.cost : a.time_s < ret.time_s)))
            ret = a;
    }
    return ret;
}

struct cw_alternative cw_outlook_best(const struct cw_outlook *o, double cache_point_gain)
{
    struct cw_alternative best = outlook_best(o, o->facts->cache_point);
    for (int m = -1; m < o->facts->n_cache_points && cache_point_gain < 1; m++) { /* no gain is larger */
        if (m == o->facts->cache_point)
            continue;
        struct cw_alternative a = outlook_best(o, m);
        if (cw_outlook_gain(o, &a, &best, false) > CW_MAX(cache_point_gain, CACHE_POINT_TOLERANCE))
            best = a;
    }
    return best;
}
