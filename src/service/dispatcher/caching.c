/*
 * Which marker of a stream is used: what its workers measured goes to the policy (scale.c), and what that
 * says goes to the workers. A worker's heartbeat tells what it uses: while that is something else it is told
 * again, so that nothing is lost with a connection.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/dispatcher/internal.h"

static void say(struct cw_dispatcher *d, const struct seat *t)
{
    Cachew__Caching c = {CW_MESSAGE(caching), .stream = {16, t->stream->id}, .marker = t->stream->marker};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_CACHING, .caching = &c};
    cw_dp_send(d, t->worker->peer, &m);
}

/* ---- what workers say ---- */

/* A peer may say anything. */
static double sane(double x)
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
                                     .read_bytes_per_s = sane(m->cache_read_bytes_per_s),
                                     .write_bytes_per_s = sane(m->cache_write_bytes_per_s),
                                     .bound = (double)m->cache_bytes};
}

static void take_name(const Cachew__MarkerWork *m, char *ret, size_t size)
{
    size_t n = 0;
    for (const char *at = m->name ? m->name : ""; *at && n + 1 < size; at++)
        if (*at >= ' ' && *at <= '~')
            ret[n++] = *at;
    ret[n] = '\0';
    if (!n)
        snprintf(ret, size, "marker %d", m->marker - 1);
}

static void take_marker(const Cachew__MarkerWork *m, struct marker_work *ret)
{
    *ret = (struct marker_work){.marker = m->marker,
                                .compute_s = sane(m->compute_s),
                                .read_s = sane(m->read_s),
                                .store_s = sane(m->store_s),
                                .was_read = m->was_read,
                                .unread = m->unread,
                                .bytes = sane(m->bytes),
                                .cached = fmin(sane(m->cached), 1),
                                .written = fmin(sane(m->written), 1)};
    take_name(m, ret->name, sizeof(ret->name));
}

void cw_dp_caching_heard(struct cw_dispatcher *d, struct seat *t, const Cachew__StreamWork *x)
{
    struct caching *c = t->caching;
    if (x->n_markers && !c && !(c = t->caching = calloc(1, sizeof(*c))))
        return; /* the next time */
    if (!c)
        return;
    c->n = 0;
    c->marker = x->marker;
    c->none_s = 0;
    for (size_t i = 0; i < x->n_markers; i++) {
        const Cachew__MarkerWork *m = x->markers[i];
        if (m->marker < 0)
            c->none_s = sane(m->compute_s);
        else if (m->marker > 0 && c->n < DP_MARKERS)
            take_marker(m, &c->markers[c->n++]);
    }
    if (c->n && t->stream->marker && t->stream->marker != c->marker && t->state == SEAT_READY)
        say(d, t);
}

/* ---- what the policy is told ---- */

static const struct caching *caching_of(const struct seat *t)
{
    return t->granted && t->state == SEAT_READY && t->caching && t->caching->n ? t->caching : NULL;
}

static const struct marker_work *find(const struct caching *c, int32_t marker)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->markers[i].marker == marker)
            return &c->markers[i];
    return NULL;
}

/* Numbers of facts are places in the list of the first worker that says something. */
static const struct caching *first_of(const struct stream *s)
{
    CW_LIST_EACH_OF (t, struct seat, by_stream, &s->seats)
        if (caching_of(t))
            return caching_of(t);
    return NULL;
}

static int32_t number_of(const struct caching *c, int marker)
{
    return marker < 0 ? -1 : c->markers[marker].marker;
}

/* What all workers together know of a marker. */
struct known {
    double workers, saved_s, bytes, cached, written; /* sums; saved_s: by reading, where that is known: */
    double known, speed, read; /* workers; bytes of storage per second; workers that read from storage */
    double unread;             /* workers that use it, and compute all the same */
    /* workers that know it, and sums of what a position takes them */
    double computing, compute_s, reading, read_s, store_s;
    bool was_read;
};

static void add(struct known *k, const struct caching *c, const struct marker_work *m)
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

static struct known know(const struct stream *s, int32_t marker)
{
    struct known k = {0};
    CW_LIST_EACH (at, &s->seats) {
        const struct caching *c = caching_of(CW_CONTAINER(at, struct seat, by_stream));
        const struct marker_work *m = c ? find(c, marker) : NULL;
        if (m)
            add(&k, c, m);
    }
    return k;
}

