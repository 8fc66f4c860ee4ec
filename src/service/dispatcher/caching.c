/* Sums up the workers' measurements of cache points, and sends workers the policy's choice. */
#include "service/dispatcher/caching.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/cache_stats.h"
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

/* Returns x, or 0 if x is not a positive finite number: a peer may send anything. */
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

static void caching_take(const Cachew__CachePointWork *m, struct cw_cache_variant_stats *ret)
{
    *ret = (struct cw_cache_variant_stats){.cache_point = m->cache_point,
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
    struct cw_cache_stats *c = t->caching;
    if (x->n_cache_points && !c && !(c = t->caching = calloc(1, sizeof(*c))))
        return; /* the next heartbeat tries again */
    if (!c)
        return;
    c->n = 1;
    c->cache_point = x->cache_point;
    c->variants[0] = (struct cw_cache_variant_stats){.cache_point = -1};
    for (size_t i = 0; i < x->n_cache_points; i++) {
        const Cachew__CachePointWork *m = x->cache_points[i];
        if (m->cache_point < 0)
            c->variants[0].compute_s = caching_number(m->compute_s);
        else if (m->cache_point > 0 && c->n < CW_CACHE_VARIANTS)
            caching_take(m, &c->variants[c->n++]);
    }
    if (c->n > 1 && t->stream->cache_point && t->stream->cache_point != c->cache_point &&
        t->state == ASSIGNMENT_READY)
        caching_send(d, t);
}

/* ---- facts for the policy ---- */

/* Returns the stream's chosen cache point, or (before a choice) the one that the worker uses. */
static int32_t caching_used(const struct stream *s, const struct cw_cache_stats *c)
{
    return s->cache_point ? s->cache_point : c->cache_point;
}

/* Returns the measurements of a member of the worker set; NULL: it is not ready, or has none. */
static const struct cw_cache_stats *caching_of_assignment(const struct assignment *t)
{
    return t->granted && t->state == ASSIGNMENT_READY && t->caching && t->caching->n > 1 ? t->caching : NULL;
}

/* Returns the measurements of the first worker that has some; NULL: no worker has. The facts list cache
 * points in the order of these measurements. */
static const struct cw_cache_stats *caching_first(const struct stream *s)
{
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list)
        if (caching_of_assignment(t))
            return caching_of_assignment(t);
    return NULL;
}

/* Sums up all workers' measurements of the cache points that the first worker lists. */
static void caching_sum(const struct stream *s, struct cw_cache_sum ret[CW_POLICY_CACHE_POINTS])
{
    memset(ret, 0, CW_POLICY_CACHE_POINTS * sizeof(*ret));
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments.list)
        if (caching_of_assignment(t))
            cw_cache_sums_add(ret, caching_first(s), caching_of_assignment(t));
}

void cw_dp_caching_facts(const struct stream *s, double per_batch, struct cw_facts *f,
                         struct cw_cache_point_facts *cache_points)
{
    const struct cw_cache_stats *first = caching_first(s);
    struct cw_cache_sum sums[CW_POLICY_CACHE_POINTS];
    if (!first)
        return;
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments.list) {
        if (!caching_of_assignment(t))
            continue;
        f->storage.read_bytes_per_s += t->worker->cache.read_bytes_per_s;
        f->storage.write_bytes_per_s += t->worker->cache.write_bytes_per_s;
        /* all workers may share one directory */
        f->storage.cache_bytes = CW_MAX(f->storage.cache_bytes, t->worker->cache.bound);
    }
    caching_sum(s, sums);
    cw_cache_facts_of(first, sums, caching_used(s, first), per_batch, f, cache_points);
}

/* ---- decisions ---- */

bool cw_dp_caching_open(const struct stream *s)
{
    return caching_first(s) != NULL;
}

void cw_dp_caching_choose(struct cw_dispatcher *d, struct stream *s, int cache_point)
{
    s->cache_point = caching_first(s)->variants[cache_point + 1].cache_point;
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list)
        if (t->state == ASSIGNMENT_READY && t->caching && t->worker->peer)
            caching_send(d, t);
}

/* ---- JSON ---- */

static json_t *caching_mean_json(double sum, double n)
{
    return n > 0 ? json_real(sum / n) : json_null();
}

static json_t *caching_point_json(const char *name, const struct cw_cache_sum *k, bool in_use)
{
    return json_pack("{s:s, s:b, s:b, s:f, s:f, s:o, s:o, s:o}", "name", name, "in_use", in_use, "unread",
                     in_use && k->unread >= k->workers / 2, "cached", k->cached / k->workers, "bytes",
                     k->bytes / k->workers, "compute_s", caching_mean_json(k->compute_s, k->computing),
                     "read_s", caching_mean_json(k->read_s, k->reading), "store_s",
                     caching_mean_json(k->store_s, k->reading));
}

json_t *cw_dp_caching_json(const struct stream *s)
{
    const struct cw_cache_stats *first = caching_first(s);
    struct cw_cache_sum sums[CW_POLICY_CACHE_POINTS];
    if (!first)
        return json_null();
    json_t *list = json_array();
    caching_sum(s, sums);
    for (size_t i = 1; i < first->n; i++)
        cw_dp_json_append(&list,
                          caching_point_json(first->variants[i].name, &sums[i - 1],
                                             first->variants[i].cache_point == caching_used(s, first)));
    return json_pack("{s:o}", "cache_points", list);
}
