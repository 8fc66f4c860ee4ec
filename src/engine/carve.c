/* Cuts ranges into pieces and pieces into blocks. In counted pipelines it also gives blocks their batches and
 * slots. The compute threads call it, with the runner's mutex held. */
#include "engine/carve.h"

#include "engine/internal.h"

/* Blocks in flight for each thread: enough to keep it busy while some blocks wait for their turn. */
#define BLOCKS_PER_THREAD 4
/* The part of the budget for source bytes of blocks that are being read, or wait for a read. */
#define READ_SHARE(memory) ((memory) / 8)
/* Blocks have rows of several sources (are joint) where fewer neighbouring positions than this are of one
 * source on average, among so many positions: otherwise blocks would have few rows. */
#define JOINT_RUN 8
#define JOINT_LOOK 64
/* Pieces planned at a time: the piece that blocks are carved from, and the next one. */
#define PIECES_PLANNED 2

/* ---- pieces ---- */

static struct piece *piece_new(struct cw_runner *r, struct cw_range *s)
{
    struct piece **at = &s->first, *p = calloc(1, sizeof(*p));
    while (*at)
        at = &(*at)->next;
    if (!p) {
        cw_sched_out_of_memory(r, "a range");
        return NULL;
    }
    uint64_t size = r->sequence->piece_size;
    p->plan.begin = s->position;
    /* a shuffle permutes a stream by whole windows, so the piece begins where its window begins */
    if (r->sequence->stream_draw.salt && s->position == s->entry.position)
        p->plan.begin = s->position / size * size;
    p->plan.n = CW_MIN(size - p->plan.begin % size, s->end - p->plan.begin);
    p->carved = s->position - p->plan.begin;
    s->position = p->plan.begin + p->plan.n;
    cw_arena_init(&p->plan.arena, &r->memory.budget);
    p->plan.arena.exact = r->memory.low_rows > 0;
    *at = p;
    return p;
}

/* Returns whether planning has to wait: a plan was refused memory, and running work or the consumer will give
 * some back. */
static bool carve_plan_waits(const struct cw_runner *r, unsigned n_planned)
{
    return r->memory.plan_short && (n_planned > 0 || r->sched.n_blocks > 0 || r->sched.n_running > 0 ||
                                    r->read_in.n_pieces > 0 || cw_memory_may_be_released(r));
}

struct piece *cw_carve_piece(struct cw_runner *r, struct cw_range **ret_range)
{
    unsigned n_planned = 0, most = r->memory.low_rows ? 1 : PIECES_PLANNED;
    if (r->sched.planning)
        return NULL;
    for (struct cw_range *s = r->ranges; s && n_planned < PIECES_PLANNED; s = s->next) {
        if (r->memory.low_rows && (s != r->ranges || r->sched.n_blocks > 0))
            return NULL;
        if (s->state != RANGE_OPEN || s->closed)
            continue;
        for (struct piece *p = s->first; n_planned < most; p = p->next) {
            if (!p && s->position < s->end && !(p = piece_new(r, s)))
                return NULL;
            if (!p)
                break;
            if (p->carved == p->plan.n) /* completely carved, or not needed */
                continue;
            if (!p->planned && !p->read_in) {
                *ret_range = s;
                return carve_plan_waits(r, n_planned) ? NULL : p;
            }
            n_planned++;
        }
    }
    return NULL;
}

/* ---- blocks ---- */

/* Returns how many blocks may be in flight while nothing is read. */
static unsigned carve_blocks_most(const struct cw_runner *r)
{
    return r->width.chosen.n * BLOCKS_PER_THREAD;
}

/* Returns whether no more blocks may be in flight now. While blocks are read, more are allowed, so that
 * storage always has reads to do; the bytes being read are bounded, so that not too much memory waits for
 * compute threads. */
