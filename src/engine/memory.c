/* Keeps to the memory budget: limits the batches under way, and frees memory when it is short. */
#include "engine/memory.h"

#include <stdio.h>

#include "base/thread.h"
#include "engine/internal.h"

/* The part of the budget that batches may take; the rest is for reading and scratch. */
#define SLAB_SHARE(memory) ((memory) / 10 * 6)
/* With enough memory, this many bytes of output may be under way. */
#define OUTPUT_MOST ((size_t)64 << 20)
/* The most batches under way: each takes a few hundred bytes in addition to its rows. */
#define ASSEMBLIES_MOST 4096u
/* In low-memory mode, the rows of a block: LOW_ROWS_FIRST at first. Each time memory is still short, they
 * become 1/LOW_ROWS_SHARE of the rows before, at least one. */
#define LOW_ROWS_FIRST 32
#define LOW_ROWS_SHARE 8
#define LOW_TERM_MOST (1u << 20) /* pieces for which the mode lasts at most */

/* ---- how many batches may be under way ---- */

static size_t memory_batch_bytes(const struct cw_runner *r)
{
    return (r->layout.slab_bytes ? cw_slab_charge(r->layout.slab_bytes) : 0) +
           cw_assembly_bytes(&r->layout, r->compiled->batch_size);
}

static size_t memory_plan_bytes(const struct cw_runner *r)
{
    return cw_exec_plan_bytes(r->sequence, r->sequence->piece_size);
}

/* Returns how many batches threads need: those that compute, and more where threads wait. */
static size_t memory_thread_batches(const struct cw_runner *r)
{
    size_t more = 2 * (size_t)(r->width.chosen.n - r->options.threads), size = r->compiled->batch_size;
    /* a call takes a whole batch; otherwise several threads compute one */
    return r->options.threads * 2 + 2 + (r->compiled->n_batch_ops ? more : CW_ALIGN_UP(more, size) / size);
}

void cw_memory_set_assemblies(struct cw_runner *r)
{
    struct cw_memory *m = &r->memory;
    size_t memory = m->budget.limit;
    bool buckets = r->compiled->keyed;
    size_t batch = memory_batch_bytes(r), slab = r->layout.slab_bytes;
    size_t by_memory = SLAB_SHARE(memory - memory_plan_bytes(r)) / batch,
           by_output = slab ? OUTPUT_MOST / cw_slab_charge(slab) : ASSEMBLIES_MOST,
           by_threads = memory_thread_batches(r), wanted = CW_MAX(by_output, by_threads);
    unsigned before = m->max_assemblies;
    m->few_assemblies = by_memory < wanted;
    wanted = CW_MIN(wanted, by_memory);
    m->max_assemblies = (unsigned)CW_MIN(CW_MAX(wanted, r->compiled->counted ? 1u : 3u), ASSEMBLIES_MOST);
    if (buckets)
        m->max_assemblies += r->compiled->n_buckets * (2 * (unsigned)CW_MIN(r->options.threads + 2, 16u) +
                                                       r->compiled->grouping.size - 1);
    const struct cw_tuned t = {
        .what = "batches_under_way",
        .seen = {{"batch_bytes", (double)batch},
                 {"memory_bytes", (double)memory},
                 {"threads", r->options.threads},
                 {buckets ? "buckets" : NULL, r->compiled->n_buckets}},
        .others = {{"threads", (double)by_threads},
                   {"output", (double)by_output},
                   {"memory", (double)by_memory}},
        .chosen = m->max_assemblies,
        .why = m->few_assemblies
                   ? "batches that are not delivered yet may take at most 60 % of the memory budget"
               : by_output > by_threads ? "batches that are not delivered yet may take at most 64 MiB; if "
                                          "their size varies, they may be at most 4096 batches"
                                        : "two batches for each thread, and two for the program that takes "
                                          "them: the one that it uses, and the next",
    };
    if (m->max_assemblies != before)
        cw_tuned_add(&r->tuned, &t);
}

static int memory_too_small(const struct cw_runner *r, size_t needed, const char *what, struct cw_error *err);

int cw_memory_start(struct cw_runner *r, struct cw_error *err)
{
    size_t batch = memory_batch_bytes(r), plan = memory_plan_bytes(r), memory = r->memory.budget.limit;
    /* a batch to fill; where batches do not follow from positions, another one that is joined from parts; the
     * plan of their records; and scratch for a block */
    size_t least = r->memory.least = batch * (r->compiled->counted ? 1 : 2) + plan + ((size_t)1 << 20);
    if (memory < least) {
        char what[160];
        snprintf(what, sizeof(what),
                 "a batch of %llu elements takes %zu bytes, and the list of the records to read next takes "
                 "%zu bytes",
                 (unsigned long long)r->compiled->batch_size, batch, plan);
        return memory_too_small(r, cw_memory_estimate(r, &(struct cw_place){0}, least), what, err);
    }
    cw_memory_set_assemblies(r);
    return 0;
}

