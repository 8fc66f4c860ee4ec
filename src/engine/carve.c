/* Blocks, carved off pieces, and batches for their rows. */
#include "engine/internal.h"

/* Whether range s may have another batch: the number of batches under way is bounded. Later ranges leave two
 * batches of that number to the first range, one to fill and one to put together. A range may become the
 * first when later ranges have all batches. Then the bound does not hold for it, unless the consumer can take
 * a batch of it, which makes room. */
static bool may_take(const struct cw_runner *r, const struct cw_range *s)
{
    if (s->rows) { /* batches of earlier ranges wait for requests; later ones give way when memory is short */
        unsigned n = r->n_handed + s->n_held;
        for (const struct cw_range *before = r->ranges; before != s; before = before->next)
            n += before->n_held;
        return n < r->max_assemblies;
    }
    bool first = s == r->ranges;
    unsigned reserve = first || r->compiled->counted ? 0 : 2;
    if (r->n_assemblies + reserve < r->max_assemblies)
        return true;
    if (!first || (s->head && s->head->closed && s->head->n_done == s->head->n_assigned))
        return false;
    if (!r->compiled->counted) /* else rows of a block may wait, and the first batch with them */
        return true;
    unsigned own = 0; /* a counted range may be as long as its epoch: it has at most max_assemblies */
    for (const struct cw_assembly *a = s->head; a; a = a->next)
        own++;
    return own < r->max_assemblies;
}

int cw_assembly_take(struct cw_runner *r, struct cw_range *s, unsigned bucket, struct cw_assembly **ret,
                     struct cw_error *err)
{
    if (!may_take(r, s))
        return 1;
    int status = cw_assembly_new(&r->layout, &r->slabs,
                                 r->compiled->n_buckets ? r->compiled->bucket_sizes[bucket] : 1, bucket, ret,
                                 err);
    if (status == CW_E_BUDGET) {
        cw_trim(r);
        status = cw_assembly_new(&r->layout, &r->slabs,
                                 r->compiled->n_buckets ? r->compiled->bucket_sizes[bucket] : 1, bucket, ret,
                                 err);
    }
    if (status >= 0)
        r->n_assemblies++;
    return status;
}

void cw_out_of_memory(struct cw_runner *r, const char *what)
{
    if (!r->fatal.status)
        (void)cw_error_nomem(&r->fatal, 0, what);
    cw_done(r);
}

/* The number of rows from position `at` of a piece that make block b. The rows are of one source, of one pass
 * where limits count passes, and take about the time that a block should take. */
static uint64_t block_rows(const struct cw_runner *r, const struct block *b, const struct piece *p,
                           uint64_t at)
{
    const struct cw_ref *first = &p->plan.refs[at];
    bool uncached = b->exec.cache.use == CW_CACHE_USE_NONE;
    const uint8_t *kept = b->choice == p->choice || uncached ? p->kept : NULL;
    bool hit = kept && kept[at] && !uncached;
    uint64_t most = CW_MIN(cw_rows_most(r, first->leaf, hit), p->plan.n - at), n = 1;
    while (kept && n < most && kept[at + n] == kept[at])
        n++;
    most = kept ? n : most;
    most = r->frugal ? CW_MIN(most, r->frugal) : most;
    if (r->compiled->n_programs == 1 && !r->compiled->n_limits)
        return most;
    n = 1;
    while (n < most && first[n].leaf == first->leaf &&
           (!r->compiled->n_limits || first[n].pass == first->pass))
        n++;
    return n;
}

/* The next batch of a counted pipeline. 1: no batch can be had now. Mutex held; the block that is carved is
 * counted in r->n_blocks. */
static int counted_batch(struct cw_runner *r, struct cw_range *s, struct cw_assembly **ret,
                         struct cw_error *err)
{
    int status = cw_assembly_take(r, s, 0, ret, err);
    if (status != CW_E_BUDGET)
        return status;
    if (r->n_blocks > 1 || r->n_running || cw_may_be_released(r)) /* then s need not be the first range */
        return 1;
    cw_evict(r); /* no block or batch will give memory back */
    while ((status = cw_assembly_take(r, s, 0, ret, err)) == CW_E_BUDGET && cw_reclaim(r, s))
        ;
    if (status != CW_E_BUDGET || (!r->frugal && cw_frugal_begin(r)))
        return status == CW_E_BUDGET ? 1 : status;
    const struct cw_place at = cw_place_of(s, s->entry.position);
    return cw_lack_of_memory(r, &at, "a batch does not fit beside the plan of its range", err);
}

