/* Computes a range of a pipeline's elements, and writes them to shards. Another range may be computed while
 * the last shard of one is synced. */
#include "session/shard_range.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crash.h"
#include "dataset/manifest.h"
#include "order/iterator.h"
#include "session/shard_dir.h"
#include "session/shard_writer.h"

#define WAIT_NS UINT64_C(50000000) /* interval at which a wait looks for a cancellation */

struct range_write {
    struct cw_shard_ranges *ranges;
    uint64_t range;      /* its number */
    uint64_t begin, end; /* its positions */
    uint64_t elements;   /* so far */
    int (*cancelled)(void *);
    void *cancel_arg;
    /* where the batches come from: of the two one is set */
    struct cw_runner *runner;
    struct cw_iterator *iterator;
    struct cw_range *open; /* of the runner */
    struct cw_shard_writer writer;
    char name[CW_SHARD_NAME], temporary[CW_SHARD_NAME]; /* of the open shard */
    json_t *shards;                                     /* the finished ones */
};

static int range_cancelled(const struct range_write *x, struct cw_error *err)
{
    return x->cancelled && x->cancelled(x->cancel_arg) ? cw_error_set(err, CW_E_INTERRUPTED, "cancelled") : 0;
}

static int range_begin_shard(struct range_write *x, struct cw_error *err)
{
    const char *dir = x->ranges->dir;
    uint64_t random = 0;
    (void)!getrandom(&random, sizeof(random), 0);
    cw_shard_range_name(x->name, x->range, json_array_size(x->shards),
                        cw_shard_formats[x->ranges->schema->format]);
    snprintf(x->temporary, sizeof(x->temporary), "%.40s.%08" PRIx32 CW_SHARD_TEMPORARY, x->name,
             (uint32_t)random);
    int r = cw_shard_writer_begin(&x->writer, cw_manifest_path(dir, x->temporary), err);
    _cleanup_free_ char *manifest = cw_manifest_path(dir, CW_MANIFEST_NAME);
    if (r == 0 && !manifest)
        r = cw_error_nomem(err, 0, "a path");
    /* the command removes other files only between the manifest's publication and the end of the job */
    if (r == 0 && access(manifest, F_OK) == 0)
        r = cw_error_set(err, CW_E_INTERRUPTED, "the data are complete");
    return r;
}

static int range_end_shard(struct range_write *x, struct cw_error *err)
{
    json_t *shard = NULL;
    int r = cw_shard_writer_end(&x->writer, x->name, &shard, err);
    if (r < 0)
        return r;
    cw_crash_point("worker-shard");
    if (json_object_set_new(shard, "temporary", json_string(x->temporary)) < 0 ||
        json_array_append(x->shards, shard) < 0)
        r = cw_error_nomem(err, 0, "a shard");
    json_decref(shard);
    return r;
}

static int range_add_batch(struct range_write *x, const struct cw_batch *b, struct cw_error *err)
{
    struct cw_batch_rows rows = {.b = b};
    struct cw_tensor values[CW_MAX_COMPONENTS];
    int r = 0;
    while (r == 0 && cw_batch_next_row(&rows, values)) {
        if (x->writer.fd < 0)
            r = range_begin_shard(x, err);
        if (r == 0)
            r = cw_shard_writer_add(&x->writer, b, values, x->begin + x->elements++, err);
        if (r == 0 && x->writer.bytes >= x->ranges->shard_bytes)
            r = range_end_shard(x, err);
    }
    return r;
}

/* Sets *ret to the next batch; 1: there is none. */
static int range_next(struct range_write *x, struct cw_batch **ret, struct cw_error *err)
{
    struct cw_assembly *a = NULL;
    if (x->iterator)
        return cw_iterator_next(x->iterator, WAIT_NS, ret, err);
    int r = cw_runner_next(x->runner, x->open, cw_now_ns() + WAIT_NS, &a, err);
    if (r == 0)
        *ret = cw_runner_take_batch(x->runner, a);
    return r;
}

static int range_compute(struct range_write *x, struct cw_error *err)
{
    int r = 0;
    while (r == 0 || r == CW_E_DEADLINE) {
        struct cw_batch *b = NULL;
        if ((r = range_cancelled(x, err)) < 0)
            break;
        if (err)
            *err = (struct cw_error){0};
        if ((r = range_next(x, &b, err)) != 0)
            continue;
        r = range_add_batch(x, b, err);
        if (x->iterator)
            cw_iterator_release(x->iterator, b);
        else
            cw_runner_release(x->runner, b);
    }
    return r == 1 ? 0 : r;
}

