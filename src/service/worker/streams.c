/* All streams of a worker, from Prepare to Forget: their grants, and their shares of the memory. The loop's
 * thread only. control.c passes the dispatcher's messages to this module, and handles the streams' answers;
 * clients.c looks up the streams of requests. */
#include "service/worker/streams.h"

#include <malloc.h>
#include <string.h>

#include "dataset/mixing.h"
#include "host/host.h"
#include "service/worker/origin.h"

/* The number of ranges that are leased to a worker at a time: CAPACITY_ELEMENTS elements in ranges of
 * piece_size positions, within CAPACITY_MIN and CAPACITY_MAX. With that, requests and completions cost
 * little. For a counted pipeline it is CAPACITY_MAX, so that one worker can have all ranges of a batch, which
 * are at most half as many (service/dispatcher/cut.h). */
#define CAPACITY_ELEMENTS 8192
#define CAPACITY_MIN 2
#define CAPACITY_MAX 64

ProtobufCBinaryData cw_streams_name(const struct cw_worker_stream *s)
{
    return (ProtobufCBinaryData){.data = s->stream->name, .len = sizeof(s->stream->name)};
}

struct cw_worker_stream *cw_streams_find(struct cw_streams *all, ProtobufCBinaryData name)
{
    struct cw_worker_stream *s = name.len == sizeof(s->stream->name) ? all->list : NULL;
    while (s && (s->state == STREAM_ENDING || memcmp(s->stream->name, name.data, name.len) != 0))
        s = s->next;
    return s;
}

uint32_t cw_streams_capacity(const struct cw_worker_stream *s)
{
    if (s->stream->leases.kind == CW_RANGES_COUNTED)
        return CAPACITY_MAX;
    return (uint32_t)CW_MIN(
        CW_MAX(CAPACITY_ELEMENTS / CW_MAX(s->stream->local.sequence->piece_size, 1), (uint64_t)CAPACITY_MIN),
        (uint64_t)CAPACITY_MAX);
}

void cw_streams_wake(struct cw_streams *all)
{
    for (struct cw_worker_stream *s = all->list; s; s = s->next)
        cw_mailbox_wake(&s->stream->mailbox);
}

/* ---- memory: streams that compute share it equally ---- */

/* Returns the bytes that each of n streams may use. */
static size_t streams_share(const struct cw_streams *all, size_t n)
{
    size_t memory = all->common->options.memory;
    return (memory - memory / CW_HANDED_OUT_PART) / CW_MAX(n, (size_t)1);
}

/* Returns the number of streams that compute, or are being opened. */
static size_t streams_n_sharing(const struct cw_streams *all)
{
    size_t n = 0;
    for (const struct cw_worker_stream *s = all->list; s; s = s->next)
        n += s->state == STREAM_OPENING || s->state == STREAM_READY;
    return n;
}

/* Sends a stream its share of the memory. If there is no memory for the command, the share is set the next
 * time. */
static void streams_send_share(struct cw_worker_stream *s)
{
    size_t memory = streams_share(s->streams, s->streams->n_sharing);
    (void)cw_stream_command(s->stream, &(struct cw_command){.kind = CW_COMMAND_MEMORY, .memory = memory});
}

void cw_streams_settle(struct cw_streams *all)
{
    size_t n = streams_n_sharing(all);
    if (n == all->n_sharing)
        return;
    all->n_sharing = n;
    for (struct cw_worker_stream *s = all->list; s; s = s->next)
        if (s->state == STREAM_READY) /* a stream that is being opened gets its share when it is open */
            streams_send_share(s);
}

/* ---- ending ---- */

void cw_streams_end(struct cw_worker_stream *s)
{
    if (s->state == STREAM_ENDING)
        return;
    if (s->state != STREAM_OPENING) /* while it is being opened, its thread may be about to set `origin` */
        cw_origin_close(s->stream->origin);
    s->state = STREAM_ENDING;
    cw_grants_clear(&s->grants);
    cw_stream_end(s->stream);
    cw_common_changed(s->streams->common);
}

void cw_streams_forget_peer(struct cw_streams *all, struct cw_peer *p)
{
    for (struct cw_worker_stream *s = all->list; s; s = s->next)
        if (!cw_stream_command(
                s->stream, &(struct cw_command){.kind = CW_COMMAND_FORGET_PEER, .peer = cw_peer_ref(p)})) {
            cw_peer_unref(p);
            cw_common_log(all->common, "out of memory: the worker gives up a pipeline");
            cw_streams_end(s);
        }
}

/* ---- answers of streams ---- */

void cw_streams_exited(struct cw_worker_stream *s)
{
    struct cw_streams *all = s->streams;
    CW_UNLINK(all->list, s);
    cw_stream_add_work(s->stream, &all->work);
    cw_stream_free(s->stream);
    cw_grants_clear(&s->grants);
    free(s);
    if (!all->list) { /* after the last stream, free what Python functions loaded, and the allocator's free
                         memory */
        cw_host_shutdown();
        malloc_trim(0);
    }
}

