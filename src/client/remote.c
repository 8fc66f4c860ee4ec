/* The source of splits as the iterator sees it: the consumer's thread. */
#include "client/remote_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "engine/batch_ops.h"
#include "net/address.h"

/* An opening that another thread ends by setting a flag looks at it this often. */
#define LOOK_NS UINT64_C(20000000)

static struct view *view_of(struct cw_splits *s) { return (struct view *)s; }
static struct remote *remote_of(struct cw_splits *s) { return view_of(s)->remote; }

/* ---- batches ---- */

/* Takes what came for the consumer's next batch. Mutex held. */
static int take_slot(struct remote *r, struct remote_split *s, struct slot *slot, struct remote_assembly *a, struct cw_error *err)
{
    if (slot->failed) {
        *err = *slot->failed;
        return err->status;
    }
    if (r->options.trace) {
        struct cw_traced what = {r->stream, s->epoch, s->index, slot->k};
        cw_trace_span(r->options.trace, "batch", &what, slot->asked_ns, cw_now_ns());
        cw_trace_span(r->options.trace, "fetch", &what, slot->asked_ns, slot->came_ns);
    }
    s->slots = slot->next;
    cw_remote_waited(r);
    a->a.batch = &slot->batch->b;
    a->a.quarantined = CW_STEAL(slot->quarantined);
    free(slot);
    size_t window = cw_remote_window(r), n = --r->n_outstanding;
    if ((r->any || n <= window / 2) && (window < 8 || n % 4 == 0)) /* several are asked for at a time */
        cw_remote_wake(r);
    return 0;
}

static int remote_next(struct cw_splits *base, struct cw_split *split, uint64_t ahead, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err)
{
    struct remote *r = remote_of(base);
    struct remote_split *s = (struct remote_split *)split;
    struct remote_assembly *a = cw_remote_assembly_new();
    int status = a ? 2 : cw_error_nomem(err, sizeof(*a), "a batch");
    pthread_mutex_lock(&r->mutex);
    s->none_wanted = ahead == UINT64_MAX;
    while (status == 2) {
        uint64_t n, k = s->next_k, next_wanted = s->none_wanted ? UINT64_MAX : k + ahead;
        bool known = cw_remote_split_count(s, &n);
        struct slot *slot = s->slots;
        if (known && k >= n) {
            status = 1;
        } else if (ahead == 0 && slot && slot->k == k && slot->state == HERE) {
            status = take_slot(r, s, slot, a, err);
        } else if (s->lost) {
            status = 1;
        } else if (ahead > 0 && (known || (slot && slot->k > k && slot->state == HERE))) {
            status = 0;
        } else {
            if (!s->none_wanted && s->first_wanted != next_wanted && (s->first_wanted > next_wanted || s->view->world_size == 1 || !s->view->main))
                s->first_wanted = next_wanted;
            if (!s->none_wanted && !cw_remote_slot(s, next_wanted, false)) {
                if (!cw_remote_slot(s, next_wanted, true))
                    status = cw_error_nomem(err, sizeof(struct slot), "a batch");
                cw_remote_wake(r);
            }
            if (status == 2 && (status = cw_remote_wait(r, deadline_ns, s, "a batch", err)) == 0)
                status = 2;
        }
    }
    if (status == 0) {
        s->next_k++;
        while (s->slots && s->slots->k < s->next_k) { /* not wanted after all */
            struct slot *slot = s->slots;
            s->slots = slot->next;
            r->n_outstanding--;
            pthread_mutex_unlock(&r->mutex);
            cw_slot_free(slot);
            pthread_mutex_lock(&r->mutex);
        }
    }
    pthread_mutex_unlock(&r->mutex);
    if (status != 0) {
        free(a);
        return status;
    }
    *ret = &a->a;
    return 0;
}

static uint64_t remote_remnant(struct cw_splits *base, struct cw_split *split, unsigned key)
{
    struct remote *r = remote_of(base);
    struct remote_split *s = (struct remote_split *)split;
    pthread_mutex_lock(&r->mutex);
    uint64_t n = s->report && key < r->n_keys && !s->lost ? s->report->remnants[key] : 0;
    pthread_mutex_unlock(&r->mutex);
    return n;
}

static void remote_drop_remnant(struct cw_splits *base CW_UNUSED, struct cw_split *split CW_UNUSED, unsigned key CW_UNUSED) {}

