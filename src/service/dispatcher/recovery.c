/* Restores the tables from the journal's entries, and leaves damaged entries out. */
#include "service/dispatcher/recovery.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "service/dispatcher/job_life.h"
#include "service/dispatcher/state.h"
#include "service/dispatcher/stream_life.h"

/* ---- rows ---- */

static int restore_worker(struct cw_dispatcher *d, const Cachew__Journal__Worker *row, struct cw_error *err)
{
    struct worker *w;
    if (row->incarnation.len != 16 || row->id == 0 || cw_dp_worker_find(d, row->id) ||
        cw_dp_worker_find_incarnation(d, row->incarnation.data))
        return cw_error_set(err, CW_E_STATE,
                            "worker %" PRIu64
                            " has no process identity (incarnation) of 16 bytes, no number, or occurs twice",
                            row->id);
    int r = cw_dp_worker_new(d, row->id, row->incarnation.data, &w, err);
    if (r < 0)
        return r;
    d->workers.last_id = CW_MAX(d->workers.last_id, row->id);
    w->awaited = true;
    d->workers.n_awaited++;
    return 0;
}

static int restore_stream(struct cw_dispatcher *d, const uint8_t id[16], const Cachew__Journal__Stream *row,
                          struct cw_error *err)
{
    struct stream *s;
    if (row->fingerprint.len != 16 || !row->data || !row->data->plan)
        return cw_error_set(err, CW_E_STATE, "it has no pipeline fingerprint of 16 bytes, or no plan");
    int r = cw_dp_stream_new(d, id, row->fingerprint.data, "", row->seed, row->base_dir, &s, err);
    if (r < 0)
        return r;
    if (s->pipeline->size == 0) {
        cw_dp_stream_free(d, s);
        return cw_error_set(
            err, CW_E_STATE,
            "the journal lacks the pipeline of this job, so the job can't be restored: start it again");
    }
    s->number = row->number;
    s->at_most_once = row->at_most_once;
    s->journalled = s->restored = s->pipeline->journalled = true;
    d->streams.last_number = CW_MAX(d->streams.last_number, row->number);
    return cw_dp_stream_set_data(s, row->data, err);
}

static int restore_job(struct cw_dispatcher *d, const Cachew__Journal__Job *row, struct cw_error *err)
{
    struct job *j;
    struct stream *s = row->stream.len == 16 ? cw_dp_stream_find(d, row->stream.data) : NULL;
    bool over = row->state >= JOB_DONE;
    if (row->fingerprint.len != 16 || row->world_size == 0 || row->state > JOB_FAILED)
        return cw_error_set(err, CW_E_STATE,
                            "expected a pipeline fingerprint of 16 bytes, at least one rank, and a known "
                            "state, not %zu bytes, %" PRIu32 " ranks and state %" PRIu32,
                            row->fingerprint.len, row->world_size, row->state);
    for (size_t i = 0; i < row->n_finished; i++)
        if (row->finished[i] >= row->world_size)
            return cw_error_set(err, CW_E_STATE,
                                "it lists rank %" PRIu32 " as finished, of %" PRIu32
                                " ranks (counted from 0)",
                                row->finished[i], row->world_size);
    int r = cw_dp_job_new(d, row->name, &j, err);
    if (r < 0)
        return r;
    j->terms = (struct job_terms){.seed = row->seed,
                                  .epochs = row->epochs,
                                  .world_size = row->world_size,
                                  .order = row->order,
                                  .guarantee = row->guarantee};
    memcpy(j->terms.fingerprint, row->fingerprint.data, 16);
    memcpy(j->stream_id, row->stream.len == 16 ? row->stream.data : j->terms.fingerprint, 16);
    j->state = (enum job_state)row->state;
    j->paused = row->paused;
    j->lost = row->lost;
    j->durable = true;
    d->jobs.n_over += over;
    if (!over && s) {
        cw_dp_job_join_stream(j, s);
        cw_dp_scaling_restore(d, j, row);
    }
    for (size_t i = 0; j->stream && i < row->n_finished; i++) {
        struct rank *rank;
        r = cw_dp_rank_get(d, j, row->finished[i], &rank, err);
        if (r < 0)
            return r;
        j->ranks.n_finished += !rank->finished;
        rank->finished = true;
    }
    if (*row->why && !(j->why = strdup(row->why)))
        return cw_error_nomem(err, strlen(row->why), "a job");
    return 0;
}

