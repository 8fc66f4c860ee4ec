/* How many rows a block has: as many as take about half a millisecond, while their columns stay in a core's cache; and how many blocks there are. Mutex held, but for
 * cw_rows_new. */
#include "engine/internal.h"

/* A block should take about this long: long against the cost of scheduling it (microseconds), short against a batch. */
#define BLOCK_NS UINT64_C(500000)
/* A block's columns should stay in a core's cache. */
#define BLOCK_BYTES ((uint64_t)256 << 10)
#define MOST_ROWS 4096
/* Rows from the cache are only read, so that a block of them need not fit in a core's cache. */
#define FEW_HITS 8
/* A change by this factor is told. */
#define TOLD_FACTOR 2
/* Enough to keep a thread busy while some blocks wait for their turn. */
#define BLOCKS_PER_THREAD 4

/* Bytes of columns of known size, and of the source, for a row. */
static uint64_t row_bytes(const struct cw_sequence *s, unsigned leaf)
{
    const struct cw_program *g = &s->compiled->programs[leaf];
    uint64_t bytes = s->sources[leaf]->n_records ? s->sources[leaf]->source_bytes / s->sources[leaf]->n_records : 0;
    for (unsigned k = 0; k < g->n_ops; k++)
        for (unsigned o = 0; o < g->ops[k]->n_out; o++)
            if (cw_type_fixed(&g->ops[k]->out[o].type))
                bytes += cw_type_bytes(&g->ops[k]->out[o].type);
    return bytes;
}

int cw_rows_new(struct cw_runner *r, struct cw_error *err)
{
    unsigned n = r->compiled->n_programs;
    uint64_t widest = 1;
    for (unsigned i = 0; i < n; i++)
        widest = CW_MAX(widest, row_bytes(r->sequence, i));
    r->max_rows = CW_MIN(CW_MAX(BLOCK_BYTES / widest, 1), MOST_ROWS);
    r->rows = calloc(2 * n, sizeof(*r->rows));
    return r->rows ? 0 : cw_error_nomem(err, 0, "the engine");
}

static uint64_t by_time(uint64_t ns) { return ns ? CW_MAX(BLOCK_NS / ns, 1) : 1; }
static uint64_t by_cache(const struct cw_runner *r, bool hit) { return hit ? CW_MAX(r->max_rows, FEW_HITS) : r->max_rows; }

uint64_t cw_rows_most(const struct cw_runner *r, unsigned leaf, bool hit) { return CW_MIN(by_time(r->rows[2 * leaf + hit].ns), by_cache(r, hit)); }

static void tell(struct cw_runner *r, unsigned leaf, bool hit)
{
    struct row_pace *rows = &r->rows[2 * leaf + hit];
    uint64_t now = cw_rows_most(r, leaf, hit), time = by_time(rows->ns), cache = by_cache(r, hit);
    if (now < TOLD_FACTOR * rows->told && now * TOLD_FACTOR > rows->told)
        return;
    rows->told = now;
    const struct cw_tuned t = {
        .what = hit ? "block_rows_cached" : "block_rows",
        .of = r->compiled->programs[leaf].ops[0]->desc->name,
        .seen = {{"row_s", (double)rows->ns * 1e-9}, {"row_bytes", (double)row_bytes(r->sequence, leaf)}},
        .others = {{"time", (double)time}, {"core_cache", (double)cache}},
        .chosen = (double)now,
        .why = time <= cache ? "so many take about half a millisecond: long against scheduling, short against a batch" : "the columns of more would not stay in a core's cache",
    };
    cw_tuned_add(&r->tuned, &t);
}

void cw_rows_timed(struct cw_runner *r, unsigned leaf, bool hit, uint64_t ns)
{
    uint64_t *mean = &r->rows[2 * leaf + hit].ns;
    *mean = CW_MAX(*mean ? (*mean * 7 + ns) / 8 : ns, (uint64_t)1);
    tell(r, leaf, hit);
}

unsigned cw_blocks_most(const struct cw_runner *r) { return r->options.threads * BLOCKS_PER_THREAD + (r->cold ? READ_DEPTH : 0); }

void cw_blocks_tell(struct cw_runner *r)
{
    unsigned computing = r->options.threads * BLOCKS_PER_THREAD;
    const struct cw_tuned t = {
        .what = "blocks_in_flight",
        .seen = {{"threads", r->options.threads}, {"reads_wait", r->cold}},
        .others = {{"computing", computing}, {"computing_and_reading", computing + READ_DEPTH}},
        .chosen = cw_blocks_most(r),
        .why = r->cold ? "files are not in memory, and storage has a queue" : "some wait for their turn while each thread has one",
    };
    cw_tuned_add(&r->tuned, &t);
}
