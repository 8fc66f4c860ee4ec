/* Handles a client's Attach: checks it, and joins the client to the job that it names, refuses it, or makes
 * the job (in place of one that is over). Changes the tables of struct cw_dispatcher. client_messages.c calls
 * it. */
#include "service/dispatcher/job_join.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "net/limits.h"
#include "service/dispatcher/job_life.h"
#include "service/dispatcher/state.h"
#include "service/dispatcher/stream_life.h"

/* ---- what must agree ---- */

/* Fills err: the term `attribute` of the Attach differs from the job's. */
static int join_refuse(struct cw_error *err, const char *job, const char *attribute, const char *value,
                       const char *expected)
{
    return cw_error_value(
        err, CW_E_SERVICE, attribute, value, expected,
        "job \"%s\": %s is %s, but the job runs with %s; give the same value, or another job name", job,
        attribute, value, expected);
}

/* Fills err: the pipeline of the Attach differs from the job's. */
static int join_refuse_pipeline(struct cw_error *err, const struct job *j, const Cachew__Attach *a)
{
    char x[33], y[33];
    cw_dp_hex(a->fingerprint.data, x);
    cw_dp_hex(j->terms.fingerprint, y);
    return cw_error_value(
        err, CW_E_SERVICE, "pipeline", x, y,
        "job \"%s\": pipeline is %s, but the job runs with %s; give the same pipeline, cut at "
        "the same place (option cut), or another job name",
        j->name, x, y);
}

/* Returns a term as text: a number, or the name of the order or guarantee. */
static const char *join_term(const char *attribute, uint64_t value, char buf[33])
{
    if (strcmp(attribute, "order") == 0)
        return value == CACHEW__ORDER__ORDER_ANY ? "any" : "exact";
    if (strcmp(attribute, "guarantee") == 0)
        return value == CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE ? "at-most-once" : "exactly-once";
    snprintf(buf, 33, "%" PRIu64, value);
    return buf;
}

/* Checks that the rank counts rounds from the same batch as the job. A round is world_size consecutive
 * batches, one for each rank. In the epoch in which the job began, rounds count from the batch at which it
 * began; in later epochs from batch 0. < 0: the rank counts from another batch. */
static int join_round_differs(const struct job *j, const Cachew__Attach *a, struct cw_error *err)
{
    char x[64], y[64];
    if (!j->round_known || !a->round)
        return 0;
    const Cachew__Place *first = a->round->epoch < j->round.epoch ? a->round : &j->round,
                        *second = first == a->round ? &j->round : a->round;
    if (second->batch % j->terms.world_size ==
        (first->epoch == second->epoch ? first->batch % j->terms.world_size : 0))
        return 0;
    snprintf(x, sizeof(x), "%" PRIu64 " of epoch %" PRIu64, a->round->batch, a->round->epoch);
    snprintf(y, sizeof(y), "%" PRIu64 " of epoch %" PRIu64, j->round.batch, j->round.epoch);
    return join_refuse(err, j->name, "the first batch for all ranks (do all load the same state?)", x, y);
}

/* Compares all terms. 0: they agree. < 0: err names the term that differs. */
static int join_job_differs(const struct job *j, const Cachew__Attach *a, struct cw_error *err)
{
    char x[33], y[33];
    if (memcmp(j->terms.fingerprint, a->fingerprint.data, 16) != 0)
        return join_refuse_pipeline(err, j, a);

    const struct {
        const char *attribute;
        uint64_t value, expected;
    } terms[] = {{"seed", a->seed, j->terms.seed},
                 {"epochs", a->epochs, j->terms.epochs},
                 {"world_size", a->world_size, j->terms.world_size},
                 {"order", a->order, j->terms.order},
                 {"guarantee", a->guarantee, j->terms.guarantee}};

    for (size_t i = 0; i < CW_COUNT_OF(terms); i++)
        if (terms[i].value != terms[i].expected)
            return join_refuse(err, j->name, terms[i].attribute,
                               join_term(terms[i].attribute, terms[i].value, x),
                               join_term(terms[i].attribute, terms[i].expected, y));
    return join_round_differs(j, a, err);
}

