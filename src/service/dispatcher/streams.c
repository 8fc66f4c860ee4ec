/* Streams: found for a job, prepared, marked as far as they are consumed, forgotten. */
#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "service/dispatcher/internal.h"

#define PURGE_EVERY 256 /* ranges that are passed before their rows are deleted together */

/* ---- pipelines ---- */

int cw_dp_pipeline_get(struct cw_dispatcher *d, const uint8_t fingerprint[16], const char *json,
                       struct pipeline **ret, struct cw_error *err)
{
    uint64_t hash = cw_hash64(fingerprint, 16);
    size_t size = strlen(json);
    for (struct cw_map_node *at = NULL; (at = cw_map_find(&d->pipelines, hash, at));) {
        struct pipeline *known = CW_CONTAINER(at, struct pipeline, node);
        if (memcmp(known->fingerprint, fingerprint, 16) == 0) {
            known->refs++;
            *ret = known;
            return 0;
        }
    }
    if (size > CW_PIPELINE_BYTES || d->pipeline_bytes + size > DP_PIPELINES)
        return cw_error_set(err, CW_E_SERVICE,
                            "a pipeline of %zu bytes: at most %zu each and %zu together are kept", size,
                            CW_PIPELINE_BYTES, DP_PIPELINES);
    struct pipeline *p = malloc(sizeof(*p));
    char *copy = strdup(json);
    if (p)
        *p = (struct pipeline){.json = copy, .size = size, .refs = 1};
    if (!p || !copy || cw_map_add(&d->pipelines, &p->node, hash) < 0) {
        free(p);
        free(copy);
        return cw_error_nomem(err, size, "a pipeline");
    }
    memcpy(p->fingerprint, fingerprint, 16);
    d->pipeline_bytes += size;
    *ret = p;
    return 0;
}

static void pipeline_unref(struct cw_dispatcher *d, struct pipeline *p)
{
    if (!p || --p->refs > 0)
        return;
    if (p->journalled)
        cw_dp_journal_tried(d, cw_dp_journal_pipeline_gone(d, p, NULL));
    cw_map_remove(&d->pipelines, &p->node);
    d->pipeline_bytes -= p->size;
    free(p->json);
    free(p);
}

void cw_dp_pipelines_loaded(struct cw_dispatcher *d)
{
    for (size_t i = 0; i < d->pipelines.n_slots; i++)
        for (struct cw_map_node *at = d->pipelines.slots[i], *next; at; at = next) {
            next = at->next;
            /* the reference that loading it took */
            pipeline_unref(d, CW_CONTAINER(at, struct pipeline, node));
        }
}

/* ---- finding ---- */

struct stream *cw_dp_stream_find(struct cw_dispatcher *d, const uint8_t id[16])
{
    for (struct cw_map_node *at = NULL; (at = cw_map_find(&d->streams_by_id, cw_hash64(id, 16), at));)
        if (memcmp(CW_CONTAINER(at, struct stream, node)->id, id, 16) == 0)
            return CW_CONTAINER(at, struct stream, node);
    return NULL;
}

struct stream *cw_dp_stream_unref(struct stream *s)
{
    if (!s || --s->refs > 0)
        return NULL;
    free(s->base_dir);
    free(s->heap);
    free(s->ranges);
    cw_computed_deinit(&s->computed);
    free(s);
    return NULL;
}

/* Room for one more: one that is kept ready without a job goes ahead of its time. */
static bool stream_room(struct cw_dispatcher *d)
{
    if (d->n_streams < DP_STREAMS)
        return true;
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams) {
        if (cw_list_empty(&s->jobs)) {
            cw_dp_stream_forget(d, s);
            break;
        }
    }
    return d->n_streams < DP_STREAMS;
}

