/* Jobs: what a name stands for, who may join it, where its ranks are, how it ends. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "service/dispatcher/internal.h"

struct job *cw_dp_job_find(struct cw_dispatcher *d, const char *name)
{
    for (struct cw_map_node *at = NULL;
         (at = cw_map_find(&d->jobs_by_name, cw_hash64(name, strlen(name)), at));)
        if (strcmp(CW_CONTAINER(at, struct job, node)->name, name) == 0)
            return CW_CONTAINER(at, struct job, node);
    return NULL;
}

struct job *cw_dp_job_unref(struct job *j)
{
    if (!j || --j->refs > 0)
        return NULL;
    cw_dp_scale_end(j);
    free(j->name);
    free(j->why);
    free(j);
    return NULL;
}

static void ranks_free(struct cw_dispatcher *d, struct job *j)
{
    for (size_t i = 0; i < j->n_ranks; i++) {
        if (j->ranks[i]->client)
            j->ranks[i]->client->rank = NULL;
        free(j->ranks[i]);
    }
    free(j->ranks);
    d->n_ranks -= j->n_ranks;
    j->ranks = NULL;
    j->n_ranks = j->ranks_room = j->n_attached = j->n_finished = 0;
}

static void leave_stream(struct cw_dispatcher *d, struct job *j)
{
    struct stream *s = j->stream;
    if (!s)
        return;
    j->stream = NULL;
    cw_dp_worker_sets_later(d);
    cw_link_out(&j->by_stream);
    cw_dp_stream_total(s);
    if (cw_list_empty(&s->jobs))
        cw_dp_stream_idle(d, s);
    else
        cw_dp_stream_dirty(d, s);
}

void cw_dp_job_free(struct cw_dispatcher *d, struct job *j)
{
    if (j->durable || j->writing > 0)
        cw_dp_journal_tried(d, cw_dp_journal_job_gone(d, j, NULL)); /* else it is collected after a restart */
    leave_stream(d, j);
    ranks_free(d, j);
    cw_dp_history_free(d, j);
    cw_map_remove(&d->jobs_by_name, &j->node);
    cw_link_out(&j->link);
    d->n_jobs--;
    d->n_over -= j->state >= JOB_DONE;
    j->dead = true;
    cw_dp_job_unref(j);
}

/* ---- joining ---- */

static int refuse(struct cw_error *err, const char *job, const char *attribute, const char *value,
                  const char *expected)
{
    return cw_error_value(err, CW_E_SERVICE, attribute, value, expected,
                          "job \"%s\": %s is %s, but the job runs with %s", job, attribute, value, expected);
}

static int differs(struct cw_error *err, const char *job, const char *attribute, uint64_t value,
                   uint64_t expected)
{
    char a[32], b[32];
    snprintf(a, sizeof(a), "%" PRIu64, value);
    snprintf(b, sizeof(b), "%" PRIu64, expected);
    return value == expected ? 0 : refuse(err, job, attribute, a, b);
}

static const char *order_name(Cachew__Order order)
{
    return order == CACHEW__ORDER__ORDER_ANY ? "any" : "exact";
}

static const char *guarantee_name(Cachew__Guarantee guarantee)
{
    return guarantee == CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE ? "at-most-once" : "exactly-once";
}

/* Each rank takes every world_size-th batch, from where rounds begin: a rank that counts from elsewhere would
 * take another's. In a later epoch than the one that was begun in the middle, all count from 0. */
static int round_differs(const struct job *j, const Cachew__Attach *a, struct cw_error *err)
{
    char x[64], y[64];
    if (!j->round_known || !a->round)
        return 0;
    const Cachew__Place *first = a->round->epoch < j->round.epoch ? a->round : &j->round,
                        *second = first == a->round ? &j->round : a->round;
    if (second->batch % j->world_size == (first->epoch == second->epoch ? first->batch % j->world_size : 0))
        return 0;
    snprintf(x, sizeof(x), "%" PRIu64 " of epoch %" PRIu64, a->round->batch, a->round->epoch);
    snprintf(y, sizeof(y), "%" PRIu64 " of epoch %" PRIu64, j->round.batch, j->round.epoch);
    return refuse(err, j->name, "the first batch of a round", x, y);
}

