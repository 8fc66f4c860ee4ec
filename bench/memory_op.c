/*
 * A plug-in for the hand-over benchmarks: `memory` gives arrays of bytes, which it rewrites with one memset
 * each, or leaves as they are (then what is in them is whatever was there, against the rules of plug-ins: a
 * batch costs nothing but its way).
 */
#include <cachew/plugin.h>
#include <stdlib.h>
#include <string.h>

struct memory {
    int64_t bytes;
    int rewrite;
};

static int memory_bind(struct cachew_bind *b, void **state)
{
    struct memory *m = malloc(sizeof(*m));
    if (!m)
        return CACHEW_E_MEMORY;
    *state = m;
    m->bytes = cachew_attr_int(b, "bytes");
    m->rewrite = cachew_attr_bool(b, "rewrite");
    cachew_bind_read(b, "value", NULL); /* of `range` */
    return cachew_bind_write(b, "value",
                             &(struct cachew_type){.dtype = CACHEW_UINT8, .ndim = 1, .dims = {m->bytes}});
}

static int memory_run(const void *state, struct cachew_row *row)
{
    const struct memory *m = state;
    int64_t value;
    memcpy(&value, row->in[0].data, sizeof(value));
    void *data = cachew_row_output(row, 0, &m->bytes, 1);
    if (!data)
        return CACHEW_E_MEMORY;
    if (m->rewrite)
        memset(data, (int)(value % 251), (size_t)m->bytes);
    return CACHEW_OK;
}

static const struct cachew_attr attrs[] = {
    {.name = "bytes", .kind = CACHEW_ATTR_INT, .min = 1, .max = 0x1p40, .doc = "of an array"},
    {.name = "rewrite", .kind = CACHEW_ATTR_BOOL, .def = "false", .doc = "every byte of it"},
    {0},
};
static const struct cachew_operator memory_op = {
    .name = "memory",
    .summary = "arrays of bytes in the place of `value`",
    .kind = CACHEW_MAP,
    .attrs = attrs,
    .bind = memory_bind,
    .run = memory_run,
    .free_state = free,
};
static const struct cachew_operator *const operators[] = {&memory_op, NULL};

CACHEW_API const struct cachew_plugin cachew_plugin = {
    .abi = CACHEW_PLUGIN_ABI, .version = "1", .operators = operators};
