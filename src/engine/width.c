/* Chooses how many compute threads run. */
#include "engine/width.h"

#include "base/clock.h"
#include "base/cost_clock.h"
#include "engine/compute.h"
#include "engine/internal.h"
#include "host/host.h"

/* A measurement takes at least this long, and until all threads have run a block; but no longer than
 * MEASURE_MOST_NS, because some threads may get no work. */
#define MEASURE_NS UINT64_C(200000000)
#define MEASURE_MOST_NS UINT64_C(3000000000)

static void width_idle_until(struct cw_width *w, uint64_t now_ns)
{
    w->idle_ns += w->n_idle * (now_ns - w->idle_at_ns);
    w->idle_at_ns = now_ns;
}

static void width_measure_anew(struct cw_runner *r, uint64_t now_ns)
{
    struct cw_width *w = &r->width;
    width_idle_until(w, now_ns);
    w->began_ns = now_ns;
    w->began_idle_ns = w->idle_ns;
    w->began_positions = r->cache.n_done;
    w->calls.wall_ns = w->calls.cpu_ns = 0;
}

void cw_width_init(struct cw_runner *r)
{
    r->width.chosen = cw_concurrency_begin(r->options.threads);
    r->width.idle_at_ns = cw_now_ns();
    width_measure_anew(r, r->width.idle_at_ns);
}

uint64_t cw_width_share(const struct cw_runner *r, uint64_t ns)
{
    unsigned n = r->width.chosen.n, threads = r->options.threads;
    return n == threads ? ns : (uint64_t)((double)ns * threads / n);
}

void cw_width_idle(struct cw_runner *r, bool on)
{
    width_idle_until(&r->width, cw_now_ns());
    r->width.n_idle += on ? 1 : -1u;
}

static void width_record(struct cw_runner *r, const struct cw_calls_seen *seen)
{
    const struct cw_concurrency *c = &r->width.chosen;
    const struct cw_tuned t = {
        .what = "threads_waiting",
        .seen = {{"calls_on_cpu", seen->call_s > 0 ? seen->call_cpu_s / seen->call_s : 1},
                 {"cpus_used", seen->cpu_share},
                 {"elements_per_s", seen->elements / seen->seconds}},
        .others = {{"cpus", c->least}, {"tried", c->before ? c->n : 2 * c->n}, {"memory", cw_host_most()}},
        .chosen = c->n,
        .why = c->why,
    };
    cw_tuned_add(&r->tuned, &t);
}

static void width_set(struct cw_runner *r)
{
    struct cw_width *w = &r->width;
    cw_memory_set_assemblies(r);
    cw_compute_resize(r);
    w->n_new = w->chosen.n;
    for (unsigned i = 0; i < w->chosen.n; i++)
        r->sched.threads[i].is_new = true;
}

/* Chooses the width, if there was enough time to measure. */
static void width_choose(struct cw_runner *r)
{
    struct cw_width *w = &r->width;
    uint64_t now_ns = cw_now_ns();
    if (now_ns - w->began_ns < MEASURE_NS || (w->n_new && now_ns - w->began_ns < MEASURE_MOST_NS))
        return;
    width_idle_until(w, now_ns);
    double seconds = (double)(now_ns - w->began_ns) * 1e-9, n = w->chosen.n,
           idle_s = (double)(w->idle_ns - w->began_idle_ns) * 1e-9;
    const struct cw_calls_seen seen = {
        .seconds = seconds,
        .elements = (double)(r->cache.n_done - w->began_positions),
        .call_s = (double)w->calls.wall_ns * 1e-9,
        .call_cpu_s = (double)w->calls.cpu_ns * 1e-9,
        .cpu_share = CW_MAX(n * seconds - idle_s - (double)w->calls.wall_ns * 1e-9, 0.0) / seconds /
                         r->options.threads +
                     (double)w->calls.cpu_ns * 1e-9 / seconds / r->options.threads,
        .idle_share = idle_s / (n * seconds),
        .short_of_memory = r->sched.starved || r->memory.consumer_short || r->memory.plan_short ||
                           r->memory.low_rows,
    };
    if (cw_concurrency_step(&w->chosen, &seen, CW_MIN(cw_host_most(), CW_THREADS_MOST))) {
        width_record(r, &seen);
        width_set(r);
    }
    width_measure_anew(r, now_ns);
}

void cw_width_note(struct cw_runner *r, struct compute_thread *t)
{
    struct cw_width *w = &r->width;
    struct cw_host_calls all = cw_host_calls();
    if (!r->options.more_threads || cw_cost_modelled())
        return;
    uint64_t wall_ns = all.wall_ns[0] - t->calls.wall_ns[0], cpu_ns = all.cpu_ns[0] - t->calls.cpu_ns[0];
    w->calls.wall_ns += wall_ns;
    w->calls.cpu_ns += cpu_ns;
    t->calls = all;
    if (t->is_new) {
        t->is_new = false;
        if (--w->n_new == 0)
            width_measure_anew(r, cw_now_ns());
    }
    if (wall_ns > 0)
        width_choose(r);
}
