/* Batches from a service (docs/service.md): a producer that requests an iterator's batches from workers. Its
 * own thread communicates with the dispatcher and the workers; the iterator's thread waits for batches.
 * session/ and api/ open it. */
#include "remote/producer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/thread.h"
#include "remote/assembly.h"
#include "remote/internal.h"
#include "remote/loop.h"
#include "remote/placement.h"
#include "remote/sequencer.h"

/* ---- the job's life ---- */

/* Replaces the caller's texts by copies. A text that can't be copied, for lack of memory, becomes NULL. */
static int options_copy_texts(struct cw_remote_options *o, struct cw_error *err)
{
    const char **texts[] = {&o->service, &o->job, &o->token, &o->base_dir, &o->pipeline};
    bool all = true;
    for (size_t i = 0; i < CW_COUNT_OF(texts); i++) {
        const char *given = *texts[i];
        *texts[i] = given ? strdup(given) : NULL;
        all &= !given || *texts[i];
    }
    return all ? 0 : cw_error_nomem(err, 0, "a job");
}

static void options_free_texts(struct cw_remote_options *o)
{
    const char *texts[] = {o->service, o->job, o->token, o->base_dir, o->pipeline};
    for (size_t i = 0; i < CW_COUNT_OF(texts); i++)
        free((void *)(uintptr_t)texts[i]);
}

void cw_remote_free(struct remote *r)
{
    struct remote_job *job = &r->job;
    cw_remote_loop_stop(r);
    if (r->loop.timer)
        cw_timer_free(CW_STEAL(r->loop.timer));
    if (r->loop.loop)
        cw_loop_free(r->loop.loop); /* remaining connections end now */
    CW_LIST_EACH_OF (l, struct link, in_list, &r->links)
        cw_link_free(l);
    for (struct shm_loan *l = r->released; l; l = l->next)
        cw_shm_loan_end(l);
    cw_remote_batches_free(r->released);
    cw_entry_deinit(&r->from.entry);
    cw_entry_deinit(&r->attached_from.entry);
    cw_tail_deinit(&r->tail);
    cw_layout_deinit(&job->layout);
    cw_slab_pool_deinit(&r->slabs);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->mutex);
    free(r->ranges.list);
    free(r->ops);
    options_free_texts(&job->options);
    cw_tls_unref(job->options.tls);
    cw_cut_point_free(job->cut);
    free(r);
}

static int job_init(struct remote_job *job, const struct cw_compiled *c, struct cw_cut_point *cut,
                    const struct cw_remote_options *o, bool own_ranges, struct cw_error *err)
{
    static char *capabilities[] = {(char *)(uintptr_t)"shm"};
    unsigned n_keys = c->sequential ? 0 : cw_n_keys(c);
    bool shm = o->transport == CW_TRANSPORT_AUTO || o->transport == CW_TRANSPORT_SHM;
    *job = (struct remote_job){
        .compiled = cut ? cut->workers : c,
        .cut = cut,
        .options = *o,
        .n_keys = n_keys,
        .own_ranges = own_ranges,
        /* A sequential epoch has only one order, and so have the batches of a group. In a placed pipeline
         * with at-most-once, a lost range changes later batches, so none of them may be handed out before. */
        .unordered = o->unordered && !c->sequential && !(o->at_most_once && n_keys) && c->grouping.size == 1,
        .n_cpus = cw_cpu_budget()};
    struct cw_remote_options *own = &job->options;
    own->tls = o->tls ? cw_tls_ref(o->tls) : NULL;
    if (options_copy_texts(own, err) < 0)
        return CW_E_MEMORY;
    if (getrandom(job->incarnation, sizeof(job->incarnation), 0) != sizeof(job->incarnation))
        return cw_error_errno(err, CW_E_IO, errno, "the operating system gives no random bytes");
    cw_host_identity(job->host);
    cw_process_name(job->name);
    cw_hello_init(&job->hello, CACHEW__ROLE__ROLE_CLIENT, job->name, job->incarnation, job->host);
    job->hello.capabilities = capabilities;
    job->hello.n_capabilities = shm;
    return 0;
}

