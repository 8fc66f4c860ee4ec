/*
 * What is written down, under which keys, and what follows once it is durable. Entries gather while a batch
 * is being made durable, and are the next one: so there is one batch under way at a time, and what was
 * refused by a full disk is tried again in its place.
 *
 * Keys: a letter, in the order in which rows must be read, then what it is about.
 *   a                            Counters
 *   b fingerprint                Pipeline
 *   c stream                     Stream
 *   d stream                     Floor
 *   e stream, begin (be64)       Range
 *   f name                       Job
 *   g incarnation                Worker
 *
 * Behind each value stands a checksum of its key and of the value (8 bytes). An entry that does not fit its
 * checksum costs what it is about: load_damaged.
 */
#include <endian.h>
#include <inttypes.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/text.h"
#include "service/dispatcher/internal.h"

#define SUM_SIZE 8 /* bytes of the checksum behind each value */
#define NUMBERS_SKIPPED \
    1000000 /* numbers of workers and streams that are not given, where the last ones given are not known */

struct key {
    uint8_t bytes[1 + DP_NAME + 8];
    size_t size;
};

static struct key key_make(char letter, const void *data, size_t size)
{
    struct key k = {.bytes = {(uint8_t)letter}, .size = 1 + size};
    if (size > 0)
        memcpy(k.bytes + 1, data, size);
    return k;
}

static uint64_t entry_sum(const void *key, size_t key_size, const void *value, size_t value_size)
{
    return htole64(cw_hash64_next(cw_hash64(key, key_size), value, value_size));
}

static struct key key_range(const struct stream *s, uint64_t pos)
{
    struct key k = key_make('e', s->id, 16);
    uint64_t order = htobe64(pos);
    memcpy(k.bytes + k.size, &order, 8);
    k.size += 8;
    return k;
}

/* ---- entries ---- */

static int action_room(struct cw_dispatcher *d, struct cw_error *err)
{
    struct entries *e = &d->pending;
    if (e->n >= DP_PENDING || e->batch.size >= DP_PENDING_BYTES)
        return cw_error_set(err, CW_E_SERVICE,
                            "%zu entries wait for the dispatcher's journal, and no more are taken: %.500s",
                            e->n, d->retry_ns != 0 ? d->journal_error.message : "its disk is slow");
    return CW_ARRAY_ROOM(e->actions, e->capacity, e->n + 1, "entries of the journal", err);
}

static void action_add(struct entries *e, const struct action *then)
{
    if (then->peer)
        then->peer->refs++;
    if (then->stream)
        then->stream->refs++;
    if (then->job)
        then->job->refs++;
    e->actions[e->n++] = *then;
}

static void action_unref(struct action *a)
{
    cw_dp_peer_unref(a->peer);
    cw_dp_stream_unref(a->stream);
    cw_dp_job_unref(a->job);
}

static int entry_put(struct cw_dispatcher *d, const struct key *k, const ProtobufCMessage *m,
                     const struct action *then, struct cw_error *err)
{
    uint8_t small[512];
    _cleanup_free_ uint8_t *large = NULL;
    size_t size = protobuf_c_message_get_packed_size(m);
    uint8_t *packed = size + SUM_SIZE <= sizeof(small) ? small : (large = malloc(size + SUM_SIZE));
    if (!packed)
        return cw_error_nomem(err, size, "an entry of the journal");
    protobuf_c_message_pack(m, packed);
    uint64_t sum = entry_sum(k->bytes, k->size, packed, size);
    memcpy(packed + size, &sum, SUM_SIZE);
    int r = action_room(d, err);
    if (r == 0)
        r = cw_store_batch_add(&d->pending.batch,
                               &(struct cw_store_op){.kind = CW_STORE_PUT,
                                                     .key = k->bytes,
                                                     .key_size = k->size,
                                                     .value = packed,
                                                     .value_size = size + SUM_SIZE},
                               err);
    if (r == 0 && then)
        action_add(&d->pending, then);
    return r;
}

