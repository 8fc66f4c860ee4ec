/* A stream on a worker: a pipeline with a seed, of which the worker computes the ranges that are leased to
 * it. It owns a thread, which opens the data, and then takes batches from the stream's runner. streams.c
 * makes and ends streams. The loop's thread and the stream's thread communicate through the stream's mailbox.
 */
#include "service/worker/stream.h"

#include <string.h>

#include "base/patience.h"
#include "base/thread.h"
#include "ops/table.h"
#include "optimize/order.h"
#include "service/worker/admit.h"
#include "service/worker/leases.h"
#include "service/worker/origin.h"
#include "session/caching.h"
#include "session/shard_source.h"

/* ---- the loop's thread ---- */

/* Returns the runner, which exists until END is sent; NULL: there is none yet, or END was sent. */
static struct cw_runner *stream_runner(struct cw_stream *s)
{
    return s->end ? CW_LOCKED(&s->mutex, s->runner) : NULL;
}

static void stream_query_work(struct cw_stream *s)
{
    struct cw_runner *r = stream_runner(s);
    if (!r)
        return;
    const struct cw_compiled *c = s->local.compiled;
    struct cw_profile profile = {.ops = calloc(c->pipeline->n_ops, sizeof(*profile.ops))};
    if (profile.ops) {
        cw_work_deinit(&s->work);
        cw_runner_profile(r, &profile);
        cw_work_add(&s->work, c, &profile);
    }
    free(profile.ops);
}

void cw_stream_set_cache_point(struct cw_stream *s, int32_t cache_point)
{
    struct cw_runner *r = NULL;
    CW_WITH (&s->mutex) {
        s->cache_point = cache_point;
        r = s->end ? s->runner : NULL;
    }
    if (r)
        cw_runner_set_cache_point(r, cache_point);
}

void cw_stream_cache_stats(struct cw_stream *s, struct cw_cache_stats *ret)
{
    struct cw_runner *r = stream_runner(s);
    if (r)
        cw_runner_cache_stats(r, ret);
}

void cw_stream_tuned(struct cw_stream *s, struct cw_tuned_log *ret)
{
    struct cw_runner *r = stream_runner(s);
    if (r)
        cw_runner_tuned(r, ret);
}

bool cw_stream_command(struct cw_stream *s, const struct cw_command *c)
{
    struct cw_command *copy = malloc(sizeof(*copy));
    if (!copy)
        return false;
    *copy = *c;
    cw_mailbox_command(&s->mailbox, copy);
    return true;
}

void cw_stream_end(struct cw_stream *s)
{
    stream_query_work(s); /* must be before END is sent, because the runner is freed after it */
    s->interrupt = 1;
    cw_mailbox_command(&s->mailbox, CW_STEAL(s->end));
}

void cw_stream_release(struct cw_stream *s, struct cw_batch *b)
{
    cw_runner_release(s->leases.runner, b);
    cw_mailbox_batch_back(&s->mailbox);
}

size_t cw_stream_memory_used(struct cw_stream *s)
{
    CW_GUARD(&s->mutex);
    return s->runner ? cw_runner_memory_used(s->runner) : 0;
}

void cw_stream_add_work(struct cw_stream *s, struct cw_work *sum)
{
    stream_query_work(s);
    cw_work_add_all(sum, &s->work);
}

/* ---- the stream's thread ---- */

static void stream_on_notify(void *arg)
{
    cw_mailbox_wake(&((struct cw_stream *)arg)->mailbox);
}

/* Updates most_positions, which the next Prepared contains. */
static void stream_note_most(struct cw_stream *s)
{
    atomic_store(&s->most_positions,
                 s->leases.kind == CW_RANGES_PLACED ? cw_runner_rows_most(s->leases.runner) : 0);
}