static bool carve_is_full(const struct cw_runner *r)
{
    if (r->sched.n_blocks < carve_blocks_most(r))
        return false;
    return !r->reads.n_blocks || r->sched.n_blocks >= carve_blocks_most(r) + READ_DEPTH ||
           cw_reads_waiting(r) >= READ_DEPTH || r->reads.bytes >= READ_SHARE(r->memory.budget.limit);
}

void cw_carve_record(struct cw_runner *r)
{
    unsigned computing = carve_blocks_most(r);
    const struct cw_tuned t = {
        .what = "blocks_in_flight",
        .seen = {{"threads", r->options.threads}, {"reads_wait", r->reads.cold}},
        .others = {{"computing", computing}, {"computing_and_reading", computing + READ_DEPTH}},
        .chosen = computing + (r->reads.cold ? READ_DEPTH : 0),
        .why =
            r->reads.cold
                ? "the files are not in memory, and storage is fastest when many reads run at the same time"
                : "four blocks of elements for each thread, so that the next ones are ready while one is "
                  "computed",
    };
    cw_tuned_add(&r->tuned, &t);
}

/* Returns whether the rows of a block should be of several sources, because the sources of the n positions
 * refs[] alternate. */
static bool carve_joins(const struct cw_runner *r, const struct cw_ref *refs, uint64_t n)
{
    uint64_t looked = CW_MIN(n, JOINT_LOOK), changes = 0;
    for (uint64_t i = 1; r->env.joint && i < looked; i++)
        changes += refs[i].leaf != refs[i - 1].leaf;
    return changes * JOINT_RUN > looked;
}

/* Returns how many rows from position `at` of a piece make block b. They are of one source, unless sources
 * alternate, and of one pass where limits count passes, and take about the time that a block should take. */
static uint64_t carve_rows(const struct cw_runner *r, const struct block *b, const struct piece *p,
                           uint64_t at)
{
    const struct cw_ref *first = &p->plan.refs[at];
    bool uncached = b->exec.cache.use == CW_CACHE_USE_NONE;
    const uint8_t *kept = b->variant == p->variant || uncached ? p->kept : NULL;
    bool hit = kept && kept[at] && !uncached;
    bool joins = carve_joins(r, first, p->plan.n - at);
    uint64_t most = CW_MIN(cw_block_size(r, joins ? 0 : first->leaf, hit), p->plan.n - at), n = 1;
    while (kept && n < most && kept[at + n] == kept[at])
        n++;
    most = kept ? n : most;
    most = r->memory.low_rows ? CW_MIN(most, r->memory.low_rows) : most;
    if (joins || (r->compiled->n_programs == 1 && !r->compiled->n_limits))
        return most;
    n = 1;
    while (n < most && first[n].leaf == first->leaf &&
           (!r->compiled->n_limits || first[n].pass == first->pass))
        n++;
    return n;
}

/* As carve_rows, rounded to whole groups if an operator takes groups of positions together (pack). */
static uint64_t carve_groups(const struct cw_runner *r, const struct block *b, const struct piece *p,
                             uint64_t at)
{
    uint64_t n = carve_rows(r, b, p, at), group = r->compiled->group;
    return group ? CW_MIN(CW_MAX(n / group * group, group), p->plan.n - at) : n;
}

/* Takes a new batch of a counted pipeline. 1: none can be had now. The block that is being carved is already
 * counted in sched.n_blocks. */
static int carve_batch(struct cw_runner *r, struct cw_range *s, struct cw_assembly **ret,
                       struct cw_error *err)
{
    int status = cw_memory_take_assembly(r, s, 0, ret, err);
    if (status != CW_E_BUDGET)
        return status;
    if (r->sched.n_blocks > 1 || r->sched.n_running ||
        cw_memory_may_be_released(r)) /* s may be a later range in this case */
        return 1;
    cw_memory_evict(r); /* no block or batch will give memory back by itself */
    while ((status = cw_memory_take_assembly(r, s, 0, ret, err)) == CW_E_BUDGET && cw_memory_reclaim(r, s))
        ;
    if (status != CW_E_BUDGET || (!r->memory.low_rows && cw_low_memory_begin(r)))
        return status == CW_E_BUDGET ? 1 : status;
    const struct cw_place at = cw_range_place(s, s->entry.position);
    return cw_memory_lacks(
        r, &at, "a batch and the list of the records to read next do not fit in the memory budget together",
        err);
}

