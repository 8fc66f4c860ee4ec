/* Joined batches made ahead: the runner's side. The list is in the order of the batches; a thread of the pool makes the first that nobody is at. */
#include "engine/ahead.h"

#include "engine/batch_ops.h"
#include "engine/internal.h"

#include "base/cost_clock.h"

enum ahead_state { AHEAD_QUEUED, AHEAD_RUNNING, AHEAD_DONE };

struct cw_ahead {
    struct cw_ahead *next;
    struct cw_joined_name name;
    uint64_t seed;
    enum ahead_state state;
    _Atomic bool unwanted;  /* nobody waits for it: who is at it frees it */
    struct cw_runner *runner;
    struct cw_assembly *a;
};

/* What may be under way for each thread of the pool: one that it makes, one that waits for the consumer. */
#define AHEAD_PER_THREAD 2
/* The share of the budget beyond which nothing is made ahead. */
#define AHEAD_SHARE(memory) ((memory) / 4 * 3)

static void ahead_free(struct cw_ahead *j)
{
    cw_assembly_free(j->a);
    free(j);
}

/* Nobody wants it any more: frees it, or has it freed by the thread that is at it. */
static void let_go(struct cw_ahead *j)
{
    if (j->state == AHEAD_RUNNING)
        atomic_store(&j->unwanted, true);
    else
        ahead_free(j);
}

static struct cw_ahead *take_at(struct cw_runner *r, struct cw_ahead **at)
{
    struct cw_ahead *j = *at;
    *at = j->next;
    r->n_ahead--;
    return j;
}

/* What is made ahead again would be dropped again, and its function called in vain. */
static void give_up(struct cw_runner *r)
{
    const struct cw_tuned t = {
        .what = "joined_ahead",
        .seen = {{"memory_bytes", (double)r->budget.limit}, {"threads", r->options.threads}},
        .others = {{"threads", r->options.threads * AHEAD_PER_THREAD}, {"memory", 0}},
        .why = "memory was short, and what was made was dropped for it",
    };
    if (!r->no_ahead)
        cw_tuned_add(&r->tuned, &t);
    r->no_ahead = true;
}

bool cw_ahead_drop(struct cw_runner *r)
{
    bool any = false;
    for (struct cw_ahead **at = &r->ahead; *at;) {
        if ((*at)->state == AHEAD_RUNNING) {
            at = &(*at)->next;
            continue;
        }
        let_go(take_at(r, at));
        any = true;
    }
    if (any)
        give_up(r);
    return any;
}

bool cw_ahead_unqueue(struct cw_runner *r)
{
    unsigned n = r->n_ahead;
    for (struct cw_ahead **at = &r->ahead; *at;)
        if ((*at)->state == AHEAD_QUEUED)
            let_go(take_at(r, at));
        else
            at = &(*at)->next;
    return r->n_ahead < n;
}

void cw_ahead_free_all(struct cw_runner *r)
{
    while (r->ahead)
        let_go(take_at(r, &r->ahead));
}

/* ---- the pool ---- */

struct cw_ahead *cw_ahead_next(struct cw_runner *r)
{
    struct cw_ahead *j = r->ahead;
    while (j && j->state != AHEAD_QUEUED)
        j = j->next;
    return j;
}

static int ahead_stopped(void *arg)
{
    struct cw_ahead *j = arg;
    return atomic_load(&j->unwanted) || cw_stopped(j->runner);
}

static int get_slab(size_t size, struct cw_slab **ret, void *slabs, struct cw_error *err) { return cw_slab_get(slabs, size, ret, err); }

void cw_ahead_run(struct cw_runner *r, struct thread *t, struct cw_ahead *j)
{
    struct cw_error err = {0};
    j->state = AHEAD_RUNNING;
    pthread_mutex_unlock(&r->mutex);
    uint64_t start = cw_cost_now_ns();
    int status = cw_assembly_finish(j->a, &r->slabs, &err);
    t->emit_ns += cw_cost_now_ns() - start;
    if (status >= 0)
        status = cw_batch_apply(r->compiled, j->a, j->seed, j->name.epoch, t->ops, ahead_stopped, j, get_slab, &r->slabs, &err);
    pthread_mutex_lock(&r->mutex);
    cw_account(r, t);
    if (status < 0 && status != CW_E_BUDGET && status != CW_E_INTERRUPTED) /* else the consumer goes on from where it is */
        cw_assembly_poison(j->a, &err, 0);
    j->state = AHEAD_DONE;
    if (atomic_load(&j->unwanted))
        ahead_free(j);
}

/* ---- the consumer ---- */

bool cw_runner_remnants(struct cw_runner *r, struct cw_split *s, uint64_t *ret_sizes)
{
    uint64_t n_batches;
    if (!cw_runner_computed(r, s, &n_batches))
        return false;
    pthread_mutex_lock(&r->mutex);
    bool there = s->over && s->n_blocks == 0; /* a split before it may have needed the memory meanwhile */
    for (unsigned k = 0; k < r->compiled->n_buckets; k++)
        ret_sizes[k] = s->open[k] ? s->open[k]->n_assigned : 0;
    pthread_mutex_unlock(&r->mutex);
    return there;
}