static void streams_log_mixing(void *common, const struct cw_mixing *m)
{
    cw_common_log(common, "%s", m->says);
}

bool cw_streams_opened(struct cw_worker_stream *s)
{
    if (s->state != STREAM_OPENING)
        return false;
    s->state = STREAM_READY;
    cw_mixing_each(s->stream->local.sequence, streams_log_mixing, s->streams->common);
    streams_send_share(s); /* the number of streams may have changed since it was made */
    return true;
}

/* ---- messages of the dispatcher ---- */

int cw_streams_prepare(struct cw_streams *all, uint64_t id, const Cachew__Prepare *m, struct cw_error *err)
{
    const struct cw_stream *of;
    if (m->stream.len != sizeof(of->name) || m->fingerprint.len != sizeof(of->fingerprint))
        return cw_error_set(
            err, CW_E_SERVICE,
            "the dispatcher sent a malformed message (Prepare): a stream id of %zu bytes and a "
            "pipeline fingerprint of %zu bytes, expected %zu bytes each" CW_OTHER_VERSION,
            m->stream.len, m->fingerprint.len, sizeof(of->name));
    struct cw_worker_stream *s = cw_streams_find(all, m->stream);
    if (s && s->state == STREAM_FAILED) { /* the stream is prepared again */
        cw_streams_end(s);
        s = NULL;
    }
    if (s) {
        s->prepare_id = id;
        return 0;
    }
    if (!(s = malloc(sizeof(*s))))
        return cw_error_nomem(err, sizeof(*s), "a stream");
    *s = (struct cw_worker_stream){
        .next = all->list, .streams = all, .prepare_id = id, .serial = ++all->next_serial};
    /* its share as of now; streams that end later in this iteration of the loop make room */
    int r = cw_stream_new(all->common, all->cache, m, streams_share(all, streams_n_sharing(all) + 1),
                          all->on_answers, s, &s->stream, err);
    if (r < 0) {
        free(s);
        return r;
    }
    all->list = s;
    cw_common_changed(all->common);
    return 0;
}

void cw_streams_set_caching(struct cw_streams *all, const Cachew__Caching *m)
{
    struct cw_worker_stream *s = cw_streams_find(all, m->stream);
    if (s)
        cw_stream_set_cache_point(s->stream, m->cache_point);
}

static int streams_lease_one(struct cw_worker_stream *s, const Cachew__Range *m, uint64_t from, bool whole,
                             struct cw_error *err)
{
    bool sequential = s->stream->leases.kind == CW_RANGES_SEQUENTIAL;
    int r = cw_grants_add(&s->grants, m, s->stream->local.sequence->n_positions, sequential, err);
    if (r != 0)
        return CW_MIN(r, 0);
    const struct cw_command c = {.kind = CW_COMMAND_LEASE,
                                 .epoch = m->epoch,
                                 .begin = m->begin,
                                 .end = m->end,
                                 .from = CW_MIN(CW_MAX(from, m->begin), m->end),
                                 .whole = whole,
                                 .lease = m->lease};
    if (cw_stream_command(s->stream, &c))
        return 0;
    cw_grants_revoke(&s->grants, m);
    return cw_error_nomem(err, sizeof(c), "a lease");
}

int cw_streams_lease(struct cw_worker_stream *s, const Cachew__Leases *m, struct cw_error *err)
{
    struct cw_worker_common *common = s->streams->common;
    int r = 0;
    if (s->state != STREAM_READY)
        return 0; /* the stream has just failed, and the dispatcher is being told */
    if (s->stream->origin && m->origin)
        cw_origin_name(s->stream->origin, common, m->origin, m->passed);
    for (size_t i = 0; i < m->n_ranges && r == 0; i++)
        r = streams_lease_one(s, m->ranges[i], i < m->n_from ? m->from[i] : 0, i < m->n_whole && m->whole[i],
                              err);
    cw_common_changed(common);
    return r;
}

int cw_streams_revoke(struct cw_streams *all, const Cachew__Revoke *m, struct cw_error *err)
{
    struct cw_worker_stream *s = cw_streams_find(all, m->stream);
    if (!s || s->state != STREAM_READY)
        return 0;
    for (size_t i = 0; i < m->n_positions; i++) {
        const Cachew__Range *range = m->positions[i];
        const struct cw_command c = {
            .kind = CW_COMMAND_REVOKE, .epoch = range->epoch, .begin = range->begin, .end = range->end};
        if (!cw_stream_command(s->stream, &c))
            return cw_error_nomem(err, sizeof(c), "a message");
        cw_grants_revoke(&s->grants, range);
    }
    cw_common_changed(all->common);
    return 0;
}
