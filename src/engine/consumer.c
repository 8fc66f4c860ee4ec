/*
 * What the consumer takes from the runner and gives back: batches, remnants and the memory to join and finish them. Run by the consumer's thread, but
 * for cw_runner_release and _interrupt.
 */
#include <errno.h>

#include "engine/batch_ops.h"
#include "engine/internal.h"
#include "engine/remnant.h"

#include "base/clock.h"

void cw_released(struct cw_runner *r)
{
    r->starving = r->plan_short = r->poll_short = false;
    cw_wake_parked(r);
    cw_work(r);
    if (r->consumer_short) /* another thread than the consumer released it */
        cw_done(r);
}

/* Waits for something to change. Mutex held. */
static int wait_change(struct cw_runner *r, uint64_t deadline_ns, const char *what, struct cw_error *err)
{
    if (r->interrupted)
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    uint64_t start = cw_now_ns();
    int e;
    if (deadline_ns) {
        struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000u), .tv_nsec = (long)(deadline_ns % 1000000000u)};
        e = pthread_cond_timedwait(&r->done, &r->mutex, &until);
    } else {
        e = pthread_cond_wait(&r->done, &r->mutex);
    }
    r->profile.wait_ns += cw_now_ns() - start;
    if (r->interrupted)
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    if (e == ETIMEDOUT) {
        return cw_error_set(err, CW_E_DEADLINE, "%s did not come before the deadline: %u blocks are being computed, %u wait for bytes", what, r->n_running,
                            r->n_reading);
    }
    return 0;
}

/* A deadline: not waiting at all. What lacks memory then is tried again later, and nothing new is begun until it has it. */
#define AT_ONCE UINT64_MAX

/* What is needed for a split that is not the first one: splits before it keep what they have, and go on. 2: not now; it is tried again when something was
 * released, or nothing runs. Mutex held. */
static int with_memory_behind(struct cw_runner *r, int (*attempt)(struct cw_runner *r, void *arg, struct cw_error *err), void *arg,
                              const struct cw_split *s, struct cw_error *err)
{
    int status = attempt(r, arg, err);
    if (status != CW_E_BUDGET)
        return status;
    cw_trim(r);
    status = attempt(r, arg, err);
    if (r->n_running || r->n_reading)
        return status == CW_E_BUDGET ? 2 : status;
    if (status == CW_E_BUDGET && cw_can_reclaim(r, s)) {
        cw_evict(r);
        while ((status = attempt(r, arg, err)) == CW_E_BUDGET && cw_reclaim(r, s))
            ;
        cw_released(r); /* what gave way goes on */
    }
    r->poll_short |= status == CW_E_BUDGET;
    return status == CW_E_BUDGET ? 2 : status;
}

/* Something that needs memory, in the consumer: while it lacks, nothing new is begun, and when nothing runs any more everything else gives way.
 * Mutex held. */
static int with_memory(struct cw_runner *r, int (*attempt)(struct cw_runner *r, void *arg, struct cw_error *err), void *arg, uint64_t deadline_ns,
                       struct cw_error *err)
{
    int status;
    while ((status = attempt(r, arg, err)) == CW_E_BUDGET) {
        r->consumer_short = true;
        if (r->n_running == 0 && r->n_reading == 0) {
            cw_evict(r);
            while ((status = attempt(r, arg, err)) == CW_E_BUDGET && cw_reclaim(r, r->splits))
                ;
            if (status == CW_E_BUDGET)
                (void)cw_error_set(err, CW_E_BUDGET, "--memory %zu is too small for a batch of this pipeline; expected at least %zu", r->budget.limit,
                                   atomic_load(&r->budget.wanted));
            break;
        }
        bool more = cw_ahead_unqueue(r);
        cw_trim(r);
        if (more)
            continue;
        if (deadline_ns == AT_ONCE)
            return 2;
        status = wait_change(r, deadline_ns, "memory for a batch", err);
        if (status < 0)
            break;
    }
    if (r->consumer_short) {
        r->consumer_short = false;
        cw_released(r);
    }
    return status;
}

/* For a batch of split s; NULL: of none that the runner has. */
static int with_memory_for(struct cw_runner *r, int (*attempt)(struct cw_runner *r, void *arg, struct cw_error *err), void *arg,
                           const struct cw_split *s, uint64_t deadline_ns, struct cw_error *err)
{
    return !s || s == r->splits ? with_memory(r, attempt, arg, deadline_ns, err) : with_memory_behind(r, attempt, arg, s, err);
}