/* Begins to compute the elements of the range. */
static int range_open(struct range_write *x, struct cw_error *err)
{
    const struct cw_shard_ranges *s = x->ranges;
    const struct cw_runner_options runner = {.threads = s->threads,
                                             .more_threads = true,
                                             .memory = s->memory,
                                             .memory_name = "--memory",
                                             .optimize = true};
    const struct cw_range_options range = {.seed = s->seed, .from.position = x->begin, .end = x->end};
    const struct cw_iterator_options all = {.seed = s->seed, .epochs = 1, .world_size = 1, .runner = runner};
    if (!s->positions)
        return cw_iterator_new(s->sequence, &all, NULL, &x->iterator, err);
    int r = cw_runner_new(s->sequence, &runner, &x->runner, err);
    return r < 0 ? r : cw_runner_open(x->runner, &range, &x->open, err);
}

/* Returns whether every worker would meet this error, because it comes from a record or the pipeline. */
static bool range_error_lasts(const struct range_write *x, int status)
{
    struct cw_error fatal;
    struct cw_runner *runner = x->iterator ? cw_iterator_runner(x->iterator) : x->runner;
    return (status == CW_E_RECORD || status == CW_E_DATA || status == CW_E_PIPELINE) && runner &&
           cw_runner_fatal(runner, &fatal) == 0;
}

static void range_close(struct range_write *x)
{
    if (x->open)
        cw_runner_close(x->runner, x->open);
    cw_runner_free(x->runner);
    cw_iterator_free(x->iterator);
}

/* Waits until no other range is computed. */
static int range_take_turn(const struct range_write *x, struct cw_shard_turn *turn, struct cw_error *err)
{
    int r = 0;
    CW_GUARD(&turn->mutex);
    while ((r = range_cancelled(x, err)) == 0 && turn->taken)
        cw_cond_wait(&turn->over, &turn->mutex, cw_now_ns() + WAIT_NS);
    turn->taken |= r == 0;
    return r;
}

static void range_end_turn(struct cw_shard_turn *turn)
{
    CW_WITH (&turn->mutex)
        turn->taken = false;
    pthread_cond_broadcast(&turn->over);
}

/* Computes and writes the range; x->shards lists its shards. *ret_lasts: every worker would meet the error.
 */
static int range_run(struct range_write *x, bool *ret_lasts, struct cw_error *err)
{
    struct cw_shard_turn *turn = &x->ranges->turn;
    int r = range_take_turn(x, turn, err);
    if (r < 0)
        return r;
    r = range_open(x, err);
    if (r == 0)
        r = range_compute(x, err);
    *ret_lasts = range_error_lasts(x, r);
    range_close(x);
    range_end_turn(turn);
    if (r == 0 && x->writer.fd >= 0)
        r = range_end_shard(x, err);
    return r;
}

/* Removes what a failed range has finished. */
static void range_remove(const struct range_write *x)
{
    const json_t *shard;
    size_t i;
    json_array_foreach(x->shards, i, shard)
    {
        _cleanup_free_ char *path = cw_manifest_path(x->ranges->dir,
                                                     json_string_value(json_object_get(shard, "temporary")));
        if (path)
            (void)unlink(path);
    }
}

int cw_shard_range_write(struct cw_shard_ranges *s, uint64_t range, int (*cancelled)(void *),
                         void *cancel_arg, json_t **ret, bool *ret_lasts, struct cw_error *err)
{
    uint64_t begin = range * s->positions;
    struct range_write x = {.ranges = s,
                            .range = range,
                            .begin = begin,
                            .end = CW_MIN(begin + s->positions, s->sequence->n_positions),
                            .cancelled = cancelled,
                            .cancel_arg = cancel_arg,
                            .shards = json_array()};
    int r = cw_shard_writer_init(&x.writer, s->schema, err);
    if (r == 0 && !x.shards)
        r = cw_error_nomem(err, 0, "a list of shards");
    if (r == 0)
        r = range_run(&x, ret_lasts, err);
    cw_shard_writer_deinit(&x.writer);
    if (r == 0) {
        *ret = x.shards;
        return 0;
    }
    range_remove(&x);
    json_decref(x.shards);
    return r;
}
