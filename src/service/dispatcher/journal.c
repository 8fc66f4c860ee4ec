/* Adds entries to the journal's next batch. journal.h describes the keys. */
#include "service/dispatcher/journal.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "service/dispatcher/state.h"

struct journal_key {
    uint8_t bytes[1 + DP_NAME + 8];
    size_t size;
};

static struct journal_key journal_key(enum journal_letter letter, const void *data, size_t size)
{
    struct journal_key k = {.bytes = {(uint8_t)letter}, .size = 1 + size};
    if (size > 0)
        memcpy(k.bytes + 1, data, size);
    return k;
}

uint64_t cw_dp_journal_sum(const void *key, size_t key_size, const void *value, size_t value_size)
{
    return htole64(cw_hash64_next(cw_hash64(key, key_size), value, value_size));
}

static struct journal_key journal_range_key(const struct stream *s, uint64_t pos)
{
    struct journal_key k = journal_key(JOURNAL_RANGE, s->id, 16);
    uint64_t order = htobe64(pos);
    memcpy(k.bytes + k.size, &order, 8);
    k.size += 8;
    return k;
}

/* ---- entries ---- */

/* Makes room for an action. CW_E_SERVICE: too many entries are pending. */
static int journal_room(struct cw_dispatcher *d, struct cw_error *err)
{
    struct journal_entries *e = &d->journal.pending;
    if (e->n >= DP_PENDING || e->batch.size >= DP_PENDING_BYTES)
        return cw_error_set(err, CW_E_SERVICE,
                            "the dispatcher's journal accepts no more entries now, because %zu already wait "
                            "to be written: %.500s",
                            e->n, d->journal.retry_ns != 0 ? d->journal.error.message : "its disk is slow");
    return CW_ARRAY_ROOM(e->actions, e->capacity, e->n + 1, "entries of the journal", err);
}

/* Adds an action, and takes references to what it names. journal_room made room for it. */
static void journal_action_add(struct journal_entries *e, const struct action *then)
{
    if (then->peer)
        then->peer->refs++;
    if (then->stream)
        then->stream->refs++;
    if (then->job)
        then->job->refs++;
    e->actions[e->n++] = *then;
}

/* Adds an entry with its checksum. then (may be NULL): the action that is run once the entry is durable. */
static int journal_put(struct cw_dispatcher *d, struct journal_key k, const ProtobufCMessage *m,
                       const struct action *then, struct cw_error *err)
{
    size_t size = protobuf_c_message_get_packed_size(m);
    _cleanup_free_ uint8_t *packed = malloc(size + JOURNAL_SUM_SIZE);
    if (!packed)
        return cw_error_nomem(err, size, "an entry of the journal");
    protobuf_c_message_pack(m, packed);
    uint64_t sum = cw_dp_journal_sum(k.bytes, k.size, packed, size);
    memcpy(packed + size, &sum, JOURNAL_SUM_SIZE);
    int r = journal_room(d, err);
    if (r == 0)
        r = cw_store_batch_add(&d->journal.pending.batch,
                               &(struct cw_store_op){.kind = CW_STORE_PUT,
                                                     .key = k.bytes,
                                                     .key_size = k.size,
                                                     .value = packed,
                                                     .value_size = size + JOURNAL_SUM_SIZE},
                               err);
    if (r == 0 && then)
        journal_action_add(&d->journal.pending, then);
    return r;
}

int cw_dp_journal_delete(struct cw_dispatcher *d, const void *key, size_t key_size, struct cw_error *err)
{
    return cw_store_batch_add(
        &d->journal.pending.batch,
        &(struct cw_store_op){.kind = CW_STORE_DELETE, .key = key, .key_size = key_size}, err);
}

int cw_dp_journal_gone(struct cw_dispatcher *d, enum journal_letter letter, const void *subject, size_t size,
                       struct cw_error *err)
{
    struct journal_key k = journal_key(letter, subject, size);
    return cw_dp_journal_delete(d, k.bytes, k.size, err);
}

int cw_dp_journal_then(struct cw_dispatcher *d, const struct action *then, struct cw_error *err)
{
    int r = journal_room(d, err);
    if (r == 0)
        journal_action_add(&d->journal.pending, then);
    return r;
}

void cw_dp_journal_tried(struct cw_dispatcher *d, int result)
{
    if (result < 0)
        cw_dp_log(d, true,
                  "out of memory: an entry of the dispatcher's journal was not written; this has no effect "
                  "on a restart");
}

/* ---- the entries by kind ---- */

int cw_dp_journal_counters(struct cw_dispatcher *d, struct cw_error *err)
{
    Cachew__Journal__Counters m = {CW_MESSAGE(journal__counters), .workers = d->workers.last_id,
                                   .streams = d->streams.last_number, .damaged = d->journal.damaged};
    return journal_put(d, journal_key(JOURNAL_COUNTERS, NULL, 0), &m.base, NULL, err);
}

