/* How many rows a block has: as many as take about half a millisecond, while their columns stay in a core's
 * cache; and how many blocks there are. Mutex held, but for cw_rows_new. */
#include "engine/internal.h"

#include "base/thread.h"

/* A block should take about this long: long against the cost of scheduling it (microseconds), short against a
 * batch. */
#define BLOCK_NS UINT64_C(500000)
/* Where functions are called it has to be long against waking a host process and its answer (tenths of a
 * millisecond on some machines). */
#define CALL_NS UINT64_C(8000000)
/* A block's columns should stay in a core's cache; what goes to a host process and back leaves it anyway. */
#define BLOCK_BYTES ((uint64_t)256 << 10)
#define CALL_BYTES ((uint64_t)4 << 20)
#define MOST_ROWS 4096
/* Rows from the cache are only read, so that a block of them need not fit in a core's cache. */
#define FEW_HITS 8
/* A change by this factor is told. */
#define TOLD_FACTOR 2
/* Enough to keep a thread busy while some blocks wait for their turn. */
#define BLOCKS_PER_THREAD 4
/* The part of the budget that bytes of sources may take that are being read, or wait for it. */
#define READ_SHARE(memory) ((memory) / 8)

/* Bytes of columns of known size, and of the source, for a row. */
static uint64_t row_bytes(const struct cw_sequence *s, unsigned leaf)
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

static bool calls_functions(const struct cw_program *g)
{
    bool any = false;
    for (unsigned k = 0; k < g->n_ops; k++)
        any |= g->ops[k]->desc->function;
    return any;
}

int cw_rows_new(struct cw_runner *r, struct cw_error *err)
{
    unsigned n = r->compiled->n_programs;
    r->rows = calloc(2 * n, sizeof(*r->rows));
    if (!r->rows)
        return cw_error_nomem(err, 0, "the engine");
    for (unsigned i = 0; i < n; i++) {
        bool calls = calls_functions(&r->compiled->programs[i]);
        uint64_t most = CW_MIN(
            CW_MAX((calls ? CALL_BYTES : BLOCK_BYTES) / CW_MAX(row_bytes(r->sequence, i), 1), 1), MOST_ROWS);
        r->rows[2 * i] = (struct row_pace){.aim_ns = calls ? CALL_NS : BLOCK_NS, .most = most};
        r->rows[2 * i + 1] = (struct row_pace){.aim_ns = BLOCK_NS, .most = CW_MAX(most, FEW_HITS)};
    }
    return 0;
}

static uint64_t by_time(const struct row_pace *p)
{
    return p->ns ? CW_MAX(p->aim_ns / p->ns, 1) : 1;
}

uint64_t cw_rows_most(const struct cw_runner *r, unsigned leaf, bool hit)
{
    const struct row_pace *p = &r->rows[2 * leaf + hit];
    return CW_MIN(by_time(p), p->most);
}

static void tell(struct cw_runner *r, unsigned leaf, bool hit)
{
    struct row_pace *rows = &r->rows[2 * leaf + hit];
    uint64_t now = cw_rows_most(r, leaf, hit), time = by_time(rows);
    if (now < TOLD_FACTOR * rows->told && now * TOLD_FACTOR > rows->told)
        return;
    rows->told = now;
    const struct cw_tuned t = {
        .what = hit ? "block_rows_cached" : "block_rows",
        .of = r->compiled->programs[leaf].ops[0]->desc->name,
        .seen = {{"row_s", (double)rows->ns * 1e-9}, {"row_bytes", (double)row_bytes(r->sequence, leaf)}},
        .others = {{"time", (double)time}, {"core_cache", (double)rows->most}},
        .chosen = (double)now,
        .why =
            time > rows->most ? "the columns of more would not stay in a core's cache"
            : rows->aim_ns == CALL_NS
                ? "so many take some milliseconds: long against waking a host process, short against a batch"
                : "so many take about half a millisecond: long against scheduling, short against a batch",
    };
    cw_tuned_add(&r->tuned, &t);
}

void cw_rows_timed(struct cw_runner *r, unsigned leaf, bool hit, uint64_t ns)
{
    uint64_t *mean = &r->rows[2 * leaf + hit].ns;
    *mean = CW_MAX(*mean ? (*mean * 7 + ns) / 8 : ns, (uint64_t)1);
    tell(r, leaf, hit);
}

static unsigned blocks_computing(const struct cw_runner *r)
{
    return r->options.threads * BLOCKS_PER_THREAD;
}

/* Bytes being read are bounded: storage's queue stays full, and no more memory waits for compute threads. */
bool cw_blocks_full(const struct cw_runner *r)
{
    if (r->n_blocks < blocks_computing(r))
        return false;
    return !r->n_reading || r->n_blocks >= blocks_computing(r) + READ_DEPTH ||
           cw_reads_waiting(r) >= READ_DEPTH || r->reading_bytes >= READ_SHARE(r->budget.limit);
}

void cw_blocks_tell(struct cw_runner *r)
{
    unsigned computing = blocks_computing(r);
    const struct cw_tuned t = {
        .what = "blocks_in_flight",
        .seen = {{"threads", r->options.threads}, {"reads_wait", r->cold}},
        .others = {{"computing", computing}, {"computing_and_reading", computing + READ_DEPTH}},
        .chosen = computing + (r->cold ? READ_DEPTH : 0),
        .why = r->cold ? "files are not in memory, and storage reads quickest with many reads in flight"
                       : "some wait for their turn while each thread has one",
    };
    cw_tuned_add(&r->tuned, &t);
}

double cw_runner_row_s(struct cw_runner *r)
{
    double ns = 0, n = 0;
    CW_GUARD(&r->mutex);
    for (unsigned i = 0; i < r->compiled->n_programs; i++) {
        double records = (double)r->sequence->sources[i]->n_records;
        ns += (double)r->rows[2 * i].ns * records;
        n += r->rows[2 * i].ns ? records : 0;
    }
    return n > 0 ? ns / n * 1e-9 : 0;
}