static void remote_release(struct cw_splits *base CW_UNUSED, struct cw_batch *b) { cw_remote_batch_release((struct remote_batch *)b); }

/* ---- splits ---- */

static int remote_open(struct cw_splits *base, uint64_t epoch, uint64_t index, uint64_t first_batch, struct cw_split **ret, struct cw_error *err)
{
    struct remote *r = remote_of(base);
    pthread_mutex_lock(&r->mutex);
    struct remote_split *s = cw_remote_split_new(view_of(base), epoch, index, first_batch);
    pthread_mutex_unlock(&r->mutex);
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a split");
    cw_remote_wake(r);
    *ret = (struct cw_split *)s;
    return 0;
}

static void remote_close(struct cw_splits *base, struct cw_split *split)
{
    struct remote *r = remote_of(base);
    struct remote_split *s = (struct remote_split *)split;
    pthread_mutex_lock(&r->mutex);
    for (struct remote_split **at = &view_of(base)->splits; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    for (struct slot *slot = s->slots; slot; slot = slot->next)
        r->n_outstanding--;
    uint64_t n;
    r->n_lost += s->view->main && s->lost && !(cw_remote_split_count(s, &n) && s->next_k >= n);
    cw_remote_hurry_parts(r, s->epoch, s->index);
    pthread_mutex_unlock(&r->mutex);
    while (s->slots) {
        struct slot *slot = s->slots;
        s->slots = slot->next;
        cw_slot_free(slot);
    }
    free(s);
    cw_remote_wake(r);
}

static void remote_passed(struct cw_splits *base, const struct cw_cursor *from)
{
    struct remote *r = remote_of(base);
    if (!view_of(base)->main)
        return;
    pthread_mutex_lock(&r->mutex);
    bool moved = from->epoch != r->from.epoch || from->split != r->from.split;
    r->from = *from;
    r->finished = from->epoch >= r->options.epochs;
    pthread_mutex_unlock(&r->mutex);
    if (moved)
        cw_remote_wake(r);
}

static void remote_interrupt(struct cw_splits *base, bool on)
{
    struct remote *r = remote_of(base);
    pthread_mutex_lock(&r->mutex);
    r->interrupted = on;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->mutex);
}

/* What came and was not taken goes back to the workers that lent it; the loop's thread says goodbye. */
static void remote_leave(struct cw_splits *base)
{
    struct remote *r = remote_of(base);
    struct slot *slots = NULL;
    pthread_mutex_lock(&r->mutex);
    for (struct view *v = &r->view; v; v = v->next)
        for (struct remote_split *s = v->splits; s; s = s->next)
            while (s->slots) {
                struct slot *slot = s->slots;
                s->slots = slot->next;
                slot->next = slots;
                slots = slot;
                r->n_outstanding--;
            }
    r->left = true;
    pthread_mutex_unlock(&r->mutex);
    while (slots) {
        struct slot *slot = slots;
        slots = slot->next;
        cw_slot_free(slot);
    }
    cw_remote_wake(r);
}

static void remote_profile(struct cw_splits *base, struct cw_profile *ret)
{
    struct remote *r = remote_of(base);
    struct cw_op_profile *ops = ret->ops;
    unsigned n = base->compiled->pipeline->n_ops;
    memset(ops, 0, n * sizeof(*ops));
    pthread_mutex_lock(&r->mutex);
    *ret = (struct cw_profile){.ops = ops, .n_ops = n, .wait_ns = r->wait_ns, .run_ns = cw_now_ns() - r->started_ns}; /* no threads here compute */
    pthread_mutex_unlock(&r->mutex);
}

uint64_t cw_remote_lost(const struct cw_splits *splits)
{
    struct remote *r = ((const struct view *)splits)->remote;
    pthread_mutex_lock(&r->mutex);
    uint64_t n = r->n_lost;
    pthread_mutex_unlock(&r->mutex);
    return n;
}

static void remote_fused(struct cw_splits *base, unsigned *ret)
{
    for (unsigned i = 0; i < base->compiled->pipeline->n_ops; i++)
        ret[i] = i;
}

static struct cw_splits *remote_free(struct cw_splits *base);
static int remote_again(struct cw_splits *base, unsigned rank, uint64_t world_size, struct cw_splits **ret, struct cw_error *err);

