/* window: each window of elements is one element. It is a source, made of the operators before it: `load`
 * finds and reads the records of the windows that are planned; `produce` runs the input's source on them,
 * which gives a row for each element of a window. The operators before `window` run on these rows, and its
 * `run` joins the rows of each window to one. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "ops/sequence/gather.h"
#include "ops/source/keyed_source.h"
#include "pipeline/roles.h"

struct window_shape {
    uint64_t size, shift, stride;
    bool whole; /* windows that reach beyond the last element are left out */
};

struct window {
    struct cw_keyed_source base;
    struct cw_sequence *input; /* source 0 and child 0 of the root are the input's */
    const struct cw_program *program;
    struct window_shape shape;
};

static struct window_shape window_shape(const json_t *attrs)
{
    uint64_t size = (uint64_t)json_integer_value(json_object_get(attrs, "size")),
             shift = (uint64_t)json_integer_value(json_object_get(attrs, "shift"));
    return (struct window_shape){.size = size,
                                 .shift = shift ? shift : size,
                                 .stride = (uint64_t)json_integer_value(json_object_get(attrs, "stride")),
                                 .whole = json_is_true(json_object_get(attrs, "drop_remainder"))};
}

/* Returns the number of windows of n elements. */
static uint64_t window_count(const struct window_shape *s, uint64_t n)
{
    uint64_t span = s->whole ? (s->size - 1) * s->stride + 1 : 1;
    return n >= CW_ENDLESS ? CW_ENDLESS : n < span ? 0 : (n - span) / s->shift + 1;
}

/* Returns the number of elements of a window that begins at a position. */
static uint64_t window_elements(const struct window *w, uint64_t begin)
{
    uint64_t n = w->input->root->children[0]->n;
    return CW_MIN(w->shape.size, (n - begin + w->shape.stride - 1) / w->shape.stride);
}

/* ---- the source ---- */

static int window_load_elements(const struct window *w, const struct cw_load *l, size_t n,
                                struct cw_gathered *to, struct cw_error *err)
{
    uint64_t *rows = cw_arena_alloc(l->arena, n * sizeof(*rows), err);
    uint32_t *passes = cw_arena_alloc(l->arena, n * sizeof(*passes), err);
    const struct cw_load own = {.epoch = l->epoch, .rows = rows, .passes = passes, .n = n, .arena = l->arena};
    struct cw_epoch e;
    if (!rows || !passes)
        return err->status;
    for (size_t i = 0, at = 0; i < l->n; i++) {
        uint64_t begin = l->rows[i] * w->shape.shift;
        for (uint64_t k = 0; k < window_elements(w, begin); k++, at++) {
            rows[at] = begin + k * w->shape.stride;
            passes[at] = l->passes[i];
        }
    }
    int r = cw_epoch_init(&e, w->input, l->epoch->seed, l->epoch->epoch, l->arena->budget, err);
    if (r < 0)
        return r;
    e.stopped = l->epoch->stopped;
    e.stop_arg = l->epoch->stop_arg;
    r = cw_gather_load(&e, 0, &own, to, 1, err);
    cw_epoch_deinit(&e);
    return r;
}

static int window_load(const struct cw_source *s, const struct cw_load *l, struct cw_tensor *raw,
                       struct cw_error *err)
{
    const struct window *w = (const struct window *)s;
    struct cw_error local = {0};
    size_t n = 0;
    err = err ? err : &local;
    for (size_t i = 0; i < l->n; i++)
        n += window_elements(w, l->rows[i] * w->shape.shift);
    struct cw_gathered *to = cw_arena_alloc(l->arena, n * sizeof(*to), err);
    int r = to ? window_load_elements(w, l, n, to, err) : err->status;
    for (size_t i = 0, at = 0; i < l->n && r >= 0; i++) {
        size_t elements = window_elements(w, l->rows[i] * w->shape.shift);
        raw[i] = (struct cw_tensor){.data = to + at, .size = elements * sizeof(*to)};
        at += elements;
    }
    return r;
}

