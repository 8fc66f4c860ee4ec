/* Chooses how many compute threads run. */
#include "engine/width.h"

#include <string.h>

#include "base/clock.h"
#include "base/cost_clock.h"
#include "engine/compute.h"
#include "engine/internal.h"
#include "host/host.h"

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
    memset(&w->seen, 0, sizeof(w->seen));
}

void cw_width_init(struct cw_runner *r)
{
    r->width.chosen = cw_concurrency_begin(r->options.threads, "one for each CPU");
    r->width.warm = true;
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
    w->n_new = 0;
    w->warm = false;
    for (unsigned i = 0; i < r->sched.n_threads; i++) {
        struct compute_thread *t = &r->sched.threads[i];
        t->is_new = i < w->chosen.n && t->state == THREAD_RUNS; /* the system may have refused a thread */
        w->n_new += t->is_new;
    }
}

/* Chooses the width, if there was enough time to measure. */
static void width_choose(struct cw_runner *r)
{
    struct cw_width *w = &r->width;
    uint64_t now_ns = cw_now_ns();
    width_idle_until(w, now_ns);
    double seconds = (double)(now_ns - w->began_ns) * 1e-9, n = w->chosen.n,
           idle_s = (double)(w->idle_ns - w->began_idle_ns) * 1e-9;
    const struct cw_calls_seen seen = {
        .seconds = seconds,
        .elements = (double)(r->cache.n_done - w->began_positions),
        .calls = (double)w->seen.n,
        .call_s = (double)w->seen.wall_ns * 1e-9,
        .call_cpu_s = (double)w->seen.call_cpu_ns * 1e-9,
        .cpu_share = (double)w->seen.cpu_ns * 1e-9 / seconds / r->options.threads,
        .idle_share = idle_s / (n * seconds),
        .short_of_memory = r->sched.starved || r->memory.consumer_short || r->memory.plan_short ||
                           r->memory.low_rows,
    };
    if (!cw_concurrency_is_measured(&seen))
        return;
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
    /* once the run ends, no thread may start: cw_compute_stop would not wait for it */
    if (!r->options.more_threads || cw_cost_modelled() || r->sched.stop)
        return;
    uint64_t wall_ns = all.wall_ns[0] - t->calls.wall_ns[0], call_cpu_ns = all.cpu_ns[0] - t->calls.cpu_ns[0],
             cpu_ns = all.wall_ns[0] ? cw_thread_cpu_ns() : 0; /* the call to the system costs time */
    w->seen.n += wall_ns > 0;
    w->seen.wall_ns += wall_ns;
    w->seen.call_cpu_ns += call_cpu_ns;
    w->seen.cpu_ns += call_cpu_ns + cpu_ns - t->cpu_ns;
    t->calls.wall_ns[0] = all.wall_ns[0];
    t->calls.cpu_ns[0] = all.cpu_ns[0];
    t->cpu_ns = cpu_ns;
    w->n_new -= t->is_new;
    t->is_new = false;
    /* a measurement begins when all threads have run a block, or are idle: to start a host may take seconds
     */
    if (!w->warm && w->n_new <= w->n_idle) {
        w->warm = true;
        width_measure_anew(r, cw_now_ns());
    }
    if (w->warm && wall_ns > 0)
        width_choose(r);
}
