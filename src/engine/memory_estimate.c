/* Estimates how much memory a pipeline needs: the number that the error about a too small budget names. It is
 * what the runner takes in the low-memory mode. Called by memory.c. */
#include "engine/memory_estimate.h"

#include <string.h>

#include "base/cost_clock.h"
#include "base/machine.h"
#include "engine/internal.h"

/* How many elements are measured, and for how long. Where elements differ, the largest of several tells more
 * than the first. */
#define SAMPLES_MOST 64
#define SAMPLES_NS UINT64_C(300000000)
/* The part of the machine's memory that the measurement may take, so that it does not harm other programs. */
#define SAMPLE_SHARE(memory) ((memory) / 4)
/* Adds room for elements that take more than the measured ones: the size of a crop is random, and records
 * differ. */
#define ROOM(bytes) ((bytes) + (bytes) / 2 + ((size_t)64 << 10))
#define ROOM_STAGED(bytes) ((bytes) + (bytes) / 4)

struct sample {     /* the largest amounts that a measured element took */
    size_t scratch; /* bytes while it is computed */
    size_t staged;  /* bytes of staged values of one row of the element */
    size_t rows;    /* rows that flat_map made of the element; 1 without flat_map */
    size_t raw;     /* bytes of a piece that is loaded as a whole */
};

/* ---- trying ---- */

struct trial {
    struct cw_runner *r;
    struct cw_budget budget;
    struct cw_counts counts;
    struct cw_epoch epoch;
    struct cw_exec_plan plan;
};

static int trial_run(struct trial *t, struct cw_exec *x, struct cw_error *err)
{
    int status = cw_exec_read(x, &t->counts, false, err);
    if (status >= 0)
        status = cw_exec_start(x, &t->counts, err);
    for (unsigned stage = 0; stage <= x->env->n_points && status >= 0; stage++)
        status = cw_exec_run_stage(x, &t->counts, &x->block, NULL, stage, err);
    return status;
}

/* Updates the bytes of staged values from the rows of an execution. */
static void trial_note_staged(const struct trial *t, const struct cw_exec *x, struct sample *s)
{
    const struct cw_layout *l = &t->r->layout;
    s->rows = CW_MAX(s->rows, x->block.n);
    for (size_t i = 0; i < x->block.n; i++) {
        size_t bytes = 0;
        for (unsigned k = 0; k < l->n && x->block.status[i] == CW_ROW_OK; k++)
            if (l->offset[k] == SIZE_MAX) {
                struct cw_tensor value = cw_block_row(&x->block, x->program->outputs[k].value, i);
                bytes += cw_staged_bytes(&value);
            }
        s->staged = CW_MAX(s->staged, bytes);
    }
}

/* Returns the number of positions that are computed together at least. */
static uint64_t trial_unit(const struct trial *t)
{
    return CW_MAX(t->r->compiled->group, UINT64_C(1));
}

/* Computes one element, or one group. An element that fails counts with what it took until then. */
static int trial_element(struct trial *t, uint64_t at, struct sample *s, struct cw_error *err)
{
    const struct cw_exec_env *env = &t->r->env;
    struct cw_exec x = {.env = env,
                        .epoch = &t->epoch,
                        .cancelled = cw_sched_stopped,
                        .cancel_arg = t->r,
                        .plan = &t->plan,
                        .at = at,
                        .n_refs = CW_MIN(trial_unit(t), t->plan.n - at)};
    x.block.n = x.n_refs;
    cw_exec_set_program(&x);
    x.variant = &env->uncached[x.program->leaf];
    cw_arena_init(&x.arena, &t->budget);
    x.arena.exact = true;
    size_t before = atomic_load(&t->budget.used);
    atomic_store(&t->budget.peak, before);
    int status = trial_run(t, &x, err);
    s->scratch = CW_MAX(s->scratch, atomic_load(&t->budget.peak) - before);
    if (status == CW_E_BUDGET) /* the element needs at least as much as was refused */
        s->scratch = CW_MAX(s->scratch, atomic_load(&t->budget.wanted) - before);
    if (status >= 0)
        trial_note_staged(t, &x, s);
    cw_exec_free_faults(&x);
    cw_arena_deinit(&x.arena);
    return status;
}

/* Plans the positions from t->plan.begin on, and loads what a plan loads. */
static int trial_plan(struct trial *t, struct sample *s, struct cw_error *err)
{
    const struct cw_sequence *q = t->r->sequence;
    int status = cw_exec_plan_refs(&t->plan, q, &t->epoch, err);
    if (status >= 0 && q->needs_load) {
        size_t before = atomic_load(&t->budget.used);
        atomic_store(&t->budget.peak, before);
        status = cw_exec_plan_load(&t->plan, &t->epoch, err);
        s->raw = (status == CW_E_BUDGET ? atomic_load(&t->budget.wanted) : atomic_load(&t->budget.peak)) -
                 before;
    }
    return status;
}

