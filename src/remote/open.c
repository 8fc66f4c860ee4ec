/* Opens a job of a service: checks the user's options, attaches the client to the job, and waits until the
 * dispatcher has sent the job's plan. All functions run on the consumer's thread, which takes the batches. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "net/address.h"
#include "net/limits.h"
#include "optimize/cut_point.h"
#include "remote/auto_cut.h"
#include "remote/internal.h"
#include "remote/loop.h"
#include "remote/producer.h"

/* ns between two checks of the flag that interrupts opening. */
#define INTERRUPT_NS UINT64_C(20000000)

/* Tells the user that this client replaced another client of the same rank. The other client gets an error;
 * this one, which may not know of it, gets a note. Otherwise two clients could replace each other again and
 * again unnoticed. */
static void open_note_taken_over(const struct remote *r)
{
    const struct cw_remote_options *o = &r->job.options;
    char text[800];
    if (!*r->run.took_over || !o->note)
        return;
    snprintf(text, sizeof(text),
             "this client took over rank %llu of job %s from %s; if both clients are to run, give one of "
             "them another job name",
             (unsigned long long)o->rank, o->job, r->run.took_over);
    o->note(o->note_arg, text);
}

/* Waits until something changed, or the interrupt flag must be checked again. CW_E_DEADLINE: the deadline (0:
 * none) has passed. The mutex must be held. */
static int open_wait_once(struct remote *r, uint64_t deadline_ns, struct cw_error *err)
{
    const volatile int *interrupt = r->job.options.interrupt;
    uint64_t look_ns = interrupt ? cw_now_ns() + INTERRUPT_NS : 0;
    bool last = !look_ns || (deadline_ns && deadline_ns <= look_ns);
    int status = cw_waiting_wait(r, last ? deadline_ns : look_ns, NULL, "the plan of the job", err);
    if (interrupt && *interrupt)
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    return status == CW_E_DEADLINE && !last ? 0 : status;
}

/* Waits until the dispatcher has answered. */
static int open_wait_attached(struct remote *r, struct cw_error *err)
{
    const struct cw_remote_options *o = &r->job.options;
    uint64_t deadline_ns = o->timeout_ns ? cw_now_ns() + o->timeout_ns : 0;
    int status = 0;
    CW_GUARD(&r->mutex);
    while (!r->run.attached && status >= 0) {
        status = open_wait_once(r, deadline_ns, err);
        if (status == CW_E_DEADLINE &&
            cw_remote_is_paused(err)) { /* while the job is paused, the deadline is extended */
            deadline_ns = cw_now_ns() + o->timeout_ns;
            status = 0;
        }
    }
    if (status >= 0)
        cw_waiting_done(&r->waiting);
    if (status != CW_E_DEADLINE)
        return status;
    if (r->run.service_down.status)
        return cw_error_set(err, CW_E_SERVICE, "the dispatcher at %s can't be reached: %.400s", o->service,
                            r->run.service_down.message);
    /* waiting.held: why the job makes no progress, if the dispatcher has said it (message Held) */
    return cw_error_set(
        err, CW_E_DEADLINE, "job %s: no worker of the service at %s opened the data before the deadline%s%s",
        o->job, o->service, *r->waiting.held ? ": " : ": check that workers are connected (`cachew workers`)",
        r->waiting.held);
}

/* Returns whether each rank makes its batches from ranges that no other rank gets. Usually all ranks divide
 * the stream into the same batches, and each takes its share of them. With at-most-once, ranges can be lost.
 * If then the number of elements of earlier ranges determines where a batch begins (the pipeline is not
 * counted), ranks could disagree about the batches after a lost range. */
static bool owns_ranges(const struct cw_compiled *c, const struct cw_remote_options *o)
{
    return o->at_most_once && o->world_size > 1 && !c->counted && !c->sequential;
}

/* Sets the error about at-most-once with ranks and groups of batches. */
static int groups_of_ranks(const struct cw_compiled *c, const struct cw_remote_options *o,
                           struct cw_error *err)
{
    return cw_error_value(
        err, CW_E_OPTION, "guarantee", "at-most-once", "exactly-once, or a world size of 1",
        "guarantee \"at-most-once\" with %u ranks and %s with group %u: each rank makes its "
        "batches of different ranges, so they can't be of one bucket in each step; expected "
        "guarantee \"exactly-once\", or a world size of 1",
        o->world_size, c->batcher->name, c->grouping.size);
}

static int check_guarantee(const struct cw_compiled *c, const struct cw_remote_options *o,
                           struct cw_error *err)
{
    if (!o->at_most_once)
        return 0;
    if (!o->unordered) /* a lost batch would shift the numbers of all later batches */
        return cw_error_value(err, CW_E_OPTION, "order", "exact", "any",
                              "guarantee \"at-most-once\" with order \"exact\": lost batches leave gaps in "
                              "the order; expected order \"any\"");
    if (owns_ranges(c, o) && c->grouping.size > 1)
        return groups_of_ranks(c, o, err);
    if (owns_ranges(c, o) && c->n_limits)
        return cw_error_value(err, CW_E_OPTION, "guarantee", "at-most-once",
                              "exactly-once, or a world size of 1",
                              "guarantee \"at-most-once\" with %u ranks and a `take` after a filter: each "
                              "rank gets different ranges, so no rank can count how many elements all ranks "
                              "have taken; expected guarantee \"exactly-once\", or a world size of 1",
                              o->world_size);
    return 0;
}

