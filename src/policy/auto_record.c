/* The record of a decision of auto: what was seen, what else could be done, why. */
#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "policy/auto.h"

static enum cw_bottleneck limit_of(const struct cw_auto *m, const struct cw_facts *f, const struct cw_outlook *o, double capacity, int marker)
{
    double cached = marker >= 0 && marker == (int)m->marker ? m->cached : 0, s = cw_outlook_batch_s(o, capacity, marker, cached);
    if (s <= o->step_s * (1 + 2 * CW_AUTO_WAITING))
        return CW_BOTTLENECK_CLIENT;
    if (capacity >= cw_supply_most(&o->supply))
        return CW_BOTTLENECK_MAXIMUM;
    double bigger = cw_outlook_batch_s(o, 2 * capacity, marker, cached);
    if (bigger < 0.9 * s)
        return CW_BOTTLENECK_WORKERS;
    if (marker >= 0 && f->storage.read_bytes_per_s > 0 && cached * f->markers[marker].bytes / f->storage.read_bytes_per_s >= 0.99 * s)
        return CW_BOTTLENECK_CACHE;
    return m->floor_s > 0 || m->source_bytes_per_s > 0 ? CW_BOTTLENECK_STORAGE : CW_BOTTLENECK_SCALING;
}

static const char *limit_text(enum cw_bottleneck limit)
{
    static const char *const texts[] = {
        [CW_BOTTLENECK_UNKNOWN] = "", [CW_BOTTLENECK_WORKERS] = "more would be faster but not worth it", [CW_BOTTLENECK_CLIENT] = "the client itself is the limit then",
        [CW_BOTTLENECK_STORAGE] = "reading the source is the limit then", [CW_BOTTLENECK_CACHE] = "reading the cache is the limit then",
        [CW_BOTTLENECK_SCALING] = "more workers hardly help", [CW_BOTTLENECK_MAXIMUM] = "there are no more",
    };
    return texts[limit];
}

static void add_alternative(struct cw_decision *d, const struct cw_alternative *a)
{
    for (int i = 0; i < d->n_alternatives; i++)
        if (memcmp(d->alternatives[i].pools, a->pools, sizeof(a->pools)) == 0 && d->alternatives[i].marker == a->marker)
            return;
    if (d->n_alternatives < CW_POLICY_ALTERNATIVES)
        d->alternatives[d->n_alternatives++] = *a;
}

static void add_like(struct cw_decision *d, const struct cw_outlook *o, const struct cw_alternative *chosen, double capacity)
{
    struct cw_alternative a = cw_outlook_like(o, chosen, capacity, chosen->marker);
    add_alternative(d, &a);
}

/* "5", or "5 (4 of near, 1 of far; ...)": of several pools, which and why these. */
static void put_workers(char *to, size_t size, const struct cw_facts *f, const struct cw_outlook *o, const struct cw_alternative *a)
{
    const char *between = " (";
    size_t n = (size_t)snprintf(to, size, "%d", a->workers);
    if (f->n_pools < 2)
        return;
    for (int i = 0; i < f->n_pools && n < size; i++)
        if (a->pools[i] > 0) {
            n += (size_t)snprintf(to + n, size - n, "%s%d of %.20s", between, a->pools[i], f->pools[i].name);
            between = ", ";
        }
    if (n < size)
        snprintf(to + n, size - n, "; %.20s first: %s)", f->pools[o->supply.order[a->order][0]].name, a->order ? "it is there soonest" : "what it computes costs least");
}

void cw_auto_record(const struct cw_auto *m, const struct cw_facts *f, const struct cw_outlook *o, const struct cw_alternative *chosen, const char *reason,
                         struct cw_decision *d)
{
    int running[CW_POLICY_POOLS] = {0}, n_running = 0;
    for (int i = 0; i < f->n_pools; i++)
        n_running += running[i] = f->pools[i].running;
    if (n_running == 0)
        cw_supply_fill(&o->supply, 0, 1, running);
    double capacity = cw_auto_running(m, f);
    d->concluded = true;
    d->seen = (struct cw_seen){.step_s = m->step.mean, .wait_s = CW_MAX(m->interval.mean - m->step.mean, 0), .interval_s = m->interval.mean, .compute_s = m->compute.mean,
                               .busy = m->busy, .error = cw_auto_error(m), .workers = n_running, .marker = (int)m->marker, .cached = m->cached,
                               .limit = limit_of(m, f, o, capacity, (int)m->marker)};
    add_alternative(d, chosen);
    struct cw_alternative other = cw_outlook_rest(o, running, f->marker);
    add_alternative(d, &other);
    for (int i = -1; i < f->n_markers && i < 2; i++) {
        other = cw_outlook_rest(o, chosen->pools, i);
        if (i != chosen->marker)
            add_alternative(d, &other);
    }
    add_like(d, o, chosen, 2 * chosen->capacity);
    add_like(d, o, chosen, chosen->capacity / 2);
    const char *cache = chosen->marker >= 0 ? f->markers[chosen->marker].name : NULL;
    char seen[96] = "", workers[200];
    put_workers(workers, sizeof(workers), f, o, chosen);
    if (m->interval.n > 0)
        snprintf(seen, sizeof(seen), ": %.4g s a batch with %d (step %.4g s)", m->interval.mean, n_running, m->step.mean);
    snprintf(d->why, sizeof(d->why), "%s%s; %s%s%.40s give %.4g s: %s", reason, seen, workers, cache ? ", cached after " : "", cache ? cache : "", chosen->batch_s,
             limit_text(limit_of(m, f, o, chosen->capacity, chosen->marker)));
}