static void trial_elements(struct trial *t, struct sample *s)
{
    struct cw_error err = {0};
    uint64_t n = CW_MIN(CW_MIN(t->plan.n, t->r->compiled->batch_size), SAMPLES_MOST),
             until_ns = cw_cost_now_ns() + SAMPLES_NS;
    int status = trial_plan(t, s, &err);
    for (uint64_t i = 0; i < n && status >= 0 && (i == 0 || cw_cost_now_ns() < until_ns); i += trial_unit(t))
        status = trial_element(t, i, s, &err);
}

/* Estimates for a stream, whose elements can't be computed again without beginning the stream anew. The size
 * of a piece is known if elements have fixed sizes. */
static size_t estimate_stream(const struct cw_sequence *q)
{
    const struct cw_op *op = q->compiled->programs[0].ops[0];
    size_t element = sizeof(struct cw_tensor) * (op->n_out + 1) + 128; /* with other data of an element */
    for (unsigned k = 0; k < op->n_out; k++)
        element += cw_type_fixed(&op->out[k].type) ? CW_ALIGN_UP(cw_type_bytes(&op->out[k].type), (size_t)64)
                                                   : 0;
    return element * q->piece_size;
}

/* Measures elements from a place on. */
static void estimate_sample(struct cw_runner *r, const struct cw_place *at, struct sample *ret)
{
    const struct cw_sequence *q = r->sequence;
    *ret = (struct sample){.rows = 1, .raw = q->stream ? estimate_stream(q) : 0};
    if (q->stream || at->position >= q->n_positions)
        return;
    _cleanup_free_ struct trial *t = calloc(1, sizeof(*t));
    if (!t)
        return;
    uint64_t most = q->needs_load ? q->piece_size : CW_MIN(r->compiled->batch_size, SAMPLES_MOST);
    most = CW_MAX(most, r->compiled->group);
    *t = (struct trial){.r = r,
                        .plan = {.begin = at->position, .n = CW_MIN(most, q->n_positions - at->position)}};
    cw_budget_init(&t->budget, (size_t)SAMPLE_SHARE(cw_memory_total()));
    cw_arena_init(&t->plan.arena, &t->budget);
    t->plan.arena.exact = true;
    if (cw_counts_init(&t->counts, r->compiled, false, NULL) >= 0 &&
        cw_epoch_init(&t->epoch, q, at->seed, at->epoch, &t->budget, NULL) >= 0) {
        t->epoch.stopped = cw_sched_stopped;
        t->epoch.stop_arg = r;
        trial_elements(t, ret);
        cw_epoch_deinit(&t->epoch);
    }
    cw_exec_plan_clear(&t->plan);
    cw_sequence_trim(q, &t->budget);
    cw_counts_deinit(&t->counts);
}

/* ---- adding up ---- */

/* Returns the bytes of a batch of n elements, and sets *ret_final to those of its final form, which exists in
 * addition where values vary in size. */
static size_t estimate_batch(const struct cw_runner *r, uint64_t n, size_t staged, size_t *ret_final)
{
    const struct cw_layout *l = &r->layout;
    /* lengths of strings; and the alignment of components */
    size_t lengths = CW_ALIGN_UP(n * sizeof(uint64_t), (size_t)64) + 128;
    *ret_final = CW_MAX(*ret_final, l->n_staged ? cw_slab_charge(n * staged + l->n_staged * lengths) : 0);
    return (l->slab_bytes ? cw_slab_charge(l->slab_bytes) : 0) + cw_assembly_bytes(l, n) + n * staged;
}

static size_t estimate_add_up(const struct cw_runner *r, const struct sample *s)
{
    const struct cw_compiled *c = r->compiled;
    size_t staged = ROOM_STAGED(s->staged), final = 0, batches = 0, largest = 0;
    for (unsigned k = 0; k < CW_MAX(c->n_buckets, 1); k++) {
        size_t batch = estimate_batch(r, c->n_buckets ? c->bucket_sizes[k] : 1, staged, &final);
        batches += batch;
        largest = CW_MAX(largest, batch);
    }
    /* a batch of each kind, or a group of them, is being filled, and a rank holds its batch until those of
     * the other ranks are made */
    batches *= 1 + c->grouping.size;
    /* all rows of one element are computed at once */
    batches += (s->rows - 1) / CW_MAX(c->batch_size, 1) * largest;
    size_t copies = s->rows > 1 ? 2 : 1; /* copies of columns, where rows are in several batches */
    return cw_exec_plan_bytes(r->sequence, r->sequence->piece_size) + cw_orders_bytes(r->sequence) +
           ROOM_STAGED(s->raw) + batches + CW_MAX(ROOM(copies * s->scratch), final);
}

size_t cw_memory_estimate(struct cw_runner *r, const struct cw_place *at, size_t least)
{
    struct sample s;
    estimate_sample(r, at, &s);
    size_t needed = CW_MAX(least, estimate_add_up(r, &s));
    if (r->sequence->stream) /* the elements of a stream were not measured */
        needed = CW_MAX(needed, least + least / 2);
    return CW_ALIGN_UP(needed, (size_t)4096);
}