/* Attaches to the job, and waits until the plan is known. Takes over `cut`, also on failure. */
static int open_producer(const struct cw_compiled *compiled, struct cw_cut_point *cut,
                         const struct cw_remote_options *o, const struct cw_iterator_options *io,
                         const json_t *state, struct cw_producer **ret, struct cw_error *err)
{
    struct remote *r;
    int status = cw_remote_new(compiled, cut, o, io, state, &r, err);
    if (status < 0)
        return status;
    if ((status = cw_remote_loop_start(r, err)) < 0 || (status = open_wait_attached(r, err)) < 0) {
        cw_remote_free(r);
        return status;
    }
    open_note_taken_over(r);
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
        strcmp(service, "local") == 0
            ? "; only the Python package accepts \"local\", and starts a service for it"
            : "");
}

/* Refuses a pipeline that no worker can run, because its data are in this process's memory. */
static int check_sources(const struct cw_compiled *c, struct cw_error *err)
{
    for (unsigned i = 0; i < c->n_programs; i++) {
        const struct cw_op *source = NULL;
        for (unsigned k = 0; k < c->programs[i].n_ops; k++)
            if (c->programs[i].ops[k]->desc->here_only)
                source = c->programs[i].ops[k];
        if (!source)
            continue;
        cw_error_op(err, source->desc->name);
        return cw_error_set(err, CW_E_PIPELINE,
                            "%s: its data are in the memory of this process, which the workers of a service "
                            "can't read: expected a source that reads files, or a run without a service",
                            source->desc->name);
    }
    return 0;
}

static bool open_cut_is_auto(const struct cw_remote_options *o)
{
    return o->cut && strcmp(o->cut, "auto") == 0;
}

/* Sets *ret to the place where the pipeline is cut; NULL: workers run all operators. */
static int open_cut(const struct cw_local *l, const struct cw_remote_options *o, struct cw_cut_point **ret,
                    struct cw_error *err)
{
    if (!o->cut)
        return 0;
    json_auto_t *root = cw_local_root_as_run(l);
    if (!root)
        return cw_error_nomem(err, 0, "a pipeline");
    return open_cut_is_auto(o) ? cw_auto_cut(l->compiled, root, o, ret, err)
                               : cw_cut_point_named(l->compiled, root, o->cut, ret, err);
}

/* Sets *ret to the workers' pipeline as text, which the caller frees. */
static int open_pipeline_text(const struct cw_local *l, const struct cw_cut_point *cut, char **ret,
                              struct cw_error *err)
{
    if (!(*ret = json_dumps(cut ? cut->root : l->root, JSON_COMPACT)))
        return cw_error_nomem(err, 0, "a pipeline");
    if (strlen(*ret) > CW_PIPELINE_BYTES)
        return cw_error_set(err, CW_E_PIPELINE,
                            "the pipeline with its Python functions has %zu bytes: a service accepts at most "
                            "%zu; let a function load large constant data from a file at its first call",
                            strlen(*ret), CW_PIPELINE_BYTES);
    return 0;
}

/* Cuts the pipeline, and opens the job. */
static int open_job(const struct cw_local *l, const struct cw_remote_options *given,
                    const struct cw_iterator_options *io, const json_t *state, struct cw_producer **ret,
                    struct cw_error *err)
{
    struct cw_remote_options o = *given;
    struct cw_cut_point *cut = NULL;
    _cleanup_free_ char *pipeline = NULL;
    int r = open_cut(l, &o, &cut, err);
    if (r >= 0 && (r = open_pipeline_text(l, cut, &pipeline, err)) < 0)
        cw_cut_point_free(cut);
    if (r < 0)
        return r;
    o.cut = NULL; /* `cut` says it from here on */
    o.pipeline = pipeline;
    return open_producer(l->compiled, cut, &o, io, state, ret, err);
}

int cw_local_remote(struct cw_local *l, const struct cw_remote_options *given, const json_t *state,
                    struct cw_error *err)
{
    struct cw_remote_options o = *given;
    struct cw_producer *producer;
    _cleanup_free_ char *base_dir = realpath(l->pipeline->base_dir, NULL);
    if (!base_dir)
        return cw_error_errno(err, CW_E_OPTION, errno, "can't find the directory %s of the pipeline",
                              l->pipeline->base_dir);
    o.base_dir = base_dir;
    const struct cw_iterator_options io = {.epochs = o.epochs,
                                           .rank = o.rank,
                                           .world_size = o.world_size,
                                           .first_epoch = o.first_epoch,
                                           .unordered = o.unordered,
                                           .at_most_once = o.at_most_once,
                                           .own_ranges = owns_ranges(l->compiled, &o)};
    int r;
    if ((r = check_sources(l->compiled, err)) < 0 || (r = check_service(o.service, err)) < 0 ||
        (r = cw_iterator_check_ranks(l->compiled, o.world_size, err)) < 0 ||
        (r = check_guarantee(l->compiled, &o, err)) < 0)
        return r;
    r = open_job(l, &o, &io, state, &producer, err);
    if (r == CW_E_SERVICE && open_cut_is_auto(&o) && strcmp(err->attribute, "pipeline") == 0) {
        /* another rank made the job in the meantime, and cut it elsewhere: do as it did */
        *err = (struct cw_error){0};
        r = open_job(l, &o, &io, state, &producer, err);
    }
    if (r < 0 || (r = cw_local_over(l, producer, &io, state, err)) < 0) /* frees the producer on failure */
        return r;
    l->remote = producer;
    return 0;
}
