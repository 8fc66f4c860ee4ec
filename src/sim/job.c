/* A job's time: from one event to the next, batches are counted, measured and paid for. */
#include <math.h>

#include "base/macro.h"
#include "sim/internal.h"

#define READ_AHEAD \
    16                /* batches that lie ready where the client is slower: what policies see as its queue \
                       */
#define SINGLY 8      /* fewer batches in a report than that are drawn one by one, else together */
#define ROUNDING 1e-9 /* batches */

struct piece { /* a stretch of time in which nothing changes */
    double batches, interval_s, step_s, compute_s;
};

static struct cw_sim_workers workers_of(const struct cw_sim_played *p, size_t pool)
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

static struct cw_sim_conditions conditions(const struct cw_sim_played *p)
{
    struct cw_sim_workers workers[CW_POLICY_POOLS];
    for (size_t i = 0; i < p->w->n_pools; i++)
        workers[i] = workers_of(p, i);
    double cached = p->cache_point >= 0 ? p->cached[p->cache_point] : 0;
    return cw_sim_conditions(p->w, p->job, &p->costs, &p->job->phases[p->phase], workers, p->cache_point,
                             cached, p->write_waits);
}

int cw_sim_running(const struct cw_sim_played *p)
{
    int n = 0;
    for (size_t i = 0; i < p->w->n_pools; i++)
        n += p->worker_sets[i].running;
    return n;
}

/* The batch at which something changes by itself: epoch, phase, or the end. */
static double boundary(const struct cw_sim_played *p)
{
    bool alike = p->expected &&
                 p->cache_point < 0; /* nobody looks, and no cache fills: epochs are all the same */
    double at = (alike ? p->job->epochs : p->epoch + 1) * p->job->batches_per_epoch;
    if (p->phase + 1 < p->job->n_phases)
        at = CW_MIN(at, p->job->phases[p->phase + 1].at_batch);
    return at;
}

static void measure(struct cw_sim_played *p, const struct cw_sim_conditions *c, const struct piece *piece,
                    double seconds)
{
    double n = piece->batches, within = n > 1 ? n - 1 : 0, noise = p->job->noise * p->job->noise;
    struct cw_mean interval = {n, piece->interval_s, within * noise * piece->interval_s * piece->interval_s};
    struct cw_mean step = {n, piece->step_s, within * noise * piece->step_s * piece->step_s};
    cw_mean_merge(&p->interval, &interval);
    cw_mean_merge(&p->step, &step);
    for (size_t i = 0; i < p->w->n_pools; i++) {
        double of_pool = n * c->part[i], s = piece->compute_s * c->slower[i];
        struct cw_mean compute = {of_pool, s, (of_pool > 1 ? of_pool - 1 : 0) * noise * s * s};
        cw_mean_merge(&p->compute[i], &compute);
    }
    p->busy_s += seconds * c->busy;
    p->queue += seconds * (c->supplied ? 0 : READ_AHEAD * (1 - c->busy));
    p->out->waited_s += n * (piece->interval_s - piece->step_s);
}

static void pay(struct cw_sim_played *p, double seconds)
{
    double price_per_h = 0;
    for (size_t i = 0; i < p->w->n_pools; i++) {
        double workers = p->worker_sets[i].running + p->worker_sets[i].starting;
        p->out->worker_s[i] += seconds * workers;
        price_per_h += workers * p->w->pools[i].price_per_h;
    }
    p->out->cost += seconds / 3600 * (p->job->client_price_per_h + price_per_h);
}

/* What was computed up to the cache point goes to the cache, as far as it can be written and there is room.
 */
static void write_cache(struct cw_sim_played *p, const struct cw_sim_conditions *c, double batches)
{
    int m = p->cache_point;
    double room = 1 - p->cached[m], all = p->job->batches_per_epoch * p->costs.bytes[m];
    if (p->job->store_bytes > 0 && all > 0)
        room = CW_MIN(room, p->job->store_bytes / all - p->cached[m]);
    p->written[m] = CW_MIN(p->written[m] +
                               batches * (1 - p->cached[m]) * c->written / p->job->batches_per_epoch,
                           CW_MAX(room, 0));
}

static void cross(struct cw_sim_played *p)
{
    const struct cw_sim_job *job = p->job;
    if (p->phase + 1 < job->n_phases && p->done >= job->phases[p->phase + 1].at_batch - ROUNDING)
        p->phase++;
    if (p->done < (p->epoch + 1) * job->batches_per_epoch - ROUNDING)
        return;
    p->epoch = floor((p->done + ROUNDING) / job->batches_per_epoch);
    for (size_t i = 0; i < job->n_cache_points; i++) {
        p->cached[i] = CW_MIN(p->cached[i] + p->written[i], 1);
        p->written[i] = 0;
    }
    p->over = p->epoch >= job->epochs;
}

/* Draws how fast it goes: batch by batch where a report has few, else for all until `seconds` are over at
 * once. */
static struct piece draw(struct cw_sim_played *p, const struct cw_sim_conditions *c, double seconds)
{
    double noise = p->expected ? 0 : p->job->noise, factor = 1, step = 1, n = seconds / c->interval_s;
    bool singly = p->report_s / c->interval_s < SINGLY;
    if (noise > 0 && singly) {
        if (!(p->left > 0)) {
            p->factor = cw_draw_mean(&p->draw, noise, 1);
            p->step_factor = cw_draw_mean(&p->draw, noise, 1);
            p->left = 1;
        }
        factor = p->factor;
        step = p->step_factor;
    } else if (noise > 0) {
        /* of the rate: so that the mean rate is what it is without noise */
        factor = 1 / cw_draw_mean(&p->draw, noise, n);
        step = cw_draw_mean(&p->draw, noise, n);
        p->left = 0;
    }
    struct piece piece = {.interval_s = c->interval_s * factor};
    /* a late batch is made up for later: the means count */
    piece.step_s = c->supplied ? c->step_s * step : piece.interval_s;
    piece.compute_s = c->compute_s * (c->supplied ? factor : step);
    piece.batches = seconds / piece.interval_s;
    if (noise > 0 && singly)
        piece.batches = CW_MIN(piece.batches, p->left);
    return piece;
}

bool cw_sim_job_advance(struct cw_sim_played *p, double until)
{
    size_t phase = p->phase;
    while (p->now < until && !p->over && ++*p->steps <= CW_SIM_MAX_STEPS) {
        struct cw_sim_conditions c = conditions(p);
        struct piece piece = draw(p, &c, until - p->now);
        double room = boundary(p) - p->done, seconds = until - p->now;
        if (piece.batches >= room) {
            piece.batches = room;
            seconds = room * piece.interval_s;
        } else if (piece.batches * piece.interval_s < seconds)
            seconds = piece.batches * piece.interval_s;
        measure(p, &c, &piece, seconds);
        pay(p, seconds);
        if (p->cache_point >= 0)
            write_cache(p, &c, piece.batches);
        p->left = p->left > 0 ? CW_MAX(p->left - piece.batches, 0) : 0;
        if (p->left < ROUNDING)
            p->left = 0;
        p->done = piece.batches >= room ? boundary(p) : p->done + piece.batches;
        double to = p->now + seconds;
        p->now = piece.batches >= room || to < until ? CW_MIN(to, until) : until;
        cross(p);
        if (seconds <= 0 && piece.batches <= 0) /* too short to be told apart from now */
            p->now = until;
        if (p->plan && p->phase != phase && !p->over)
            return true;
    }
    if (p->over)
        p->out->ended_s = p->now;
    return false;
}