static const struct cw_splits_ops remote_ops = {
    .free = remote_free,
    .again = remote_again,
    .open = remote_open,
    .close = remote_close,
    .next = remote_next,
    .any = cw_remote_any,
    .remnant = remote_remnant,
    .drop_remnant = remote_drop_remnant,
    .join_new = cw_remote_join_new,
    .join = cw_remote_join,
    .finish = cw_remote_finish,
    .take = cw_remote_take,
    .drop = cw_remote_drop,
    .leave = remote_leave,
    .release = remote_release,
    .interrupt = remote_interrupt,
    .passed = remote_passed,
    .profile = remote_profile,
    .fused = remote_fused,
};

/* ---- views: the iterator's, and those that repeat a batch ---- */

static int remote_again(struct cw_splits *base, unsigned rank, uint64_t world_size, struct cw_splits **ret, struct cw_error *err)
{
    struct remote *r = remote_of(base);
    struct view *v = calloc(1, sizeof(*v));
    if (!v)
        return cw_error_nomem(err, sizeof(*v), "splits");
    *v = (struct view){.base = *base, .remote = r, .rank = rank, .world_size = world_size};
    pthread_mutex_lock(&r->mutex);
    v->next = r->view.next;
    r->view.next = v;
    pthread_mutex_unlock(&r->mutex);
    *ret = &v->base;
    return 0;
}

static void remote_deinit(struct remote *r)
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
    while (r->reports) {
        struct report *p = r->reports;
        r->reports = p->next;
        free(p);
    }
    cw_layout_deinit(&r->layout);
    cw_slab_pool_deinit(&r->slabs);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->mutex);
    free(r->placements);
    free(r->service);
    free(r->job);
    free(r->token);
    cw_tls_unref(r->options.tls);
    free(r->base_dir);
    free(r->pipeline);
    free(r->hello);
    free(r);
}

static struct cw_splits *remote_free(struct cw_splits *base)
{
    struct view *v = view_of(base);
    struct remote *r = v->remote;
    while (v->splits)
        remote_close(base, (struct cw_split *)v->splits);
    if (v->main) {
        remote_deinit(r);
        return NULL;
    }
    pthread_mutex_lock(&r->mutex);
    for (struct view **at = &r->view.next; *at; at = &(*at)->next)
        if (*at == v) {
            *at = v->next;
            break;
        }
    pthread_mutex_unlock(&r->mutex);
    free(v);
    return NULL;
}

static int remote_init(struct remote *r, const struct cw_compiled *c, const struct cw_remote_options *o, const struct cw_iterator_options *io, const json_t *state,
                       struct cw_error *err)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    r->view = (struct view){
        .base = {.ops = &remote_ops, .compiled = c, .seed = o->seed}, .remote = r, .rank = o->rank, .world_size = o->world_size, .main = true};
    if ((r->any = cw_any_order(c, io))) {
        r->view.rank = 0;
        r->view.world_size = 1;
    }
    r->compiled = c;
    r->n_keys = cw_n_keys(c);
    r->options = *o;
    r->options.tls = o->tls ? cw_tls_ref(o->tls) : NULL;
    r->from.epoch = o->first_epoch;
    r->finished = o->first_epoch >= o->epochs;
    cw_budget_init(&r->budget, SIZE_MAX / 2); /* what is asked for is what limits it */
    int status = cw_slab_pool_init(&r->slabs, &r->budget, err);
    if (status >= 0 && getrandom(r->incarnation, sizeof(r->incarnation), 0) != sizeof(r->incarnation))
        status = cw_error_errno(err, CW_E_IO, errno, "can't get random bytes");
    r->service = strdup(o->service);
    r->job = strdup(o->job);
    r->base_dir = strdup(o->base_dir);
    r->token = o->token ? strdup(o->token) : NULL;
    r->pipeline = strdup(o->pipeline);
    if (status >= 0 && (!r->service || !r->job || !r->base_dir || !r->pipeline || (o->token && !r->token)))
        status = cw_error_nomem(err, 0, "a job");
    if (status >= 0)
        status = cw_layout_init(&r->layout, c, &r->budget, err);
    if (status >= 0 && state) {
        status = cw_state_begin(c, o->seed, io, state, &r->from, err);
        r->view.rounds_epoch = r->from.epoch;
        r->view.rounds_from = r->from.g;
        r->snapshot = strtoull(json_string_value(json_object_get(state, "snapshot")) ? json_string_value(json_object_get(state, "snapshot")) : "", NULL, 16);
    }
    return status < 0 ? status : cw_loop_new(&r->loop, err);
}