static int remote_set_state(struct remote *r, const struct cw_iterator_options *io, const json_t *state,
                            struct cw_error *err)
{
    const char *snapshot = json_string_value(json_object_get(state, "snapshot"));
    int status = cw_state_begin(r->view.base.compiled, r->job.options.seed, io, state, &r->from, err);
    r->view.rounds_epoch = r->from.epoch;
    r->view.rounds_from = r->from.g;
    r->run.snapshot = strtoull(snapshot ? snapshot : "", NULL, 16);
    return status;
}

static int remote_init(struct remote *r, const struct cw_compiled *c, struct cw_cut_point *cut,
                       const struct cw_remote_options *o, const struct cw_iterator_options *io,
                       const json_t *state, struct cw_error *err)
{
    int status = cw_slab_pool_init(&r->slabs, false, &r->budget, err),
        job_status = job_init(&r->job, c, cut, o, io->own_ranges,
                              err); /* also after an error, because job is freed in any case */
    if (status < 0 || job_status < 0)
        return CW_MIN(status, job_status);
    if (!(r->ops = calloc(c->pipeline->n_ops, sizeof(*r->ops))))
        return cw_error_nomem(err, 0, "a job");
    if (cut && cut->inputs && (status = cw_tail_init(&r->tail, c, cut, &r->slabs, &r->budget, err)) < 0)
        return status;
    if ((status = cw_layout_init(&r->job.layout, r->job.compiled, &r->budget, err)) < 0 ||
        (status = cw_entry_init(c, &r->from.entry, err)) < 0 ||
        (status = cw_entry_init(c, &r->attached_from.entry, err)) < 0 ||
        (state && (status = remote_set_state(r, io, state, err)) < 0))
        return status;
    return cw_loop_new(&r->loop.loop, err);
}

int cw_remote_new(const struct cw_compiled *c, struct cw_cut_point *cut, const struct cw_remote_options *o,
                  const struct cw_iterator_options *io, const json_t *state, struct remote **ret,
                  struct cw_error *err)
{
    struct remote *r = malloc(sizeof(*r));
    if (!r) {
        cw_cut_point_free(cut);
        return cw_error_nomem(err, sizeof(*r), "a job");
    }
    *r = (struct remote){.view = {.base = {.ops = &cw_remote_ops, .compiled = c, .seed = o->seed},
                                  .remote = r,
                                  .rank = o->rank,
                                  .world_size = o->world_size,
                                  .main = true},
                         .from.epoch = o->first_epoch,
                         .run.finished = o->first_epoch >= o->epochs,
                         .window.credits = o->credits};
    cw_list_init(&r->fetches.list);
    cw_list_init(&r->courses);
    cw_list_init(&r->links);
    pthread_mutex_init(&r->mutex, NULL);
    cw_cond_init(&r->changed);
    cw_budget_init(&r->budget, SIZE_MAX / 2);
    int status = remote_init(r, c, cut, o, io, state, err);
    if (status < 0)
        cw_remote_free(r);
    else
        *ret = r;
    return status;
}

/* ---- the producer's functions ---- */

static struct view *view_of(struct cw_producer *p)
{
    return (struct view *)p;
}

static struct remote *remote_of(struct cw_producer *p)
{
    return view_of(p)->remote;
}

static int remote_open(struct cw_producer *base, const struct cw_cursor *from, struct cw_batches **ret,
                       struct cw_error *err)
{
    struct remote *r = remote_of(base);
    struct course *c = CW_LOCKED(&r->mutex, cw_course_new(view_of(base), from));
    if (!c)
        return cw_error_nomem(err, sizeof(*c), "the batches of an epoch");
    cw_remote_wake(r);
    *ret = (struct cw_batches *)c;
    return 0;
}

static void remote_close(struct cw_producer *base, struct cw_batches *b)
{
    struct remote *r = remote_of(base);
    CW_WITH (&r->mutex)
        cw_course_free((struct course *)b);
    cw_remote_wake(r);
}

static int remote_next(struct cw_producer *base CW_UNUSED, struct cw_batches *b, uint64_t n_ahead,
                       uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err)
{
    return cw_course_next((struct course *)b, n_ahead, deadline_ns, ret, err);
}

static void remote_release(struct cw_producer *base, struct cw_batch *b)
{
    cw_remote_batch_release(remote_of(base), b);
}

