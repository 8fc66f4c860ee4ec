/* A job of a service is opened, and ended: the consumer's thread. */
#include "remote/remote_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/thread.h"
#include "net/address.h"
#include "net/limits.h"

/* An opening that another thread ends by setting a flag looks at it this often. */
#define LOOK_NS UINT64_C(20000000)

void cw_remote_deinit(struct remote *r)
{
    if (r->running)
        cw_remote_stop(r);
    if (r->timer)
        cw_timer_free(CW_STEAL(r->timer));
    if (r->loop)
        cw_loop_free(r->loop); /* connections that were not over end now */
    while (r->links)
        cw_link_free(r->links);
    while (r->returned) {
        struct remote_batch *b = r->returned;
        r->returned = b->next;
        cw_mapping_remove(b);
        cw_batch_free(&b->b);
    }
    cw_entry_deinit(&r->from.entry);
    cw_entry_deinit(&r->attached_from.entry);
    cw_layout_deinit(&r->layout);
    cw_slab_pool_deinit(&r->slabs);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->mutex);
    free(r->ranges);
    free(r->ops);
    free(r->service);
    free(r->job);
    free(r->token);
    cw_tls_unref(r->options.tls);
    free(r->base_dir);
    free(r->pipeline);
    free(r->hello);
    free(r);
}

static int remote_init(struct remote *r, const struct cw_compiled *c, const struct cw_remote_options *o,
                       const struct cw_iterator_options *io, const json_t *state, struct cw_error *err)
{
    pthread_mutex_init(&r->mutex, NULL);
    cw_cond_init(&r->changed);
    r->view = (struct view){.base = {.ops = &cw_remote_ops, .compiled = c, .seed = o->seed},
                            .remote = r,
                            .rank = o->rank,
                            .world_size = o->world_size,
                            .main = true};
    r->compiled = c;
    r->n_keys = c->sequential ? 0 : cw_n_keys(c);
    /* An epoch that is one range comes from its front to its end. Where batches follow from what ranges
     * leave, a range that is lost changes those behind it: none of them may be handed out before. */
    r->own_ranges = io->own_ranges;
    r->any = o->any_order && !c->sequential && !(o->at_most_once && r->n_keys);
    r->n_cpus = cw_cpu_budget();
    r->options = *o;
    r->options.tls = o->tls ? cw_tls_ref(o->tls) : NULL;
    r->from.epoch = o->first_epoch;
    r->finished = o->first_epoch >= o->epochs;
    cw_budget_init(&r->budget, SIZE_MAX / 2); /* what is asked for is what limits it */
    int status = cw_slab_pool_init(&r->slabs, false, &r->budget, err);
    if (status >= 0 && getrandom(r->incarnation, sizeof(r->incarnation), 0) != sizeof(r->incarnation))
        status = cw_error_errno(err, CW_E_IO, errno, "can't get random bytes");
    r->service = strdup(o->service);
    r->job = strdup(o->job);
    r->base_dir = strdup(o->base_dir);
    r->token = o->token ? strdup(o->token) : NULL;
    r->pipeline = strdup(o->pipeline);
    r->ops = calloc(c->pipeline->n_ops, sizeof(*r->ops));
    if (status >= 0 &&
        (!r->service || !r->job || !r->base_dir || !r->pipeline || !r->ops || (o->token && !r->token)))
        status = cw_error_nomem(err, 0, "a job");
    if (status >= 0)
        status = cw_layout_init(&r->layout, c, &r->budget, err);
    if (status >= 0)
        status = cw_entry_init(c, &r->from.entry, err);
    if (status >= 0)
        status = cw_entry_init(c, &r->attached_from.entry, err);
    if (status >= 0 && state) {
        status = cw_state_begin(c, o->seed, io, state, &r->from, err);
        r->view.rounds_epoch = r->from.epoch;
        r->view.rounds_from = r->from.g;
        r->snapshot = strtoull(json_string_value(json_object_get(state, "snapshot"))
                                   ? json_string_value(json_object_get(state, "snapshot"))
                                   : "",
                               NULL, 16);
    }
    return status < 0 ? status : cw_loop_new(&r->loop, err);
}

/* Two clients of one rank throw each other out: the first one is told so by its error, and the second, who
 * may know nothing of the first, by this. */
static void note_taken_over(const struct remote *r)
{
    char text[800];
    if (!*r->took_over || !r->options.note)
        return;
    snprintf(text, sizeof(text),
             "rank %llu of job %s was held by %s: it is this one's now; if both are to run, one needs a job "
             "of another name",
             (unsigned long long)r->options.rank, r->job, r->took_over);
    r->options.note(r->options.note_arg, text);
}

/* Until the dispatcher answered. */
static int wait_attached(struct remote *r, const struct cw_remote_options *o, struct cw_error *err)
{
    uint64_t deadline_ns = o->timeout_ns ? cw_now_ns() + o->timeout_ns : 0;
    int status = 0;
    CW_GUARD(&r->mutex);
    while (!r->attached && status >= 0) {
        uint64_t look_ns = o->interrupt ? cw_now_ns() + LOOK_NS : 0;
        bool last = !look_ns || (deadline_ns && deadline_ns <= look_ns);
        status = cw_remote_wait(r, last ? deadline_ns : look_ns, NULL, "the plan of the job", err);
        if (o->interrupt && *o->interrupt)
            status = cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
        else if (status == CW_E_DEADLINE && !last)
            status = 0;
        else if (status == CW_E_DEADLINE && cw_remote_is_paused(err)) {
            /* over a pause no deadline passes, here neither */
            deadline_ns = cw_now_ns() + o->timeout_ns;
            status = 0;
        }
    }
    if (status == CW_E_DEADLINE && r->service_down.status)
        status = cw_error_set(err, CW_E_SERVICE, "the dispatcher at %s can't be reached: %.400s", r->service,
                              r->service_down.message);
    else if (status == CW_E_DEADLINE)
        status = cw_error_set(
            err, CW_E_DEADLINE, "job %s: the service at %s did not open the data before the deadline%s%s",
            r->job, r->service, *r->held ? ": " : ": are there workers (`cachew workers`)?", r->held);
    else if (status >= 0)
        cw_remote_waited(r);
    return status;
}

