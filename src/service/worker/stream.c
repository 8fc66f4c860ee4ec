/* The thread of a stream: opens the pipeline, takes commands, and is the consumer of the runner. Range by
 * range: serve.c, rows.c. */
#include "service/worker/stream.h"

#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "session/caching.h"
#include "ops/table.h"
#include "service/worker/admit.h"
#include "service/worker/origin.h"

void cw_request_free(struct cw_request *r)
{
    if (!r)
        return;
    atomic_fetch_sub(&r->peer->n_requests, 1);
    cw_peer_unref(r->peer);
    free(r);
}

void cw_answer_free(struct cw_answer *a)
{
    if (!a)
        return;
    cw_peer_unref(a->peer);
    cw_quarantined_free(a->quarantined);
    if (a->rows)
        cw_part_deinit(a->rows);
    free(a->rows);
    free(a->keys);
    free(a->pulled);
    free(a->elements);
    free(a->why);
    free(a);
}

static void command_free(struct cw_command *c)
{
    cw_request_free(c->request);
    cw_peer_unref(c->peer);
    free(c);
}

/* ---- the loop's thread ---- */

void cw_stream_wake(struct cw_stream *s)
{
    CW_GUARD(&s->mutex);
    s->woken = true;
    pthread_cond_signal(&s->wake);
}

/* The runner, which stays as long as END was not said; NULL: there is none yet, or END was said. */
static struct cw_runner *runner_there(struct cw_stream *s)
{
    CW_GUARD(&s->mutex);
    return s->end_said ? NULL : s->runner;
}

/* The runner notifies us with its mutex held, and on_notify takes ours: so never with ours held. */
static void add_work(const struct cw_compiled *c, struct cw_runner *r, struct cw_work *sum)
{
    struct cw_profile profile = {.ops = calloc(c->pipeline->n_ops, sizeof(*profile.ops))};
    if (profile.ops) {
        cw_runner_profile(r, &profile);
        cw_work_add(sum, c, &profile);
    }
    free(profile.ops);
}

static void look_at_work(struct cw_stream *s)
{
    struct cw_runner *r = runner_there(s);
    if (!r)
        return;
    cw_work_deinit(&s->seen);
    add_work(s->local.compiled, r, &s->seen);
}

int32_t cw_stream_cache_point(int64_t number)
{
    return number == CW_CACHE_POINT_NONE ? -1 : number < 0 ? 0 : (int32_t)number + 1;
}

void cw_stream_set_cache_point(struct cw_stream *s, int32_t cache_point)
{
    struct cw_runner *r = NULL;
    CW_WITH (&s->mutex) {
        s->cache_point = cache_point;
        r = s->end_said ? NULL : s->runner;
    }
    if (r && cache_point)
        cw_runner_set_cache_point(r, cache_point < 0 ? CW_CACHE_POINT_NONE : cache_point - 1);
}

unsigned cw_stream_choices(struct cw_stream *s, struct cw_choice ret[CW_CHOICES_MAX],
                           int32_t *ret_cache_point)
{
    struct cw_runner *r = runner_there(s);
    if (!r)
        return 0;
    *ret_cache_point = cw_stream_cache_point(cw_runner_cache_point(r));
    return cw_runner_choices(r, ret);
}

void cw_stream_tuned(struct cw_stream *s, struct cw_tuned_log *ret)
{
    struct cw_runner *r = runner_there(s);
    if (r)
        cw_runner_tuned(r, ret);
}

void cw_stream_do(struct cw_stream *s, struct cw_command *c)
{
    c->next = NULL;
    if (c->kind == CW_DO_END) { /* before it is said: then the runner goes */
        look_at_work(s);
        s->end_said = true;
        s->interrupt = 1;
    }
    CW_GUARD(&s->mutex);
    *s->commands_tail = c;
    s->commands_tail = &c->next;
    pthread_cond_signal(&s->wake);
}

struct cw_answer *cw_stream_answers(struct cw_stream *s)
{
    CW_GUARD(&s->mutex);
    s->answers_tail = &s->answers;
    return CW_STEAL(s->answers);
}

void cw_stream_release(struct cw_stream *s, struct cw_batch *b)
{
    cw_runner_release(s->runner, b);
    CW_GUARD(&s->mutex);
    if (--s->n_out == 0)
        pthread_cond_signal(&s->wake);
}

size_t cw_stream_memory_used(struct cw_stream *s)
{
    CW_GUARD(&s->mutex);
    return s->runner ? cw_runner_memory_used(s->runner) : 0;
}

void cw_stream_work(struct cw_stream *s, struct cw_work *sum)
{
    look_at_work(s);
    CW_GUARD(&s->mutex);
    cw_work_add_all(sum, s->over ? &s->work : &s->seen);
}

/* ---- the stream's thread ---- */

void cw_stream_say(struct cw_stream *s, struct cw_answer *a)
{
    a->next = NULL;
    CW_WITH (&s->mutex) {
        s->n_out += a->batch != NULL;
        *s->answers_tail = a;
        s->answers_tail = &a->next;
    }
    cw_loop_post(s->loop, &s->post);
}