/* Checks that each term is valid by itself. */
static int join_check(const Cachew__Attach *a, struct cw_error *err)
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
        return cw_error_set(err, CW_E_SERVICE,
                            "a client that joins a job needs a pipeline fingerprint of 16 bytes, at least "
                            "one epoch, and a pipeline of at most %zu bytes" CW_OTHER_VERSION,
                            CW_PIPELINE_BYTES);
    if ((unsigned)a->order > CACHEW__ORDER__ORDER_ANY ||
        (unsigned)a->guarantee > CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE)
        return cw_error_set(err, CW_E_SERVICE,
                            "order %d with guarantee %d: this version of the dispatcher does not know one of "
                            "them" CW_OTHER_VERSION,
                            (int)a->order, (int)a->guarantee);
    if (a->guarantee == CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE && a->order != CACHEW__ORDER__ORDER_ANY)
        return cw_error_value(err, CW_E_OPTION, "order", "exact", "any",
                              "guarantee \"at-most-once\" with order \"exact\": a lost range leaves a gap in "
                              "the order; expected order \"any\"");
    return 0;
}

/* ---- joining ---- */

/* Stores the batch from which the job counts rounds. If ranks say different epochs, the earliest epoch
 * counts. */
static void join_note_round(struct job *j, const Cachew__Attach *a)
{
    if (a->round && (!j->round_known || a->round->epoch < j->round.epoch))
        j->round = (Cachew__Place){.epoch = a->round->epoch, .batch = a->round->batch};
    j->round_known |= a->round != NULL;
}

/* Whether an attached rank of the job sent a message since since_ns. */
static bool join_heard_since(const struct job *j, uint64_t since_ns)
{
    DP_RANKS_EACH (r, j)
        if (r->client && r->heard_ns >= since_ns)
            return true;
    return false;
}

/* Whether the client continues from a saved state, or was attached before. */
static bool join_continues(const Cachew__Attach *a)
{
    const Cachew__Place *from = a->from, *round = a->round;
    return a->again || a->snapshot != 0 || (from && (from->epoch | from->position)) ||
           (round && (round->epoch | round->batch));
}

int cw_dp_job_join(struct cw_dispatcher *d, const Cachew__Attach *a, uint64_t since_ns, struct job **ret,
                   struct cw_error *err)
{
    int r = join_check(a, err);
    if (r < 0)
        return r;
    struct job *j = cw_dp_job_find(d, a->job);
    if (j && !cw_dp_job_over(j)) {
        struct cw_error difference = {0};
        r = join_job_differs(j, a, &difference);
        if (r == 0) {
            join_note_round(j, a);
            *ret = j;
            return 0;
        }
        if (j->ranks.n_attached > 0) {
            if (err)
                *err = difference;
            return join_heard_since(j, since_ns) ? r : 1;
        }
    }
    if (a->guarantee == CACHEW__GUARANTEE__GUARANTEE_AT_MOST_ONCE && (j ? j->lost : d->journal.damaged) &&
        join_continues(a))
        return cw_error_set(
            err, CW_E_SERVICE,
            "job \"%s\" can't go on with guarantee \"at-most-once\": %s; start the job again from the "
            "beginning",
            a->job, j && j->why ? j->why : "the dispatcher's journal was damaged, and does not have the job");
    if (j) /* the job is over, or has no client: it is replaced by a new one */
        cw_dp_job_free(d, j);
    struct stream *s = NULL;
    r = cw_dp_job_new(d, a->job, &j, err);
    if (r < 0)
        return r;
    r = cw_dp_stream_get(d, a, &s, err);
    if (r < 0) {
        cw_dp_job_free(d, j);
        return r;
    }
    j->terms = (struct job_terms){.seed = a->seed,
                                  .epochs = a->epochs,
                                  .world_size = a->world_size,
                                  .order = a->order,
                                  .guarantee = a->guarantee};
    memcpy(j->terms.fingerprint, a->fingerprint.data, 16);
    j->resumed_ns = a->again ? d->now_ns : 0;
    join_note_round(j, a);
    cw_dp_job_join_stream(j, s);
    cw_dp_scaling_begin(d, j);
    *ret = j;
    return 0;
}
