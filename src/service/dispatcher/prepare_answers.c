/* Handles answers to Prepare, and workers that fail at a stream. */
#include "service/dispatcher/prepare_answers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "net/conn.h"
#include "service/dispatcher/job_life.h"
#include "service/dispatcher/lease_outbox.h"
#include "service/dispatcher/prepare.h"
#include "service/dispatcher/state.h"
#include "service/dispatcher/worker_sets.h"

/* Fills *ret with the reasons of all workers that can't serve the stream. why: the last failure, whose kind
 * is used. */
static void unfit_reasons(const struct cw_dispatcher *d, const struct stream *s, const Cachew__Failure *why,
                          struct cw_error *ret)
{
    size_t n = 0, n_left_out = 0, size = 0, room = sizeof(ret->message) - sizeof("; and 1000000 more");
    cw_failure_error(why, ret);
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list)
        n += t->state == ASSIGNMENT_UNFIT;
    size_t longest = CW_MAX(480 / CW_MAX(n, (size_t)1), (size_t)100); /* most bytes of one reason */
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers.list) {
        const struct assignment *t = cw_dp_assignment_find(w, s);
        char text[640], shown[CW_TEXT_SHOWN];
        if (!t || t->state != ASSIGNMENT_UNFIT)
            continue;
        const char *reason = t->why ? t->why : "no reason was given";
        snprintf(text, sizeof(text), "%s worker %" PRIu64 " (%.*s): %.*s",
                 size ? ";" : "no worker can run the pipeline:", w->id,
                 (int)cw_text_whole(w->last_peer->name, 60), w->last_peer->name,
                 (int)cw_text_whole(reason, longest), reason);
        cw_text_show(shown, size ? sizeof(shown) : room, text); /* the first reason is shortened to fit */
        size_t k = strlen(shown);
        if (size + k >= room) {
            n_left_out++;
            continue;
        }
        memcpy(ret->message + size, shown, k + 1);
        size += k;
    }
    if (n_left_out > 0)
        snprintf(ret->message + size, sizeof(ret->message) - size, "; and %zu more", n_left_out);
}

/* If no connected worker can serve the stream, and one failed after it was ready: ends the stream's jobs with
 * the reasons of all workers. A draining worker counts as able while it holds ranges of the stream. */
static void unfit_end_jobs(struct cw_dispatcher *d, struct stream *s, const Cachew__Failure *why)
{
    struct cw_error err = {0};
    bool failed = false;
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers.list) {
        const struct assignment *t = cw_dp_assignment_find(w, s);
        if (w->ready && (w->leaving ? t && t->n_held > 0 : !t || t->state != ASSIGNMENT_UNFIT))
            return;
        failed |= t && t->failed;
    }
    if (!failed)
        return;
    unfit_reasons(d, s, why, &err);
    cw_dp_job_fail_all(d, s, &err);
}

/* Marks the assignment as unfit, and logs the reason. */
static void unfit_note(struct cw_dispatcher *d, struct assignment *t, const char *why)
{
    char hex[33];
    cw_dp_assignment_set_state(d, t, ASSIGNMENT_UNFIT);
    cw_dp_scaling_due(d); /* another worker replaces it */
    free(t->why);
    t->why = cw_text_dup(why, 1000);
    cw_dp_log(d, true, "worker %" PRIu64 " (%s) can't compute stream %s (a pipeline with its data): %s",
              t->worker->id, t->worker->last_peer->name, cw_dp_hex(t->stream->id, hex), why);
}

/* Stores the plan, and starts the stream's jobs, which waited for it. */
static int prepare_stream_ready(struct cw_dispatcher *d, struct stream *s, const Cachew__Prepared *p,
                                struct cw_error *err)
{
    int r = cw_dp_stream_set_data(s, p, err);
    if (r < 0)
        return r;
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        cw_dp_job_ready(d, j);
    cw_dp_prepare_stream(d, s); /* now that the plan is known, all workers prepare the stream */
    return 0;
}

/* A worker failed at a stream without a plan: sends Prepare to another worker. If all have failed, refuses
 * the waiting clients. */
static void prepare_stream_unfit(struct cw_dispatcher *d, struct stream *s, const Cachew__Failure *why)
{
    if (s->data)
        return;
    if (d->scaler.enabled)
        cw_dp_worker_sets_update(d); /* adds another worker to the set, if there is one */
    cw_dp_prepare_stream(d, s);
    CW_LIST_EACH_OF (t, struct assignment, by_stream, &s->assignments.list)
        if (t->state != ASSIGNMENT_UNFIT && !t->worker->leaving)
            return; /* this worker may still succeed */
    struct cw_error err;
    int status = cw_failure_error(why, &err);
    if (status == CW_E_BUDGET ||
        status == CW_E_MEMORY) /* these errors are faults of workers, not of the pipeline: name all of them */
        unfit_reasons(d, s, why, &err);
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        cw_dp_job_refuse(d, j, &err);
}

