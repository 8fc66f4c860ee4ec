/* Reads the bytes of an execution's rows; neighbouring records take one read. */
#include "exec/cached.h"
#include "exec/exec.h"

#include "base/cost_clock.h"
#include "storage/file.h"

/* Returns whether the bytes of a source's records are loaded with the plan. */
static bool source_loads(const struct cw_source *source)
{
    return source->ops->load || source->ops->pull;
}

/* Plans the reads that the rows need, and allocates memory for their bytes. */
static int exec_plan_reads(struct cw_exec *x, struct cw_error *err)
{
    size_t n = x->block.n, n_reads = 0, bytes = 0;
    struct cw_tensor *raw = cw_arena_alloc(&x->arena, n * sizeof(*raw), err);
    struct cw_exec_read *reads = cw_arena_alloc(&x->arena, n * sizeof(*reads), err);
    if (!raw || !reads)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        const struct cw_source *source = cw_exec_source(x, i);
        struct cw_extent e;
        raw[i] = source_loads(source) ? x->plan->raw[x->at + i] : (struct cw_tensor){0};
        if (source_loads(source) || !source->ops->locate)
            continue;
        int status = source->ops->locate(source, x->plan->refs[x->at + i].row, &e, err);
        if (status < 0)
            return status;
        struct cw_exec_read *last = n_reads ? &reads[n_reads - 1] : NULL;
        if (last && last->first + last->n == i && last->extent.file == e.file &&
            last->extent.offset + last->extent.length == e.offset) {
            last->extent.length += e.length;
            last->n++;
        } else {
            reads[n_reads++] = (struct cw_exec_read){.extent = e, .first = i, .n = 1};
        }
        raw[i] = (struct cw_tensor){.size = e.length};
    }
    for (size_t k = 0; k < n_reads; k++) {
        uint8_t *data = reads[k].data = cw_arena_alloc(&x->arena, reads[k].extent.length, err);
        if (!data)
            return err->status;
        for (size_t i = reads[k].first; i < reads[k].first + reads[k].n; i++) {
            raw[i].data = data;
            data += raw[i].size;
        }
        bytes += reads[k].extent.length;
    }
    x->reads.raw = raw;
    x->reads.list = reads;
    x->reads.n = n_reads;
    x->reads.bytes = bytes;
    atomic_store(&x->reads.next, 0);
    return 0;
}

int cw_exec_read_next(struct cw_exec *x, struct cw_counts *t, bool nowait, struct cw_error *err)
{
    size_t k = atomic_fetch_add(&x->reads.next, 1);
    if (k >= x->reads.n)
        return 2;
    const struct cw_exec_read *read = &x->reads.list[k];
    int status = cw_extent_read(&read->extent, read->data, nowait, err);
    if (status > 0)
        atomic_store(&x->reads.next, k);
    if (status == 0) {
        t->n_reads++;
        t->read_bytes += read->extent.length;
    }
    return status;
}

static int exec_read_source(struct cw_exec *x, struct cw_counts *t, bool nowait, struct cw_error *err)
{
    uint64_t start = cw_cost_now_ns();
    int status = 0;
    if (x->reads.done)
        return 0;
    if (!x->joint) {
        const struct cw_source *source = x->env->sequence->sources[x->program->leaf];
        bool loaded = source_loads(source);
        if (loaded)
            x->block.raw = x->plan->raw + x->at;
        x->reads.done = loaded || !source->ops->locate;
    }
    if (x->reads.done)
        return 0;
    if (!x->reads.list)
        status = exec_plan_reads(x, err);
    while (status == 0)
        status = cw_exec_read_next(x, t, nowait, err);
    uint64_t read_ns = cw_now_ns();
    for (size_t k = 0; k < x->reads.n && status == 2; k++)
        status = cw_file_check(x->reads.list[k].extent.file, read_ns, nowait, err) ?: 2;
    if (status < 2)
        return status;
    x->block.raw = x->reads.raw;
    x->reads.done = true;
    t->read_ns += cw_cost_now_ns() - start;
    if (t->ops) /* a read thread's time is counted elsewhere */
        x->prefix_ns += cw_cost_now_ns() - start;
    return 0;
}

int cw_exec_read(struct cw_exec *x, struct cw_counts *t, bool nowait, struct cw_error *err)
{
    if (!x->reads.done && !x->reads.list && x->cache.use != CW_CACHE_USE_NONE && x->variant->cached) {
        uint64_t start = cw_cost_now_ns();
        int fetched = cw_cached_fetch(x, err);
        t->fetch_ns += cw_cost_now_ns() - start;
        if (fetched != 0)
            return fetched;
        x->reads.done = x->cache.hit;
    }
    int status = exec_read_source(x, t, nowait, err);
    if (status < 0 && status != CW_E_BUDGET)
        cw_error_op(err, x->program->ops[0]->desc->name);
    return status;
}