static bool same(const struct cw_joined_name *a, const struct cw_joined_name *b)
{
    return a->epoch == b->epoch && a->split == b->split && a->key == b->key && a->end == b->end;
}

/* What a later split left over is gone where somebody needed the memory. Mutex held. */
static bool are_there(unsigned key, const struct cw_joined_part *parts, unsigned n_parts)
{
    for (unsigned i = 0; i < n_parts; i++) {
        const struct cw_split *s = parts[i].split;
        if (!parts[i].waiting && (!s->over || s->n_blocks || !s->open[key]))
            return false;
    }
    return true;
}

/* Copies the parts. NULL: there is no memory now, or a record in them failed: that is for the consumer. Mutex not held: it counts as running. */
static struct cw_assembly *join_parts(struct cw_runner *r, unsigned key, const struct cw_joined_part *parts, unsigned n_parts)
{
    struct cw_assembly *a = NULL;
    struct cw_error err = {0};
    int status = cw_assembly_new(&r->layout, &r->slabs, r->compiled->bucket_sizes[key], key, &a, &err);
    for (unsigned i = 0; i < n_parts && status >= 0; i++) {
        const struct cw_joined_part *p = &parts[i];
        status = cw_assembly_join(a, p->waiting ? p->waiting : p->split->open[key], p->from, p->n, &err);
        if (status >= 0 && a->error)
            status = a->error->status;
    }
    return status < 0 ? cw_assembly_free(a) : a;
}

/* Whether one more may be begun. Not while a block runs alone: all memory there is may be taken for it, though something runs. Mutex held. */
static bool has_room(struct cw_runner *r)
{
    return !r->no_ahead && !r->frugal && !r->fatal.status && !r->starved && !r->alone && !r->consumer_short && r->n_ahead < r->options.threads * AHEAD_PER_THREAD &&
           atomic_load(&r->budget.used) < AHEAD_SHARE(r->budget.limit);
}

/* What is computed of a split is nobody's to write but the consumer's, whose thread this is, and nobody takes it for its memory while something runs: so a whole batch
 * is copied while others settle blocks. Mutex held, but released meanwhile. */
static bool begin(struct cw_runner *r, const struct cw_joined_name *name, const struct cw_joined_part *parts, unsigned n_parts, uint64_t seed)
{
    struct cw_ahead *j = calloc(1, sizeof(*j)), **at = &r->ahead;
    if (!j)
        return false;
    *j = (struct cw_ahead){.name = *name, .seed = seed, .runner = r};
    r->n_running++;
    pthread_mutex_unlock(&r->mutex);
    j->a = join_parts(r, name->key, parts, n_parts);
    pthread_mutex_lock(&r->mutex);
    r->n_running--;
    cw_work(r); /* also for who waits until nothing runs */
    if (!j->a) {
        free(j);
        return false;
    }
    while (*at)
        at = &(*at)->next;
    *at = j;
    r->n_ahead++;
    return true;
}

bool cw_runner_join_ahead(struct cw_runner *r, const struct cw_joined_name *name, const struct cw_joined_part *parts, unsigned n_parts, uint64_t seed)
{
    pthread_mutex_lock(&r->mutex);
    bool begun = false;
    for (const struct cw_ahead *j = r->ahead; j && !begun; j = j->next)
        begun = same(&j->name, name);
    if (!begun && has_room(r) && are_there(name->key, parts, n_parts))
        begun = begin(r, name, parts, n_parts, seed);
    pthread_mutex_unlock(&r->mutex);
    return begun;
}

void cw_runner_join_claim(struct cw_runner *r, const struct cw_joined_name *name, struct cw_assembly *a)
{
    pthread_mutex_lock(&r->mutex);
    if (r->ahead && same(&r->ahead->name, name)) { /* what is joined is claimed, batch by batch, so none stands before it */
        struct cw_ahead *j = take_at(r, &r->ahead);
        if (j->state == AHEAD_QUEUED) /* the threads have other things to do: the consumer has it done at once */
            let_go(j);
        else
            a->ahead = j;
    }
    pthread_mutex_unlock(&r->mutex);
}

void cw_ahead_forget(struct cw_assembly *a)
{
    struct cw_ahead *j = CW_STEAL(a->ahead);
    if (j)
        let_go(j);
}

bool cw_ahead_runs(const struct cw_assembly *a) { return a->ahead && a->ahead->state == AHEAD_RUNNING; }

void cw_ahead_take(struct cw_assembly *a)
{
    struct cw_ahead *j = CW_STEAL(a->ahead);
    if (!j)
        return;
    if (j->a->batch) { /* done, or as far as memory was there */
        a->batch = CW_STEAL(j->a->batch);
        a->n_applied = j->a->n_applied;
    }
    if (j->a->error)
        cw_assembly_poison(a, j->a->error, 0);
    cw_quarantined_move(&a->quarantined, &j->a->quarantined); /* notes about the batch come first, as if it had been made here */
    a->quarantined = CW_STEAL(j->a->quarantined);
    ahead_free(j);
}