static int stream_new(struct cw_dispatcher *d, const uint8_t id[16], const uint8_t fingerprint[16],
                      const char *json, uint64_t seed, const char *base_dir, struct stream **ret,
                      struct cw_error *err)
{
    if (!stream_room(d))
        return cw_error_set(err, CW_E_SERVICE, "there are %d streams already", DP_STREAMS);
    struct stream *s = malloc(sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a stream");
    *s = (struct stream){
        .refs = 1, .depth = d->depth, .seed = seed, .idle_ns = d->now_ns, .base_dir = strdup(base_dir)};
    memcpy(s->id, id, 16);
    cw_list_init(&s->jobs);
    cw_list_init(&s->assignments);
    int r = s->base_dir ? 0 : cw_error_nomem(err, sizeof(*s), "a stream");
    if (r == 0)
        r = cw_dp_pipeline_get(d, fingerprint, json, &s->pipeline, err);
    if (r == 0 && cw_map_add(&d->streams_by_id, &s->node, cw_hash64(id, 16)) < 0)
        r = cw_error_nomem(err, sizeof(*s), "a stream");
    if (r < 0) {
        pipeline_unref(d, s->pipeline);
        cw_dp_stream_unref(s);
        return r;
    }
    cw_list_add(&d->streams, &s->link);
    d->n_streams++;
    *ret = s;
    return 0;
}

/* A rank that begins inside a range would have it cut in two, and run again for all other jobs. */
static bool is_inside(const struct stream *s, const Cachew__Place *from)
{
    uint64_t pos;
    if (!s->data || !from || !cw_dp_stream_placed(s) || cw_dp_stream_position(s, from, &pos, NULL) < 0)
        return false;
    const struct range *x = cw_dp_range(s, pos);
    return x && x->begin < pos;
}

static bool stream_fits(const struct cw_dispatcher *d, const struct stream *s, const Cachew__Attach *a)
{
    return s->seed == a->seed && !is_inside(s, a->from) &&
           memcmp(s->pipeline->fingerprint, a->fingerprint.data, 16) == 0 &&
           strcmp(s->base_dir, a->base_dir) == 0 && !s->at_most_once && !cw_list_empty(&s->jobs) &&
           d->share_streams && (a->snapshot == 0 || !s->data || s->data->plan->snapshot == a->snapshot);
}

int cw_dp_stream_get(struct cw_dispatcher *d, const Cachew__Attach *a, struct stream **ret,
                     struct cw_error *err)
{
    bool at_most_once = a->guarantee == CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE;
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams) {
        if (!at_most_once && stream_fits(d, s, a)) {
            *ret = s;
            return 0;
        }
    }
    /* Its number is written down with it, and ids of streams that were forgotten are not given again. Where
     * there is no journal they may be, and workers may have one of that id: so it stands for all that they
     * compute from. */
    struct cw_key key = {0};
    uint8_t id[16];
    cw_key_u64(&key, d->stream_numbers + 1);
    cw_key_u64(&key, a->seed);
    cw_key_u64(&key, cw_hash64(a->base_dir, strlen(a->base_dir)));
    memcpy(key.bytes + key.size, a->fingerprint.data, 16);
    XXH128_hash_t h = XXH3_128bits(key.bytes, key.size + 16);
    memcpy(id, &h, 16);
    int r = stream_new(d, id, a->fingerprint.data, a->pipeline, a->seed, a->base_dir, ret, err);
    if (r < 0)
        return r;
    (*ret)->number = ++d->stream_numbers;
    (*ret)->at_most_once = at_most_once;
    return 0;
}

static int data_copy(const Cachew__Prepared *p, Cachew__Prepared **ret, struct cw_error *err)
{
    size_t size = cachew__prepared__get_packed_size(p);
    _cleanup_free_ uint8_t *packed = malloc(size + 1);
    if (packed)
        cachew__prepared__pack(p, packed);
    Cachew__Prepared *copy = packed ? cachew__prepared__unpack(NULL, size, packed) : NULL;
    if (!copy)
        return cw_error_nomem(err, size, "what a worker said of the data");
    *ret = copy;
    return 0;
}

int cw_dp_stream_restore(struct cw_dispatcher *d, const uint8_t id[16], const Cachew__Journal__Stream *row,
                         struct cw_error *err)
{
    struct stream *s;
    if (row->fingerprint.len != 16 || !row->data || !row->data->plan)
        return cw_error_set(err, CW_E_STATE, "it has no fingerprint of 16 bytes, or no plan");
    int r = stream_new(d, id, row->fingerprint.data, "", row->seed, row->base_dir, &s, err);
    if (r < 0)
        return r;
    if (s->pipeline->size == 0) {
        cw_dp_stream_free(d, s);
        return cw_error_set(err, CW_E_STATE, "its pipeline is not there");
    }
    s->number = row->number;
    s->at_most_once = row->at_most_once;
    s->journalled = s->restored = s->pipeline->journalled = true;
    d->stream_numbers = CW_MAX(d->stream_numbers, row->number);
    return data_copy(row->data, &s->data, err);
}

/* ---- positions ---- */

uint64_t cw_dp_stream_epoch(const struct stream *s)
{
    return CW_MIN(s->data->plan->n_positions, CW_EPOCH_POSITIONS);
}

int cw_dp_stream_position(const struct stream *s, const Cachew__Place *at, uint64_t *ret,
                          struct cw_error *err)
{
    uint64_t n = cw_dp_stream_epoch(s), pos;
    if (at->position > n || __builtin_mul_overflow(at->epoch, n, &pos) ||
        __builtin_add_overflow(pos, at->position, &pos) || pos > DP_ENDLESS)
        return cw_error_set(err, CW_E_OPTION,
                            "position %" PRIu64 " of epoch %" PRIu64 " is not in the plan of %" PRIu64
                            " positions an epoch",
                            at->position, at->epoch, s->data->plan->n_positions);
    *ret = pos;
    return 0;
}