static int try_finish(struct cw_runner *r, void *arg, struct cw_error *err) { return cw_assembly_finish(arg, &r->slabs, err); }

struct join_request {
    unsigned bucket;
    struct cw_assembly *assembly;
};

static int try_join_new(struct cw_runner *r, void *arg, struct cw_error *err)
{
    struct join_request *j = arg;
    return cw_assembly_new(&r->layout, &r->slabs, r->compiled->bucket_sizes[j->bucket], j->bucket, &j->assembly, err);
}

/* Everything was computed, and its last batch, if it is not full, is a remnant. */
static bool computed(const struct cw_split *s) { return s->over && s->n_blocks == 0; }

static void drop_remnant(struct cw_runner *r, struct cw_split *s, unsigned bucket)
{
    struct cw_assembly *a = CW_STEAL(s->open[bucket]);
    if (a && s->tail == a) { /* nobody came to the end of the batches yet */
        struct cw_assembly **at = &s->head, *before = NULL;
        for (; *at != a; at = &(*at)->next)
            before = *at;
        *at = NULL;
        s->tail = before;
    }
    if (a) {
        cw_assembly_free(a);
        r->n_assemblies--;
        cw_released(r);
    }
}

/* What is left over of a split that is computed, and that nobody wants. */
static void forget_remnants(struct cw_runner *r, struct cw_split *s)
{
    for (unsigned k = 0; s->without_remnants && k < CW_MAX(r->compiled->n_buckets, 1); k++)
        drop_remnant(r, s, k);
}

/* The batch at the head of a split, if it is ready. 1: there are no more; 2: not yet. Mutex held. */
static int take_head(struct cw_runner *r, struct cw_split *s, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err)
{
    int status;
    for (;;) {
        struct cw_assembly *a = s->head;
        bool remnant = a && computed(s) && !a->closed;
        if (a && !a->finishing && a->closed && a->n_done == a->n_assigned) {
            if (a->error) {
                *err = *a->error;
                return a->error->status;
            }
            if (!s->discard && !a->batch) {
                status = with_memory_for(r, try_finish, a, s, deadline_ns, err);
                if (status != 0)
                    return status;
            }
            s->head = a->next;
            if (!s->head)
                s->tail = NULL;
            a->next = NULL;
            if (s->discard) {
                s->discard--;
                cw_quarantined_free(CW_STEAL(s->quarantined));
                cw_assembly_free(a);
                r->n_assemblies--;
                cw_released(r);
                continue;
            }
            cw_quarantined_move(&s->quarantined, &a->quarantined); /* of records that died before they had a batch */
            s->n_taken++;
            a->handed = true;
            r->n_handed++;
            *ret = a;
            return 0;
        }
        if (r->fatal.status) {
            *err = r->fatal;
            return r->fatal.status;
        }
        if ((a && !remnant) || !computed(s))
            return 2;
        if (s->failed) {
            *err = *s->failed;
            return err->status;
        }
        if (remnant)
            s->head = s->tail = NULL; /* it stays in s->open */
        forget_remnants(r, s);
        return 1;
    }
}

int cw_runner_next(struct cw_runner *r, struct cw_split *s, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err)
{
    pthread_mutex_lock(&r->mutex);
    int status = take_head(r, s, deadline_ns, ret, err);
    while (status == 2 && (status = wait_change(r, deadline_ns, "the next batch", err)) == 0)
        status = take_head(r, s, deadline_ns, ret, err);
    pthread_mutex_unlock(&r->mutex);
    return status;
}

int cw_runner_poll(struct cw_runner *r, struct cw_split *s, struct cw_assembly **ret, struct cw_error *err)
{
    pthread_mutex_lock(&r->mutex);
    int status = take_head(r, s, AT_ONCE, ret, err);
    pthread_mutex_unlock(&r->mutex);
    return status;
}

bool cw_runner_computed(struct cw_runner *r, struct cw_split *s, uint64_t *ret_batches)
{
    pthread_mutex_lock(&r->mutex);
    bool all = computed(s) && !s->failed && !s->poisoned && !r->fatal.status;
    uint64_t n = s->n_taken - s->discard;
    for (const struct cw_assembly *a = s->head; a && all; a = a->next) {
        all = !(a->closed && a->error) && a->n_done == a->n_assigned;
        n += a->closed;
    }
    *ret_batches = n;
    if (all)
        forget_remnants(r, s);
    pthread_mutex_unlock(&r->mutex);
    return all;
}