/* Gives a block of a counted pipeline its slots, which follow from its position. Where a range begins or ends
 * inside a batch, the range's rows of that batch form a part, in a batch of their own. 1: no batch can be had
 * now. */
static int carve_slots(struct cw_runner *r, struct cw_range *s, struct piece *p, uint64_t *n, struct block *b)
{
    uint64_t size = r->compiled->batch_size, at = p->plan.begin + p->carved,
             end = CW_MIN(at - at % size + size, p->plan.begin + p->plan.n);
    bool first = at % size == 0 || at == s->entry.position;
    b->segments = calloc(1, sizeof(*b->segments));
    if (!b->segments) {
        cw_sched_out_of_memory(r, "slots");
        return 1;
    }
    if (first) {
        struct cw_assembly *a;
        struct cw_error err = {0};
        int status = carve_batch(r, s, &a, &err);
        if (status < 0)
            cw_sched_fail(r, &err);
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

/* Makes b the block of the next n rows of piece p. */
static void carve_fill(const struct cw_runner *r, struct block *b, struct piece *p, size_t n)
{
    struct cw_exec *x = &b->exec;
    x->env = &r->env;
    x->epoch = &b->range->epoch->epoch;
    x->cancelled = cw_range_stopped;
    x->cancel_arg = b->range;
    x->plan = &p->plan;
    x->at = p->carved;
    x->block.n = x->n_refs = n;
    cw_exec_set_program(x);
    b->piece = p;
    b->seq = b->range->next_seq++;
    b->point = b->n_passed = r->compiled->counted ? r->env.n_points : 0;
}

struct block *cw_carve_block(struct cw_runner *r)
{
    /* All blocks in flight may belong to later ranges, and wait for batches that are freed only when the
     * first range advances. So the first range may have one block beyond the limit. */
    bool full = carve_is_full(r), first_has_none = r->ranges && r->ranges->n_blocks == 0;
    if ((full && !first_has_none) || r->sched.starved || r->memory.consumer_short || r->sched.fatal.status ||
        (r->memory.low_rows && cw_low_memory_waits(r)))
        return NULL;
    for (struct cw_range *s = r->ranges; s; s = s->next) {
        struct piece *p = s->first;
        if (s->state != RANGE_OPEN || s->closed)
            continue;
        while (p && p->carved == p->plan.n)
            p = p->next;
        if (!p && s->position == s->end) {
            cw_range_end(s, RANGE_OVER);
            cw_sched_notify(r);
            continue;
        }
        if (!p || !p->planned || ((full || r->memory.low_rows) && s != r->ranges))
            return NULL; /* ranges are carved in order: later ones wait */
        struct block *b = cw_block_new(r);
        if (!b) {
            cw_sched_out_of_memory(r, "a block");
            return NULL;
        }
        r->sched.n_blocks++;
        b->range = s;
        b->exec.arena.exact = r->memory.low_rows > 0;
        cw_cache_stats_choose(r, b, p);
        uint64_t n = carve_groups(r, b, p, p->carved);
        if (r->compiled->counted && carve_slots(r, s, p, &n, b) != 0) {
            cw_block_recycle(r, b);
            return NULL;
        }
        carve_fill(r, b, p, n);
        p->carved += n;
        p->users++;
        s->n_blocks++;
        if (p->carved == p->plan.n && !p->next && s->position == s->end)
            cw_range_end(s, RANGE_OVER);
        return b;
    }
    return NULL;
}
