/* A job that does what a formula says, and the policy that is asked about it. Include after cmocka.h. */
#pragma once
#include <math.h>

#include "base/macro.h"
#include "policy/policies.h"

struct world {
    double step_s, work_s, floor_s; /* the client's; a worker's per batch; of storage */
    const double *curve;            /* instead: seconds per batch with 1, 2, ... workers */
    int n_curve, maximum, running;
    double now_s, done, delay_s, ready_s;
    int wanted;
    struct cw_cache_point_facts cache_points[2];
    int n_cache_points;
    struct cw_storage_facts storage;
    double epochs, batches, positions; /* positions: of a batch; 0: not told */
    enum cw_objective objective;
    int decisions, cache_point;
    struct cw_policy policy;
    struct cw_policy_memory memory;
    struct cw_decision last;
    double idle; /* the part of a worker's time that it waits */
    bool fixed;
    /* variance of waits, relative to the square of the interval: batches come a range at a time */
    double uneven;
};

static inline struct world world_new(const char *policy)
{
    struct world w = {
        .maximum = 64, .running = 1, .wanted = 1, .epochs = 10, .batches = 10000, .cache_point = -1};
    assert_true(cw_policy_find(policy, &w.policy));
    return w;
}

/* A client that takes so long for a step, and workers that compute so long for a batch. */
static inline struct world world_of(const char *policy, double step_s, double work_s)
{
    struct world w = world_new(policy);
    w.step_s = step_s;
    w.work_s = work_s;
    return w;
}

static inline double supply(const struct world *w)
{
    if (w->curve)
        return w->curve[CW_MIN(w->running, w->n_curve) - 1];
    double cached = w->cache_point >= 0
                        ? w->cache_points[w->cache_point].cached * w->cache_points[w->cache_point].prefix_s
                        : 0;
    double read = w->cache_point >= 0 && w->storage.read_bytes_per_s > 0
                      ? w->cache_points[w->cache_point].cached * w->cache_points[w->cache_point].bytes /
                            w->storage.read_bytes_per_s
                      : 0;
    return CW_MAX(CW_MAX((w->work_s - cached) / w->running, read), w->floor_s);
}

static inline struct cw_mean exactly(double n, double mean)
{
    return (struct cw_mean){n, mean, 0};
}

/* Seconds go by, then the policy is asked, once. */
static inline void pass(struct world *w, double seconds)
{
    double s = supply(w), interval = CW_MAX(s, w->step_s), n = seconds / interval;
    struct cw_client_facts client = {.step = exactly(n, w->step_s),
                                     .wait = exactly(n, interval - w->step_s),
                                     .queue = s < w->step_s ? 16 : 0};
    client.wait.m2 = n * w->uneven * interval * interval;
    double compute = w->curve
                         ? s * w->running
                         : w->work_s - (w->cache_point >= 0 ? w->cache_points[w->cache_point].cached *
                                                                  w->cache_points[w->cache_point].prefix_s
                                                            : 0);
    struct cw_facts f = {.clients = &client,
                         .n_clients = 1,
                         .n_pools = 1,
                         .cache_points = w->cache_points,
                         .n_cache_points = w->n_cache_points,
                         .cache_point = w->cache_point,
                         .storage = w->storage,
                         .epochs = w->epochs,
                         .batches_per_epoch = w->batches,
                         .positions_per_batch = w->positions,
                         .objective = w->objective,
                         .client_price_per_h = 5};
    w->now_s += seconds;
    w->done += n;
    f.batches_done = w->done;
    f.epoch = floor(w->done / w->batches);
    f.pools[0] = (struct cw_pool_facts){.name = "remote",
                                        .running = w->running,
                                        .starting = w->wanted - w->running,
                                        .maximum = w->maximum,
                                        .price_per_h = 0.4,
                                        .start_delay_s = w->delay_s,
                                        .compute = exactly(n, compute),
                                        .busy = (1 - w->idle) * compute / w->running / interval};
    f.fixed = w->fixed;
    w->last = (struct cw_decision){0};
    w->policy.decide(&w->policy, &w->memory, &f, w->now_s, &w->last);
    if (w->last.workers[0] != w->wanted || w->last.cache_point != w->cache_point)
        w->decisions++;
    if (w->last.workers[0] > w->wanted)
        w->ready_s = w->now_s + w->delay_s;
    w->wanted = w->last.workers[0];
    w->cache_point = w->last.cache_point;
    if (w->now_s >= w->ready_s || w->wanted < w->running)
        w->running = w->wanted;
}

static inline void pass_until(struct world *w, double until_s, double step_s)
{
    while (w->now_s < until_s)
        pass(w, step_s);
}

static inline void with_cache_point(struct world *w, double read_bytes_per_s)
{
    w->step_s = 0.1;
    w->work_s = 1;
    w->n_cache_points = 1;
    w->objective = CW_OBJECTIVE_COST;
    w->cache_points[0] = (struct cw_cache_point_facts){.name = "decode", .prefix_s = 0.9, .bytes = 1e7};
    w->storage = (struct cw_storage_facts){.read_bytes_per_s = read_bytes_per_s,
                                           .write_bytes_per_s = read_bytes_per_s};
}