bool cw_runner_stuck(struct cw_runner *r)
{
    pthread_mutex_lock(&r->mutex);
    bool more = false;
    for (const struct cw_split *s = r->splits; s && !more; s = s->next)
        more = !computed(s);
    more = (r->poll_short || (more && r->settled && !r->n_running && !r->n_reading)) && !r->fatal.status;
    pthread_mutex_unlock(&r->mutex);
    return more;
}

void cw_runner_relent(struct cw_runner *r)
{
    pthread_mutex_lock(&r->mutex);
    if (r->consumer_short) {
        r->consumer_short = false;
        cw_released(r);
    }
    r->poll_short = false;
    pthread_mutex_unlock(&r->mutex);
}

int cw_runner_fatal(struct cw_runner *r, struct cw_error *err)
{
    pthread_mutex_lock(&r->mutex);
    int status = r->fatal.status;
    if (status)
        *err = r->fatal;
    pthread_mutex_unlock(&r->mutex);
    return status;
}

/* Mutex held. The reasons of records that left no batch go with what is left over. */
static struct cw_assembly *remnant(struct cw_split *s, unsigned bucket)
{
    struct cw_assembly *a = s->open[bucket];
    if (a)
        cw_quarantined_move(&s->quarantined, &a->quarantined);
    return a;
}

uint64_t cw_runner_remnant(struct cw_runner *r, struct cw_split *s, unsigned bucket)
{
    pthread_mutex_lock(&r->mutex);
    const struct cw_assembly *a = remnant(s, bucket);
    uint64_t n = a ? a->n_assigned : 0;
    pthread_mutex_unlock(&r->mutex);
    return n;
}

void cw_runner_drop_remnant(struct cw_runner *r, struct cw_split *s, unsigned bucket)
{
    pthread_mutex_lock(&r->mutex);
    drop_remnant(r, s, bucket);
    pthread_mutex_unlock(&r->mutex);
}

void cw_runner_drop_remnants(struct cw_runner *r, struct cw_split *s)
{
    pthread_mutex_lock(&r->mutex);
    s->without_remnants = true;
    if (computed(s))
        forget_remnants(r, s);
    pthread_mutex_unlock(&r->mutex);
}

int cw_runner_remnant_read(struct cw_runner *r, struct cw_split *s, unsigned bucket, uint64_t from, uint64_t n, struct cw_remnant *ret,
                           struct cw_error *err)
{
    pthread_mutex_lock(&r->mutex);
    struct cw_assembly *a = remnant(s, bucket);
    int status = cw_remnant_read(a, from, n, ret, err);
    if (status >= 0 && from + n == a->n_assigned)
        cw_quarantined_move(&a->quarantined, &ret->quarantined);
    pthread_mutex_unlock(&r->mutex);
    return status;
}

int cw_runner_join_new(struct cw_runner *r, unsigned bucket, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err)
{
    struct join_request j = {.bucket = bucket};
    pthread_mutex_lock(&r->mutex);
    int status = with_memory(r, try_join_new, &j, deadline_ns, err);
    if (status >= 0) {
        r->n_assemblies++;
        *ret = j.assembly;
    }
    pthread_mutex_unlock(&r->mutex);
    return status;
}

struct join_rows {
    struct cw_assembly *dst;
    const struct cw_assembly *src;
    uint64_t from, n;
};

static int try_join(struct cw_runner *r, void *arg, struct cw_error *err)
{
    struct join_rows *j = arg;
    return cw_assembly_join(j->dst, j->src, j->from, j->n, err);
}

int cw_runner_join(struct cw_runner *r, struct cw_assembly *dst, struct cw_split *split, unsigned bucket, uint64_t from, uint64_t n,
                   uint64_t deadline_ns, struct cw_error *err)
{
    pthread_mutex_lock(&r->mutex);
    struct cw_assembly *src = remnant(split, bucket);
    struct join_rows j = {.dst = dst, .src = src, .from = from, .n = n};
    pthread_mutex_unlock(&r->mutex);
    int status = try_join(r, &j, err); /* both are the consumer's: copied without the mutex, if there is memory */
    if (status == CW_E_BUDGET) {
        pthread_mutex_lock(&r->mutex);
        status = with_memory(r, try_join, &j, deadline_ns, err);
        pthread_mutex_unlock(&r->mutex);
    }
    if (status >= 0 && from + n == src->n_assigned)
        cw_quarantined_move(&src->quarantined, &dst->quarantined); /* reasons go where the last elements go */
    return status;
}