static int restore_range(struct cw_dispatcher *d, struct stream *s, uint64_t begin,
                         const Cachew__Journal__Range *row, struct cw_error *err)
{
    struct span span;
    Cachew__Place at = cw_dp_stream_place(s, begin);
    if (cw_dp_stream_span(s, at.epoch, at.position, at.position + (row->end - begin), &span, err) < 0)
        return cw_error_set(err, CW_E_STATE,
                            "an epoch of its stream has no positions %" PRIu64 " to %" PRIu64, begin,
                            row->end);
    if (s->ranges.state == RANGES_UNPLACED)
        cw_dp_lease_rebase(d, s, begin);
    if (begin < cw_dp_range_end(&s->ranges) ||
        s->ranges.n >= DP_RANGES) { /* ranges were cut there again after this entry was written */
        if (row->given)
            return cw_error_set(err, CW_E_STATE,
                                "it overlaps another range, or its stream has more than %zu ranges",
                                DP_RANGES);
        return 0; /* the range is computed again */
    }
    struct range *x = cw_dp_range_add(&s->ranges, span);
    if (!x || (row->reported && cw_dp_range_report(x, row->elements, row->n_elements, row->n_batches) < 0))
        return cw_error_nomem(err, sizeof(*x), "a range");
    x->reporter = row->reporter;
    if (row->reported)
        x->flags |= RANGE_DURABLE;
    if (row->given)
        x->flags |= RANGE_GIVEN;
    s->news.reports = true;
    return 0;
}

/* Restores one entry; its key has a valid size, and its value is decoded. CW_E_STATE: the entry contradicts
 * itself or other entries. */
static int restore_row(struct cw_dispatcher *d, const uint8_t *key, size_t key_size,
                       const ProtobufCMessage *m, struct cw_error *err)
{
    const uint8_t *id = key + 1;
    struct stream *s;
    struct pipeline *p;
    uint64_t order;
    int r;
    switch (key[0]) {
    case JOURNAL_COUNTERS:
        d->workers.last_id = ((const Cachew__Journal__Counters *)m)->workers;
        d->streams.last_number = ((const Cachew__Journal__Counters *)m)->streams;
        d->journal.damaged |= ((const Cachew__Journal__Counters *)m)->damaged;
        return 0;
    case JOURNAL_PIPELINE:
        r = cw_dp_pipeline_get(d, id, ((const Cachew__Journal__Pipeline *)m)->json, &p, err);
        if (r == 0)
            p->journalled = true;
        return r;
    case JOURNAL_STREAM:
        return restore_stream(d, id, (const Cachew__Journal__Stream *)m, err);
    case JOURNAL_FLOOR:
        s = cw_dp_stream_find(d, id);
        if (s)
            cw_dp_lease_rebase(d, s, ((const Cachew__Journal__Floor *)m)->position);
        return s ? 0 : cw_dp_journal_delete(d, key, key_size, err);
    case JOURNAL_RANGE:
        s = cw_dp_stream_find(d, id);
        memcpy(&order, id + 16, 8);
        return s ? restore_range(d, s, be64toh(order), (const Cachew__Journal__Range *)m, err)
                 : cw_dp_journal_delete(d, key, key_size, err);
    case JOURNAL_JOB:
        return restore_job(d, (const Cachew__Journal__Job *)m, err);
    default:
        return restore_worker(d, (const Cachew__Journal__Worker *)m, err);
    }
}

/* ---- damaged entries ---- */

/* how many numbers of workers and streams are skipped if the last numbers are not known */
#define NUMBERS_SKIPPED 1000000

/* The kinds of entries, by letter: their message, sizes of keys, name, and the cost of leaving an entry out.
 */
struct kind {
    const ProtobufCMessageDescriptor *type;
    size_t min, max;
    const char *name, *cost;
};

static const struct kind kinds[] = {
    {&cachew__journal__counters__descriptor, 1, 1, "counters",
     "new workers and streams get numbers that are higher by a million, so that no number is used twice"},
    {&cachew__journal__pipeline__descriptor, 17, 17, "pipeline",
     "jobs that run it start over, or are ended if their guarantee is at-most-once"},
    {&cachew__journal__stream__descriptor, 17, 17, "stream",
     "its jobs start over, or are ended if their guarantee is at-most-once"},
    {&cachew__journal__floor__descriptor, 17, 17, "the first position of stream",
     "jobs with the guarantee at-most-once are ended"},
    {&cachew__journal__range__descriptor, 25, 25, "range", "the range is computed again"},
    {&cachew__journal__job__descriptor, 2, 1 + DP_NAME, "job",
     "the job starts over, or is ended if its guarantee is at-most-once"},
    {&cachew__journal__worker__descriptor, 17, 17, "worker", "the worker gets another number"},
};

/* Writes the subject of an entry as text: the name of a job in quotes; else the key's bytes after the letter
 * in hexadecimal; of an unknown kind (NULL), all bytes of the key. */
static void damaged_key_text(const void *key, size_t size, const struct kind *kind, char *buf,
                             size_t buf_size)
{
    const uint8_t *bytes = key;
    if (kind && bytes[0] == JOURNAL_JOB)
        snprintf(buf, buf_size, "\"%.*s\"", (int)(size - 1), (const char *)bytes + 1);
    else
        for (size_t i = kind ? 1 : 0, at = 0; i < size && at + 3 < buf_size; i++, at += 2)
            snprintf(buf + at, buf_size - at, "%02x", bytes[i]);
}

