/* Sums up what workers measured of cache points, and sends them the choice. */
#include "service/dispatcher/caching.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "service/dispatcher/json_list.h"
#include "service/dispatcher/state.h"

/* Sends the stream's cache point to the assignment's worker. */
static void caching_send(struct cw_dispatcher *d, const struct assignment *t)
{
    Cachew__Caching c = {CW_MESSAGE(caching), .stream = {16, t->stream->id},
                         .cache_point = t->stream->cache_point};
    cw_dp_peer_send(
        d, t->worker->peer,
        &(Cachew__Envelope){CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_CACHING, .caching = &c});
}

/* ---- heartbeats ---- */

/* Returns x, or 0 if it makes no sense: a peer may send any number. */
static double caching_number(double x)
{
    return isfinite(x) && x > 0 ? x : 0;
}

void cw_dp_caching_store(struct worker *w, const Cachew__Heartbeat *m)
{
    w->cache = (struct worker_cache){.hits = m->cache_hits,
                                     .misses = m->cache_misses,
                                     .used = m->cache_used,
                                     .bad = m->cache_bad,
                                     .late = m->cache_late,
                                     .refused = m->cache_refused,
                                     .skipped = m->cache_skipped,
                                     .read_bytes_per_s = caching_number(m->cache_read_bytes_per_s),
                                     .write_bytes_per_s = caching_number(m->cache_write_bytes_per_s),
                                     .bound = (double)m->cache_bytes};
}

/* Copies a name of printable characters. */
static void caching_take_name(const Cachew__CachePointWork *m, char *ret, size_t size)
{
    size_t n = 0;
    for (const char *at = m->name ? m->name : ""; *at && n + 1 < size; at++)
        if (*at >= ' ' && *at <= '~')
            ret[n++] = *at;
    ret[n] = '\0';
    if (!n)
        snprintf(ret, size, "cache point %d", m->cache_point - 1);
}

static void caching_take(const Cachew__CachePointWork *m, struct cache_point_work *ret)
{
    *ret = (struct cache_point_work){.cache_point = m->cache_point,
                                     .compute_s = caching_number(m->compute_s),
                                     .read_s = caching_number(m->read_s),
                                     .store_s = caching_number(m->store_s),
                                     .was_read = m->was_read,
                                     .unread = m->unread,
                                     .bytes = caching_number(m->bytes),
                                     .cached = fmin(caching_number(m->cached), 1),
                                     .written = fmin(caching_number(m->written), 1)};
    caching_take_name(m, ret->name, sizeof(ret->name));
}

void cw_dp_caching_heard(struct cw_dispatcher *d, struct assignment *t, const Cachew__StreamWork *x)
{
    struct caching *c = t->caching;
    if (x->n_cache_points && !c && !(c = t->caching = calloc(1, sizeof(*c))))
        return; /* the next heartbeat tries again */
    if (!c)
        return;
    c->n = 0;
    c->cache_point = x->cache_point;
    c->none_s = 0;
    for (size_t i = 0; i < x->n_cache_points; i++) {
        const Cachew__CachePointWork *m = x->cache_points[i];
        if (m->cache_point < 0)
            c->none_s = caching_number(m->compute_s);
        else if (m->cache_point > 0 && c->n < DP_CACHE_POINTS)
            caching_take(m, &c->cache_points[c->n++]);
    }
    if (c->n && t->stream->cache_point && t->stream->cache_point != c->cache_point &&
        t->state == ASSIGNMENT_READY)
        caching_send(d, t);
}

/* ---- facts for the policy ---- */

/* Returns the cache point that was chosen, or the one that the worker uses. */
static int32_t caching_used(const struct stream *s, const struct caching *c)
{
    return s->cache_point ? s->cache_point : c->cache_point;
}

/* Returns what a member of the worker set measured; NULL: it is not ready, or measured nothing. */
static const struct caching *caching_of_assignment(const struct assignment *t)
{
    return t->granted && t->state == ASSIGNMENT_READY && t->caching && t->caching->n ? t->caching : NULL;
}

static const struct cache_point_work *caching_find(const struct caching *c, int32_t cache_point)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->cache_points[i].cache_point == cache_point)
            return &c->cache_points[i];
    return NULL;
}

/* Returns the measurements of the first worker that has some: cache points of facts are indexes into them. */
static const struct caching *caching_first(const struct stream *s)
{
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list)
        if (caching_of_assignment(t))
            return caching_of_assignment(t);
    return NULL;
}

/* Returns the number of a cache point of the facts, as in Prepare. */
static int32_t caching_number_of(const struct caching *c, int cache_point)
{
    return cache_point < 0 ? -1 : c->cache_points[cache_point].cache_point;
}

/* What all workers together measured of a cache point. */
struct cache_stats {
    double workers, saved_s, bytes, cached, written; /* sums. saved_s: by reading, where that is known: */
    double known, speed, read; /* workers, bytes of storage per second, workers that read from storage */
    double unread;             /* workers that use it, and compute anyway */
    /* workers that know it, and sums of what a position takes them */
    double computing, compute_s, reading, read_s, store_s;
    bool was_read;
};

