/* Chooses how many calls of functions that wait run at a time. */
#include "policy/concurrency.h"

#include "base/macro.h"

/* Calls wait if their functions use at most this part of the calls' time on a CPU. */
#define WAITS 0.5
/* From this part of all CPUs on, more calls would compete for them. */
#define CPUS_FULL 0.9
/* If calls have nothing to do for more than this part of the time, something else limits the run. */
#define IDLE 0.3
/* Doubling the number of calls must make the run this many times as fast. */
#define GAIN 1.15
/* After an attempt that gained nothing, the steps until the next one: conditions may have changed by then. */
#define REST 20

/* A measurement takes at least this many seconds, and at least MEASURE_CALLS times as long as a call. Calls
 * count when they end: where all of them end at the same time, a measurement may miss all but one. */
#define MEASURE_S 0.2
#define MEASURE_CALLS 4

struct cw_concurrency cw_concurrency_begin(unsigned least, const char *why)
{
    return (struct cw_concurrency){.n = least, .least = least, .why = why};
}

static bool concurrency_set(struct cw_concurrency *c, unsigned n, const char *why)
{
    bool changed = n != c->n;
    c->n = n;
    c->before = 0;
    c->why = why;
    return changed;
}

bool cw_concurrency_is_measured(const struct cw_calls_seen *seen)
{
    return seen->seconds >= MEASURE_S && seen->seconds * seen->calls >= MEASURE_CALLS * seen->call_s;
}

/* Judges the last doubling. Returns whether it is undone. */
static bool concurrency_undo(struct cw_concurrency *c, double rate)
{
    unsigned before = c->before;
    c->before = 0;
    if (!before || rate >= GAIN * c->rate)
        return false;
    c->rest = REST;
    return concurrency_set(c, before, "more calls at a time would not make it faster");
}

bool cw_concurrency_step(struct cw_concurrency *c, const struct cw_calls_seen *seen, unsigned most)
{
    double rate = seen->elements / CW_MAX(seen->seconds, 1e-9);
    bool wait = seen->call_cpu_s <= WAITS * seen->call_s;
    most = CW_MAX(most, c->least);
    if (c->n > most || seen->short_of_memory) {
        c->rest = REST;
        return concurrency_set(c, CW_MIN(c->n, CW_MAX(c->n > most ? most : c->n / 2, c->least)),
                               "more calls at a time would not fit in memory");
    }
    if (concurrency_undo(c, rate))
        return true;
    if (c->n > c->least && !wait && seen->cpu_share >= CPUS_FULL)
        return concurrency_set(c, CW_MAX(c->n / 2, c->least), "the functions compute, and use all CPUs");
    if (c->rest > 0) {
        c->rest--;
        return false;
    }
    if (!wait || seen->cpu_share >= CPUS_FULL || seen->idle_share > IDLE || c->n >= most)
        return false;
    unsigned before = c->n;
    concurrency_set(c, CW_MIN(2 * c->n, most), "the functions wait, and leave CPUs free");
    c->before = before;
    c->rate = rate;
    return true;
}
