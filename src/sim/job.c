/* A job that is simulated. Between two events, its batches are counted, measured and paid for. sim.c owns
 * jobs, advances them, and gives them workers. */
#include "sim/job.h"

#include <math.h>

#include "base/macro.h"

/* Number of batches that are ready if the client is much slower than the input. Policies see it as the queue.
 */
#define PREFETCHED 16
#define SINGLY 8      /* if a report covers fewer batches than this, they are drawn one by one */
#define ROUNDING 1e-9 /* tolerance of comparisons, in batches */

struct stretch { /* a stretch of time in which nothing changes */
    double batches, interval_s, step_s, compute_s;
};

static struct cw_sim_workers job_workers(const struct cw_sim_played *p, size_t pool)
{
    const struct cw_workload *w = p->w;
    const struct cw_sim_worker_set *worker_set = &p->worker_sets[pool];
    struct cw_sim_workers ret = {.running = worker_set->running};
    ret.speed = ret.running - worker_set->slow + worker_set->slow / w->slowdown;
    if (p->expected) {
        ret.speed = ret.running * (1 - w->stragglers + w->stragglers / w->slowdown);
        if (w->mtbf_s > 0)
            ret.speed *= w->mtbf_s / (w->mtbf_s + worker_set->start_delay_s);
    }
    return ret;
}

static struct cw_sim_conditions job_conditions(const struct cw_sim_played *p)
{
    struct cw_sim_workers workers[CW_POLICY_POOLS];
    for (size_t i = 0; i < p->w->n_pools; i++)
        workers[i] = job_workers(p, i);
    double cached = p->choice.cache_point >= 0 ? p->cache.readable[p->choice.cache_point] : 0;
    return cw_sim_conditions(p->w, p->job, &p->costs, &p->job->phases[p->phase], workers,
                             p->choice.cache_point, cached, p->choice.write_waits);
}

/* Returns the number of the batch at which conditions change next: the end of an epoch, a phase, or the job.
 */
static double job_boundary(const struct cw_sim_played *p)
{
    bool alike = p->expected &&
                 p->choice.cache_point < 0; /* without reports and without a cache, all epochs are equal */
    double at = (alike ? p->job->epochs : p->epoch + 1) * p->job->batches_per_epoch;
    if (p->phase + 1 < p->job->n_phases)
        at = CW_MIN(at, p->job->phases[p->phase + 1].at_batch);
    return at;
}

static void job_measure(struct cw_sim_played *p, const struct cw_sim_conditions *c,
                        const struct stretch *stretch, double seconds)
{
    double n = stretch->batches, within = n > 1 ? n - 1 : 0, noise = p->job->noise * p->job->noise;
    struct cw_mean interval = {n, stretch->interval_s,
                               within * noise * stretch->interval_s * stretch->interval_s};
    struct cw_mean step = {n, stretch->step_s, within * noise * stretch->step_s * stretch->step_s};
    cw_mean_merge(&p->window.interval, &interval);
    cw_mean_merge(&p->window.step, &step);
    for (size_t i = 0; i < p->w->n_pools; i++) {
        double of_pool = n * c->part[i], s = stretch->compute_s * c->slower[i];
        struct cw_mean compute = {of_pool, s, (of_pool > 1 ? of_pool - 1 : 0) * noise * s * s};
        cw_mean_merge(&p->window.compute[i], &compute);
    }
    p->window.busy_s += seconds * c->busy;
    p->window.queue += seconds * (c->starved ? 0 : PREFETCHED * (1 - c->busy));
    p->out->waited_s += n * (stretch->interval_s - stretch->step_s);
}

static void job_pay(struct cw_sim_played *p, double seconds, double network_price)
{
    double price_per_h = 0;
    for (size_t i = 0; i < p->w->n_pools; i++) {
        double workers = p->worker_sets[i].running + p->worker_sets[i].starting;
        p->out->worker_s[i] += seconds * workers;
        price_per_h += workers * p->w->pools[i].price_per_h;
    }
    p->out->cost += seconds / 3600 * (p->job->client_price_per_h + price_per_h) + network_price;
}

/* Adds the elements computed up to the cache point to the cache, as far as its writing speed and its room
 * allow. */
