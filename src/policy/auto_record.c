/* The record of a decision of auto: what was seen, what else could be done, why. */
#include <stdio.h>

#include "base/macro.h"
#include "policy/auto.h"

static enum cw_bottleneck limit_of(const struct cw_auto *m, const struct cw_facts *f, const struct cw_outlook *o, int workers, int marker)
{
    double cached = marker >= 0 && marker == (int)m->marker ? m->cached : 0, s = cw_outlook_batch_s(o, workers, marker, cached);
    if (s <= o->step_s * (1 + 2 * CW_AUTO_WAITING))
        return CW_BOTTLENECK_CLIENT;
    if (workers >= f->pools[0].maximum)
        return CW_BOTTLENECK_MAXIMUM;
    double bigger = cw_outlook_batch_s(o, 2.0 * workers, marker, cached);
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

static void add_alternative(struct cw_decision *d, const struct cw_outlook *o, int workers, int marker)
{
    workers = CW_MIN(CW_MAX(workers, 1), o->facts->pools[0].maximum);
    for (int i = 0; i < d->n_alternatives; i++)
        if (d->alternatives[i].workers == workers && d->alternatives[i].marker == marker)
            return;
    if (d->n_alternatives < CW_POLICY_ALTERNATIVES)
        d->alternatives[d->n_alternatives++] = cw_outlook_rest(o, workers, marker);
}

void cw_auto_record(const struct cw_auto *m, const struct cw_facts *f, const struct cw_outlook *o, const struct cw_alternative *chosen, const char *reason,
                         struct cw_decision *d)
{
    int running = f->pools[0].running;
    d->concluded = true;
    d->seen = (struct cw_seen){.step_s = m->step.mean, .wait_s = CW_MAX(m->interval.mean - m->step.mean, 0), .interval_s = m->interval.mean, .compute_s = m->compute.mean,
                               .busy = m->busy, .error = cw_auto_error(m), .workers = running, .marker = (int)m->marker, .cached = m->cached,
                               .limit = limit_of(m, f, o, running, (int)m->marker)};
    add_alternative(d, o, chosen->workers, chosen->marker);
    add_alternative(d, o, running, f->marker);
    for (int i = -1; i < f->n_markers && i < 2; i++)
        if (i != chosen->marker)
            add_alternative(d, o, chosen->workers, i);
    add_alternative(d, o, 2 * chosen->workers, chosen->marker);
    add_alternative(d, o, chosen->workers / 2, chosen->marker);
    const char *cache = chosen->marker >= 0 ? f->markers[chosen->marker].name : NULL;
    char seen[96] = "";
    if (m->interval.n > 0)
        snprintf(seen, sizeof(seen), ": %.4g s a batch with %d (step %.4g s)", m->interval.mean, running, m->step.mean);
    snprintf(d->why, sizeof(d->why), "%s%s; %d%s%.40s give %.4g s: %s", reason, seen, chosen->workers, cache ? ", cached after " : "", cache ? cache : "", chosen->batch_s,
             limit_text(limit_of(m, f, o, chosen->workers, chosen->marker)));
}