/* Writes how a worker's data and plan (b) differ from the stream's (a), which the first worker reported. */
static void unfit_difference(const Cachew__Prepared *a, const Cachew__Prepared *b, char *ret, size_t size)
{
    for (size_t i = 0; a->n_files > 0 && b->n_files > 0 && i < CW_MAX(a->n_files, b->n_files); i++) {
        if (i >= b->n_files || (i < a->n_files && strcmp(a->files[i]->path, b->files[i]->path) < 0))
            snprintf(ret, size,
                     "it sees other data than the first worker: file \"%s\" does not exist on this worker",
                     a->files[i]->path);
        else if (i >= a->n_files || strcmp(a->files[i]->path, b->files[i]->path) > 0)
            snprintf(ret, size, "it sees other data than the first worker: it also has file \"%s\"",
                     b->files[i]->path);
        else if (a->files[i]->key != b->files[i]->key)
            snprintf(ret, size, "it sees other data than the first worker: file \"%s\" has other content",
                     a->files[i]->path);
        else
            continue;
        return;
    }
    if (a->plan->snapshot == b->plan->snapshot && a->plan->n_positions == b->plan->n_positions) {
        snprintf(ret, size,
                 "it compiles the pipeline differently from the first worker (use the same version of Cachew "
                 "on all workers): ranges in multiples of %" PRIu64 " positions, %" PRIu32
                 " batch keys, sequential %d; expected %" PRIu64 ", %" PRIu32 ", %d",
                 b->plan->align, b->plan->n_keys, b->plan->sequential, a->plan->align, a->plan->n_keys,
                 a->plan->sequential);
        return;
    }
    snprintf(ret, size,
             "it sees other data than the first worker: the fingerprint of its data is %016" PRIx64
             " with %" PRIu64 " positions, expected %016" PRIx64 " with %" PRIu64,
             b->plan->snapshot, b->plan->n_positions, a->plan->snapshot, a->plan->n_positions);
}

int cw_dp_prepare_ready(struct cw_dispatcher *d, struct assignment *t, const Cachew__Prepared *p,
                        struct cw_error *err)
{
    struct stream *s = t->stream;
    if (!p->plan || p->n_files > DP_FILES || p->capacity == 0)
        return cw_error_set(err, CW_E_SERVICE,
                            "the worker sent a malformed message (Prepared): no plan, no capacity, or more "
                            "than %d files" CW_OTHER_VERSION,
                            DP_FILES);
    if (p->plan->n_positions > DP_ENDLESS || p->plan->align == 0)
        return cw_error_set(err, CW_E_SERVICE,
                            "the worker sent a malformed message (Prepared): a plan of %" PRIu64
                            " positions (expected at most 2^62), align %" PRIu64
                            " (expected at least 1)" CW_OTHER_VERSION,
                            p->plan->n_positions, p->plan->align);
    if (p->most_positions != 0 && p->most_positions < p->plan->align)
        return cw_error_set(err, CW_E_SERVICE,
                            "the worker's message Prepared allows ranges of at most %" PRIu64
                            " positions, but their bounds are multiples of %" PRIu64 CW_OTHER_VERSION,
                            p->most_positions, p->plan->align);
    if (!s->data) {
        int r = prepare_stream_ready(d, s, p, err);
        if (r < 0)
            return r;
    }
    const Cachew__Plan *a = s->data->plan, *b = p->plan;
    if (a->snapshot != b->snapshot || a->n_positions != b->n_positions || a->align != b->align ||
        a->n_keys != b->n_keys || a->sequential != b->sequential) {
        char why[1000];
        unfit_difference(s->data, p, why, sizeof(why));
        if (t->n_held > 0)
            cw_dp_lease_drop_from(d, t, 0, DROP_SILENTLY);
        cw_dp_prepare_forget(d, t->worker, (ProtobufCBinaryData){16, s->id});
        unfit_note(d, t, why);
        /* the difference may be temporary, like a file that is being copied: Prepare is sent again after
         * DP_SHUN */
        cw_dp_prepare_shun(d, t);
        return 0;
    }
    uint32_t capacity = CW_MIN(p->capacity, (uint32_t)DP_CAPACITY);
    /* the array never shrinks: leases that were granted at a larger capacity may still wait for the journal
     */
    if (CW_ARRAY_ROOM(t->outbox.leases, t->outbox.room, capacity + (size_t)2, "leases of a worker", err) < 0)
        return CW_E_MEMORY;
    t->capacity = capacity;
    t->most_positions = p->most_positions > 0 ? p->most_positions : UINT64_MAX;
    cw_dp_assignment_set_state(d, t, ASSIGNMENT_READY);
    t->failed = false;
    t->outbox.new_origin =
        s->assignments.origin; /* the worker may know another origin from an earlier connection */
    if (t->outbox.new_origin)
        cw_dp_outbox_dirty(d, t);
    return 0;
}