int cw_dp_stream_span(const struct stream *s, uint64_t epoch, uint64_t begin, uint64_t end, struct span *ret,
                      struct cw_error *err)
{
    uint64_t n = cw_dp_stream_epoch(s), align = s->data->plan->sequential ? cw_dp_stream_align(s) : 1;
    const Cachew__Place at = {CW_MESSAGE(place), .epoch = epoch, .position = begin};
    if (begin >= end || end > n || begin % align != 0 || (end != n && end % align != 0))
        return cw_error_set(err, CW_E_SERVICE,
                            "a range of positions %" PRIu64 " to %" PRIu64 ": expected %s %" PRIu64
                            " in a plan of %" PRIu64 " positions an epoch",
                            begin, end, s->data->plan->sequential ? "successive multiples of" : "at least",
                            align, n);
    int r = cw_dp_stream_position(s, &at, &ret->begin, err);
    ret->end = ret->begin + (end - begin);
    return r;
}

void cw_dp_stream_place(const struct stream *s, uint64_t pos, uint64_t *epoch, uint64_t *position)
{
    uint64_t n = cw_dp_stream_epoch(s);
    *epoch = n > 0 ? pos / n : 0;
    *position = n > 0 ? pos % n : pos;
}

bool cw_dp_stream_counted(const struct stream *s)
{
    return !s->data->plan->sequential && s->data->plan->n_keys == 0;
}

bool cw_dp_stream_placed(const struct stream *s)
{
    return !s->data->plan->sequential && s->data->plan->n_keys > 0;
}

uint64_t cw_dp_stream_align(const struct stream *s)
{
    const Cachew__Plan *p = s->data->plan;
    return p->sequential ? CW_MAX(cw_dp_stream_epoch(s), (uint64_t)1) : p->align;
}

void cw_dp_stream_total(struct stream *s)
{
    s->total = 0;
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        s->total = CW_MAX(s->total, cw_dp_job_total(s, j->epochs));
}

uint64_t cw_dp_job_total(const struct stream *s, uint64_t epochs)
{
    uint64_t n = s->data ? cw_dp_stream_epoch(s) : 0, total;
    if (__builtin_mul_overflow(n, epochs, &total) || total > DP_ENDLESS)
        return DP_ENDLESS;
    return total;
}

/* ---- life ---- */

void cw_dp_stream_dirty(struct cw_dispatcher *d, struct stream *s)
{
    if (!cw_link_in(&s->dirty) && !s->dead)
        cw_list_add(&d->dirty_streams, &s->dirty);
}

void cw_dp_stream_reports(struct cw_dispatcher *d, struct stream *s)
{
    s->reports_came = true;
    cw_dp_stream_dirty(d, s);
}

int cw_dp_stream_ready(struct cw_dispatcher *d, struct stream *s, const Cachew__Prepared *p,
                       struct cw_error *err)
{
    int r = data_copy(p, &s->data, err);
    if (r < 0)
        return r;
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        cw_dp_job_ready(d, j);
    cw_dp_assignment_ask(d, s); /* all others too */
    return 0;
}

void cw_dp_stream_unfit(struct cw_dispatcher *d, struct stream *s, const Cachew__Failure *why)
{
    if (s->data)
        return;
    if (d->scales)
        cw_dp_worker_sets(d); /* another one, if there is one */
    cw_dp_assignment_ask(d, s);
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments)
        if (t->state != ASSIGNMENT_UNFIT && !t->worker->draining)
            return; /* it may still be one that can */
    struct cw_error err = {0};
    Cachew__Failure all = *why;
    cw_dp_assignment_reasons(d, s, why, &err);
    if (err.status == CW_E_BUDGET || err.status == CW_E_MEMORY) /* faults of workers, not of the pipeline */
        all.message = err.message;
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        cw_dp_job_refused(d, j, &all);
}

void cw_dp_stream_idle(struct cw_dispatcher *d, struct stream *s)
{
    cw_dp_range_clear(d, s);
    s->based = s->marked = s->restored = s->parked = false;
    s->total = s->begun_to = 0;
    s->idle_ns = d->now_ns;
    if (s->journalled)
        /* else they are found, and not wanted, after a restart */
        cw_dp_journal_tried(d, cw_dp_journal_purge(d, s, UINT64_MAX, NULL));
}

void cw_dp_stream_forget(struct cw_dispatcher *d, struct stream *s)
{
    /* else there is no memory, and a next tick */
    if (!s->journalled || cw_dp_journal_stream_gone(d, s, NULL) == 0)
        cw_dp_stream_free(d, s);
}

