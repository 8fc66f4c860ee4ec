/* range: computed integers. Its state is two numbers. */
#include <string.h>

#include "base/hash.h"
#include "ops/source/keyed_source.h"

/* Most integers of a range: the sum of the bytes (8 per record) of many sources must fit 64 bits. */
#define MAX_COUNT ((uint64_t)1 << 56)

struct range {
    struct cw_keyed_source base;
    uint64_t start, step; /* unsigned, so that sums wrap around without undefined behaviour */
};

/* Returns the length of Python's range(start, stop, step). */
static uint64_t range_count(int64_t start, int64_t stop, int64_t step)
{
    if (step > 0)
        return stop <= start ? 0 : ((uint64_t)stop - (uint64_t)start - 1) / (uint64_t)step + 1;
    return stop >= start ? 0 : ((uint64_t)start - (uint64_t)stop - 1) / (0 - (uint64_t)step) + 1;
}

static int range_bind(struct cw_bind *b CW_UNUSED, struct cw_op *op, struct cw_error *err)
{
    int64_t start = cw_attr_int(op, "start"), stop = cw_attr_int(op, "stop"), step = cw_attr_int(op, "step");
    if (step == 0)
        return cw_attr_error(op, "step", err, "an integer other than 0");
    if (range_count(start, stop, step) > MAX_COUNT)
        return cw_attr_error(op, "stop", err, "a range of at most 2^56 integers");
    return 0;
}

static int range_produce(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                         struct cw_error *err)
{
    const struct range *g = (const struct range *)s;
    const struct cw_port *port = &op->out[0];
    if (!port->live)
        return 0;
    int r = cw_block_dense(b, port->value, &port->type, err);
    if (r < 0)
        return r;
    int64_t *out = (int64_t *)(void *)b->columns[port->value].data; /* stride is the type's size, 8 */
    const uint64_t *rows = b->rows, start = g->start, step = g->step;
    for (size_t i = 0; i < b->n; i++)
        out[i] = (int64_t)(start + rows[i] * step);
    return 0;
}

static const struct cw_source_ops range_ops = {
    .free = cw_keyed_source_free, .ids = cw_keyed_source_ids, .produce = range_produce};

static int range_open(const struct cw_op *op, const struct cw_source_env *env CW_UNUSED,
                      struct cw_source **ret, struct cw_error *err)
{
    int64_t start = cw_attr_int(op, "start"), stop = cw_attr_int(op, "stop"), step = cw_attr_int(op, "step");
    struct range *g = calloc(1, sizeof(*g));
    if (!g)
        return cw_error_nomem(err, sizeof(*g), "a source");
    struct cw_key k = {0};
    cw_key_text(&k, "range");
    cw_key_u64(&k, (uint64_t)start);
    cw_key_u64(&k, (uint64_t)step);
    g->start = (uint64_t)start;
    g->step = (uint64_t)step;
    uint64_t n = range_count(start, stop, step);
    cw_keyed_source_init(&g->base, &range_ops, cw_key_hash(&k), n, 8 * n);
    *ret = &g->base.base;
    return 0;
}

static const struct cw_attr_def attrs[] = {
    {.name = "stop", .kind = CW_ATTR_INT, .doc = "end of the range, which is not part of it"},
    {.name = "start", .kind = CW_ATTR_INT, .def = "0", .doc = "the first integer"},
    {.name = "step",
     .kind = CW_ATTR_INT,
     .def = "1",
     .doc = "difference between an integer and the one "
            "before it; not 0"},
    {0},
};

static const struct cw_output_def outputs[] = {{"value", CW_INT64}, {0}};

const struct cw_op_desc cw_op_range = {
    .name = "range",
    .summary = "integers from start to stop, in steps",
    .doc = "Gives `value` (int64): start, start + step, ..., as Python's range(start, stop, step).",
    .kind = CW_OP_SOURCE,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .outputs = outputs,
    .bind = range_bind,
    .open = range_open,
};