/* Whether the stream failed only because it got a part of the worker's memory: it may fit when other streams
 * end. */
static bool crowded_is(const struct assignment *t, const Cachew__Failure *why)
{
    return (t->beside || t->worker->room.n_streams > 1) &&
           strcmp(why->kind, cw_status_name(CW_E_BUDGET)) == 0;
}

/* Lets the stream wait until the worker has room. */
static void crowded_note(struct cw_dispatcher *d, struct assignment *t)
{
    cw_dp_assignment_set_state(d, t, ASSIGNMENT_IDLE);
    t->worker->room.short_of_memory = t->worker->room.n_streams > 0;
    d->workers.has_room |= t->worker->room.n_streams == 0;
    t->stream->wants = true;
}

int cw_dp_prepare_answer(struct cw_dispatcher *d, struct worker *w, uint64_t re, const Cachew__Envelope *m,
                         struct cw_error *err)
{
    struct assignment *t = NULL;
    CW_LIST_EACH_OF (x, struct assignment, by_worker, &w->assignments)
        if (x->state == ASSIGNMENT_ASKED && x->request == re)
            t = x;
    if (!t || t->stream->state == STREAM_DEAD) /* the dispatcher has forgotten the stream */
        return 0;
    if (m->of_case == CACHEW__ENVELOPE__OF_PREPARED)
        return cw_dp_prepare_ready(d, t, m->prepared, err);
    if (crowded_is(t, m->failure)) {
        crowded_note(d, t);
        return 0;
    }
    unfit_note(d, t, m->failure->message);
    if (!t->stream->data) {
        prepare_stream_unfit(d, t->stream, m->failure);
        return 0;
    }
    /* other workers may be able to serve it; this one is tried again later: a missing file may appear, or
     * memory become free */
    cw_dp_prepare_shun(d, t);
    unfit_end_jobs(d, t->stream, m->failure);
    return 0;
}

int cw_dp_prepare_failed(struct cw_dispatcher *d, struct worker *w, const Cachew__StreamFailed *m,
                         struct cw_error *err)
{
    char hex[33];
    if (m->stream.len != 16 || !m->why)
        return cw_error_set(err, CW_E_SERVICE,
                            "the worker sent a malformed message (StreamFailed): its stream id does not have "
                            "16 bytes, or it has no reason" CW_OTHER_VERSION);
    struct stream *s = cw_dp_stream_find(d, m->stream.data);
    struct assignment *t = s ? cw_dp_assignment_find(w, s) : NULL;
    if (!t || s->state == STREAM_DEAD ||
        t->state != ASSIGNMENT_READY) /* the dispatcher has forgotten the stream, or sent Prepare again */
        return 0;
    cw_dp_log(d, true,
              "worker %" PRIu64 " (%s) can't go on with stream %s (a pipeline with its data), and other "
              "workers get its %zu ranges: %s",
              w->id, w->last_peer->name, cw_dp_hex(s->id, hex), (size_t)t->n_held, m->why->message);
    cw_dp_lease_drop_from(d, t, 0, DROP_SILENTLY);
    /* "service": the worker just does not have the stream, which is not a failure. It is sent Prepare again,
     * and gets leases only if no other worker can. */
    if (strcmp(m->why->kind, cw_status_name(CW_E_SERVICE)) == 0) {
        cw_dp_assignment_set_state(d, t, ASSIGNMENT_IDLE);
        cw_dp_prepare_shun(d, t);
        cw_dp_prepare_stream(d, s);
        return 0;
    }
    cw_dp_prepare_forget(d, w, m->stream); /* frees the memory that the worker uses for the stream */
    if (crowded_is(t, m->why)) {
        crowded_note(d, t);
        return 0;
    }
    unfit_note(d, t, m->why->message);
    t->failed = true;
    cw_dp_prepare_shun(d, t); /* Prepare is sent again after DP_SHUN */
    unfit_end_jobs(d, s, m->why);
    return 0;
}
