/* The heartbeat: every second the worker tells the dispatcher how much CPU time and memory it uses, and what
 * it has computed of each stream. The loop's thread only; called by worker.c. */
#include "service/worker/heartbeat.h"

#include "cache/cache.h"
#include "policy/cache_stats.h"
#include "service/worker/status.h"
#include "service/worker/tuning.h"
#include "service/worker/worker_impl.h"

#define HEARTBEAT_NS UINT64_C(1000000000)
/* Most streams in a heartbeat; further streams are left out. With so many streams, each gets only a small
 * part of the worker. */
#define MAX_STREAMS 64
#define MAX_OPERATORS 64 /* most operators of a stream in a heartbeat; further ones are left out */

struct cache_points {
    struct cw_cache_stats stats;
    Cachew__CachePointWork work[CW_CACHE_VARIANTS], *list[CW_CACHE_VARIANTS];
};

struct beat {
    struct cache_points cache_points[MAX_STREAMS];
    Cachew__StreamWork streams[MAX_STREAMS], *list[MAX_STREAMS];
    Cachew__OperatorWork operators[MAX_STREAMS][MAX_OPERATORS], *operator_lists[MAX_STREAMS][MAX_OPERATORS];
};

/* Adds the measurements of a stream's cache points. */
static void beat_add_cache_points(struct cache_points *x, const struct cw_worker_stream *s,
                                  Cachew__StreamWork *m)
{
    cw_stream_cache_stats(s->stream, &x->stats);
    m->cache_points = x->list;
    m->cache_point = x->stats.cache_point;
    for (m->n_cache_points = 0; m->n_cache_points < x->stats.n; m->n_cache_points++) {
        struct cw_cache_variant_stats *c = &x->stats.variants[m->n_cache_points];
        Cachew__CachePointWork *work = x->list[m->n_cache_points] = &x->work[m->n_cache_points];
        *work = (Cachew__CachePointWork){CW_MESSAGE(cache_point_work),
                                         .cache_point = c->cache_point,
                                         .compute_s = c->compute_s,
                                         .read_s = c->read_s,
                                         .store_s = c->store_s,
                                         .was_read = c->was_read,
                                         .bytes = c->bytes,
                                         .cached = c->cached,
                                         .written = c->written,
                                         .unread = c->unread};
        if (*c->name)
            work->name = c->name;
    }
}

static void beat_add_stream(struct beat *b, size_t i, const struct cw_worker_stream *s)
{
    struct cw_work work = {0};
    Cachew__StreamWork *m = b->list[i] = &b->streams[i];
    cw_stream_add_work(s->stream, &work);
    *m = (Cachew__StreamWork){CW_MESSAGE(stream_work),
                              .stream = cw_streams_name(s),
                              .compute_ns = work.compute_ns / s->streams->common->options.threads,
                              .positions = work.positions,
                              .cached_positions = work.cached_positions,
                              .batches = work.batches,
                              .read_ns = work.read_ns,
                              .read_bytes = work.read_bytes,
                              .operators = b->operator_lists[i]};
    for (; m->n_operators < work.n && m->n_operators < MAX_OPERATORS; m->n_operators++) {
        const struct cw_work_op *op = &work.ops[m->n_operators];
        Cachew__OperatorWork *o = m->operators[m->n_operators] = &b->operators[i][m->n_operators];
        *o = (Cachew__OperatorWork){CW_MESSAGE(operator_work), .name = (char *)(uintptr_t)op->name,
                                    .ns = op->ns, .elements = op->rows};
    }
    cw_work_deinit(&work);
    beat_add_cache_points(&b->cache_points[i], s, m);
}

static void heartbeat_on_timer(void *arg)
{
    struct cw_worker *w = arg;
    struct cw_cache_facts f = {0};
    /* without memory for this, the heartbeat names no streams */
    _cleanup_free_ struct beat *b = w->streams.list ? calloc(1, sizeof(*b)) : NULL;
    if (w->cache)
        cw_cache_facts(w->cache, &f);
    Cachew__Heartbeat beat = {
        CW_MESSAGE(heartbeat),
        .cpu_ns = cw_status_cpu_ns(),
        .memory_bytes = atomic_load(&w->clients.handed_out.used),
        .n_batches = w->clients.stats.n_batches,
        .n_bytes = w->clients.stats.n_bytes,
        .streams = b ? b->list : NULL,
        .cache_hits = f.hits,
        .cache_misses = f.misses,
        .cache_read_bytes_per_s = f.probe_ns ? (double)f.probe_bytes * 1e9 / (double)f.probe_ns : 0,
        .cache_write_bytes_per_s = cw_write_rate(&w->written, &f),
        .cache_bytes = w->cache ? cw_cache_quota(w->cache) : 0,
        .cache_used = f.used,
        .cache_bad = f.bad + f.gone,
        .cache_refused = f.refused,
        .cache_skipped = f.skipped,
        .cache_late = f.late};
    for (const struct cw_worker_stream *s = w->streams.list; s; s = s->next) {
        beat.memory_bytes += cw_stream_memory_used(s->stream);
        if (b && s->state == STREAM_READY && beat.n_streams < MAX_STREAMS)
            beat_add_stream(b, beat.n_streams++, s);
    }
    struct cw_log_lines lines = {0};
    char *texts[CW_LOG_LINES];
    if (w->common.log_tail && w->uplink.state == CW_UPLINK_REGISTERED) /* else nothing is sent */
        cw_log_tail_take(w->common.log_tail, &lines);
    for (size_t i = 0; i < lines.n; i++)
        texts[i] = lines.text[i];
    beat.n_log = lines.n;
    beat.log = texts;
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_HEARTBEAT,
                          .heartbeat = &beat};
    cw_uplink_send(&w->uplink, &m);
    cw_tuning_log(w);
    cw_common_changed(&w->common);
}

int cw_heartbeat_start(struct cw_worker *w, struct cw_error *err)
{
    int r = cw_timer_new(w->common.loop, heartbeat_on_timer, w, &w->heartbeat, err);
    if (r >= 0)
        cw_timer_start(w->heartbeat, HEARTBEAT_NS, HEARTBEAT_NS);
    return r;
}