static void remote_passed(struct cw_producer *base, const struct cw_cursor *from)
{
    struct remote *r = remote_of(base);
    if (!view_of(base)->main)
        return;
    CW_GUARD(&r->mutex);
    cw_cursor_set(r->job.compiled, &r->from, from);
    r->run.finished = from->epoch >= r->job.options.epochs;
    if (cw_placement_cursor_moved(r))
        cw_remote_wake(r);
}

static void remote_interrupt(struct cw_producer *base, bool on)
{
    struct remote *r = remote_of(base);
    CW_GUARD(&r->mutex);
    r->waiting.interrupted = on;
    pthread_cond_broadcast(&r->changed);
}

static void remote_set_left(struct remote *r)
{
    if (r->run.phase == REMOTE_RUNNING)
        r->run.phase = REMOTE_LEFT;
}

/* Drops batches that arrived and were not taken. The loop's thread returns them to their workers, and sends
 * Detach. */
static void remote_leave(struct cw_producer *base)
{
    struct remote *r = remote_of(base);
    CW_WITH (&r->mutex) {
        remote_set_left(r);
        CW_LIST_EACH_OF (c, struct course, link, &r->courses)
            cw_course_drop_slots(c);
    }
    cw_remote_wake(r);
}

static void remote_profile(struct cw_producer *base, struct cw_profile *ret)
{
    struct remote *r = remote_of(base);
    struct cw_op_profile *ops = ret->ops;
    unsigned n = base->compiled->pipeline->n_ops;
    CW_GUARD(&r->mutex);
    memcpy(ops, r->ops, n * sizeof(*ops));
    *ret = (struct cw_profile){
        .ops = ops, .n_ops = n, .wait_ns = r->waiting.total_ns, .run_ns = cw_now_ns() - r->loop.started_ns};
}

uint64_t cw_remote_lost(const struct cw_producer *p)
{
    struct remote *r = ((const struct view *)p)->remote;
    return CW_LOCKED(&r->mutex, r->n_lost);
}

unsigned cw_remote_cut(const struct cw_producer *p)
{
    const struct cw_cut_point *cut = ((const struct view *)p)->remote->job.cut;
    return cut ? cut->at : (unsigned)p->compiled->pipeline->chain.n - 1;
}

static void remote_fused(struct cw_producer *base, unsigned *ret)
{
    for (unsigned i = 0; i < base->compiled->pipeline->n_ops; i++)
        ret[i] = i;
}

static void remote_hashed(struct cw_producer *base, struct cw_hash128 digest)
{
    struct remote *r = remote_of(base);
    CW_GUARD(&r->mutex);
    r->digest = digest;
}

static void remote_tuned(struct cw_producer *base, struct cw_tuned_log *ret)
{
    struct remote *r = remote_of(base);
    CW_GUARD(&r->mutex);
    cw_tuned_add_all(ret, &r->window.tuned);
}

/* ---- views for padding ---- */

static int remote_again(struct cw_producer *base, unsigned rank, uint64_t world_size,
                        struct cw_producer **ret, struct cw_error *err)
{
    struct view *v = malloc(sizeof(*v));
    if (!v)
        return cw_error_nomem(err, sizeof(*v), "a producer");
    *v = (struct view){.base = *base, .remote = remote_of(base), .rank = rank, .world_size = world_size};
    *ret = &v->base;
    return 0;
}

static struct cw_producer *remote_free(struct cw_producer *base)
{
    struct view *v = view_of(base);
    struct remote *r = v->remote;
    CW_WITH (&r->mutex) {
        if (v->main) /* so that nothing more is planned */
            remote_set_left(r);
        CW_LIST_EACH_OF (c, struct course, link, &r->courses)
            if (c->view == v)
                cw_course_free(c);
    }
    if (v->main)
        cw_remote_free(r);
    else
        free(v);
    return NULL;
}

const struct cw_producer_ops cw_remote_ops = {
    .free = remote_free,
    .again = remote_again,
    .open = remote_open,
    .close = remote_close,
    .next = remote_next,
    .finish = cw_remote_assembly_finish,
    .take = cw_remote_assembly_take,
    .drop = cw_remote_assembly_drop,
    .leave = remote_leave,
    .release = remote_release,
    .interrupt = remote_interrupt,
    .passed = remote_passed,
    .hashed = remote_hashed,
    .profile = remote_profile,
    .fused = remote_fused,
    .tuned = remote_tuned,
};