static int entry_delete(struct cw_dispatcher *d, const struct key *k, struct cw_error *err)
{
    return cw_store_batch_add(
        &d->pending.batch,
        &(struct cw_store_op){.kind = CW_STORE_DELETE, .key = k->bytes, .key_size = k->size}, err);
}

int cw_dp_journal_then(struct cw_dispatcher *d, const struct action *then, struct cw_error *err)
{
    int r = action_room(d, err);
    if (r == 0)
        action_add(&d->pending, then);
    return r;
}

void cw_dp_journal_tried(struct cw_dispatcher *d, int result)
{
    if (result < 0)
        cw_dp_log(d, true, "no memory for an entry of the journal");
}

int cw_dp_journal_counters(struct cw_dispatcher *d, struct cw_error *err)
{
    struct key k = key_make('a', NULL, 0);
    Cachew__Journal__Counters m = {CW_MESSAGE(journal__counters), .workers = d->worker_ids,
                                   .streams = d->stream_numbers, .damaged = d->damaged};
    return entry_put(d, &k, &m.base, NULL, err);
}

int cw_dp_journal_worker(struct cw_dispatcher *d, const struct worker *w, const struct action *then,
                         struct cw_error *err)
{
    struct key k = key_make('g', w->incarnation, 16);
    Cachew__Journal__Worker m = {CW_MESSAGE(journal__worker), .id = w->id,
                                 .incarnation = {16, (uint8_t *)w->incarnation}};
    return entry_put(d, &k, &m.base, then, err);
}

int cw_dp_journal_worker_gone(struct cw_dispatcher *d, const struct worker *w, struct cw_error *err)
{
    struct key k = key_make('g', w->incarnation, 16);
    return entry_delete(d, &k, err);
}

int cw_dp_journal_stream(struct cw_dispatcher *d, struct stream *s, struct cw_error *err)
{
    if (s->journalled)
        return 0;
    int r = cw_dp_journal_counters(d, err);
    if (r == 0 && !s->pipeline->journalled) {
        struct key k = key_make('b', s->pipeline->fingerprint, 16);
        Cachew__Journal__Pipeline m = {CW_MESSAGE(journal__pipeline), .json = s->pipeline->json};
        r = entry_put(d, &k, &m.base, NULL, err);
    }
    if (r == 0) {
        struct key k = key_make('c', s->id, 16);
        Cachew__Journal__Stream m = {CW_MESSAGE(journal__stream),
                                     .number = s->number,
                                     .fingerprint = {16, s->pipeline->fingerprint},
                                     .seed = s->seed,
                                     .base_dir = s->base_dir,
                                     .data = s->data,
                                     .at_most_once = s->at_most_once};
        s->pipeline->journalled = true;
        r = entry_put(d, &k, &m.base, NULL, err);
    }
    s->journalled = r == 0;
    return r;
}

static int delete_range(struct cw_dispatcher *d, const struct key *from, const struct key *to,
                        struct cw_error *err)
{
    return cw_store_batch_add(&d->pending.batch,
                              &(struct cw_store_op){.kind = CW_STORE_DELETE_RANGE,
                                                    .key = from->bytes,
                                                    .key_size = from->size,
                                                    .value = to->bytes,
                                                    .value_size = to->size},
                              err);
}

int cw_dp_journal_purge(struct cw_dispatcher *d, struct stream *s, uint64_t upto, struct cw_error *err)
{
    struct key from = key_range(s, 0), to = key_range(s, upto), k = key_make('d', s->id, 16);
    int r = 0;
    if (s->at_most_once && upto != UINT64_MAX) {
        Cachew__Journal__Floor m = {CW_MESSAGE(journal__floor), .position = upto};
        r = entry_put(d, &k, &m.base, NULL, err);
    }
    if (r == 0)
        r = delete_range(d, &from, &to, err);
    if (r == 0)
        s->n_passed = 0;
    return r;
}