/* Ranks can't agree on batches behind a range that is lost where these depend on what it had left. So each
 * has ranges of its own, as it has batches elsewhere. */
static bool owns_ranges(const struct cw_compiled *c, const struct cw_remote_options *o)
{
    return o->at_most_once && o->world_size > 1 && !c->counted && !c->sequential;
}

static struct cw_iterator_options iterator_options(const struct cw_compiled *c,
                                                   const struct cw_remote_options *o)
{
    return (struct cw_iterator_options){.epochs = o->epochs,
                                        .rank = o->rank,
                                        .world_size = o->world_size,
                                        .first_epoch = o->first_epoch,
                                        .any_order = o->any_order,
                                        .at_most_once = o->at_most_once,
                                        .own_ranges = owns_ranges(c, o)};
}

int cw_producer_remote(const struct cw_compiled *compiled, const struct cw_remote_options *o,
                       const json_t *state, struct cw_producer **ret, struct cw_error *err)
{
    struct cw_iterator_options io = iterator_options(compiled, o);
    if (o->at_most_once && !o->any_order) {
        /* what is lost would shift the numbers of all batches that come after it */
        return cw_error_value(err, CW_E_OPTION, "order", "exact", "any",
                              "guarantee \"at-most-once\" with order \"exact\": batches that are lost leave "
                              "gaps in the order; expected order \"any\"");
    }
    if (io.own_ranges && compiled->n_limits) {
        return cw_error_value(err, CW_E_OPTION, "guarantee", "at-most-once",
                              "exactly-once, or a world size of 1",
                              "guarantee \"at-most-once\" with %u ranks: each rank has ranges of its own, so "
                              "that no rank knows when a `take` behind a filter is full; expected guarantee "
                              "\"exactly-once\", or a world size of 1",
                              o->world_size);
    }
    struct remote *r = calloc(1, sizeof(*r));
    if (!r)
        return cw_error_nomem(err, sizeof(*r), "a job");
    int status = remote_init(r, compiled, o, &io, state, err);
    if (status >= 0)
        status = cw_remote_start(r, err);
    if (status >= 0)
        status = wait_attached(r, o, err);
    if (status >= 0)
        note_taken_over(r);
    if (status < 0) {
        cw_remote_deinit(r);
        return status;
    }
    *ret = &r->view.base;
    return 0;
}

static int check_service(const char *service, struct cw_error *err)
{
    struct cw_address a;
    if (cw_address_parse(service, &a, NULL) >= 0)
        return 0;
    return cw_error_value(
        err, CW_E_OPTION, "service", service, "HOST:PORT of a dispatcher",
        "option service is \"%.200s\": expected HOST:PORT (or [IPV6]:PORT, or unix:PATH) of a dispatcher, as "
        "`cachew up` prints it%s",
        service,
        strcmp(service, "local") == 0 ? "; \"local\" is for the Python package, which starts one" : "");
}

/* What a worker could never run: data in this process's memory. */
static int check_sources(const struct cw_compiled *c, struct cw_error *err)
{
    for (unsigned i = 0; i < c->n_programs; i++) {
        const struct cw_op *source = c->programs[i].ops[0];
        if (!source->desc->here_only)
            continue;
        cw_error_op(err, source->desc->name);
        return cw_error_set(err, CW_E_PIPELINE,
                            "%s: its data are in the memory of this process, where the workers of a service "
                            "can't read them: expected a source of files, or a run without a service",
                            source->desc->name);
    }
    return 0;
}

int cw_local_remote(struct cw_local *l, const struct cw_remote_options *given, const json_t *state,
                    struct cw_error *err)
{
    struct cw_remote_options o = *given;
    struct cw_producer *producer;
    _cleanup_free_ char *pipeline = json_dumps(l->root, JSON_COMPACT),
                        *base_dir = realpath(l->pipeline->base_dir, NULL);
    if (!pipeline || !base_dir)
        return pipeline ? cw_error_errno(err, CW_E_OPTION, errno,
                                         "can't find the directory %s of the pipeline", l->pipeline->base_dir)
                        : cw_error_nomem(err, 0, "a pipeline");
    if (strlen(pipeline) > CW_PIPELINE_BYTES)
        return cw_error_set(
            err, CW_E_PIPELINE,
            "the pipeline has %zu bytes with its Python functions: a service takes at most %zu; what is "
            "large and does not change, a function loads from a file (once, where it is first called)",
            strlen(pipeline), CW_PIPELINE_BYTES);
    o.pipeline = pipeline;
    o.base_dir = base_dir;
    struct cw_iterator_options io = iterator_options(l->compiled, &o);
    int r = check_sources(l->compiled, err);
    if (r >= 0)
        r = check_service(o.service, err);
    if (r >= 0)
        r = cw_producer_remote(l->compiled, &o, state, &producer, err);
    if (r >= 0)
        r = cw_local_over(l, producer, &io, state, err);
    if (r >= 0)
        l->remote = producer;
    return r;
}