static int stream_compile(struct cw_stream *s, struct cw_error *err)
{
    struct cw_local *l = &s->local;
    l->interrupt = &s->interrupt;
    l->data_roots = s->options->data_roots;
    l->n_data_roots = s->options->n_data_roots;
    int r = cw_shard_source_register(err);
    if (r >= 0)
        r = cw_pipeline_parse(cw_ops(), s->text, strlen(s->text), s->base_dir, &l->pipeline, err);
    /* the fingerprint identifies the pipeline for other processes, so it must be right */
    if (r >= 0 && memcmp(s->fingerprint, &l->pipeline->fingerprint, sizeof(s->fingerprint)) != 0) {
        const char *file = cw_worker_content_file(l->pipeline);
        r = file ? cw_error_set(err, CW_E_PIPELINE,
                                "the pipeline does not match the fingerprint that the client computed: "
                                "expected the file %.200s to have the same content on this worker as for the "
                                "client",
                                file)
                 : cw_error_set(err, CW_E_PIPELINE,
                                "the pipeline does not match the fingerprint that the client "
                                "computed" CW_OTHER_VERSION);
    }
    if (r >= 0) {
        l->pipeline->data_roots = l->data_roots;
        l->pipeline->n_data_roots = l->n_data_roots;
    }
    if (r >= 0) /* must be before compiling, which may run Python functions */
        r = cw_worker_admit(l->pipeline, s->options->allow_python, err);
    return r < 0 ? r : cw_order_compile(l->pipeline, true, &l->compiled, err);
}

static int stream_open(struct cw_stream *s, struct cw_error *err)
{
    struct cw_local *l = &s->local;
    struct cw_leases *leases = &s->leases;
    int r = stream_compile(s, err);
    if (r >= 0)
        r = cw_local_open(l, s->options->index_dir, s->options->threads,
                          cw_leases_runner_memory(leases->memory), err);
    if (r >= 0 && l->sequence->stream)
        r = cw_origin_new(s->name, l->sequence, &s->interrupt, &s->mailbox, &s->origin, err);
    if (r < 0)
        return r;
    struct cw_runner_options o = {.threads = s->options->threads,
                                  .more_threads = true,
                                  .memory = cw_leases_runner_memory(leases->memory),
                                  .memory_name = "--memory",
                                  .memory_whole = s->options->memory,
                                  .lends = true,
                                  .optimize = true,
                                  .notify = stream_on_notify,
                                  .notify_arg = s,
                                  .cache = s->cache,
                                  .cache_point = CW_CACHE_POINT_AUTO,
                                  .adaptive = s->cache && cw_caching_open_to(l->compiled),
                                  .away = s->origin ? cw_origin_away(s->origin) : NULL};
    r = cw_runner_new(l->sequence, &o, &leases->runner, err);
    if (r < 0)
        return r;
    leases->sequence = l->sequence;
    leases->n_keys = cw_n_keys(l->compiled);
    leases->kind = l->compiled->sequential ? CW_RANGES_SEQUENTIAL
                   : leases->n_keys        ? CW_RANGES_PLACED
                                           : CW_RANGES_COUNTED;
    stream_note_most(s);
    int32_t cache_point = 0;
    CW_WITH (&s->mutex) {
        s->runner = leases->runner;
        cache_point = s->cache_point;
    }
    /* if another choice came in between, the dispatcher repeats it after the next heartbeat */
    cw_runner_set_cache_point(leases->runner, cache_point);
    return 0;
}

static void stream_obey(struct cw_stream *s, struct cw_command *c)
{
    struct cw_leases *leases = &s->leases;
    switch (c->kind) {
    case CW_COMMAND_LEASE:
        if (!leases->failed)
            cw_leases_add(leases, c);
        break;
    case CW_COMMAND_REVOKE:
        cw_leases_revoke(leases, c->epoch, c->begin, c->end);
        break;
    case CW_COMMAND_GET: /* a failed stream has no leases, and answers NOT_HERE */
        cw_leases_request(leases, CW_STEAL(c->request));
        break;
    case CW_COMMAND_FORGET_PEER:
        cw_leases_forget_peer(leases, c->peer);
        break;
    case CW_COMMAND_MEMORY:
        cw_leases_set_memory(leases, c->memory);
        stream_note_most(s);
        break;
    case CW_COMMAND_END:
        s->ending = true;
        break;
    }
}