/* 0, or who wants to join is refused. */
static int job_differs(const struct job *j, const Cachew__Attach *a, struct cw_error *err)
{
    char x[33], y[33];
    if (memcmp(j->fingerprint, a->fingerprint.data, 16) != 0)
        return refuse(err, j->name, "pipeline", cw_dp_hex(a->fingerprint.data, x),
                      cw_dp_hex(j->fingerprint, y));
    int r = differs(err, j->name, "seed", a->seed, j->seed);
    if (r == 0)
        r = differs(err, j->name, "epochs", a->epochs, j->epochs);
    if (r == 0)
        r = differs(err, j->name, "world_size", a->world_size, j->world_size);
    if (r == 0 && a->order != j->order)
        r = refuse(err, j->name, "order", order_name(a->order), order_name(j->order));
    if (r == 0 && a->guarantee != j->guarantee)
        r = refuse(err, j->name, "guarantee", guarantee_name(a->guarantee), guarantee_name(j->guarantee));
    return r == 0 ? round_differs(j, a, err) : r;
}

static int attach_check(const Cachew__Attach *a, struct cw_error *err)
{
    size_t size = strlen(a->job);
    char value[32];
    snprintf(value, sizeof(value), "%" PRIu32, a->world_size);
    if (size == 0 || size > DP_NAME || !cw_text_utf8(a->job, size))
        return cw_error_set(err, CW_E_OPTION, "a job's name has 1 to %d bytes of UTF-8, not %zu", DP_NAME,
                            size);
    if (a->world_size == 0 || a->world_size > DP_RANKS)
        return cw_error_value(err, CW_E_OPTION, "world_size", value, "1 to 1048576",
                              "world_size is %s: expected 1 to %" PRIu32, value, DP_RANKS);
    if (a->rank >= a->world_size)
        return cw_error_set(err, CW_E_OPTION,
                            "rank is %" PRIu32 ": expected less than the world size %" PRIu32, a->rank,
                            a->world_size);
    if (a->fingerprint.len != 16 || a->epochs == 0 || strlen(a->base_dir) > DP_PATH ||
        strlen(a->pipeline) > CW_PIPELINE_BYTES)
        return cw_error_set(
            err, CW_E_SERVICE,
            "Attach needs a fingerprint of 16 bytes, epochs, and a pipeline of at most %zu bytes",
            CW_PIPELINE_BYTES);
    if ((unsigned)a->order > CACHEW__ORDER__ORDER_ANY ||
        (unsigned)a->guarantee > CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE)
        return cw_error_set(err, CW_E_SERVICE,
                            "order %d with guarantee %d: this dispatcher does not know them", (int)a->order,
                            (int)a->guarantee);
    if (a->guarantee == CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE && a->order != CACHEW__ORDER__ORDER_ANY)
        return cw_error_value(err, CW_E_OPTION, "order", "exact", "any",
                              "guarantee \"at-most-once\" with order \"exact\": a range that is lost leaves "
                              "a gap; expected order \"any\"");
    return 0;
}

/* Room for one more: the one that is without a client for longest is collected ahead of its time. */
static bool job_room(struct cw_dispatcher *d)
{
    struct job *oldest = NULL;
    if (d->n_jobs - d->n_over < DP_JOBS)
        return true;
    CW_LIST_EACH_OF (j, struct job, link, &d->jobs)
        if (j->state < JOB_DONE && j->n_attached == 0 && (!oldest || j->since_ns < oldest->since_ns))
            oldest = j;
    if (oldest) {
        cw_dp_log(d, true, "job \"%s\" is collected: it has no client, and there are %d jobs", oldest->name,
                  DP_JOBS);
        cw_dp_job_free(d, oldest);
    }
    return oldest;
}

