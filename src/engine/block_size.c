/* Chooses how many rows a block has: a block should take about half a millisecond (8 ms with Python
 * functions), and its columns should fit in a core's cache. The runner's mutex is held, except in
 * cw_block_sizes_new. */
#include "engine/block_size.h"

#include <string.h>

#include "base/thread.h"
#include "engine/internal.h"

/* The time that a block should take: long compared with the cost of scheduling it (microseconds), short
 * compared with a batch. */
#define BLOCK_NS UINT64_C(500000)
/* The time for blocks that call Python functions: long compared with waking a host process and getting its
 * answer (tenths of a millisecond on some machines). */
#define CALL_NS UINT64_C(8000000)
/* A block's columns should stay in a core's cache. The columns of a call may be larger: they leave the cache
 * on the way to a host process anyway. */
#define BLOCK_BYTES ((uint64_t)256 << 10)
#define CALL_BYTES ((uint64_t)4 << 20)
#define ROWS_MOST 4096
/* Rows from the element cache are only copied, so a block of them need not fit in a core's cache. */
#define HITS_LEAST 8
/* A change of the number of rows by this factor is recorded. */
#define RECORD_FACTOR 2

/* Rows that are computed at the same time: at first, and the part of the budget that they may take. */
#define TOGETHER_FIRST 8u
#define TOGETHER_SHARE(memory) ((memory) / 16)
/* The number of such rows is chosen anew after this many calls, which took this long. */
#define TOGETHER_CALLS 4
#define TOGETHER_NS UINT64_C(50000000)

/* Returns the bytes of a row: of its columns of fixed size, and of its record. */
static uint64_t block_row_bytes(const struct cw_sequence *s, unsigned leaf)
{
    const struct cw_program *g = &s->compiled->programs[leaf];
    uint64_t bytes = s->sources[leaf]->n_records
                         ? s->sources[leaf]->source_bytes / s->sources[leaf]->n_records
                         : 0;
    for (unsigned k = 0; k < g->n_ops; k++)
        for (unsigned o = 0; o < g->ops[k]->n_out; o++)
            if (cw_type_fixed(&g->ops[k]->out[o].type))
                bytes += cw_type_bytes(&g->ops[k]->out[o].type);
    return bytes;
}

static bool program_calls_functions(const struct cw_program *g)
{
    bool any = false;
    for (unsigned k = 0; k < g->n_ops; k++)
        any |= g->ops[k]->desc->function;
    return any;
}

/* Returns how many rows the functions of a program compute at the same time, at most; 0: none does. */
static unsigned program_together(const struct cw_program *g)
{
    unsigned most = 0;
    for (unsigned k = 0; k < g->n_ops; k++)
        most = CW_MAX(most, g->ops[k]->together);
    return most;
}

int cw_block_sizes_new(struct cw_runner *r, struct cw_error *err)
{
    unsigned n = r->compiled->n_programs;
    r->block_sizes = calloc(2 * n, sizeof(*r->block_sizes));
    if (!r->block_sizes)
        return cw_error_nomem(err, 0, "the engine");
    for (unsigned i = 0; i < n; i++) {
        bool calls = program_calls_functions(&r->compiled->programs[i]);
        unsigned together = program_together(&r->compiled->programs[i]);
        uint64_t bytes = together ? TOGETHER_SHARE(r->options.memory) / r->options.threads
                         : calls  ? CALL_BYTES
                                  : BLOCK_BYTES;
        uint64_t most = CW_MIN(CW_MAX(bytes / CW_MAX(block_row_bytes(r->sequence, i), 1), 1),
                               together ? together : ROWS_MOST);
        r->block_sizes[2 * i] = (struct block_size){.aim_ns = calls ? CALL_NS : BLOCK_NS, .most = most};
        if (together)
            r->block_sizes[2 * i].together = cw_concurrency_begin(
                (unsigned)CW_MIN(most, TOGETHER_FIRST), "few elements, until the time of a call is known");
        r->block_sizes[2 * i + 1] = (struct block_size){.aim_ns = BLOCK_NS, .most = CW_MAX(most, HITS_LEAST)};
        if (r->compiled->programs[0].n_branch) /* joint blocks count as blocks of the first program */
            r->block_sizes[0].most = CW_MIN(r->block_sizes[0].most, most);
    }
    return 0;
}

static uint64_t block_size_by_time(const struct block_size *p)
{
    return p->ns ? CW_MAX(p->aim_ns / p->ns, 1) : 1;
}