int cw_dp_journal_stream_gone(struct cw_dispatcher *d, struct stream *s, struct cw_error *err)
{
    struct key stream = key_make('c', s->id, 16), floor = key_make('d', s->id, 16);
    int r = cw_dp_journal_purge(d, s, UINT64_MAX, err);
    if (r == 0)
        r = entry_delete(d, &stream, err);
    if (r == 0)
        r = entry_delete(d, &floor, err);
    return r;
}

int cw_dp_journal_pipeline_gone(struct cw_dispatcher *d, const struct pipeline *p, struct cw_error *err)
{
    struct key k = key_make('b', p->fingerprint, 16);
    return entry_delete(d, &k, err);
}

int cw_dp_journal_job(struct cw_dispatcher *d, const struct job *j, const struct action *then,
                      struct cw_error *err)
{
    struct key k = key_make('f', j->name, strlen(j->name));
    _cleanup_free_ char *memory = cw_dp_scale_memory(d, j);
    Cachew__Journal__Job m = {CW_MESSAGE(journal__job),
                              .name = j->name,
                              .stream = {16, (uint8_t *)j->stream_id},
                              .epochs = j->epochs,
                              .world_size = j->world_size,
                              .order = j->order,
                              .guarantee = j->guarantee,
                              .state = j->state,
                              .why = j->why ? j->why : "",
                              .fingerprint = {16, (uint8_t *)j->fingerprint},
                              .seed = j->seed,
                              .paused = j->paused,
                              .lost = j->lost,
                              .weight = j->scaling.claim.weight,
                              .priority = j->scaling.claim.priority,
                              .quota = (uint32_t)j->scaling.claim.quota,
                              .workers = (uint32_t)j->scaling.claim.want,
                              .policy = memory ? (char *)(uintptr_t)d->policy.name : "",
                              .memory = memory,
                              .objective = (uint32_t)j->scaling.objective,
                              .client_price_per_h = j->scaling.client_price_per_h};
    _cleanup_free_ uint32_t *finished = j->n_finished > 0 && j->n_finished <= DP_FINISHED
                                            ? malloc(j->n_finished * sizeof(*finished))
                                            : NULL;
    for (size_t i = 0; finished && i < j->n_ranks; i++)
        if (j->ranks[i]->finished)
            finished[m.n_finished++] = j->ranks[i]->number;
    m.finished = finished;
    return entry_put(d, &k, &m.base, then, err);
}

int cw_dp_journal_job_gone(struct cw_dispatcher *d, const struct job *j, struct cw_error *err)
{
    struct key k = key_make('f', j->name, strlen(j->name));
    return entry_delete(d, &k, err);
}

int cw_dp_journal_range(struct cw_dispatcher *d, struct stream *s, const struct range *x,
                        enum action_kind then, struct cw_error *err)
{
    struct key k = key_range(s, x->begin);
    struct action action = {.kind = then, .stream = s, .range = {x->begin, x->number}};
    Cachew__Journal__Range m = {CW_MESSAGE(journal__range),
                                .end = x->end,
                                .reported = (x->flags & RANGE_REPORTED) != 0,
                                .n_batches = x->n_batches,
                                .elements = x->elements,
                                .n_elements = x->n_elements,
                                .reporter = x->reporter,
                                .given = s->at_most_once &&
                                         (x->holder[0].assignment || (x->flags & RANGE_GIVEN))};
    return entry_put(d, &k, &m.base, &action, err);
}

int cw_dp_journal_range_gone(struct cw_dispatcher *d, const struct stream *s, uint64_t begin,
                             struct cw_error *err)
{
    struct key k = key_range(s, begin);
    return entry_delete(d, &k, err);
}

/* ---- committing ---- */