static int job_new(struct cw_dispatcher *d, const char *name, struct job **ret, struct cw_error *err)
{
    if (!job_room(d))
        return cw_error_set(err, CW_E_SERVICE, "there are %d jobs already", DP_JOBS);
    struct job *j = malloc(sizeof(*j));
    if (!j)
        return cw_error_nomem(err, sizeof(*j), "a job");
    *j = (struct job){.refs = 1, .since_ns = d->now_ns, .name = strdup(name)};
    if (!j->name || cw_map_add(&d->jobs_by_name, &j->node, cw_hash64(name, strlen(name))) < 0) {
        cw_dp_job_unref(j);
        return cw_error_nomem(err, sizeof(*j), "a job");
    }
    cw_list_add(&d->jobs, &j->link);
    d->n_jobs++;
    *ret = j;
    return 0;
}

static void join_stream(struct job *j, struct stream *s)
{
    j->stream = s;
    memcpy(j->stream_id, s->id, 16);
    cw_list_add(&s->jobs, &j->by_stream);
    cw_dp_stream_total(s);
}

/* The earliest epoch in which a rank began in the middle. */
static void note_round(struct job *j, const Cachew__Attach *a)
{
    if (a->round && (!j->round_known || a->round->epoch < j->round.epoch))
        j->round = (Cachew__Place){.epoch = a->round->epoch, .batch = a->round->batch};
    j->round_known |= a->round != NULL;
}

static bool heard_since(const struct job *j, uint64_t since_ns)
{
    for (size_t i = 0; i < j->n_ranks; i++)
        if (j->ranks[i]->client && j->ranks[i]->heard_ns >= since_ns)
            return true;
    return false;
}

/* The client goes on from a saved state, or was attached before. */
static bool goes_on(const Cachew__Attach *a)
{
    const Cachew__Place *from = a->from, *round = a->round;
    return a->again || a->snapshot != 0 || (from && (from->epoch | from->position)) ||
           (round && (round->epoch | round->batch));
}

int cw_dp_job_get(struct cw_dispatcher *d, const Cachew__Attach *a, uint64_t since_ns, struct job **ret,
                  struct cw_error *err)
{
    int r = attach_check(a, err);
    if (r < 0)
        return r;
    struct job *j = cw_dp_job_find(d, a->job);
    if (j && j->state < JOB_DONE) {
        struct cw_error difference = {0};
        r = job_differs(j, a, &difference);
        if (r == 0) {
            note_round(j, a);
            *ret = j;
            return 0;
        }
        if (j->n_attached > 0) {
            if (err)
                *err = difference;
            return heard_since(j, since_ns) ? r : 1;
        }
    }
    if (a->guarantee == CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE && (j ? j->lost : d->damaged) && goes_on(a))
        return cw_error_set(
            err, CW_E_SERVICE, "job \"%s\" can't go on with at-most-once: %s; start it again", a->job,
            j && j->why ? j->why : "the dispatcher's journal was damaged, and does not know the job");
    if (j) /* over, or left by all: it begins anew */
        cw_dp_job_free(d, j);
    struct stream *s = NULL;
    r = job_new(d, a->job, &j, err);
    if (r < 0)
        return r;
    r = cw_dp_stream_get(d, a, &s, err);
    if (r < 0) {
        cw_dp_job_free(d, j);
        return r;
    }
    memcpy(j->fingerprint, a->fingerprint.data, 16);
    j->seed = a->seed;
    j->epochs = a->epochs;
    j->world_size = a->world_size;
    j->order = a->order;
    j->guarantee = a->guarantee;
    j->resumed_ns = a->again ? d->now_ns : 0;
    note_round(j, a);
    join_stream(j, s);
    cw_dp_scale_begin(d, j);
    *ret = j;
    return 0;
}