static void job_write_cache(struct cw_sim_played *p, const struct cw_sim_conditions *c, double batches)
{
    int m = p->choice.cache_point;
    double room = 1 - p->cache.readable[m], all = p->job->batches_per_epoch * p->costs.bytes[m];
    if (p->job->store_bytes > 0 && all > 0)
        room = CW_MIN(room, p->job->store_bytes / all - p->cache.readable[m]);
    p->cache.written[m] = CW_MIN(p->cache.written[m] + batches * (1 - p->cache.readable[m]) * c->written /
                                                           p->job->batches_per_epoch,
                                 CW_MAX(room, 0));
}

static void job_cross(struct cw_sim_played *p)
{
    const struct cw_sim_job *job = p->job;
    if (p->phase + 1 < job->n_phases && p->done >= job->phases[p->phase + 1].at_batch - ROUNDING)
        p->phase++;
    if (p->done < (p->epoch + 1) * job->batches_per_epoch - ROUNDING)
        return;
    p->epoch = floor((p->done + ROUNDING) / job->batches_per_epoch);
    for (size_t i = 0; i < job->n_cache_points; i++) {
        p->cache.readable[i] = CW_MIN(p->cache.readable[i] + p->cache.written[i], 1);
        p->cache.written[i] = 0;
    }
    if (p->epoch >= job->epochs)
        p->state = CW_SIM_OVER;
}

/* Draws how fast batches are for the next `seconds`. If a report covers few batches, each is drawn; else one
 * draw is used for all. */
static struct stretch job_draw(struct cw_sim_played *p, const struct cw_sim_conditions *c, double seconds)
{
    double noise = p->expected ? 0 : p->job->noise, factor = 1, step = 1, n = seconds / c->interval_s;
    bool singly = p->reports.every_s / c->interval_s < SINGLY;
    if (noise > 0 && singly) {
        if (!(p->batch.left > 0)) {
            p->batch.factor = cw_draw_mean(&p->draw, noise, 1);
            p->batch.step_factor = cw_draw_mean(&p->draw, noise, 1);
            p->batch.left = 1;
        }
        factor = p->batch.factor;
        step = p->batch.step_factor;
    } else if (noise > 0) {
        /* the rate is multiplied by the draw, so that noise does not change the mean rate */
        factor = 1 / cw_draw_mean(&p->draw, noise, n);
        step = cw_draw_mean(&p->draw, noise, n);
        p->batch.left = 0;
    }
    struct stretch stretch = {.interval_s = c->interval_s * factor};
    /* prefetched batches cover for a late batch, so only means matter */
    stretch.step_s = c->starved ? c->step_s * step : stretch.interval_s;
    stretch.compute_s = c->compute_s * (c->starved ? factor : step);
    stretch.batches = seconds / stretch.interval_s;
    if (noise > 0 && singly)
        stretch.batches = CW_MIN(stretch.batches, p->batch.left);
    return stretch;
}

bool cw_sim_job_advance(struct cw_sim_played *p, double until)
{
    size_t phase = p->phase;
    while (p->now < until && p->state != CW_SIM_OVER && ++*p->steps <= CW_SIM_MAX_STEPS) {
        struct cw_sim_conditions c = job_conditions(p);
        struct stretch stretch = job_draw(p, &c, until - p->now);
        double room = job_boundary(p) - p->done, seconds = until - p->now;
        if (stretch.batches >= room) {
            stretch.batches = room;
            seconds = room * stretch.interval_s;
        } else if (stretch.batches * stretch.interval_s < seconds)
            seconds = stretch.batches * stretch.interval_s;
        if (!c.never)
            job_measure(p, &c, &stretch, seconds);
        job_pay(p, seconds, stretch.batches * c.network_price);
        if (p->choice.cache_point >= 0)
            job_write_cache(p, &c, stretch.batches);
        p->batch.left = p->batch.left > 0 ? CW_MAX(p->batch.left - stretch.batches, 0) : 0;
        if (p->batch.left < ROUNDING)
            p->batch.left = 0;
        p->done = stretch.batches >= room ? job_boundary(p) : p->done + stretch.batches;
        double to = p->now + seconds;
        p->now = stretch.batches >= room || to < until ? CW_MIN(to, until) : until;
        job_cross(p);
        if (seconds <= 0 && stretch.batches <= 0) /* too short for double precision: ends the loop */
            p->now = until;
        if (p->plan && p->phase != phase && p->state != CW_SIM_OVER)
            return true;
    }
    if (p->state == CW_SIM_OVER)
        p->out->ended_s = p->now;
    return false;
}
