/* Streams of a worker: from Prepare to Forget, their leases, and where their answers go. The loop's thread
 * only. */
#include <malloc.h>
#include <string.h>

#include "host/host.h"
#include "dataset/mixing.h"
#include "service/worker/origin.h"
#include "service/worker/worker_impl.h"

/* Ranges that are leased at a time, from CAPACITY_MIN to CAPACITY_MAX: so many that, at piece_size positions
 * each, requests and completions cost little. Of a counted pipeline, CAPACITY_MAX: one worker can have all
 * ranges of a batch, which are at most half as many (service/dispatcher/cut.c). */
#define CAPACITY_ELEMENTS 8192
#define CAPACITY_MIN 2
#define CAPACITY_MAX 64
/* More leases than any dispatcher gives by that measure: what is not revoked stays until clients are behind
 * it. */
#define MAX_LEASES 65536

struct worker_stream *cw_streams_find(struct cw_worker *w, ProtobufCBinaryData name)
{
    struct worker_stream *s = name.len == sizeof(s->stream->name) ? w->streams : NULL;
    while (s && (s->state == STREAM_ENDING || memcmp(s->stream->name, name.data, name.len) != 0))
        s = s->next;
    return s;
}

uint32_t cw_streams_capacity(const struct worker_stream *s)
{
    if (s->stream->kind == RANGES_COUNTED)
        return CAPACITY_MAX;
    return (uint32_t)CW_MIN(
        CW_MAX(CAPACITY_ELEMENTS / CW_MAX(s->stream->local.sequence->piece_size, 1), (uint64_t)CAPACITY_MIN),
        (uint64_t)CAPACITY_MAX);
}

void cw_streams_do(struct worker_stream *s, struct cw_command *c)
{
    if (c) {
        cw_stream_do(s->stream, c);
        return;
    }
    cw_worker_log(s->w, "out of memory: a stream ends");
    cw_streams_end(s->w, s);
}

void cw_streams_wake(struct cw_worker *w)
{
    for (struct worker_stream *s = w->streams; s; s = s->next)
        cw_stream_wake(s->stream);
}

/* Bytes of one of n streams. */
static size_t share(const struct cw_worker *w, size_t n)
{
    return (w->options.memory - w->options.memory / CW_HANDED_OUT_PART) / CW_MAX(n, (size_t)1);
}

/* Those that compute, or will. */
static size_t n_using(const struct cw_worker *w)
{
    size_t n = 0;
    for (const struct worker_stream *s = w->streams; s; s = s->next)
        n += s->state == STREAM_OPENING || s->state == STREAM_READY;
    return n;
}

/* Tells a stream how much memory it has, as it was divided last. Without memory for a message, it learns it
 * the next time. */
static void send_share(struct worker_stream *s)
{
    struct cw_command *c = malloc(sizeof(*c));
    if (!c)
        return;
    *c = (struct cw_command){.kind = CW_DO_MEMORY, .memory = share(s->w, s->w->n_streams_using)};
    cw_stream_do(s->stream, c);
}

/* Streams that compute share the memory equally. */
void cw_streams_settle(struct cw_worker *w)
{
    size_t n = n_using(w);
    if (n == w->n_streams_using)
        return;
    w->n_streams_using = n;
    for (struct worker_stream *s = w->streams; s; s = s->next)
        if (s->state == STREAM_READY) /* one that opens learns it when it is open */
            send_share(s);
}

static void lease_free(struct lease *l)
{
    cw_report_free(l->report);
    free(l);
}

static void forget_leases(struct worker_stream *s)
{
    while (s->leases)
        lease_free(CW_POP(s->leases));
    s->n_leases = 0;
}

void cw_streams_end(struct cw_worker *w, struct worker_stream *s)
{
    if (s->state == STREAM_ENDING)
        return;
    if (s->state != STREAM_OPENING) /* else its thread may be about to set it */
        cw_origin_close(s->stream->origin);
    s->state = STREAM_ENDING;
    forget_leases(s);
    cw_stream_do(s->stream, CW_STEAL(s->end));
    cw_worker_changed(w);
}

/* ---- what streams answer ---- */

static void exited(struct worker_stream *s)
{
    struct cw_worker *w = s->w;
    struct worker_stream **at = &w->streams;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    cw_stream_work(s->stream, &w->work);
    cw_stream_free(s->stream);
    forget_leases(s);
    free(s->end);
    free(s);
    if (!w->streams) { /* nothing is kept for anybody: what functions loaded, what the allocator holds */
        cw_host_shutdown();
        malloc_trim(0);
    }
    cw_worker_changed(w);
    cw_worker_maybe_over(w);
}

static void log_mixing(void *worker, const struct cw_mixing *m)
{
    cw_worker_log(worker, "%s", m->says);
}

