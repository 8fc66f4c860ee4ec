/* Records points for each worker, and returns them as JSON. */
#include "service/dispatcher/worker_history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
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

/* Returns the worker's history, and makes it if there is none. NULL: no memory, or there are
 * DP_WORKER_HISTORIES already. */
static struct worker_kept *worker_kept_get(struct cw_dispatcher *d, struct worker *w)
{
    if (!w->history.kept && d->history.n_workers < DP_WORKER_HISTORIES &&
        (w->history.kept = calloc(1, sizeof(*w->history.kept))))
        d->history.n_workers++;
    return w->history.kept;
}

void cw_dp_worker_history_log(struct cw_dispatcher *d, struct worker *w, char *const *lines, size_t n)
{
    struct worker_kept *k = n > 0 ? worker_kept_get(d, w) : NULL;
    for (size_t i = 0; k && i < n; i++) {
        size_t at = k->n_log++ % DP_LOG_LINES, size = cw_text_whole(lines[i], DP_LOG_BYTES - 1);
        k->log[at].at_ns = d->now_ns;
        memcpy(k->log[at].text, lines[i], size);
        k->log[at].text[size] = '\0';
    }
}

void cw_dp_worker_history_tick(struct cw_dispatcher *d, double seconds)
{
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers.list) {
        if (!w->peer || w->rates.from_ns == 0) /* it is gone, or has sent no heartbeat */
            continue;
        struct series_point p = worker_point(d, w, seconds);
        struct worker_kept *k = worker_kept_get(d, w);
        if (k)
            cw_dp_series_add(&k->series, &p);
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
    cw_dp_series_deinit(&w->history.kept->series);
    free(w->history.kept);
    w->history.kept = NULL;
}

static json_t *worker_log_json(const struct cw_dispatcher *d, const struct worker_kept *k)
{
    json_t *list = json_array();
    for (size_t i = k->n_log - CW_MIN(k->n_log, (size_t)DP_LOG_LINES); i < k->n_log; i++) {
        size_t at = i % DP_LOG_LINES;
        cw_dp_json_append(&list, json_pack("{s:f, s:o}", "t", (double)(k->log[at].at_ns - d->start_ns) / 1e9,
                                           "text", cw_dp_json_text(k->log[at].text)));
    }
    return list;
}

json_t *cw_dp_worker_history_json(const struct cw_dispatcher *d, const struct worker *w, uint64_t from_ns,
                                  uint64_t to_ns)
{
    static const struct worker_kept none;
    const struct worker_kept *k = w->history.kept ? w->history.kept : &none;
    static const char *const columns[WORKER_COLUMNS] = {[WORKER_CPUS] = "cpus",
                                                        [WORKER_MEMORY] = "memory_in_use",
                                                        [WORKER_ELEMENTS] = "elements_per_s",
                                                        [WORKER_CACHE_PART] = "cache_part",
                                                        [WORKER_CACHE_USED] = "cache_used"};
    json_t *o = cw_dp_series_json(&k->series, from_ns, to_ns, d->start_ns, columns, WORKER_COLUMNS);
    cw_dp_json_set(&o, "uptime_s", json_real((double)(d->now_ns - d->start_ns) / 1e9));
    cw_dp_json_set(&o, "log", worker_log_json(d, k));
    return o;
}