static void stream_serve(struct cw_stream *s)
{
    while (!s->ending) {
        struct cw_command *came = cw_mailbox_wait(&s->mailbox);
        while (came) {
            struct cw_command *c = CW_POP(came);
            stream_obey(s, c);
            cw_command_free(c);
        }
        while (!s->ending && !s->leases.failed && cw_leases_serve(&s->leases))
            ;
    }
}

/* Waits until clients have returned the batches that they may still read, or are gone; then frees the runner.
 */
static void stream_close(struct cw_stream *s)
{
    struct cw_runner *runner = s->leases.runner;
    if (runner) {
        cw_leases_clear(&s->leases);
        cw_runner_set_memory(runner, 0);
        cw_mailbox_wait_batches(&s->mailbox);
    }
    CW_WITH (&s->mutex)
        s->runner = NULL;
    cw_runner_free(runner);
    cw_origin_stop(s->origin);
    cw_local_deinit(&s->local);
}

static void *stream_main(void *arg)
{
    struct cw_stream *s = arg;
    struct cw_error err = {0};
    struct cw_answer *first = calloc(1, sizeof(*first)), *last = calloc(1, sizeof(*last));
    int r = first && last ? stream_open(s, &err) : cw_error_nomem(&err, 0, "a stream");
    s->leases.failed = r < 0;
    if (first) {
        *first = (struct cw_answer){.kind = r < 0 ? CW_ANSWER_NOT_OPENED : CW_ANSWER_OPENED,
                                    .why = r < 0 ? cw_answer_why(&err) : NULL};
        cw_mailbox_answer(&s->mailbox, first);
        /* a stream that could not be opened answers requests with NOT_HERE until the loop's thread ends it */
        stream_serve(s);
    }
    stream_close(s);
    if (last) {
        last->kind = CW_ANSWER_EXITED;
        cw_mailbox_answer(&s->mailbox, last);
    }
    return NULL;
}

/* ---- life ---- */

static void stream_deinit(struct cw_stream *s)
{
    cw_mailbox_deinit(&s->mailbox);
    pthread_mutex_destroy(&s->mutex);
    cw_work_deinit(&s->work);
    cw_origin_free(s->origin);
    free(s->end);
    free(s->text);
    free(s->base_dir);
    free(s);
}

int cw_stream_new(const struct cw_worker_common *w, struct cw_cache *cache, const Cachew__Prepare *m,
                  size_t memory, void (*on_answers)(void *arg), void *arg, struct cw_stream **ret,
                  struct cw_error *err)
{
    struct cw_stream *s = malloc(sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a stream");
    *s = (struct cw_stream){.options = &w->options,
                            .cache = cache,
                            .text = strdup(m->pipeline),
                            .base_dir = strdup(m->base_dir),
                            .cache_point = m->cache_point,
                            .end = malloc(sizeof(*s->end)),
                            .leases = {.threads = w->options.threads,
                                       .seed = m->seed,
                                       .range_ns = cw_patience_range_ns(),
                                       .stream = s->name,
                                       .mailbox = &s->mailbox,
                                       .trace = w->options.trace,
                                       .memory = memory}};
    memcpy(s->name, m->stream.data, sizeof(s->name));
    memcpy(s->fingerprint, m->fingerprint.data, sizeof(s->fingerprint));
    pthread_mutex_init(&s->mutex, NULL);
    cw_mailbox_init(&s->mailbox, w->loop, on_answers, arg);
    int r = s->text && s->base_dir && s->end ? 0 : cw_error_nomem(err, sizeof(*s), "a stream");
    if (r >= 0) {
        *s->end = (struct cw_command){.kind = CW_COMMAND_END};
        r = cw_thread_start(&s->thread, stream_main, s, err);
    }
    if (r < 0) {
        stream_deinit(s);
        return r;
    }
    *ret = s;
    return 0;
}

struct cw_stream *cw_stream_free(struct cw_stream *s)
{
    if (!s)
        return NULL;
    pthread_join(s->thread, NULL);
    stream_deinit(s);
    return NULL;
}