static void opened(struct worker_stream *s)
{
    if (s->state != STREAM_OPENING)
        return;
    s->state = STREAM_READY;
    s->plan = cw_sequence_plan(s->stream->local.sequence); /* immutable now */
    cw_mixing_each(s->stream->local.sequence, log_mixing, s->w);
    send_share(s); /* others may have come or gone meanwhile */
    cw_control_prepared(s->w, s);
}

static void stream_failed(struct worker_stream *s, const struct cw_error *why)
{
    if (s->state != STREAM_READY)
        return;
    s->state = STREAM_FAILED;
    forget_leases(s);
    cw_control_stream_failed(
        s->w, (ProtobufCBinaryData){.data = s->stream->name, .len = sizeof(s->stream->name)}, why);
}

/* The dispatcher is to be told of a range that it did not take away meanwhile; else it would not listen
 * anyway. */
static void take_answer(struct worker_stream *s, struct cw_answer *a)
{
    static const struct cw_error unknown = {.status = CW_E_MEMORY, .message = "out of memory"};
    const struct cw_error *why = a->why ? a->why : &unknown;
    switch (a->kind) {
    case CW_SAY_OPENED:
        opened(s);
        break;
    case CW_SAY_NOT_OPENED:
        if (s->state == STREAM_OPENING)
            cw_control_prepare_failed(s->w, s, why);
        cw_streams_end(s->w, s);
        break;
    case CW_SAY_COMPLETED:
        if (s->state == STREAM_READY)
            cw_reports_completed(s->w, s, a);
        break;
    case CW_SAY_FAILED:
        stream_failed(s, why);
        break;
    case CW_SAY_EXITED:
        exited(s);
        break;
    default:
        cw_clients_answer(s, a);
    }
}

static void on_answers(void *arg)
{
    struct worker_stream *s = arg;
    struct cw_worker *w = s->w;
    struct cw_answer *came = cw_stream_answers(s->stream);
    while (came) {
        struct cw_answer *a = CW_POP(came);
        take_answer(s, a); /* after the last one s is gone */
        cw_answer_free(a);
    }
    cw_worker_changed(w);
}

/* ---- what the dispatcher says ---- */

int cw_streams_prepare(struct cw_worker *w, uint64_t id, const Cachew__Prepare *m, struct cw_error *err)
{
    struct worker_stream *s = cw_streams_find(w, m->stream);
    if (m->stream.len != sizeof(s->stream->name))
        return cw_error_set(err, CW_E_SERVICE, "Prepare names a stream of %zu bytes: expected %zu",
                            m->stream.len, sizeof(s->stream->name));
    if (m->fingerprint.len != sizeof(s->stream->fingerprint))
        return cw_error_set(err, CW_E_SERVICE, "Prepare has a fingerprint of %zu bytes: expected %zu",
                            m->fingerprint.len, sizeof(s->stream->fingerprint));
    if (s && s->state == STREAM_FAILED) { /* anew */
        cw_streams_end(w, s);
        s = NULL;
    }
    if (s) {
        s->prepare_id = id;
        if (s->state == STREAM_READY)
            cw_control_prepared(w, s);
        return 0;
    }
    struct worker_stream *n = malloc(sizeof(*n));
    struct cw_command *end = malloc(sizeof(*end));
    if (!n || !end) {
        free(n);
        free(end);
        return cw_error_nomem(err, sizeof(*n), "a stream");
    }
    *end = (struct cw_command){.kind = CW_DO_END};
    *n = (struct worker_stream){
        .next = w->streams, .w = w, .prepare_id = id, .serial = next_number(&w->next_serial), .end = end};
    /* as it is now: what is forgotten in the same breath makes room */
    size_t memory = share(w, n_using(w) + 1);
    int r = cw_stream_new(&w->stream_options, w->loop, m->stream.data, m->fingerprint.data, m->pipeline,
                          strlen(m->pipeline), m->base_dir, m->seed, memory, on_answers, n, &n->stream, err);
    if (r < 0) {
        free(end);
        free(n);
        return r;
    }
    cw_stream_set_cache_point(n->stream, m->cache_point);
    w->streams = n;
    cw_worker_changed(w);
    return 0;
}

void cw_streams_caching(struct cw_worker *w, const Cachew__Caching *m)
{
    struct worker_stream *s = cw_streams_find(w, m->stream);
    if (s)
        cw_stream_set_cache_point(s->stream, m->cache_point);
}

static struct lease **find_lease(struct worker_stream *s, uint64_t epoch, uint64_t begin)
{
    struct lease **at = &s->leases;
    while (*at && ((*at)->epoch < epoch || ((*at)->epoch == epoch && (*at)->begin < begin)))
        at = &(*at)->next;
    return at;
}