/* A copy for readers elsewhere, with what to change here. NULL: out of memory. */
struct cw_error *cw_stream_why(const struct cw_error *why)
{
    struct cw_error *e = malloc(sizeof(*e));
    if (!e)
        return NULL;
    *e = *why;
    size_t n = strlen(e->message);
    if (e->status == CW_E_MEMORY)
        snprintf(e->message + n, sizeof(e->message) - n, "%s",
                 "; give its machine or container more memory, or the worker a smaller --memory");
    return e;
}

void cw_stream_reply(struct cw_stream *s, struct cw_request *r, enum cw_answer_kind kind,
                     const struct cw_error *why)
{
    struct cw_answer *a = malloc(sizeof(*a));
    if (a) { /* else it is asked for again, from somebody else, when the connection or the lease ends */
        *a = (struct cw_answer){.kind = kind,
                                .peer = cw_peer_ref(r->peer),
                                .re = r->id,
                                .epoch = r->epoch,
                                .begin = r->begin,
                                .at = r->at,
                                .what = r->what,
                                .why = why ? cw_stream_why(why) : NULL};
        cw_stream_say(s, a);
    }
    cw_request_free(r);
}

void cw_stream_fail(struct cw_stream *s, const struct cw_error *why)
{
    if (s->failed || s->ending)
        return;
    s->failed = true;
    struct cw_answer *a = malloc(sizeof(*a));
    cw_leases_clear(s);
    if (!a)
        /* without memory for as much, the dispatcher takes the leases back when it sees no progress */
        return;
    *a = (struct cw_answer){.kind = CW_SAY_FAILED, .why = cw_stream_why(why)};
    cw_stream_say(s, a);
}

static void on_notify(void *arg)
{
    cw_stream_wake(arg);
}

static size_t runners_memory(const struct cw_stream *s)
{
    return s->memory - s->memory / CW_KEPT_PART;
}

/* What the dispatcher is told from now on. */
static void look_at_most(struct cw_stream *s, struct cw_runner *r)
{
    atomic_store(&s->most_positions, s->kind == RANGES_PLACED ? cw_runner_rows_most(r) : 0);
}

static int open_stream(struct cw_stream *s, struct cw_error *err)
{
    struct cw_local *l = &s->local;
    l->interrupt = &s->interrupt;
    l->data_roots = s->options->data_roots;
    l->n_data_roots = s->options->n_data_roots;
    int r = cw_pipeline_parse(cw_ops(), s->text, s->text_size, s->base_dir, &l->pipeline, err);
    /* others name what they share by it */
    if (r >= 0 && memcmp(s->fingerprint, &l->pipeline->fingerprint, sizeof(s->fingerprint)) != 0)
        r = cw_error_set(err, CW_E_PIPELINE,
                         "the pipeline is not the one of its fingerprint: who sent it, or who named it, is "
                         "wrong, or of another version");
    if (r >= 0) /* before it is compiled, which may run functions */
        r = cw_worker_admit(l->pipeline, s->options->allow_python, err);
    if (r >= 0)
        r = cw_compile(l->pipeline, &l->compiled, err);
    if (r >= 0)
        r = cw_local_open(l, s->options->index_dir, s->options->threads, err);
    if (r < 0)
        return r;
    struct cw_runner_options o = {.threads = s->options->threads,
                                  .memory = runners_memory(s),
                                  .memory_name = "--memory",
                                  .memory_whole = s->options->memory,
                                  .lends = true,
                                  .optimize = true,
                                  .notify = on_notify,
                                  .notify_arg = s,
                                  .cache = s->options->cache,
                                  .cache_point = CW_CACHE_POINT_AUTO,
                                  .adaptive = s->options->cache && cw_caching_open_to(l->compiled)};
    struct cw_runner *runner;
    r = l->sequence->stream ? cw_origin_new(s, &s->origin, err) : 0;
    if (r < 0)
        return r;
    o.away = s->origin ? cw_origin_away(s->origin) : NULL;
    r = cw_runner_new(l->sequence, &o, &runner, err);
    if (r < 0)
        return r;
    s->n_keys = cw_n_keys(l->compiled);
    s->kind = l->compiled->sequential ? RANGES_SEQUENTIAL : s->n_keys ? RANGES_PLACED : RANGES_COUNTED;
    look_at_most(s, runner);
    int32_t cache_point = 0;
    CW_WITH (&s->mutex) {
        s->runner = runner;
        cache_point = s->cache_point;
    }
    if (cache_point) /* what was said since is said again at the next heartbeat, if this is not it */
        cw_runner_set_cache_point(runner, cache_point < 0 ? CW_CACHE_POINT_NONE : cache_point - 1);
    return 0;
}

static void set_memory(struct cw_stream *s, size_t memory)
{
    s->memory = memory;
    /* one range may have more than all can have now */
    if (cw_runner_memory_used(s->runner) > runners_memory(s))
        cw_leases_set_aside(s);
    cw_runner_set_memory(s->runner, runners_memory(s));
    look_at_most(s, s->runner);
}