size_t cw_runner_set_memory(struct cw_runner *r, size_t given)
{
    size_t memory = CW_MAX(given, r->memory.least);
    CW_GUARD(&r->sched.mutex);
    r->memory.given = given;
    atomic_store(&r->memory.budget.limit, memory);
    cw_memory_set_assemblies(r);
    if (atomic_load(&r->memory.budget.used) > memory)
        cw_slab_trim(&r->memory.slabs);
    cw_memory_released(r); /* in case the limit is higher now */
    return memory;
}

size_t cw_runner_memory_used(struct cw_runner *r)
{
    return atomic_load(&r->memory.budget.used);
}

/* Returns whether range s may take another batch, since the number of batches under way is limited. In placed
 * pipelines, later ranges leave two batches of that number to the first range: one to fill, and one to join
 * from parts. When a range becomes the first, later ranges may have all batches. Then the limit does not hold
 * for it, unless the consumer can take one of its batches, which makes room. */
static bool memory_may_take(const struct cw_runner *r, const struct cw_range *s)
{
    const struct cw_memory *m = &r->memory;
    /* the held batches of this and earlier ranges count; later ranges give up theirs when memory is short */
    if (s->rows) {
        unsigned n = m->n_handed + s->keyed.n_held;
        for (const struct cw_range *before = r->ranges; before != s; before = before->next)
            n += before->keyed.n_held;
        return n < m->max_assemblies;
    }
    bool first = s == r->ranges;
    unsigned reserve = first || r->compiled->counted ? 0 : 2;
    if (m->n_assemblies + reserve < m->max_assemblies)
        return true;
    if (!first || cw_range_head_complete(s))
        return false;
    /* otherwise rows of a block, and with them the first batch, might wait for ever */
    if (!r->compiled->counted)
        return true;
    unsigned own = 0; /* a counted range may be as long as its epoch, so it gets at most max_assemblies */
    for (const struct cw_assembly *a = s->head; a; a = a->next)
        own++;
    return own < m->max_assemblies;
}

int cw_memory_take_assembly(struct cw_runner *r, struct cw_range *s, unsigned bucket,
                            struct cw_assembly **ret, struct cw_error *err)
{
    uint64_t size = cw_key_size(r->compiled, bucket);
    if (!memory_may_take(r, s))
        return 1;
    int status = cw_assembly_new(&r->layout, &r->memory.slabs, size, bucket, ret, err);
    if (status == CW_E_BUDGET) {
        cw_memory_trim(r);
        status = cw_assembly_new(&r->layout, &r->memory.slabs, size, bucket, ret, err);
    }
    r->memory.n_assemblies += status >= 0;
    return status;
}

void cw_memory_retry(struct cw_runner *r)
{
    r->memory.plan_short = false;
    if (r->memory.starved == STARVED_STUCK)
        r->memory.starved = STARVED_TRY;
}

void cw_memory_released(struct cw_runner *r)
{
    cw_memory_retry(r);
    r->memory.poll_short = false;
    r->memory.n_released++;
    cw_sched_wake_parked(r);
    cw_sched_wake(r);
    if (r->memory.consumer_short) /* because a thread other than the consumer may have released it */
        cw_sched_notify(r);
}

bool cw_memory_may_be_released(const struct cw_runner *r)
{
    const struct cw_range *first = r->ranges;
    if (r->memory.n_handed > 0 && !r->sched.awaited)
        return true;
    return first && (cw_range_head_complete(first) || cw_range_computed(first) ||
                     (first->rows && cw_range_rows_ready(r, first)));
}

/* ---- what gives way ---- */

void cw_memory_trim(struct cw_runner *r)
{
    cw_slab_trim(&r->memory.slabs);
    cw_sequence_trim(r->sequence, &r->memory.budget);
    for (struct block *b = r->sched.spare; b; b = b->next)
        cw_arena_reset(&b->exec.arena, 0);
    for (struct cw_range *s = r->ranges; s && !r->sched.planning; s = s->next)
        cw_epoch_trim(&s->epoch->epoch);
}