void cw_dp_stream_free(struct cw_dispatcher *d, struct stream *s)
{
    s->dead = true;
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments)
        cw_dp_assignment_forget(d, t);
    cw_dp_range_clear(d, s);
    cw_map_remove(&d->streams_by_id, &s->node);
    cw_link_out(&s->link);
    cw_link_out(&s->dirty);
    d->n_streams--;
    pipeline_unref(d, s->pipeline);
    if (s->data)
        cachew__prepared__free_unpacked(s->data, NULL);
    s->pipeline = NULL;
    s->data = NULL;
    s->based = false;
    cw_dp_stream_unref(s);
}

bool cw_dp_stream_attended(const struct stream *s)
{
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        if (j->n_attached > 0)
            return true;
    return false;
}

/* What lies before the least cursor is nobody's any more. */
void cw_dp_stream_mark(struct cw_dispatcher *d, struct stream *s)
{
    uint64_t mark = UINT64_MAX;
    bool attached = cw_dp_stream_attended(s);
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        if (j->n_attached > 0 || !attached) /* a job without clients holds up nobody else */
            mark = CW_MIN(mark, cw_dp_job_mark(j));
    if (mark == UINT64_MAX)
        return;
    if (s->based && ((s->at_most_once && mark < s->base) || (mark > s->base && cw_dp_grace(d, s))))
        mark = s->base; /* what was given out is not given again; the other ranks may still be on their way */
    if (cw_dp_range_rebase(d, s, mark) < 0)
        return; /* no memory: another turn */
    s->marked = true;
    if (s->journalled && s->n_passed >= PURGE_EVERY)
        cw_dp_journal_tried(d, cw_dp_journal_purge(d, s, cw_dp_range_begin(s), NULL));
}

/* Whether workers have it ready for nobody, and since when. With at-most-once, what they have of a job would
 * be lost: that is for others who need the room. */
static bool is_left(const struct cw_dispatcher *d, const struct stream *s, bool needed,
                    uint64_t *ret_since_ns)
{
    *ret_since_ns = s->idle_ns;
    CW_LIST_EACH_OF (j, const struct job, by_stream, &s->jobs) {
        if (j->n_attached > 0 || (s->at_most_once && !needed) ||
            (!j->left && d->now_ns - j->since_ns < DP_BACK))
            return false;
        *ret_since_ns = CW_MAX(*ret_since_ns, j->since_ns);
    }
    return !s->parked;
}

/* Workers have nothing of it any more. Its jobs, if there are any, can go on when a client of theirs comes
 * back. */
static void give_up(struct cw_dispatcher *d, struct stream *s)
{
    if (cw_list_empty(&s->jobs)) {
        cw_dp_stream_forget(d, s);
        return;
    }
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments)
        cw_dp_assignment_forget(d, t);
    s->parked = true;
    cw_dp_worker_sets_later(d);
}

/* A job has nobody, because workers have as many streams as they may. */
static bool somebody_waits(const struct cw_dispatcher *d)
{
    CW_LIST_EACH_OF (s, const struct stream, link, &d->streams)
        if (s->wants && s->n_heap == 0 && cw_dp_stream_attended(s))
            return true;
    return false;
}

/* Without a client: of those that somebody may soon want, the youngest are kept ready, but for others that
 * wait. True: there may be more to give up. */
static bool give_up_left(struct cw_dispatcher *d)
{
    bool needed = somebody_waits(d);
    uint64_t warm_ns = needed ? 0 : DP_WARM;
    size_t n = 0;
    uint64_t since_ns, oldest_ns = UINT64_MAX;
    struct stream *oldest = NULL;
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams) {
        if (!is_left(d, s, needed, &since_ns))
            continue;
        if (!s->data || s->at_most_once || cw_list_empty(&s->jobs) || d->now_ns - since_ns >= warm_ns) {
            /* no other job has what was seen of the data */
            give_up(d, s);
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
    size_t before = d->n_streams;
    bool parks = !cw_list_empty(&oldest->jobs);
    give_up(d, oldest);
    return parks || d->n_streams < before;
}

void cw_dp_stream_tick(struct cw_dispatcher *d)
{
    while (give_up_left(d))
        ;
    cw_dp_assignment_room(d);
    CW_LIST_EACH_OF (s, struct stream, link, &d->streams) {
        if (cw_list_empty(&s->jobs) || s->parked)
            continue;
        cw_dp_stream_dirty(d, s); /* what there was no memory for in its last turn */
        if (!s->data)
            cw_dp_assignment_ask(d, s);
        if (s->n_shunned > 0)
            cw_dp_assignment_unshun(d, s, false);
        cw_dp_lease_late(d, s);
    }
}