/* Makes *ret a block with a row for each element of the windows in b, and e the expansion to these rows. */
static int window_rows(const struct cw_block *b, struct cw_block *ret, struct cw_expansion *e,
                       struct cw_error *err)
{
    size_t n = 0;
    *ret = *b;
    for (size_t i = 0; i < b->n; i++)
        n += b->raw[i].size / sizeof(struct cw_gathered);
    uint64_t *rows = cw_block_alloc(ret, n * sizeof(*rows), err);
    struct cw_tensor *raw = cw_block_alloc(ret, n * sizeof(*raw), err);
    uint32_t *origin = cw_block_alloc(ret, n * sizeof(*origin), err);
    ret->status = cw_block_alloc(ret, n, err);
    ret->columns = cw_block_alloc(ret, b->n_values * sizeof(*ret->columns), err);
    if (!rows || !raw || !origin || !ret->status || !ret->columns)
        return err->status;
    memset(ret->status, 0, n);
    memset(ret->columns, 0, b->n_values * sizeof(*ret->columns));
    for (size_t i = 0, at = 0; i < b->n; i++) {
        const struct cw_gathered *from = b->raw[i].data;
        for (size_t k = 0; k < b->raw[i].size / sizeof(*from); k++, at++) {
            rows[at] = from[k].row;
            raw[at] = cw_gathered_raw(&from[k]);
            origin[at] = (uint32_t)i;
        }
    }
    ret->n = n;
    ret->rows = rows;
    ret->raw = raw;
    ret->eids = NULL;
    ret->slots = NULL;
    *e = (struct cw_expansion){.n = n, .origin = origin, .status = ret->status, .columns = ret->columns};
    return 0;
}

static int window_produce(const struct cw_source *s, const struct cw_op *op CW_UNUSED, struct cw_block *b,
                          struct cw_error *err)
{
    const struct window *w = (const struct window *)s;
    const struct cw_source *input = w->input->sources[0];
    struct cw_expansion *e = cw_block_alloc(b, sizeof(*e), err);
    struct cw_block in;
    int r = e ? window_rows(b, &in, e, err) : err->status;
    if (r >= 0)
        r = input->ops->produce(input, cw_program_source(w->program, 0), &in, err);
    if (r < 0)
        return r;
    b->faults = in.faults;
    b->expansion = e;
    return 0;
}

static void window_free(struct cw_source *s)
{
    struct window *w = (struct window *)s;
    cw_sequence_free(w->input);
    free(w);
}

static void window_trim(struct cw_source *s, struct cw_budget *budget)
{
    cw_sequence_trim(((struct window *)s)->input, budget);
}

static const struct cw_source_ops window_ops = {.free = window_free,
                                                .ids = cw_keyed_source_ids,
                                                .load = window_load,
                                                .trim = window_trim,
                                                .produce = window_produce};

static int window_build(struct cw_seq_build *b, const struct cw_node *node, bool batched CW_UNUSED,
                        struct cw_seq **at)
{
    struct window *w = calloc(1, sizeof(*w));
    if (!w)
        return cw_error_nomem(b->err, sizeof(*w), "a source");
    int r = cw_seq_open_chains(b, b->before, 1, &w->input);
    if (r < 0) {
        free(w);
        return r;
    }
    const struct cw_seq *input = w->input->root->children[0];
    const struct cw_source *source = w->input->sources[0];
    w->shape = window_shape(node->attrs);
    uint64_t n = window_count(&w->shape, input->n), records = CW_MAX(source->n_records, 1),
             bytes = w->shape.size * ((source->source_bytes + records - 1) / records);
    struct cw_key key = {0}, snapshot = {0};
    cw_key_text(&key, b->sequence->compiled->salts[node->position]);
    cw_keyed_source_init(&w->base, &window_ops, cw_key_hash(&key), n, 0);
    if (__builtin_mul_overflow(bytes, n, &w->base.base.source_bytes))
        w->base.base.source_bytes = UINT64_MAX;
    cw_key_u64(&snapshot, w->base.base.snapshot);
    cw_key_u64(&snapshot, w->input->snapshot);
    w->base.base.snapshot = cw_key_hash(&snapshot);
    w->base.base.random_access = source->random_access;
    w->base.base.loaded_bytes = w->shape.size * sizeof(struct cw_gathered);
    w->program = cw_seq_program(b);
    *at = cw_seq_new_leaf(b, &w->base.base);
    if (!*at)
        return CW_E_MEMORY;
    (*at)->joins = true;
    (*at)->passes = input->passes;
    return 0;
}

static const struct cw_index_map map = {.gathers = true, .build = window_build};

/* ---- the operator that joins rows ---- */

/* A component, by port. */
struct window_component {
    bool covered; /* it gets a leading dimension */
    char name[80];
};