uint64_t cw_block_size(const struct cw_runner *r, unsigned leaf, bool hit)
{
    const struct block_size *p = &r->block_sizes[2 * leaf + hit];
    return CW_MIN(p->together.n ? p->together.n : block_size_by_time(p), p->most);
}

/* Adds a tuning record, if the number of rows changed by RECORD_FACTOR or more. */
static void block_size_record(struct cw_runner *r, unsigned leaf, bool hit)
{
    struct block_size *rows = &r->block_sizes[2 * leaf + hit];
    uint64_t now = cw_block_size(r, leaf, hit), time = block_size_by_time(rows);
    if (now < RECORD_FACTOR * rows->recorded && now * RECORD_FACTOR > rows->recorded)
        return;
    rows->recorded = now;
    const struct cw_tuned t = {
        .what = hit ? "block_rows_cached" : "block_rows",
        .of = r->compiled->programs[leaf].ops[0]->desc->name,
        .seen = {{"row_s", (double)rows->ns * 1e-9},
                 {"row_bytes", (double)block_row_bytes(r->sequence, leaf)}},
        .others = {{"time", (double)time},
                   {rows->together.n ? "memory" : "core_cache", (double)rows->most},
                   {rows->together.n ? "waiting" : NULL, rows->together.n}},
        .chosen = (double)now,
        .why = rows->together.n ? rows->together.why
               : time > rows->most
                   ? "at most 4096 elements are computed together, and at most 256 KiB of data "
                     "(4 MiB with Python functions)"
               : rows->aim_ns == CALL_NS
                   ? "computing this number of elements takes about 8 ms: long compared with the overhead of "
                     "calling Python, short compared with a batch"
                   : "computing this number of elements takes about 0.5 ms: long compared with the overhead "
                     "of scheduling, short compared with a batch",
    };
    cw_tuned_add(&r->tuned, &t);
}

void cw_block_size_timed(struct cw_runner *r, unsigned leaf, bool hit, uint64_t ns)
{
    uint64_t *mean = &r->block_sizes[2 * leaf + hit].ns;
    *mean = CW_MAX(*mean ? (*mean * 7 + ns) / 8 : ns, (uint64_t)1);
    block_size_record(r, leaf, hit);
}

void cw_block_size_called(struct cw_runner *r, struct compute_thread *t, unsigned leaf, uint64_t n)
{
    struct block_size *p = &r->block_sizes[2 * leaf];
    struct cw_host_calls all = cw_host_calls();
    uint64_t ns = all.wall_ns[1] - t->calls.wall_ns[1], cpu_ns = all.cpu_ns[1] - t->calls.cpu_ns[1];
    t->calls.wall_ns[1] = all.wall_ns[1];
    t->calls.cpu_ns[1] = all.cpu_ns[1];
    if (!p->together.n || ns == 0)
        return;
    p->calls.n++;
    p->calls.rows += n;
    p->calls.wall_ns += ns;
    p->calls.cpu_ns += cpu_ns;
    if (p->calls.n < TOGETHER_CALLS || p->calls.wall_ns < TOGETHER_NS)
        return;
    double call_s = (double)p->calls.wall_ns * 1e-9, cpu_s = (double)p->calls.cpu_ns * 1e-9;
    const struct cw_calls_seen seen = {.seconds = call_s,
                                       .elements = (double)p->calls.rows,
                                       .call_s = call_s,
                                       .call_cpu_s = cpu_s,
                                       .cpu_share = cpu_s / call_s,
                                       .short_of_memory = r->sched.starved || r->memory.low_rows};
    if (cw_concurrency_step(&p->together, &seen, (unsigned)p->most))
        block_size_record(r, leaf, false);
    memset(&p->calls, 0, sizeof(p->calls));
}

uint64_t cw_block_size_most(const struct cw_runner *r)
{
    uint64_t most = 1;
    for (unsigned i = 0; i < r->compiled->n_programs; i++)
        most = CW_MAX(most, r->block_sizes[2 * i].most);
    return most;
}

double cw_runner_row_s(struct cw_runner *r)
{
    double ns = 0, n = 0;
    CW_GUARD(&r->sched.mutex);
    for (unsigned i = 0; i < r->compiled->n_programs; i++) {
        double records = (double)r->sequence->sources[i]->n_records;
        ns += (double)r->block_sizes[2 * i].ns * records;
        n += r->block_sizes[2 * i].ns ? records : 0;
    }
    return n > 0 ? ns / n * 1e-9 : 0;
}