void cw_dp_journal_commit(struct cw_dispatcher *d)
{
    if (d->in_flight || d->retry_ns > d->now_ns)
        return;
    if (d->retry_ns == 0) { /* else what failed is still there */
        if (d->pending.batch.n == 0 && d->pending.n == 0)
            return;
        struct entries empty = d->flight;
        d->flight = d->pending;
        d->pending = empty;
    }
    d->in_flight = true;
    d->commit_began_ns = d->now_ns;
    d->io.commit(d->io.user, &d->flight.batch);
}

static void action_run(struct cw_dispatcher *d, struct action *a)
{
    struct range *x = a->stream && !a->stream->dead ? cw_dp_range(a->stream, a->range.begin) : NULL;
    if (x && x->number != a->range.number) /* it was cut anew */
        x = NULL;
    switch (a->kind) {
    case ACTION_NONE:
        break;
    case ACTION_DONE:
        if (!a->peer->gone && !a->peer->closing)
            cw_dp_done(d, a->peer, a->re);
        break;
    case ACTION_REGISTERED:
        cw_dp_worker_registered(d, a->peer, a->re);
        break;
    case ACTION_REPORT:
        if (x && (x->flags & RANGE_REPORTED)) {
            x->flags |= RANGE_DURABLE;
            cw_dp_stream_reports(d, a->stream);
        }
        break;
    case ACTION_JOB:
        if (!a->job->dead)
            cw_dp_job_written(d, a->job);
        break;
    case ACTION_LEASE:
        if (x)
            cw_dp_lease_written(d, a->stream, x);
        break;
    }
}

void cw_dispatcher_committed(struct cw_dispatcher *d, const struct cw_error *why, uint64_t now_ns)
{
    d->now_ns = CW_MAX(d->now_ns, now_ns);
    d->in_flight = false;
    if (why) {
        d->n_commit_failures++;
        if (d->retry_ns == 0)
            cw_dp_log(d, true, "the journal can't be written: %s; nothing is acknowledged until it can",
                      why->message);
        d->journal_error = *why;
        d->retry_ns = d->now_ns + DP_S;
        return;
    }
    if (d->retry_ns != 0)
        cw_dp_log(d, false, "the journal is written again");
    d->retry_ns = 0;
    d->n_commits++;
    d->commit_ns += d->now_ns - d->commit_began_ns;
    struct entries done = d->flight;
    d->flight = (struct entries){0};
    for (size_t i = 0; i < done.n; i++) {
        action_run(d, &done.actions[i]);
        action_unref(&done.actions[i]);
    }
    done.n = 0;
    cw_store_batch_clear(&done.batch);
    d->flight = done; /* its memory serves again */
}

static void entries_deinit(struct entries *e)
{
    for (size_t i = 0; i < e->n; i++)
        action_unref(&e->actions[i]);
    free(e->actions);
    cw_store_batch_deinit(&e->batch);
    *e = (struct entries){0};
}

void cw_dp_journal_deinit(struct cw_dispatcher *d)
{
    entries_deinit(&d->pending);
    entries_deinit(&d->flight);
}

/* ---- after a restart ---- */

static int load_range(struct cw_dispatcher *d, struct stream *s, uint64_t begin,
                      const Cachew__Journal__Range *row, struct cw_error *err)
{
    struct span span;
    uint64_t epoch, position;
    cw_dp_stream_place(s, begin, &epoch, &position);
    if (cw_dp_stream_span(s, epoch, position, position + (row->end - begin), &span, err) < 0)
        return cw_error_set(err, CW_E_STATE,
                            "the plan of its stream has no positions %" PRIu64 " to %" PRIu64, begin,
                            row->end);
    if (!s->based && cw_dp_range_rebase(d, s, begin) < 0)
        return cw_error_nomem(err, 0, "a table of ranges");
    if (begin < cw_dp_range_end(s) || s->n_ranges >= DP_RANGES) { /* its positions were cut otherwise since */
        if (row->given)
            return cw_error_set(err, CW_E_STATE, "it overlaps another one, or there are more than %zu",
                                DP_RANGES);
        return 0; /* what it gave is found out again */
    }
    struct range *x = cw_dp_range_add(s, span);
    if (!x || (row->reported && cw_dp_range_report(x, row->elements, row->n_elements, row->n_batches) < 0))
        return cw_error_nomem(err, sizeof(*x), "a range");
    x->reporter = row->reporter;
    if (row->reported)
        x->flags |= RANGE_DURABLE;
    if (row->given)
        x->flags |= RANGE_GIVEN;
    s->reports_came = true;
    return 0;
}