/* Gives a block of a counted pipeline its slots, which follow from its position. Where a range begins or ends
 * inside a batch, its rows of that batch are a batch of their own, a part. 1: no batch can be had now. */
static int counted_slots(struct cw_runner *r, struct cw_range *s, struct piece *p, uint64_t *n,
                         struct block *b)
{
    uint64_t size = r->compiled->batch_size, at = p->plan.begin + p->carved,
             end = CW_MIN(at - at % size + size, p->plan.begin + p->plan.n);
    bool first = at % size == 0 || at == s->entry.position;
    b->segments = calloc(1, sizeof(*b->segments));
    if (!b->segments) {
        cw_out_of_memory(r, "slots");
        return 1;
    }
    if (first) {
        struct cw_assembly *a;
        struct cw_error err = {0};
        int status = counted_batch(r, s, &a, &err);
        if (status < 0 && !r->fatal.status) {
            r->fatal = err;
            cw_done(r);
        }
        if (status != 0)
            return 1;
        a->part = at % size != 0 || (end % size != 0 && end == s->limit && end != r->sequence->n_positions);
        cw_range_append(s, a);
    }
    *n = CW_MIN(*n, end - at);
    b->segments[0] = (struct segment){.assembly = s->tail, .slot0 = s->tail->n_assigned, .n = *n};
    b->exec.dest = cw_assembly_dest(s->tail, s->tail->n_assigned);
    s->tail->n_assigned += *n;
    s->tail->closed = at + *n == end;
    b->n_segments = 1;
    return 0;
}

struct block *cw_carve(struct cw_runner *r)
{
    /* All blocks in flight may be later ranges', and wait for batches that only progress of the first range
     * sets free. So the first range may have one block beyond the limit. */
    bool full = cw_blocks_full(r), first_has_none = r->ranges && r->ranges->n_blocks == 0;
    if ((full && !first_has_none) || r->starved || r->consumer_short || r->fatal.status ||
        (r->frugal && cw_frugal_waits(r)))
        return NULL;
    for (struct cw_range *s = r->ranges; s; s = s->next) {
        struct piece *p = s->first;
        if (s->over || s->closed)
            continue;
        while (p && p->carved == p->plan.n)
            p = p->next;
        if (!p && s->position == s->end) {
            s->over = true;
            cw_done(r);
            continue;
        }
        if (!p || !p->planned || ((full || r->frugal) && s != r->ranges))
            return NULL; /* ranges are carved in order: later ones wait */
        struct block *b = cw_block_new(r);
        if (!b)
            return NULL;
        r->n_blocks++;
        b->range = s;
        b->exec.arena.exact = r->frugal > 0;
        cw_block_choose(r, b, p);
        uint64_t n = block_rows(r, b, p, p->carved);
        if (r->compiled->counted && counted_slots(r, s, p, &n, b) != 0) {
            cw_block_recycle(r, b);
            return NULL;
        }
        b->piece = p;
        b->exec.env = &r->env;
        b->exec.epoch = &s->epoch->epoch;
        b->exec.cancelled = cw_range_stopped;
        b->exec.cancel_arg = s;
        b->exec.plan = &p->plan;
        b->exec.program = &r->compiled->programs[p->plan.refs[p->carved].leaf];
        b->seq = s->next_seq++;
        b->exec.at = p->carved;
        b->exec.block.n = b->exec.n_refs = n;
        b->point = r->compiled->counted ? r->env.n_points : 0;
        b->n_passed = b->point;
        p->carved += n;
        p->users++;
        s->n_blocks++;
        if (p->carved == p->plan.n && !p->next && s->position == s->end)
            s->over = true;
        return b;
    }
    return NULL;
}
