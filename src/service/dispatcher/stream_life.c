/* Creates, parks and forgets streams, and moves their low-water marks (the least position that a client
 * needs). */
#include "service/dispatcher/stream_life.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "service/dispatcher/lease_fill.h"
#include "service/dispatcher/prepare.h"
#include "service/dispatcher/state.h"

static void stream_forget(struct cw_dispatcher *d, struct stream *s);

/* ---- made for a job ---- */

/* Makes room for one more stream: if there are DP_STREAMS, forgets one that has no job. False: all have jobs.
 */
static bool stream_room(struct cw_dispatcher *d)
{
    if (d->streams.n < DP_STREAMS)
        return true;
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams.list) {
        if (cw_list_empty(&s->jobs)) {
            stream_forget(d, s);
            break;
        }
    }
    return d->streams.n < DP_STREAMS;
}

int cw_dp_stream_new(struct cw_dispatcher *d, const uint8_t id[16], const uint8_t fingerprint[16],
                     const char *json, uint64_t seed, const char *base_dir, struct stream **ret,
                     struct cw_error *err)
{
    if (!stream_room(d))
        return cw_error_set(
            err, CW_E_SERVICE,
            "the dispatcher has %d streams (pipelines with their data) already, the most that it accepts",
            DP_STREAMS);
    struct stream *s = malloc(sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a stream");
    *s = (struct stream){
        .refs = 1, .speed.depth = d->depth, .seed = seed, .idle_ns = d->now_ns, .base_dir = strdup(base_dir)};
    memcpy(s->id, id, 16);
    cw_list_init(&s->jobs);
    cw_list_init(&s->assignments.list);
    int r = s->base_dir ? 0 : cw_error_nomem(err, sizeof(*s), "a stream");
    if (r == 0)
        r = cw_dp_pipeline_get(d, fingerprint, json, &s->pipeline, err);
    if (r == 0 && cw_map_add(&d->streams.by_id, &s->node, cw_hash64(id, 16)) < 0)
        r = cw_error_nomem(err, sizeof(*s), "a stream");
    if (r < 0) {
        cw_dp_pipeline_unref(d, s->pipeline);
        cw_dp_stream_unref(s);
        return r;
    }
    cw_list_add(&d->streams.list, &s->link);
    d->streams.n++;
    *ret = s;
    return 0;
}

/* Whether a rank that begins at `from` would cut a range of the stream in two, so that it is computed again
 * for all jobs. */
static bool stream_is_split_by(const struct stream *s, const Cachew__Place *from)
{
    uint64_t pos;
    if (!s->data || !from || !cw_dp_stream_placed(s) || cw_dp_stream_position(s, from, &pos, NULL) < 0)
        return false;
    const struct range *x = cw_dp_range_find(&s->ranges, pos);
    return x && x->begin < pos;
}

/* Whether a new job with this Attach can share the stream with its present jobs. */
static bool stream_fits(const struct cw_dispatcher *d, const struct stream *s, const Cachew__Attach *a)
{
    return s->seed == a->seed && !stream_is_split_by(s, a->from) &&
           memcmp(s->pipeline->fingerprint, a->fingerprint.data, 16) == 0 &&
           strcmp(s->base_dir, a->base_dir) == 0 && !s->at_most_once && !cw_list_empty(&s->jobs) &&
           d->share_streams && (a->snapshot == 0 || !s->data || s->data->plan->snapshot == a->snapshot);
}

int cw_dp_stream_get(struct cw_dispatcher *d, const Cachew__Attach *a, struct stream **ret,
                     struct cw_error *err)
{
    bool at_most_once = a->guarantee == CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE;
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams.list) {
        if (!at_most_once && stream_fits(d, s, a)) {
            *ret = s;
            return 0;
        }
    }
    /* The id is a hash of a number and of everything that determines the stream's elements. The number alone
     * is not enough: without a journal it starts again after a restart, and a worker may still have a stream
     * with the same number. */
    struct cw_key key = {0};
    uint8_t id[16];
    cw_key_u64(&key, d->streams.last_number + 1);
    cw_key_u64(&key, a->seed);
    cw_key_u64(&key, cw_hash64(a->base_dir, strlen(a->base_dir)));
    memcpy(key.bytes + key.size, a->fingerprint.data, 16);
    XXH128_hash_t h = XXH3_128bits(key.bytes, key.size + 16);
    memcpy(id, &h, 16);
    int r = cw_dp_stream_new(d, id, a->fingerprint.data, a->pipeline, a->seed, a->base_dir, ret, err);
    if (r < 0)
        return r;
    (*ret)->number = ++d->streams.last_number;
    (*ret)->at_most_once = at_most_once;
    return 0;
}

/* ---- used ---- */

#define PURGE_EVERY 256 /* passed ranges are deleted from the journal together, when there are this many */

void cw_dp_stream_mark(struct cw_dispatcher *d, struct stream *s)
{
    uint64_t mark = UINT64_MAX;
    bool attached = cw_dp_stream_attended(s);
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        if (j->ranks.n_attached > 0 || !attached) /* a job without clients does not hold up other jobs */
            mark = CW_MIN(mark, cw_dp_job_mark(j));
    if (mark == UINT64_MAX)
        return;
    /* With at-most-once, ranges that were given out are not given out again. In the grace period after a
     * restart, ranks with earlier cursors may still return. */
    if (s->ranges.state != RANGES_UNPLACED &&
        ((s->at_most_once && mark < s->ranges.base) || (mark > s->ranges.base && cw_dp_stream_grace(d, s))))
        mark = s->ranges.base;
    cw_dp_lease_rebase(d, s, mark);
    s->ranges.state = RANGES_MARKED;
    if (s->journalled && s->ranges.n_passed >= PURGE_EVERY)
        cw_dp_journal_tried(d, cw_dp_journal_purge(d, s, cw_dp_range_begin(&s->ranges), NULL));
}