int cw_dp_job_restore(struct cw_dispatcher *d, const Cachew__Journal__Job *row, struct cw_error *err)
{
    struct job *j;
    struct stream *s = row->stream.len == 16 ? cw_dp_stream_find(d, row->stream.data) : NULL;
    bool over = row->state >= JOB_DONE;
    if (row->fingerprint.len != 16 || row->world_size == 0 || row->state > JOB_FAILED)
        return cw_error_set(err, CW_E_STATE, "it has no fingerprint of 16 bytes, no ranks, or state %" PRIu32,
                            row->state);
    for (size_t i = 0; i < row->n_finished; i++)
        if (row->finished[i] >= row->world_size)
            return cw_error_set(err, CW_E_STATE, "it has a rank %" PRIu32 " of %" PRIu32, row->finished[i],
                                row->world_size);
    int r = job_new(d, row->name, &j, err);
    if (r < 0)
        return r;
    memcpy(j->fingerprint, row->fingerprint.data, 16);
    memcpy(j->stream_id, row->stream.len == 16 ? row->stream.data : j->fingerprint, 16);
    j->seed = row->seed;
    j->epochs = row->epochs;
    j->world_size = row->world_size;
    j->order = row->order;
    j->guarantee = row->guarantee;
    j->state = (enum job_state)row->state;
    j->paused = row->paused;
    j->lost = row->lost;
    j->durable = true;
    d->n_over += over;
    if (!over && s) {
        join_stream(j, s);
        cw_dp_scale_restore(d, j, row);
    }
    for (size_t i = 0; j->stream && i < row->n_finished; i++) {
        struct rank *rank;
        r = cw_dp_rank_get(d, j, row->finished[i], &rank, err);
        if (r < 0)
            return r;
        j->n_finished += !rank->finished;
        rank->finished = true;
    }
    if (*row->why && !(j->why = strdup(row->why)))
        return cw_error_nomem(err, strlen(row->why), "a job");
    return 0;
}

/* A damaged entry may sort behind those of jobs: so this is decided when all of them were read. */
void cw_dp_jobs_loaded(struct cw_dispatcher *d)
{
    static const char why[] = "the dispatcher's journal was damaged: what was computed of the job, or given "
                              "out, is not known any more";
    CW_LIST_EACH_OF (j, struct job, link, &d->jobs) {
        const struct stream *s = j->stream;
        if (j->state >= JOB_DONE || (s && !s->damaged && !(s->at_most_once && d->ranges_lost)))
            continue;
        j->state = JOB_FAILED;
        j->lost = d->damaged = true;
        free(j->why);
        j->why = strdup(why);
        d->n_over++;
        cw_dp_log(d, true, "job \"%s\" is failed: %s", j->name, why);
        cw_dp_journal_tried(d, cw_dp_journal_job(d, j, NULL, NULL));
        leave_stream(d, j);
    }
}

/* ---- running ---- */

/* Its stream is ready: who waits is answered, once the job is written down. */
void cw_dp_job_ready(struct cw_dispatcher *d, struct job *j)
{
    struct cw_error err = {0};
    struct action then = {.kind = ACTION_JOB, .job = j};
    cw_dp_stream_total(j->stream);
    for (size_t i = 0; i < j->n_ranks; i++)
        if (j->ranks[i]->client && j->ranks[i]->attach_id != 0)
            cw_dp_client_begin(d, j->ranks[i]);
    if (j->durable || j->writing > 0)
        return;
    if (j->n_attached == 0) { /* all of them were refused */
        cw_dp_job_free(d, j);
        return;
    }
    int r = cw_dp_journal_stream(d, j->stream, &err);
    if (r == 0) {
        j->state = JOB_RUNNING;
        r = cw_dp_journal_job(d, j, &then, &err);
    }
    if (r == 0) {
        j->writing++;
        return;
    }
    for (size_t i = 0; i < j->n_ranks; i++)
        if (j->ranks[i]->client)
            cw_dp_client_refuse(d, j->ranks[i], &err);
    cw_dp_job_free(d, j);
}

void cw_dp_job_written(struct cw_dispatcher *d, struct job *j)
{
    j->writing--;
    j->durable = true;
    for (size_t i = 0; i < j->n_ranks; i++)
        if (j->ranks[i]->client && j->ranks[i]->attach_id != 0)
            cw_dp_client_greet(d, j->ranks[i]);
}

/* No worker can serve it. */
void cw_dp_job_refused(struct cw_dispatcher *d, struct job *j, const Cachew__Failure *why)
{
    for (size_t i = 0; i < j->n_ranks; i++) {
        struct rank *r = j->ranks[i];
        if (!r->client || r->attach_id == 0)
            continue;
        Cachew__Failure failure = *why;
        Cachew__Envelope m = {CW_MESSAGE(envelope), .re = r->attach_id,
                              .of_case = CACHEW__ENVELOPE__OF_FAILURE, .failure = &failure};
        cw_dp_send(d, r->client, &m);
    }
    cw_dp_job_free(d, j);
}