/* Until the dispatcher answered. */
static int wait_attached(struct remote *r, const struct cw_remote_options *o, struct cw_error *err)
{
    uint64_t deadline_ns = o->timeout_ns ? cw_now_ns() + o->timeout_ns : 0;
    int status = 0;
    pthread_mutex_lock(&r->mutex);
    while (!r->attached && status >= 0) {
        uint64_t look_ns = o->interrupt ? cw_now_ns() + LOOK_NS : 0;
        bool last = !look_ns || (deadline_ns && deadline_ns <= look_ns);
        status = cw_remote_wait(r, last ? deadline_ns : look_ns, NULL, "the plan of the job", err);
        if (o->interrupt && *o->interrupt)
            status = cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
        else if (status == CW_E_DEADLINE && !last)
            status = 0;
    }
    if (status == CW_E_DEADLINE && r->service_down.status)
        status = cw_error_set(err, CW_E_SERVICE, "the dispatcher at %s can't be reached: %.400s", r->service, r->service_down.message);
    else if (status == CW_E_DEADLINE)
        status = cw_error_set(err, CW_E_DEADLINE, "job %s: no worker of the service at %s has seen the data before the deadline%s%s", r->job, r->service,
                              *r->held ? ": " : ": are there workers (`cachew workers`)?", r->held);
    else if (status >= 0)
        cw_remote_waited(r);
    pthread_mutex_unlock(&r->mutex);
    return status;
}

static struct cw_iterator_options iterator_options(const struct cw_remote_options *o)
{
    return (struct cw_iterator_options){.epochs = o->epochs, .rank = o->rank, .world_size = o->world_size, .first_epoch = o->first_epoch, .any_order = o->any_order,
                                        .at_most_once = o->at_most_once};
}

int cw_splits_remote(const struct cw_compiled *compiled, const struct cw_remote_options *o, const json_t *state, struct cw_splits **ret,
                     struct cw_error *err)
{
    struct cw_iterator_options io = iterator_options(o);
    if (o->at_most_once && !o->any_order) { /* what is lost would shift the numbers of all batches that come after it */
        cw_error_attribute(err, "order", "exact", "any");
        return cw_error_set(err, CW_E_OPTION, "guarantee \"at-most-once\" with order \"exact\": batches that are lost leave gaps in the order; expected order \"any\"");
    }
    int status = cw_iterator_check(compiled, &io, err);
    if (status < 0)
        return status;
    struct remote *r = calloc(1, sizeof(*r));
    if (!r)
        return cw_error_nomem(err, sizeof(*r), "a job");
    status = remote_init(r, compiled, o, &io, state, err);
    if (status >= 0)
        status = cw_remote_start(r, err);
    if (status >= 0)
        status = wait_attached(r, o, err);
    if (status < 0) {
        remote_deinit(r);
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
    cw_error_attribute(err, "service", service, "HOST:PORT of a dispatcher");
    return cw_error_set(err, CW_E_OPTION, "option service is \"%.200s\": expected HOST:PORT (or [IPV6]:PORT, or unix:PATH) of a dispatcher, as `cachew up` prints it%s", service,
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
        return cw_error_set(err, CW_E_PIPELINE, "%s: its data are in the memory of this process, where the workers of a service can't read them: expected a source of files, "
                            "or a run without a service", source->desc->name);
    }
    return 0;
}

int cw_local_remote(struct cw_local *l, const struct cw_remote_options *given, const json_t *state, struct cw_error *err)
{
    struct cw_remote_options o = *given;
    struct cw_splits *splits;
    _cleanup_free_ char *pipeline = json_dumps(l->root, JSON_COMPACT), *base_dir = realpath(l->pipeline->base_dir, NULL);
    if (!pipeline || !base_dir)
        return pipeline ? cw_error_errno(err, CW_E_OPTION, errno, "can't find the directory %s of the pipeline", l->pipeline->base_dir)
                        : cw_error_nomem(err, 0, "a pipeline");
    o.pipeline = pipeline;
    o.base_dir = base_dir;
    struct cw_iterator_options io = iterator_options(&o);
    int r = check_sources(l->compiled, err);
    if (r >= 0)
        r = check_service(o.service, err);
    if (r >= 0)
        r = cw_splits_remote(l->compiled, &o, state, &splits, err);
    if (r >= 0)
        r = cw_iterator_over(splits, &io, state, &l->iterator, err);
    if (r >= 0)
        l->remote = splits;
    return r;
}