static void handle(struct cw_stream *s, struct cw_command *c)
{
    switch (c->kind) {
    case CW_DO_LEASE:
        if (!s->failed)
            cw_leases_add(s, c);
        break;
    case CW_DO_REVOKE:
        cw_leases_revoke(s, c->epoch, c->begin, c->end);
        break;
    case CW_DO_GET:
        if (s->failed)
            cw_stream_reply(s, CW_STEAL(c->request), CW_SAY_NOT_HERE, NULL);
        else
            cw_leases_request(s, CW_STEAL(c->request));
        break;
    case CW_DO_FORGET_PEER:
        cw_leases_forget_peer(s, c->peer);
        break;
    case CW_DO_MEMORY:
        set_memory(s, c->memory);
        break;
    case CW_DO_END:
        s->ending = true;
        break;
    }
}

/* Commands that came, or NULL: somebody says that there may be something else. */
static struct cw_command *wait_commands(struct cw_stream *s)
{
    CW_GUARD(&s->mutex);
    while (!s->commands && !s->woken)
        pthread_cond_wait(&s->wake, &s->mutex);
    s->commands_tail = &s->commands;
    s->woken = false;
    return CW_STEAL(s->commands);
}

static void serve(struct cw_stream *s)
{
    while (!s->ending) {
        struct cw_command *came = wait_commands(s);
        while (came) {
            struct cw_command *c = CW_POP(came);
            handle(s, c);
            command_free(c);
        }
        while (!s->ending && !s->failed && cw_leases_serve(s))
            ;
    }
}

/* Clients may still read batches that they have: that memory stays as it is until they give it back or are
 * gone. Then it goes back to the system. */
static void wait_returned(struct cw_stream *s)
{
    cw_runner_set_memory(s->runner, 0);
    CW_GUARD(&s->mutex);
    while (s->n_out)
        pthread_cond_wait(&s->wake, &s->mutex);
}

static void *stream_main(void *arg)
{
    struct cw_stream *s = arg;
    struct cw_error err = {0};
    struct cw_answer *first = calloc(1, sizeof(*first)), *last = calloc(1, sizeof(*last));
    int r = first && last ? open_stream(s, &err) : cw_error_nomem(&err, 0, "a stream");
    if (first) {
        *first = (struct cw_answer){.kind = r < 0 ? CW_SAY_NOT_OPENED : CW_SAY_OPENED,
                                    .why = r < 0 ? cw_stream_why(&err) : NULL};
        cw_stream_say(s, first);
    }
    s->failed = r < 0;
    /* a stream that was not opened turns requests away until the loop's thread, which got `first`, ends it */
    if (first)
        serve(s);
    if (r >= 0) {
        cw_leases_clear(s);
        wait_returned(s);
    }
    struct cw_runner *runner = s->runner;
    struct cw_work work = {0};
    if (runner)
        add_work(s->local.compiled, runner, &work);
    CW_WITH (&s->mutex) {
        s->work = work;
        s->over = true;
        s->runner = NULL;
    }
    cw_runner_free(runner);
    cw_origin_stop(s->origin);
    cw_local_deinit(&s->local);
    if (last) {
        last->kind = CW_SAY_EXITED;
        cw_stream_say(s, last);
    }
    return NULL;
}

/* ---- life ---- */

static void stream_deinit(struct cw_stream *s)
{
    while (s->answers)
        cw_answer_free(CW_POP(s->answers));
    while (s->commands)
        command_free(CW_POP(s->commands));
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->wake);
    cw_work_deinit(&s->work);
    cw_work_deinit(&s->seen);
    cw_origin_free(s->origin);
    free(s->text);
    free(s->base_dir);
    free(s);
}

int cw_stream_new(const struct cw_stream_options *o, struct cw_loop *l, const uint8_t name[16],
                  const uint8_t fingerprint[16], const char *text, size_t text_size, const char *base_dir,
                  uint64_t seed, size_t memory, void (*on_answers)(void *arg), void *arg,
                  struct cw_stream **ret, struct cw_error *err)
{
    struct cw_stream *s = malloc(sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a stream");
    *s = (struct cw_stream){.options = o,
                            .loop = l,
                            .seed = seed,
                            .memory = memory,
                            .text_size = text_size,
                            .commands_tail = &s->commands,
                            .answers_tail = &s->answers,
                            .post = {.fn = on_answers, .arg = arg}};
    memcpy(s->name, name, sizeof(s->name));
    memcpy(s->fingerprint, fingerprint, sizeof(s->fingerprint));
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->wake, NULL);
    s->text = malloc(text_size + 1);
    s->base_dir = strdup(base_dir);
    int r = s->text && s->base_dir ? 0 : cw_error_nomem(err, text_size, "a pipeline");
    if (r >= 0) {
        memcpy(s->text, text, text_size);
        s->text[text_size] = '\0';
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
    /* the last answer may have been taken with an earlier one, before it was posted */
    cw_loop_unpost(s->loop, &s->post);
    stream_deinit(s);
    return NULL;
}