/* Leaves a damaged entry out, and deletes it with the next commit. Entries that depend on it are found
 * damaged when they are read: a stream depends on its pipeline, a job on its stream. With at-most-once it
 * must be known which ranges were given out. If it is not known to which stream the damaged entry belongs,
 * this is no longer known for any stream. The key itself may be damaged: a job's name that is not UTF-8
 * counts as an unknown kind. Returns CW_E_DATA: err names the entry and the cost, and loading can go on. */
static int damaged_leave_out(struct cw_dispatcher *d, const void *key, size_t key_size,
                             const struct kind *kind, const char *why, struct cw_error *err)
{
    char text[2 * DP_NAME + 20] = "";
    const uint8_t *letter = key;
    if (kind && *letter == JOURNAL_JOB && !cw_text_utf8((const char *)key + 1, key_size - 1))
        kind = NULL;
    bool of_ranges = !kind || *letter == JOURNAL_FLOOR || *letter == JOURNAL_RANGE;
    struct stream *s = kind && key_size > 16 ? cw_dp_stream_find(d, letter + 1) : NULL;
    if (key_size <= CW_STORE_KEY_MAX) {
        int r = cw_dp_journal_delete(d, key, key_size, err);
        if (r < 0)
            return r;
    }
    d->journal.numbers_lost |= kind == &kinds[0];
    d->journal.damaged = true;
    if (s)
        s->damaged = s->at_most_once;
    else
        d->journal.ranges_lost |= of_ranges;
    damaged_key_text(key, key_size, kind, text, sizeof(text));
    return cw_error_set(err, CW_E_DATA, "the damaged entry of %s%s%.600s is left out (%.300s): %s",
                        kind ? kind->name : "unknown kind", *text ? " " : "", text, why,
                        (s ? s->damaged : of_ranges) ? "jobs with the guarantee at-most-once are ended"
                                                     : kind->cost);
}

int cw_dispatcher_load(struct cw_dispatcher *d, const void *key, size_t key_size, const void *value,
                       size_t value_size, struct cw_error *err)
{
    const uint8_t *letter = key;
    size_t i = key_size > 0 ? (size_t)(*letter - JOURNAL_COUNTERS) : SIZE_MAX,
           size = value_size - JOURNAL_SUM_SIZE;
    const struct kind *kind = i < CW_COUNT_OF(kinds) && key_size >= kinds[i].min && key_size <= kinds[i].max
                                  ? &kinds[i]
                                  : NULL;
    uint64_t sum = value_size >= JOURNAL_SUM_SIZE ? cw_dp_journal_sum(key, key_size, value, size) : 0;
    if (value_size < JOURNAL_SUM_SIZE || memcmp(&sum, (const uint8_t *)value + size, JOURNAL_SUM_SIZE) != 0)
        return damaged_leave_out(d, key, key_size, kind, "its checksum does not match", err);
    if (!kind)
        return cw_error_set(err, CW_E_STATE,
                            "the journal has an entry of a kind that this version of Cachew does not know "
                            "(its key has %zu bytes): use the version that wrote it, or another --state-dir",
                            key_size);
    ProtobufCMessage *m = protobuf_c_message_unpack(kind->type, NULL, size, value);
    if (!m)
        return cw_error_set(
            err, CW_E_STATE,
            "the journal has an entry of kind '%c' with %zu bytes that this version of Cachew can't decode "
            "(use the version that wrote it), or there is no memory to decode it",
            *letter, size);
    struct cw_error why = {0};
    int r = restore_row(d, key, key_size, m, &why);
    protobuf_c_message_free_unpacked(m, NULL);
    if (r == CW_E_STATE)
        return damaged_leave_out(d, key, key_size, kind, why.message, err);
    if (r < 0 && err)
        *err = why;
    return r;
}

/* Ends the jobs that can't go on because of damaged entries. Called after all entries are read, because a
 * damaged entry may come after those of jobs. */
static void damaged_end_jobs(struct cw_dispatcher *d)
{
    struct cw_error why = {0};
    cw_error_set(&why, CW_E_DATA,
                 "the dispatcher's journal was damaged: it no longer says which ranges of the job were "
                 "computed or delivered");
    /* no CW_LIST_EACH: ending a job may free the oldest job that is over, which may be the next in the list
     */
    for (struct cw_link *at = d->jobs.list.next; at != &d->jobs.list; at = at->next) {
        struct job *j = CW_CONTAINER(at, struct job, link);
        const struct stream *s = j->stream;
        if (cw_dp_job_over(j) || (s && !s->damaged && !(s->at_most_once && d->journal.ranges_lost)))
            continue;
        j->lost = d->journal.damaged = true;
        cw_dp_job_end(d, j, JOB_FAILED, &why);
    }
}

void cw_dp_recovery_end(struct cw_dispatcher *d)
{
    cw_dp_pipelines_loaded(d);
    damaged_end_jobs(d);
    if (d->journal.numbers_lost) {
        d->workers.last_id += NUMBERS_SKIPPED;
        d->streams.last_number += NUMBERS_SKIPPED;
    }
    if (d->journal.damaged)
        cw_dp_journal_tried(d, cw_dp_journal_counters(d, NULL));
}