struct lease *cw_streams_find_lease(struct worker_stream *s, uint64_t epoch, uint64_t begin)
{
    struct lease *l = *find_lease(s, epoch, begin);
    return l && l->epoch == epoch && l->begin == begin ? l : NULL;
}

/* Whether a range can be run: it is one of this plan, and no part of it is leased. */
static int range_check(struct worker_stream *s, const Cachew__Range *m, struct cw_error *err)
{
    uint64_t n = s->plan.n_positions;
    bool whole = s->stream->kind == RANGES_SEQUENTIAL;
    const char *expected = NULL;
    if (m->begin >= m->end || m->end > n)
        expected = "positions of the epoch";
    else if (whole && (m->begin ||
                       (m->end != n && n < CW_ENDLESS))) /* an endless epoch has an end for the dispatcher */
        expected = "the whole epoch, which is one range";
    for (const struct lease *l = s->leases; l && !expected; l = l->next)
        if (l->epoch == m->epoch && l->begin < m->end && m->begin < l->end)
            expected = "no position that is leased already";
    return expected
               ? cw_error_set(err, CW_E_SERVICE, "positions %llu to %llu of %llu were leased, expected %s",
                              (unsigned long long)m->begin, (unsigned long long)m->end, (unsigned long long)n,
                              expected)
               : 0;
}

static int lease(struct worker_stream *s, const Cachew__Range *m, uint64_t from, bool whole,
                 struct cw_error *err)
{
    struct lease **at = find_lease(s, m->epoch, m->begin);
    if (*at && (*at)->epoch == m->epoch && (*at)->begin == m->begin &&
        ((*at)->end == m->end || (*at)->number == m->lease))
        return 0; /* said again */
    int r = range_check(s, m, err);
    if (r < 0)
        return r;
    if (s->n_leases == MAX_LEASES)
        return cw_error_set(err, CW_E_SERVICE, "more than %d ranges were leased", MAX_LEASES);
    struct lease *l = malloc(sizeof(*l));
    struct cw_command *c = calloc(1, sizeof(*c));
    if (!l || !c) {
        free(l);
        free(c);
        return cw_error_nomem(err, sizeof(*l), "a lease");
    }
    *l = (struct lease){.next = *at, .epoch = m->epoch, .begin = m->begin, .end = m->end, .number = m->lease};
    *at = l;
    s->n_leases++;
    *c = (struct cw_command){.kind = CW_DO_LEASE,
                             .epoch = m->epoch,
                             .begin = m->begin,
                             .end = m->end,
                             .from = CW_MIN(CW_MAX(from, m->begin), m->end),
                             .whole = whole,
                             .lease = m->lease};
    cw_stream_do(s->stream, c);
    return 0;
}

int cw_streams_lease(struct cw_worker *w, const Cachew__Leases *m, struct cw_error *err)
{
    struct worker_stream *s = cw_streams_find(w, m->stream);
    int r = 0;
    if (!s) { /* of a dispatcher that believes otherwise: it prepares it anew */
        struct cw_error why = {0};
        (void)cw_error_set(&why, CW_E_SERVICE, "ranges of a stream were leased that is not prepared here");
        cw_control_stream_failed(w, m->stream, &why);
        return 0;
    }
    if (s->state != STREAM_READY)
        return 0; /* it failed just now, and the dispatcher learns of it */
    if (s->stream->origin && m->origin)
        cw_origin_is(s->stream->origin, w, m->origin, m->passed);
    for (size_t i = 0; i < m->n_ranges && r == 0; i++)
        r = lease(s, m->ranges[i], i < m->n_from ? m->from[i] : 0, i < m->n_whole && m->whole[i], err);
    cw_worker_changed(w);
    return r;
}

int cw_streams_revoke(struct cw_worker *w, const Cachew__Revoke *m, struct cw_error *err)
{
    struct worker_stream *s = cw_streams_find(w, m->stream);
    if (!s || s->state != STREAM_READY)
        return 0;
    for (size_t i = 0; i < m->n_positions; i++) {
        const Cachew__Range *range = m->positions[i];
        struct cw_command *c = calloc(1, sizeof(*c));
        if (!c)
            return cw_error_nomem(err, sizeof(*c), "a message");
        for (struct lease **at = find_lease(s, range->epoch, range->begin);
             *at && (*at)->epoch == range->epoch && (*at)->end <= range->end;) {
            s->n_leases--;
            lease_free(CW_POP(*at));
        }
        *c = (struct cw_command){
            .kind = CW_DO_REVOKE, .epoch = range->epoch, .begin = range->begin, .end = range->end};
        cw_stream_do(s->stream, c);
    }
    cw_worker_changed(w);
    return 0;
}