void cw_memory_evict(struct cw_runner *r)
{
    for (struct cw_range *s = r->ranges; s; s = s->next) {
        while (s->parked)
            cw_sched_starve(r, CW_POP(s->parked));
        bool first = s == r->ranges;
        for (struct piece *p = s->first; p; p = p->next) {
            bool left = p->carved < p->plan.n;
            if (left && !first && p->users == 0 && (p->planned || p->read_in))
                cw_piece_unplan(p);
            first &= !left; /* only the piece from which blocks of the first range are carved is needed */
        }
    }
    while (r->sched.ready)
        cw_sched_starve(r, CW_POP(r->sched.ready));
    cw_memory_trim(r);
}

/* Returns the last range after s that holds any memory; NULL: there is none, or s is NULL. */
static struct cw_range *memory_reclaimable(const struct cw_runner *r, const struct cw_range *s)
{
    struct cw_range *last = NULL;
    for (struct cw_range *later = s ? s->next : NULL; later; later = later->next)
        if (cw_range_holds_anything(r, later))
            last = later;
    return last;
}

/* Frees all memory of a range (may be NULL), which will be computed again. False: it holds nothing. */
static bool memory_give_up(struct cw_runner *r, struct cw_range *s)
{
    if (!s || !cw_range_holds_anything(r, s))
        return false;
    cw_blocks_drop(r, &r->sched.starved, s);
    cw_range_restart(r, s);
    cw_memory_trim(r);
    return true;
}

bool cw_memory_reclaim(struct cw_runner *r, const struct cw_range *s)
{
    return memory_give_up(r, memory_reclaimable(r, s));
}

/* ---- low memory ---- */

/* Frees the permutations of epochs after the first range's epoch. They are computed again when they are
 * needed. */
static void memory_forget_later_epochs(struct cw_runner *r)
{
    const struct epoch_ref *first = r->ranges ? r->ranges->epoch : NULL;
    for (struct cw_range *s = r->ranges; s; s = s->next)
        if (s->epoch != first)
            cw_epoch_forget(&s->epoch->epoch);
    if (r->epoch && r->epoch != first)
        cw_epoch_forget(&r->epoch->epoch);
}

static void low_memory_record(struct cw_runner *r)
{
    const struct cw_memory *m = &r->memory;
    double usual = (double)cw_block_size_most(r), rows = m->low_rows ? m->low_rows : usual;
    const struct cw_tuned t = {
        .what = "low_memory_rows",
        .seen = {{"memory_bytes", (double)m->budget.limit}, {"pieces", m->low_left}},
        .others = {{"as_usual", usual}, {"memory", rows}},
        .chosen = rows,
        .why = m->low_rows ? "memory is short, so elements are computed one block at a time"
                           : "the part of the epoch for which memory was short is done, so blocks of "
                             "elements have their usual size again",
    };
    cw_tuned_add(&r->tuned, &t);
}

bool cw_low_memory_begin(struct cw_runner *r)
{
    struct cw_memory *m = &r->memory;
    if (m->low_rows == 1)
        return false;
    if (m->low_rows) {
        m->low_rows = CW_MAX(m->low_rows / LOW_ROWS_SHARE, 1);
    } else {
        m->low_rows = (unsigned)CW_MIN(cw_block_size_most(r), LOW_ROWS_FIRST);
        m->low_left = m->low_term = CW_MIN(CW_MAX(2 * m->low_term, 1), LOW_TERM_MOST);
    }
    low_memory_record(r);
    cw_memory_evict(r);
    while (cw_memory_reclaim(r, r->ranges))
        ;
    memory_give_up(r, r->ranges);
    memory_forget_later_epochs(r);
    cw_memory_retry(r);
    m->poll_short = false;
    cw_sched_wake(r);
    return true;
}

void cw_low_memory_passed(struct cw_runner *r, unsigned n)
{
    struct cw_memory *m = &r->memory;
    if (!m->low_rows || n == 0)
        return;
    m->low_left -= CW_MIN(n, m->low_left);
    if (m->low_left > 0)
        return;
    m->low_rows = 0;
    low_memory_record(r);
}

bool cw_low_memory_waits(const struct cw_runner *r)
{
    const struct cw_range *s = r->ranges;
    return r->sched.n_blocks > 0 || (r->memory.n_handed > 0 && !r->sched.awaited) ||
           cw_range_head_complete(s) || (s && s->rows && cw_range_rows_ready(r, s));
}

/* ---- errors ---- */

/* Sets the error about a budget that must have `needed` bytes. If the budget is a part of an option's memory,
 * the error names the option and the value that the option needs. */