static int load_row(struct cw_dispatcher *d, const struct key *k, const ProtobufCMessage *m,
                    struct cw_error *err)
{
    const uint8_t *id = k->bytes + 1;
    struct stream *s;
    struct pipeline *p;
    uint64_t order;
    int r;
    switch (k->bytes[0]) {
    case 'a':
        d->worker_ids = ((const Cachew__Journal__Counters *)m)->workers;
        d->stream_numbers = ((const Cachew__Journal__Counters *)m)->streams;
        d->damaged |= ((const Cachew__Journal__Counters *)m)->damaged;
        return 0;
    case 'b':
        r = cw_dp_pipeline_get(d, id, ((const Cachew__Journal__Pipeline *)m)->json, &p, err);
        if (r == 0)
            p->journalled = true;
        return r;
    case 'c':
        return cw_dp_stream_restore(d, id, (const Cachew__Journal__Stream *)m, err);
    case 'd':
        s = cw_dp_stream_find(d, id);
        if (s && cw_dp_range_rebase(d, s, ((const Cachew__Journal__Floor *)m)->position) < 0)
            return cw_error_nomem(err, 0, "a table of ranges");
        return s ? 0 : entry_delete(d, k, err);
    case 'e':
        s = cw_dp_stream_find(d, id);
        memcpy(&order, id + 16, 8);
        return s ? load_range(d, s, be64toh(order), (const Cachew__Journal__Range *)m, err)
                 : entry_delete(d, k, err);
    case 'f':
        return cw_dp_job_restore(d, (const Cachew__Journal__Job *)m, err);
    default:
        return cw_dp_worker_restore(d, (const Cachew__Journal__Worker *)m, err);
    }
}

/* What an entry is about, by its letter, and what it costs that it is left out. */
struct kind {
    const ProtobufCMessageDescriptor *type;
    size_t min, max;
    const char *name, *cost;
};
static const struct kind kinds[] = {
    {&cachew__journal__counters__descriptor, 1, 1, "counters",
     "new workers and streams get numbers that are a million higher"},
    {&cachew__journal__pipeline__descriptor, 17, 17, "pipeline",
     "jobs that run it begin anew, or end if they are at-most-once"},
    {&cachew__journal__stream__descriptor, 17, 17, "stream",
     "its jobs begin anew, or end if they are at-most-once"},
    {&cachew__journal__floor__descriptor, 17, 17, "first position of stream", "jobs with at-most-once end"},
    {&cachew__journal__range__descriptor, 25, 25, "range", "the range is computed again"},
    {&cachew__journal__job__descriptor, 2, 1 + DP_NAME, "job",
     "the job begins anew, or ends if it is at-most-once"},
    {&cachew__journal__worker__descriptor, 17, 17, "worker", "the worker gets another number"},
};

/* The subject of an entry as text: a job by its name, all else by its bytes without the letter; an entry of
 * an unknown kind (NULL) by all bytes of its key. */
static void key_text(const void *key, size_t size, const struct kind *kind, char *buf, size_t buf_size)
{
    const uint8_t *bytes = key;
    if (kind && bytes[0] == 'f')
        /* as err->message is, it is shown escaped */
        snprintf(buf, buf_size, "\"%.*s\"", (int)(size - 1), (const char *)bytes + 1);
    else
        for (size_t i = kind ? 1 : 0, at = 0; i < size && at + 3 < buf_size; i++, at += 2)
            snprintf(buf + at, buf_size - at, "%02x", bytes[i]);
}

