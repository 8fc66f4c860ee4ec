/* Records points for each worker, and returns them as JSON. */
#include "service/dispatcher/worker_history.h"

#include <math.h>
#include <stdlib.h>

#include "service/dispatcher/json_list.h"
#include "service/dispatcher/state.h"

/* Returns the increase of a sum; 0 if it is less than before, because a peer may send any number. */
static double worker_increase(uint64_t now, uint64_t before)
{
    return now > before ? (double)(now - before) : 0;
}

/* Returns the worker's measurements since its last point, and begins the next ones. */
static struct series_point worker_point(const struct cw_dispatcher *d, struct worker *w, double seconds)
{
    struct worker_history *h = &w->history;
    double hits = worker_increase(w->usage.cache_hits, h->before.cache_hits),
           misses = worker_increase(w->usage.cache_misses, h->before.cache_misses);
    struct series_point p = {.at_ns = d->now_ns};
    for (size_t i = 0; i < SERIES_COLUMNS; i++)
        p.values[i] = NAN;
    p.values[WORKER_MEMORY] = (float)w->usage.memory_bytes;
    if (w->cache.bound > 0)
        p.values[WORKER_CACHE_USED] = (float)w->cache.used;
    if (h->before.known) {
        p.values[WORKER_CPUS] = (float)(worker_increase(w->usage.cpu_ns, h->before.cpu_ns) / 1e9 / seconds);
        p.values[WORKER_ELEMENTS] = (float)((h->n_elements - h->before.n_elements) / seconds);
        if (hits + misses > 0)
            p.values[WORKER_CACHE_PART] = (float)(hits / (hits + misses));
    }
    h->before.known = true;
    h->before.cpu_ns = w->usage.cpu_ns;
    h->before.cache_hits = w->usage.cache_hits;
    h->before.cache_misses = w->usage.cache_misses;
    h->before.n_elements = h->n_elements;
    return p;
}

void cw_dp_worker_history_tick(struct cw_dispatcher *d, double seconds)
{
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers.list) {
        if (!w->peer || w->rates.from_ns == 0) /* it is gone, or has sent no heartbeat */
            continue;
        struct series_point p = worker_point(d, w, seconds);
        if (!w->history.kept && d->history.n_workers < DP_WORKER_HISTORIES &&
            (w->history.kept = calloc(1, sizeof(*w->history.kept))))
            d->history.n_workers++;
        if (w->history.kept)
            cw_dp_series_add(w->history.kept, &p);
    }
}

void cw_dp_worker_history_pause(struct worker *w)
{
    w->history.before.known = false;
}

void cw_dp_worker_history_free(struct cw_dispatcher *d, struct worker *w)
{
    if (!w->history.kept)
        return;
    d->history.n_workers--;
    cw_dp_series_deinit(w->history.kept);
    free(w->history.kept);
    w->history.kept = NULL;
}

json_t *cw_dp_worker_history_json(const struct cw_dispatcher *d, const struct worker *w, uint64_t from_ns,
                                  uint64_t to_ns)
{
    static const struct series none;
    static const char *const columns[WORKER_COLUMNS] = {[WORKER_CPUS] = "cpus",
                                                        [WORKER_MEMORY] = "memory_in_use",
                                                        [WORKER_ELEMENTS] = "elements_per_s",
                                                        [WORKER_CACHE_PART] = "cache_part",
                                                        [WORKER_CACHE_USED] = "cache_used"};
    json_t *o = cw_dp_series_json(w->history.kept ? w->history.kept : &none, from_ns, to_ns, d->start_ns,
                                  columns, WORKER_COLUMNS);
    cw_dp_json_set(&o, "uptime_s", json_real((double)(d->now_ns - d->start_ns) / 1e9));
    return o;
}