static int memory_too_small(const struct cw_runner *r, size_t needed, const char *what, struct cw_error *err)
{
    char value[32], expected[64];
    size_t whole = r->options.memory_whole, given = whole ? whole : r->memory.given;
    double parts = whole && r->memory.given ? (double)whole / (double)r->memory.given : 1;
    size_t smallest = parts > 1 ? CW_ALIGN_UP((size_t)((double)needed * parts) + 1, (size_t)4096) : needed;
    const char *name = r->options.memory_name;
    snprintf(value, sizeof(value), "%zu", given);
    snprintf(expected, sizeof(expected), "at least %zu bytes", smallest);
    if (err)
        *err = (struct cw_error){0};
    return cw_error_value(err, CW_E_BUDGET, name ? name : "memory", value, expected,
                          "%s %zu is too small: %s; expected at least %zu", name ? name : "option memory",
                          given, what, smallest);
}

int cw_memory_lacks(struct cw_runner *r, const struct cw_place *at, const char *what, struct cw_error *err)
{
    size_t wanted = atomic_load(&r->memory.budget.wanted), used = atomic_load(&r->memory.budget.used);
    uint64_t n_released = r->memory.n_released;
    r->sched.n_running++;
    pthread_mutex_unlock(&r->sched.mutex);
    size_t needed = cw_memory_estimate(r, at, wanted);
    /* the refused memory may be for the result of a function, in addition to the memory that the estimate
     * covers */
    if (r->compiled->n_batch_ops && wanted > used)
        needed += wanted - used;
    pthread_mutex_lock(&r->sched.mutex);
    r->sched.n_running--;
    cw_sched_changed(r);
    return r->memory.n_released == n_released ? memory_too_small(r, needed, what, err) : 1;
}

/* ---- the consumer ---- */

/* As cw_memory_try, for a range other than the first: ranges before it keep their memory and continue. */
static int memory_try_behind(struct cw_runner *r, cw_memory_attempt attempt, void *arg,
                             const struct cw_range *s, struct cw_error *err)
{
    int status = attempt(r, arg, err);
    if (status != CW_E_BUDGET)
        return status;
    cw_memory_trim(r);
    status = attempt(r, arg, err);
    if (!cw_sched_is_calm(r))
        return status == CW_E_BUDGET ? 2 : status;
    if (status == CW_E_BUDGET && memory_reclaimable(r, s)) {
        cw_memory_evict(r);
        while ((status = attempt(r, arg, err)) == CW_E_BUDGET && cw_memory_reclaim(r, s))
            ;
        cw_memory_released(r); /* what was stopped may continue */
    }
    r->memory.poll_short |= status == CW_E_BUDGET;
    return status == CW_E_BUDGET ? 2 : status;
}

/* Tries again while nothing runs: ranges give up their memory for the consumer, the last range first. */
static int memory_try_with_all(struct cw_runner *r, cw_memory_attempt attempt, void *arg, bool of_first,
                               struct cw_error *err)
{
    const struct cw_place at = r->ranges ? cw_range_place(r->ranges, r->ranges->entry.position)
                                         : (struct cw_place){0};
    int status;
    cw_memory_evict(r);
    while ((status = attempt(r, arg, err)) == CW_E_BUDGET && cw_memory_reclaim(r, r->ranges))
        ;
    if (status == CW_E_BUDGET && of_first && !r->memory.low_rows && cw_low_memory_begin(r))
        return 2; /* the first range will make the batch again */
    if (status == CW_E_BUDGET && !of_first && memory_give_up(r, r->ranges))
        status = attempt(r, arg, err);
    return status == CW_E_BUDGET ? cw_memory_lacks(r, &at, "a batch does not fit", err) : status;
}

void cw_memory_served(struct cw_runner *r)
{
    if (!r->memory.consumer_short)
        return;
    r->memory.consumer_short = false;
    cw_memory_released(r);
}

int cw_memory_try(struct cw_runner *r, cw_memory_attempt attempt, void *arg, const struct cw_range *s,
                  bool of_first, uint64_t deadline_ns, struct cw_error *err)
{
    int status;
    if (s && s != r->ranges)
        return memory_try_behind(r, attempt, arg, s, err);
    /* While the consumer lacks memory nothing new is begun. When nothing runs any more, everything else is
     * freed for it. */
    while ((status = attempt(r, arg, err)) == CW_E_BUDGET) {
        r->memory.consumer_short = true;
        if (cw_sched_is_calm(r)) {
            status = memory_try_with_all(r, attempt, arg, of_first, err);
            if (status == 1)
                continue;
            break;
        }
        cw_memory_trim(r);
        if (deadline_ns == CW_AT_ONCE)
            return 2;
        status = cw_sched_wait(r, deadline_ns, "memory for a batch", err);
        if (status < 0)
            break;
    }
    cw_memory_served(r);
    return status;
}