/*
 * Leaves a damaged entry out: it is deleted with the next commit. What rests on it is found damaged when it
 * is read: streams on their pipeline, jobs on their stream.
 * Which ranges were given out must be known of a stream with at-most-once; where the damaged entry may be of
 * any stream, of none of them is. The key may be what is damaged: a job whose name is not UTF-8 is none.
 * CW_E_DATA: err names the entry and what it costs; the dispatcher can serve all else.
 */
static int load_damaged(struct cw_dispatcher *d, const void *key, size_t key_size, const struct kind *kind,
                        const char *why, struct cw_error *err)
{
    char text[2 * DP_NAME + 20] = "";
    const uint8_t *letter = key;
    if (kind && *letter == 'f' && !cw_text_utf8((const char *)key + 1, key_size - 1))
        kind = NULL;
    bool of_ranges = !kind || *letter == 'd' || *letter == 'e';
    struct stream *s = kind && key_size > 16 ? cw_dp_stream_find(d, letter + 1) : NULL;
    if (key_size <= CW_STORE_KEY_MAX) {
        int r = cw_store_batch_add(
            &d->pending.batch,
            &(struct cw_store_op){.kind = CW_STORE_DELETE, .key = key, .key_size = key_size}, err);
        if (r < 0)
            return r;
    }
    d->numbers_lost |= kind == &kinds[0];
    d->damaged = true;
    if (s)
        s->damaged = s->at_most_once;
    else
        d->ranges_lost |= of_ranges;
    key_text(key, key_size, kind, text, sizeof(text));
    return cw_error_set(err, CW_E_DATA, "the entry of %s%s%.600s is left out (%.300s): %s",
                        kind ? kind->name : "unknown kind", *text ? " " : "", text, why,
                        (s ? s->damaged : of_ranges) ? "jobs with at-most-once end" : kind->cost);
}

int cw_dispatcher_load(struct cw_dispatcher *d, const void *key, size_t key_size, const void *value,
                       size_t value_size, struct cw_error *err)
{
    const uint8_t *letter = key;
    size_t i = key_size > 0 ? (size_t)(*letter - 'a') : SIZE_MAX, size = value_size - SUM_SIZE;
    const struct kind *kind = i < CW_COUNT_OF(kinds) && key_size >= kinds[i].min && key_size <= kinds[i].max
                                  ? &kinds[i]
                                  : NULL;
    uint64_t sum = value_size >= SUM_SIZE ? entry_sum(key, key_size, value, size) : 0;
    if (value_size < SUM_SIZE || memcmp(&sum, (const uint8_t *)value + size, SUM_SIZE) != 0)
        return load_damaged(d, key, key_size, kind, "its checksum does not fit", err);
    if (!kind)
        return cw_error_set(
            err, CW_E_STATE,
            "the journal has an entry of a kind that this version does not know (%zu bytes of key)",
            key_size);
    ProtobufCMessage *m = protobuf_c_message_unpack(kind->type, NULL, size, value);
    if (!m)
        return cw_error_set(err, CW_E_STATE,
                            "the journal has an entry of kind '%c' that can't be read, or there is no memory "
                            "for it (%zu bytes)",
                            *letter, size);
    struct key k = key_make((char)*letter, letter + 1, key_size - 1);
    struct cw_error why = {0};
    int r = load_row(d, &k, m, &why);
    protobuf_c_message_free_unpacked(m, NULL);
    if (r == CW_E_STATE)
        return load_damaged(d, key, key_size, kind, why.message, err);
    if (r < 0 && err)
        *err = why;
    return r;
}

void cw_dp_journal_loaded(struct cw_dispatcher *d)
{
    cw_dp_jobs_loaded(d);
    if (d->numbers_lost) {
        d->worker_ids += NUMBERS_SKIPPED;
        d->stream_numbers += NUMBERS_SKIPPED;
    }
    if (d->damaged)
        cw_dp_journal_tried(d, cw_dp_journal_counters(d, NULL));
}