int cw_dp_journal_worker(struct cw_dispatcher *d, const struct worker *w, const struct action *then,
                         struct cw_error *err)
{
    Cachew__Journal__Worker m = {CW_MESSAGE(journal__worker), .id = w->id,
                                 .incarnation = {16, (uint8_t *)w->incarnation}};
    return journal_put(d, journal_key(JOURNAL_WORKER, w->incarnation, 16), &m.base, then, err);
}

int cw_dp_journal_stream(struct cw_dispatcher *d, struct stream *s, struct cw_error *err)
{
    if (s->journalled)
        return 0;
    int r = cw_dp_journal_counters(d, err);
    if (r == 0 && !s->pipeline->journalled) {
        Cachew__Journal__Pipeline m = {CW_MESSAGE(journal__pipeline), .json = s->pipeline->json};
        r = journal_put(d, journal_key(JOURNAL_PIPELINE, s->pipeline->fingerprint, 16), &m.base, NULL, err);
    }
    if (r == 0) {
        Cachew__Journal__Stream m = {CW_MESSAGE(journal__stream),
                                     .number = s->number,
                                     .fingerprint = {16, s->pipeline->fingerprint},
                                     .seed = s->seed,
                                     .base_dir = s->base_dir,
                                     .data = s->data,
                                     .at_most_once = s->at_most_once};
        s->pipeline->journalled = true;
        r = journal_put(d, journal_key(JOURNAL_STREAM, s->id, 16), &m.base, NULL, err);
    }
    s->journalled = r == 0;
    return r;
}

int cw_dp_journal_purge(struct cw_dispatcher *d, struct stream *s, uint64_t upto, struct cw_error *err)
{
    struct journal_key from = journal_range_key(s, 0), to = journal_range_key(s, upto);
    Cachew__Journal__Floor m = {CW_MESSAGE(journal__floor), .position = upto};
    int r = s->at_most_once && upto != UINT64_MAX
                ? journal_put(d, journal_key(JOURNAL_FLOOR, s->id, 16), &m.base, NULL, err)
                : 0;
    if (r == 0)
        r = cw_store_batch_add(&d->journal.pending.batch,
                               &(struct cw_store_op){.kind = CW_STORE_DELETE_RANGE,
                                                     .key = from.bytes,
                                                     .key_size = from.size,
                                                     .value = to.bytes,
                                                     .value_size = to.size},
                               err);
    if (r == 0)
        s->ranges.n_passed = 0;
    return r;
}

int cw_dp_journal_stream_gone(struct cw_dispatcher *d, struct stream *s, struct cw_error *err)
{
    int r = cw_dp_journal_purge(d, s, UINT64_MAX, err);
    if (r == 0)
        r = cw_dp_journal_gone(d, JOURNAL_STREAM, s->id, 16, err);
    return r == 0 ? cw_dp_journal_gone(d, JOURNAL_FLOOR, s->id, 16, err) : r;
}

int cw_dp_journal_job(struct cw_dispatcher *d, const struct job *j, const struct action *then,
                      struct cw_error *err)
{
    _cleanup_free_ char *memory = cw_dp_scaling_memory(d, j);
    Cachew__Journal__Job m = {CW_MESSAGE(journal__job),
                              .name = j->name,
                              .stream = {16, (uint8_t *)j->stream_id},
                              .epochs = j->terms.epochs,
                              .world_size = j->terms.world_size,
                              .order = j->terms.order,
                              .guarantee = j->terms.guarantee,
                              .state = j->state,
                              .why = j->why ? j->why : "",
                              .fingerprint = {16, (uint8_t *)j->terms.fingerprint},
                              .seed = j->terms.seed,
                              .paused = j->paused,
                              .lost = j->lost,
                              .weight = j->scaling.claim.weight,
                              .priority = j->scaling.claim.priority,
                              .quota = (uint32_t)j->scaling.claim.quota,
                              .workers = (uint32_t)j->scaling.claim.want,
                              .policy = memory ? (char *)(uintptr_t)d->scaler.policy.name : "",
                              .memory = memory,
                              .objective = (uint32_t)j->scaling.objective,
                              .client_price_per_h = j->scaling.client_price_per_h};
    _cleanup_free_ uint32_t *finished = j->ranks.n_finished > 0 && j->ranks.n_finished <= DP_FINISHED
                                            ? malloc(j->ranks.n_finished * sizeof(*finished))
                                            : NULL;
    DP_RANKS_EACH (r, j)
        if (finished && r->finished)
            finished[m.n_finished++] = r->number;
    m.finished = finished;
    return journal_put(d, journal_key(JOURNAL_JOB, j->name, strlen(j->name)), &m.base, then, err);
}

int cw_dp_journal_range(struct cw_dispatcher *d, struct stream *s, const struct range *x,
                        enum action_kind then, struct cw_error *err)
{
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
    return journal_put(d, journal_range_key(s, x->begin), &m.base, &action, err);
}

int cw_dp_journal_range_gone(struct cw_dispatcher *d, const struct stream *s, uint64_t begin,
                             struct cw_error *err)
{
    struct journal_key k = journal_range_key(s, begin);
    return cw_dp_journal_delete(d, k.bytes, k.size, err);
}