struct slab_request {
    struct cw_runner *r;
    uint64_t deadline_ns;
    const struct cw_split *split; /* not NULL: for a batch of this one */
    bool later;                   /* there was none now */
    size_t size;
    struct cw_slab *slab;
};

static int try_slab(struct cw_runner *r, void *arg, struct cw_error *err)
{
    struct slab_request *q = arg;
    return cw_slab_get(&r->slabs, q->size, &q->slab, err);
}

static int slab_waiting(size_t size, struct cw_slab **ret, void *arg, struct cw_error *err)
{
    struct slab_request *q = arg;
    struct cw_runner *r = q->r;
    q->size = size;
    pthread_mutex_lock(&r->mutex);
    int status = with_memory_for(r, try_slab, q, q->split, q->deadline_ns, err);
    pthread_mutex_unlock(&r->mutex);
    q->later = status == 2;
    if (q->later)
        return cw_error_set(err, CW_E_BUDGET, "there is no memory for a batch now");
    if (status >= 0)
        *ret = q->slab;
    return status;
}

static int consumer_stopped(void *arg)
{
    struct cw_runner *r = arg;
    return atomic_load_explicit(&r->interrupted, memory_order_relaxed) || cw_stopped(r);
}

static int finish(struct cw_runner *r, struct cw_assembly *a, uint64_t seed, uint64_t epoch, struct slab_request *q, struct cw_error *err)
{
    int status = 0;
    pthread_mutex_lock(&r->mutex);
    while (status >= 0 && cw_ahead_runs(a))
        status = wait_change(r, q->deadline_ns, "the next batch", err);
    if (status >= 0) {
        cw_ahead_take(a);
        if (a->error) {
            *err = *a->error;
            status = err->status;
        }
    }
    if (status >= 0 && !a->batch)
        status = with_memory_for(r, try_finish, a, q->split, q->deadline_ns, err);
    if (status >= 0 && !a->handed) {
        a->handed = true;
        r->n_handed++;
    }
    pthread_mutex_unlock(&r->mutex);
    return status != 0 ? status : cw_batch_apply(r->compiled, a, seed, epoch, consumer_stopped, r, slab_waiting, q, err);
}

int cw_runner_finish(struct cw_runner *r, struct cw_assembly *a, uint64_t seed, uint64_t epoch, uint64_t deadline_ns, struct cw_error *err)
{
    struct slab_request q = {.r = r, .deadline_ns = deadline_ns};
    return finish(r, a, seed, epoch, &q, err);
}

int cw_runner_try_finish(struct cw_runner *r, struct cw_assembly *a, const struct cw_split *s, struct cw_error *err)
{
    const struct cw_epoch *e = &s->epoch->epoch;
    struct slab_request q = {.r = r, .deadline_ns = AT_ONCE, .split = s};
    int status = finish(r, a, e->seed, e->epoch, &q, err);
    return status == CW_E_BUDGET && q.later ? 2 : status;
}

struct cw_batch *cw_runner_take_batch(struct cw_runner *r, struct cw_assembly *a)
{
    struct cw_batch *b = CW_STEAL(a->batch);
    pthread_mutex_lock(&r->mutex);
    cw_assembly_free(a);
    if (r->options.batches_are_users) {
        for (size_t i = 0; i < CW_COUNT_OF(b->slabs); i++)
            if (b->slabs[i])
                cw_slab_disown(b->slabs[i]);
        r->n_assemblies--;
        r->n_handed--;
        cw_released(r);
    }
    pthread_mutex_unlock(&r->mutex);
    return b;
}

void cw_runner_release(struct cw_runner *r, struct cw_batch *b)
{
    pthread_mutex_lock(&r->mutex);
    cw_batch_free(b);
    if (!r->options.batches_are_users) {
        r->n_assemblies--;
        r->n_handed--;
    }
    cw_released(r);
    pthread_mutex_unlock(&r->mutex);
}

void cw_runner_drop(struct cw_runner *r, struct cw_assembly *a)
{
    pthread_mutex_lock(&r->mutex);
    r->n_handed -= a->handed;
    cw_ahead_forget(a);
    cw_assembly_free(a);
    r->n_assemblies--;
    cw_released(r);
    pthread_mutex_unlock(&r->mutex);
}

void cw_runner_interrupt(struct cw_runner *r, bool on)
{
    pthread_mutex_lock(&r->mutex);
    r->interrupted = on;
    pthread_cond_broadcast(&r->done);
    pthread_mutex_unlock(&r->mutex);
}