static void cache_stats_add(struct cache_stats *k, const struct caching *c, const struct cache_point_work *m)
{
    double compute_s = c->none_s > 0 ? c->none_s : m->compute_s;
    k->workers++;
    k->bytes += m->bytes;
    k->cached += m->cached;
    k->written += m->written;
    if (compute_s > 0 && (m->was_read || m->read_s > 0)) {
        k->known++;
        k->saved_s += compute_s - m->read_s;
    }
    if (compute_s > 0) {
        k->computing++;
        k->compute_s += compute_s;
    }
    if (m->was_read) {
        k->reading++;
        k->read_s += m->read_s;
        k->store_s += m->store_s;
    }
    k->was_read |= m->was_read;
    k->unread += m->unread;
    if (m->was_read && m->store_s > 0) {
        k->read++;
        k->speed += m->bytes / m->store_s;
    }
}

static struct cache_stats cache_stats_of(const struct stream *s, int32_t cache_point)
{
    struct cache_stats k = {0};
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments.list) {
        const struct caching *c = caching_of_assignment(t);
        const struct cache_point_work *m = c ? caching_find(c, cache_point) : NULL;
        if (m)
            cache_stats_add(&k, c, m);
    }
    return k;
}

/* Fills in the cache's speeds, of all workers together. Elements that were read show more than a store's own
 * measurement. */
static void caching_storage_facts(const struct stream *s, const struct cache_stats *of,
                                  struct cw_storage_facts *f)
{
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments.list) {
        if (!caching_of_assignment(t))
            continue;
        f->read_bytes_per_s += t->worker->cache.read_bytes_per_s;
        f->write_bytes_per_s += t->worker->cache.write_bytes_per_s;
        /* all workers may share one directory */
        f->cache_bytes = CW_MAX(f->cache_bytes, t->worker->cache.bound);
    }
    if (of && of->was_read)
        f->read_bytes_per_s = of->read > 0 ? of->speed / of->read * of->workers : 0;
}

void cw_dp_caching_facts(const struct stream *s, double per_batch, struct cw_facts *f,
                         struct cw_cache_point_facts *cache_points)
{
    const struct caching *first = caching_first(s);
    struct cache_stats in_use = {0};
    f->cache_point = -1;
    f->cache_points = cache_points;
    int32_t cache_point = first ? caching_used(s, first) : s->cache_point;
    for (size_t i = 0; first && i < first->n; i++) {
        struct cache_stats k = cache_stats_of(s, first->cache_points[i].cache_point);
        bool used = first->cache_points[i].cache_point == cache_point;
        if (used && k.unread < k.workers / 2) /* else no cache point is in use in effect */
            f->cache_point = (int)i;
        if (used || !in_use.was_read)
            in_use = k;
        cache_points[i] = (struct cw_cache_point_facts){
            .name = first->cache_points[i].name,
            .prefix_s = k.known > 0 ? per_batch * k.saved_s / k.known : 0,
            .bytes = per_batch * k.bytes / k.workers,
            .cached = k.cached / k.workers,
            .written = fmin(k.written, 1)};
    }
    f->n_cache_points = first ? (int)first->n : 0;
    caching_storage_facts(s, first ? &in_use : NULL, &f->storage);
}

/* ---- decisions ---- */

bool cw_dp_caching_open(const struct stream *s)
{
    return caching_first(s) != NULL;
}

bool cw_dp_caching_is(const struct stream *s, int cache_point)
{
    const struct caching *c = caching_first(s);
    return !c || cache_point >= (int)c->n || caching_used(s, c) == caching_number_of(c, cache_point);
}

int cw_dp_caching_in_use(const struct stream *s)
{
    const struct caching *c = caching_first(s);
    for (size_t i = 0; c && i < c->n; i++)
        if (c->cache_points[i].cache_point == caching_used(s, c))
            return (int)i;
    return -1;
}

void cw_dp_caching_choose(struct cw_dispatcher *d, struct stream *s, int cache_point)
{
    const struct caching *c = caching_first(s);
    if (!c || cache_point >= (int)c->n)
        return;
    s->cache_point = caching_number_of(c, cache_point);
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list)
        if (t->state == ASSIGNMENT_READY && t->caching && t->worker->peer)
            caching_send(d, t);
}

/* ---- JSON ---- */

static json_t *caching_mean_json(double sum, double n)
{
    return n > 0 ? json_real(sum / n) : json_null();
}

static json_t *caching_point_json(const struct stream *s, const struct cache_point_work *m, bool in_use)
{
    struct cache_stats k = cache_stats_of(s, m->cache_point);
    return json_pack("{s:s, s:b, s:b, s:f, s:f, s:o, s:o, s:o}", "name", m->name, "in_use", in_use, "unread",
                     in_use && k.unread >= k.workers / 2, "cached", k.cached / k.workers, "bytes",
                     k.bytes / k.workers, "compute_s", caching_mean_json(k.compute_s, k.computing), "read_s",
                     caching_mean_json(k.read_s, k.reading), "store_s",
                     caching_mean_json(k.store_s, k.reading));
}

json_t *cw_dp_caching_json(const struct stream *s)
{
    const struct caching *first = caching_first(s);
    if (!first)
        return json_null();
    int32_t in_use = caching_used(s, first);
    json_t *list = json_array();
    for (size_t i = 0; i < first->n; i++)
        cw_dp_json_append(&list, caching_point_json(s, &first->cache_points[i],
                                                    first->cache_points[i].cache_point == in_use));
    return json_pack("{s:o}", "cache_points", list);
}