/* ---- without a job or clients ---- */

void cw_dp_stream_idle(struct cw_dispatcher *d, struct stream *s)
{
    cw_dp_lease_clear(d, s);
    s->ranges.state = RANGES_UNPLACED;
    s->restored = false;
    if (s->state == STREAM_PARKED)
        s->state = STREAM_ACTIVE;
    s->total = s->begun_to = 0;
    s->idle_ns = d->now_ns;
    if (s->journalled) /* if that fails for lack of memory, a restart just finds ranges that no job wants */
        cw_dp_journal_tried(d, cw_dp_journal_purge(d, s, UINT64_MAX, NULL));
}

/* Frees the stream and deletes it from the journal. If memory is short, the stream stays until a later tick.
 */
static void stream_forget(struct cw_dispatcher *d, struct stream *s)
{
    if (!s->journalled || cw_dp_journal_stream_gone(d, s, NULL) == 0)
        cw_dp_stream_free(d, s);
}

void cw_dp_stream_free(struct cw_dispatcher *d, struct stream *s)
{
    s->state = STREAM_DEAD;
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list)
        cw_dp_lease_forget(d, t);
    cw_dp_lease_clear(d, s);
    cw_map_remove(&d->streams.by_id, &s->node);
    cw_link_out(&s->link);
    cw_link_out(&s->dirty);
    d->streams.n--;
    cw_dp_pipeline_unref(d, s->pipeline);
    cachew__prepared__free_unpacked(CW_STEAL(s->data), NULL);
    s->pipeline = NULL;
    s->ranges.state = RANGES_UNPLACED;
    cw_dp_stream_unref(s);
}

/* Whether the stream is not parked, and none of its jobs has a client; *ret_since_ns: since when. Retiring a
 * stream with at-most-once loses ranges, so such a stream counts only if another stream needs the room
 * (needed). */
static bool stream_is_left(const struct cw_dispatcher *d, const struct stream *s, bool needed,
                           uint64_t *ret_since_ns)
{
    *ret_since_ns = s->idle_ns;
    CW_LIST_EACH_OF (j, const struct job, by_stream, &s->jobs) {
        if (j->ranks.n_attached > 0 || (s->at_most_once && !needed) ||
            (!j->left && d->now_ns - j->since_ns < DP_BACK))
            return false;
        *ret_since_ns = CW_MAX(*ret_since_ns, j->since_ns);
    }
    return s->state != STREAM_PARKED;
}

/* Takes the stream from all workers: forgets it if it has no job, else parks it. Its jobs go on when a client
 * returns. */
static void stream_retire(struct cw_dispatcher *d, struct stream *s)
{
    if (cw_list_empty(&s->jobs)) {
        stream_forget(d, s);
        return;
    }
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list)
        cw_dp_lease_forget(d, t);
    s->state = STREAM_PARKED;
    cw_dp_scaling_due(d);
}

/* Whether some stream with a client has no worker, because no worker has room for one more stream. */
static bool stream_room_is_needed(const struct cw_dispatcher *d)
{
    CW_LIST_EACH_OF (s, const struct stream, link, &d->streams.list)
        if (s->wants && s->assignments.heap.n == 0 && cw_dp_stream_attended(s))
            return true;
    return false;
}

/* Retires streams without clients. Those that lost their client less than DP_WARM ago are kept ready,
 * DP_WARM_STREAMS at most, unless another stream waits for room. True: there may be more to retire. */
static bool stream_retire_left(struct cw_dispatcher *d)
{
    bool needed = stream_room_is_needed(d);
    uint64_t warm_ns = needed ? 0 : DP_WARM;
    size_t n = 0;
    uint64_t since_ns, oldest_ns = UINT64_MAX;
    struct stream *oldest = NULL;
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams.list) {
        if (!stream_is_left(d, s, needed, &since_ns))
            continue;
        if (!s->data || s->at_most_once || cw_list_empty(&s->jobs) || d->now_ns - since_ns >= warm_ns) {
            stream_retire(d, s);
            continue;
        }
        n++;
        if (since_ns < oldest_ns) {
            oldest = s;
            oldest_ns = since_ns;
        }
    }
    if (n <= DP_WARM_STREAMS)
        return false;
    size_t before = d->streams.n;
    bool parks = !cw_list_empty(&oldest->jobs);
    stream_retire(d, oldest);
    return parks || d->streams.n < before;
}

void cw_dp_stream_tick(struct cw_dispatcher *d)
{
    while (stream_retire_left(d))
        ;
    cw_dp_prepare_waiting(d);
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams.list) {
        if (cw_list_empty(&s->jobs) || s->state == STREAM_PARKED)
            continue;
        cw_dp_stream_dirty(d, s); /* memory may have been short in its last turn */
        if (!s->data)
            cw_dp_prepare_stream(d, s);
        if (s->assignments.n_shunned > 0)
            cw_dp_prepare_unshun(d, s, false);
        cw_dp_lease_late(d, s);
    }
}
