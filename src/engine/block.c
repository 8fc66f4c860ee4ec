/* A block: consecutive rows of a piece that one thread computes together. It owns its execution, its slots,
 * and what was decided about its rows at the points that it passed. */
#include "engine/block.h"

#include <string.h>

#include "engine/internal.h"

/* The most spare blocks that are kept: more than are in flight with the usual number of threads. */
#define SPARE_MOST 64

void cw_block_reset(const struct cw_runner *r, struct block *b)
{
    cw_exec_reset(&b->exec);
    b->spent_ns = b->cold_ns = 0;
    b->point = r->compiled->counted ? r->env.n_points : 0;
    b->waited = false;
}

/* Frees everything that a block has, except its arena. */
static void block_clear(const struct cw_runner *r, struct block *b)
{
    for (unsigned k = 0; k < r->compiled->n_limits; k++) {
        if (b->dropped)
            free(b->dropped[k]);
        if (b->limit_passages)
            free(b->limit_passages[k].counts);
    }
    free(b->dropped);
    free(b->limit_passages);
    free(b->shapes);
    free(b->idx);
    free(b->segments);
    cw_exec_free_faults(&b->exec);
    cw_cached_forget(&b->exec);
}

void cw_block_free(const struct cw_runner *r, struct block *b)
{
    block_clear(r, b);
    cw_arena_deinit(&b->exec.arena);
    free(b);
}

void cw_block_recycle(struct cw_runner *r, struct block *b)
{
    r->sched.n_blocks--;
    r->cache.n_probes -= b->probe;
    if (r->sched.n_spare == SPARE_MOST) {
        cw_block_free(r, b);
        return;
    }
    block_clear(r, b);
    cw_arena_reset(&b->exec.arena, cw_exec_scratch_keep(&r->memory.budget));
    const struct cw_arena arena = b->exec.arena;
    memset(b, 0, sizeof(*b));
    b->exec.arena = arena;
    b->next = r->sched.spare;
    r->sched.spare = b;
    r->sched.n_spare++;
}

void cw_blocks_drop(struct cw_runner *r, struct block **list, struct cw_range *s)
{
    while (*list) {
        if ((*list)->range != s) {
            list = &(*list)->next;
            continue;
        }
        (*list)->piece->users--;
        s->n_blocks--;
        cw_block_recycle(r, CW_POP(*list));
    }
}

struct block *cw_block_new(struct cw_runner *r)
{
    struct block *b = r->sched.spare;
    if (b) {
        r->sched.spare = b->next;
        r->sched.n_spare--;
        b->next = NULL;
    } else if ((b = calloc(1, sizeof(*b)))) {
        cw_arena_init(&b->exec.arena, &r->memory.budget);
    }
    return b;
}

/* ---- stages ---- */

/* Before slots are given out: finds the rows that were not dropped, which need slots. */
static int block_find_live(struct block *b, struct cw_error *err)
{
    const struct cw_block *c = &b->exec.block;
    b->idx = malloc(c->n * sizeof(*b->idx));
    if (!b->idx)
        return cw_error_nomem(err, c->n * sizeof(*b->idx), "slots");
    size_t n = 0;
    b->has_failed = false;
    for (size_t i = 0; i < c->n; i++) {
        b->idx[n] = (uint32_t)i;
        n += c->status[i] != CW_ROW_DROPPED;
        b->has_failed |= c->status[i] == CW_ROW_FAILED;
    }
    b->n_live = n;
    return 0;
}

/* In a second attempt, checks that flat_map made the same rows as in the first: what was decided about them
 * stays. */
static int block_check_shape(const struct cw_runner *r, struct block *b, struct cw_error *err)
{
    unsigned n_points = r->env.n_points;
    if (!b->exec.shape)
        return 0;
    if (!b->shapes && !(b->shapes = calloc(n_points, sizeof(*b->shapes))))
        return cw_error_nomem(err, n_points * sizeof(*b->shapes), "a block");
    uint64_t before = b->shapes[b->point];
    b->shapes[b->point] = b->exec.shape;
    if (before && before != b->exec.shape)
        return cw_error_set(
            err, CW_E_DATA,
            "flat_map: because memory was short, its function was called again for the same records, and it "
            "returned other elements than before: make the function deterministic, or allow more memory");
    return 0;
}

int cw_block_stage(const struct cw_runner *r, struct compute_thread *t, struct block *b, struct cw_error *err)
{
    struct cw_exec *x = &b->exec;
    int status = x->block.status ? 0 : cw_exec_start(x, &t->counts, err);
    if (status >= 0)
        status = cw_exec_run_stage(x, &t->counts, &x->block, NULL, b->point, err);
    if (status >= 0)
        status = block_check_shape(r, b, err);
    return status >= 0 && b->point + 1 == r->env.n_points && !b->idx ? block_find_live(b, err) : status;
}