static void remove_oldest_over(struct cw_dispatcher *d)
{
    struct job *oldest = NULL;
    CW_LIST_EACH_OF (j, struct job, link, &d->jobs)
        if (j->state >= JOB_DONE && (!oldest || j->since_ns < oldest->since_ns))
            oldest = j;
    if (oldest)
        cw_dp_job_free(d, oldest);
}

uint64_t cw_dp_job_lost(const struct job *j)
{
    uint64_t n = 0;
    for (size_t i = 0; i < j->n_ranks; i++)
        n += j->ranks[i]->progress.n_lost;
    return n;
}

void cw_dp_job_over(struct cw_dispatcher *d, struct job *j, enum job_state state, const struct cw_error *why)
{
    if (d->n_over >= DP_JOBS_OVER)
        remove_oldest_over(d);
    j->state = state;
    uint64_t n_lost = cw_dp_job_lost(j);
    if (n_lost > 0)
        cw_dp_log(d, true,
                  "job \"%s\" is %s%s%s; %" PRIu64
                  " ranges were lost with workers, and left out (at-most-once)",
                  j->name, cw_dp_job_state(j), why ? ": " : "", why ? why->message : "", n_lost);
    else
        cw_dp_log(d, false, "job \"%s\" is %s%s%s", j->name, cw_dp_job_state(j), why ? ": " : "",
                  why ? why->message : "");
    j->since_ns = d->now_ns;
    if (why && !j->why)
        j->why = strdup(why->message);
    d->n_over++;
    for (size_t i = 0; i < j->n_ranks; i++)
        if (j->ranks[i]->client && why)
            cw_dp_client_ended(d, j->ranks[i], why);
    if (j->durable || j->writing > 0)
        /* else it is found running after a restart, and collected */
        cw_dp_journal_tried(d, cw_dp_journal_job(d, j, NULL, NULL));
    leave_stream(d, j);
}

uint64_t cw_dp_job_mark(struct job *j)
{
    if (!j->began)
        return UINT64_MAX;
    if (j->n_at_mark > 0)
        return j->mark;
    j->mark = UINT64_MAX;
    if (j->n_ranks < j->world_size && !j->missing_over) { /* those that were not here yet */
        j->mark = j->first_from;
        j->n_at_mark = 1;
    }
    for (size_t i = 0; i < j->n_ranks; i++) {
        const struct rank *r = j->ranks[i];
        if (r->finished || !r->began)
            continue;
        if (r->pos < j->mark) {
            j->mark = r->pos;
            j->n_at_mark = 0;
        }
        j->n_at_mark += r->pos == j->mark;
    }
    return j->mark;
}

const char *cw_dp_job_state(const struct job *j)
{
    static const char *const names[] = {"waiting", "running", "done", "cancelled", "failed"};
    if (j->paused && j->state < JOB_DONE)
        return "paused";
    return j->state == JOB_RUNNING && j->n_attached == 0 ? "unattended" : names[j->state];
}

void cw_dp_job_tick(struct cw_dispatcher *d)
{
    /* A job that was left out would have been collected by now. */
    if (d->damaged && d->now_ns - d->start_ns >= DP_LISTED) {
        d->damaged = false;
        cw_dp_journal_tried(d, cw_dp_journal_counters(d, NULL));
    }
    CW_LIST_EACH_OF (j, struct job, link, &d->jobs) {
        uint64_t age = d->now_ns - j->since_ns;
        if (j->state < JOB_DONE && j->resumed_ns != 0 && !j->missing_over && j->began &&
            d->now_ns - j->resumed_ns >= DP_MISSING) {
            j->missing_over = true;
            j->n_at_mark = 0;
            cw_dp_stream_dirty(d, j->stream);
        }
        if (j->state < JOB_DONE && j->n_attached > 0)
            cw_dp_tell_held(d, j);
        if (j->state >= JOB_DONE ? age >= DP_LISTED : j->n_attached == 0 && age >= DP_ABANDONED) {
            if (j->state < JOB_DONE)
                cw_dp_log(d, true, "job \"%s\" is collected: it had no client for an hour", j->name);
            cw_dp_job_free(d, j);
        }
    }
}