/* The cache's speeds, of all workers together. What was read tells more than what a store found when it
 * tried. */
static void storage_facts(const struct stream *s, const struct known *of, struct cw_storage_facts *f)
{
    CW_LIST_EACH_OF (t, const struct seat, by_stream, &s->seats) {
        if (!caching_of(t))
            continue;
        f->read_bytes_per_s += t->worker->cache.read_bytes_per_s;
        f->write_bytes_per_s += t->worker->cache.write_bytes_per_s;
        /* one directory, as far as is known */
        f->cache_bytes = CW_MAX(f->cache_bytes, t->worker->cache.bound);
    }
    if (of && of->was_read)
        f->read_bytes_per_s = of->read > 0 ? of->speed / of->read * of->workers : 0;
}

void cw_dp_caching_facts(const struct stream *s, double per_batch, struct cw_facts *f,
                         struct cw_marker_facts *markers)
{
    const struct caching *first = first_of(s);
    struct known in_use = {0};
    f->marker = -1;
    f->markers = markers;
    int32_t marker = s->marker ? s->marker : first ? first->marker : 0;
    for (size_t i = 0; first && i < first->n; i++) {
        struct known k = know(s, first->markers[i].marker);
        bool used = first->markers[i].marker == marker;
        if (used && k.unread < k.workers / 2) /* else it is as if none were */
            f->marker = (int)i;
        if (used || !in_use.was_read)
            in_use = k;
        markers[i] = (struct cw_marker_facts){.name = first->markers[i].name,
                                              .prefix_s = k.known > 0 ? per_batch * k.saved_s / k.known : 0,
                                              .bytes = per_batch * k.bytes / k.workers,
                                              .cached = k.cached / k.workers,
                                              .written = fmin(k.written, 1)};
    }
    f->n_markers = first ? (int)first->n : 0;
    storage_facts(s, first ? &in_use : NULL, &f->storage);
}

/* ---- what it said ---- */

bool cw_dp_caching_open(const struct stream *s)
{
    return first_of(s) != NULL;
}

bool cw_dp_caching_is(const struct stream *s, int marker)
{
    const struct caching *c = first_of(s);
    return !c || marker >= (int)c->n || (s->marker ? s->marker : c->marker) == number_of(c, marker);
}

int cw_dp_caching_in_use(const struct stream *s)
{
    const struct caching *c = first_of(s);
    for (size_t i = 0; c && i < c->n; i++)
        if (c->markers[i].marker == (s->marker ? s->marker : c->marker))
            return (int)i;
    return -1;
}

void cw_dp_caching_choose(struct cw_dispatcher *d, struct stream *s, int marker)
{
    const struct caching *c = first_of(s);
    if (!c || marker >= (int)c->n)
        return;
    s->marker = number_of(c, marker);
    CW_LIST_EACH_OF (t, struct seat, by_stream, &s->seats)
        if (t->state == SEAT_READY && t->caching && t->worker->peer)
            say(d, t);
}

/* ---- for people ---- */

static json_t *mean_json(double sum, double n)
{
    return n > 0 ? json_real(sum / n) : json_null();
}

static json_t *marker_json(const struct stream *s, const struct marker_work *m, bool in_use)
{
    struct known k = know(s, m->marker);
    return json_pack("{s:s, s:b, s:b, s:f, s:f, s:o, s:o, s:o}", "name", m->name, "in_use", in_use, "unread",
                     in_use && k.unread >= k.workers / 2, "cached", k.cached / k.workers, "bytes",
                     k.bytes / k.workers, "compute_s", mean_json(k.compute_s, k.computing), "read_s",
                     mean_json(k.read_s, k.reading), "store_s", mean_json(k.store_s, k.reading));
}

json_t *cw_dp_caching_json(const struct stream *s)
{
    const struct caching *first = first_of(s);
    if (!first)
        return json_null();
    int32_t in_use = s->marker ? s->marker : first->marker;
    json_t *list = json_array();
    for (size_t i = 0; i < first->n; i++)
        if (json_array_append_new(
                list, marker_json(s, &first->markers[i], first->markers[i].marker == in_use)) < 0) {
            json_decref(list);
            return NULL;
        }
    return json_pack("{s:o}", "markers", list);
}
