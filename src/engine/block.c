/* What a block has, from one use to the next. */
#include <string.h>

#include "engine/internal.h"

/* Spare blocks: more than are in flight with the usual number of threads. */
#define IDLE_MAX 64

static void free_faults(struct block *b)
{
    while (b->faults)
        free(CW_POP(b->faults));
}

void cw_block_reset(struct cw_runner *r, struct block *b)
{
    cw_arena_reset(&b->arena, 0);
    b->b = (struct cw_block){.n = b->n_refs};
    b->origin = b->element = NULL;
    b->spent_ns = b->prefix_ns = b->cold_ns = b->late_ns = 0;
    b->n_looked = b->n_found = b->n_kept = b->content_rows = b->content_bytes = 0;
    b->shape = 0;
    b->point = r->compiled->counted ? r->n_points : 0;
    b->have_raw = b->waited = false;
    b->reads = NULL;
    b->n_reads = b->read_bytes = 0;
    cw_block_forget(b);
    b->replaced = NULL;
    free_faults(b);
}

size_t cw_scratch_keep(struct cw_runner *r)
{
    return atomic_load(&r->budget.used) < r->budget.limit / 4 * 3 ? (size_t)16 << 20 : 0;
}

/* Frees all that a block has but its arena. */
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
    free_faults(b);
    cw_block_forget(b);
}

void cw_block_free(struct cw_runner *r, struct block *b)
{
    block_clear(r, b);
    cw_arena_deinit(&b->arena);
    free(b);
}

void cw_block_recycle(struct cw_runner *r, struct block *b)
{
    r->n_blocks--;
    r->n_probes -= b->probe;
    if (r->n_idle == IDLE_MAX) {
        cw_block_free(r, b);
        return;
    }
    block_clear(r, b);
    cw_arena_reset(&b->arena, cw_scratch_keep(r));
    struct cw_arena arena = b->arena;
    memset(b, 0, sizeof(*b));
    b->arena = arena;
    b->next = r->idle;
    r->idle = b;
    r->n_idle++;
}

struct block *cw_block_new(struct cw_runner *r)
{
    struct block *b = r->idle;
    if (b) {
        r->idle = b->next;
        r->n_idle--;
        b->next = NULL;
    } else if ((b = calloc(1, sizeof(*b)))) {
        cw_arena_init(&b->arena, &r->budget);
    } else {
        cw_out_of_memory(r, "a block");
    }
    return b;
}