/* Whether a component gets a leading dimension. */
static bool window_covers(const struct cw_op *op, const char *component)
{
    size_t n = cw_attr_len(op, "components"), i = 0;
    while (i < n && strcmp(cw_attr_string_at(op, "components", i), component) != 0)
        i++;
    return n == 0 || i < n;
}

static int window_bind_component(struct cw_bind *b, struct cw_op *op, size_t i, struct window_component *ret,
                                 struct cw_error *err)
{
    char name[256];
    struct cw_type type;
    snprintf(name, sizeof(name), "%s", cw_bind_name(b, i, &type));
    snprintf(ret->name, sizeof(ret->name), "%.79s", name);
    int r = cw_bind_read(b, name, &type, err);
    if (r >= 0 && (ret->covered = window_covers(op, name))) {
        if (type.dtype == CW_BYTES || type.ndim == CW_MAX_NDIM)
            return cw_attr_error(op, "components", err,
                                 "components that can get one more dimension; \"%.60s\" %s", name,
                                 type.dtype == CW_BYTES ? "has dtype bytes" : "has 6 dimensions");
        memmove(type.dims + 1, type.dims, (size_t)CW_MAX(type.ndim, 0) * sizeof(type.dims[0]));
        type.dims[0] = cw_attr_bool(op, "drop_remainder") ? cw_attr_int(op, "size") : CW_VARIES;
        type.ndim += type.ndim >= 0;
    }
    if (r >= 0)
        r = cw_bind_write(b, name, &type, err);
    return CW_MIN(r, 0);
}

static int window_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    size_t n = cw_bind_count(b);
    int r = 0;
    for (size_t i = 0; i < cw_attr_len(op, "components") && r >= 0; i++)
        r = cw_bind_read(b, cw_attr_string_at(op, "components", i), NULL, err);
    op->n_in = 0; /* input port k is component k in the order of names */
    struct window_component *components = op->state = calloc(n + 1, sizeof(*components));
    if (!components)
        return cw_error_nomem(err, n, "window");
    for (size_t i = 0; i < n && r >= 0; i++)
        r = window_bind_component(b, op, i, &components[i], err);
    return CW_MIN(r, 0);
}

/* Joins rows [from, end) of port k to row `row` of `to`. */
static int window_join(const struct cw_op *op, struct cw_block *b, unsigned k, size_t from, size_t end,
                       struct cw_block *to, size_t row, struct cw_error *err)
{
    const struct cw_port *out = &op->out[k];
    const char *name = ((const struct window_component *)op->state)[k].name;
    struct cw_tensor first = cw_in(op, b, k, from);
    int64_t dims[CW_MAX_NDIM] = {(int64_t)(end - from)};
    for (size_t i = from + 1; i < end; i++) {
        struct cw_tensor t = cw_in(op, b, k, i);
        if (t.ndim == first.ndim && memcmp(t.dims, first.dims, (size_t)t.ndim * sizeof(t.dims[0])) == 0)
            continue;
        cw_block_fail(
            b, end - 1, "window",
            "component \"%s\" differs in shape: element %zu of the window has another shape than the "
            "first: expected equal shapes",
            name, i - from);
        return 0;
    }
    if (first.ndim == CW_MAX_NDIM) {
        cw_block_fail(b, end - 1, "window", "component \"%s\" has %d dimensions: expected at most %d", name,
                      first.ndim, CW_MAX_NDIM - 1);
        return 0;
    }
    memcpy(dims + 1, first.dims, (size_t)first.ndim * sizeof(dims[0]));
    uint8_t *data = cw_block_row_out(to, out->value, &out->type, row, dims, first.ndim + 1, err);
    if (!data)
        return err->status;
    const struct cw_column *column = &b->columns[op->in[k].value];
    if (column->dense && column->stride == first.size) {
        memcpy(data, first.data, (end - from) * first.size);
        return 0;
    }
    for (size_t i = from; i < end && first.size; i++)
        memcpy(data + (i - from) * first.size, cw_in(op, b, k, i).data, first.size);
    return 0;
}

/* Makes row `row` of `to`, for a component without leading dimension: that of the first element. */
static int window_take_first(const struct cw_op *op, const struct cw_block *b, unsigned k, size_t from,
                             struct cw_block *to, size_t row, struct cw_error *err)
{
    const struct cw_port *out = &op->out[k];
    struct cw_tensor first = cw_in(op, b, k, from);
    struct cw_column *column = &to->columns[out->value];
    if (!column->dense) {
        column->rows[row] = first;
        return 0;
    }
    uint8_t *data = cw_block_row_out(to, out->value, &out->type, row, first.dims, first.ndim, err);
    if (data && first.size)
        memcpy(data, first.data, first.size);
    return data ? 0 : err->status;
}

/* Returns the row after the last row of the window that begins with row `from`. */
static size_t window_end(const struct cw_block *b, size_t from)
{
    size_t end = from + 1;
    while (end < b->n && b->origin[end] == b->origin[from])
        end++;
    return end;
}

static int window_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct window_component *components = op->state;
    struct cw_error local = {0};
    size_t n = 0;
    err = err ? err : &local;
    for (size_t from = 0; from < b->n; from = window_end(b, from))
        n++;
    struct cw_expansion *e = cw_block_alloc(b, sizeof(*e), err);
    uint32_t *origin = cw_block_alloc(b, n * sizeof(*origin), err);
    struct cw_block to = {.n = n, .arena = b->arena, .n_values = b->n_values, .slots = b->slots};
    to.status = cw_block_alloc(b, n, err);
    to.columns = cw_block_alloc(b, b->n_values * sizeof(*to.columns), err);
    if (!e || !origin || !to.status || !to.columns)
        return err->status;
    memset(to.columns, 0, b->n_values * sizeof(*to.columns));
    int r = 0;
    for (unsigned k = 0; k < op->n_out && r >= 0; k++)
        if (op->out[k].live)
            r = cw_block_column(&to, op->out[k].value, &op->out[k].type, err);
    for (size_t from = 0, end, row = 0; from < b->n && r >= 0; from = end, row++) {
        end = window_end(b, from);
        origin[row] = (uint32_t)(end - 1);
        bool good = memchr(b->status + from, CW_ROW_FAILED, end - from) == NULL;
        for (unsigned k = 0; k < op->n_out && r >= 0 && good; k++) {
            if (op->out[k].live)
                r = components[k].covered ? window_join(op, b, k, from, end, &to, row, err)
                                          : window_take_first(op, b, k, from, &to, row, err);
            good = b->status[end - 1] == CW_ROW_OK;
        }
        to.status[row] = good ? CW_ROW_OK : CW_ROW_FAILED;
    }
    *e = (struct cw_expansion){
        .n = n, .joins = true, .origin = origin, .status = to.status, .columns = to.columns};
    b->expansion = e;
    return r;
}

static const struct cw_attr_def attrs[] = {
    {.name = "size", .kind = CW_ATTR_INT, .min = 1, .max = 1 << 20, .doc = "elements of a window"},
    {.name = "shift",
     .kind = CW_ATTR_INT,
     .def = "0",
     .min = 0,
     .max = 0x1p40,
     .doc = "elements from the begin of a window to the begin of the next; 0: size"},
    {.name = "stride",
     .kind = CW_ATTR_INT,
     .def = "1",
     .min = 1,
     .max = 1 << 30,
     .doc = "elements from one element of a window to the next"},
    {.name = "drop_remainder",
     .kind = CW_ATTR_BOOL,
     .def = "true",
     .doc = "true: leave out windows that reach beyond the last element; false: these windows are shorter"},
    {.name = "components",
     .kind = CW_ATTR_STRINGS,
     .def = "[]",
     .scalar_too = true,
     .doc = "components that get a leading dimension, one row for each element of the window; []: all. Other "
            "components are those of the window's first element"},
    {0},
};

const struct cw_op_desc cw_op_window = {
    .name = "window",
    .summary = "makes one element of each window of elements",
    .doc =
        "Window w has the elements at the positions w * shift + i * stride, for i from 0 to size - 1. "
        "Windows "
        "are elements like others, which `shuffle`, `take` and `batch` may follow. `window` comes after one "
        "source, of which only operators of the kinds \"map\" and \"index\" may follow before it, and no "
        "cache point. If an element of a window fails, the window fails. An element that lies in several "
        "windows is computed for each of them.",
    .kind = CW_OP_INDEX,
    .effects = {.count = CW_COUNT_KNOWN, .state = CW_STATE_WINDOWED},
    .attrs = attrs,
    .bind = window_bind,
    .run = window_run,
    .free_state = free,
    .index = &map,
};
