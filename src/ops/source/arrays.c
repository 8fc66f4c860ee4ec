/* The operator arrays: a source whose elements are in arrays in the memory of this process, found by the id
 * of the arrays. The source and op->state each hold a reference to the arrays. If a cache is used, hashes of
 * the elements detect that the program has changed them. */
#include "data/arrays.h"

#include <string.h>

#include "base/hash.h"
#include "ops/source/keyed_source.h"

struct arrays {
    struct cw_keyed_source base;
    struct cw_arrays *arrays;
    uint64_t *sums; /* if a cache is used (arrays_hold): for each element, a hash of its held columns;
                       otherwise NULL */
    bool held[CW_OP_MAX_PORTS];
};

static void arrays_free(struct cw_source *s)
{
    struct arrays *x = (struct arrays *)s;
    free(x->sums);
    cw_arrays_unref(x->arrays);
    free(x);
}

/* Computes a hash (sum) of each element, then checks all data against the id of the arrays. Once the check
 * has succeeded, an element with the same hash as here is an element of the data with that id. */
static int arrays_hold(struct cw_source *s, const struct cw_op *op, int (*cancelled)(void *),
                       void *cancel_arg, struct cw_error *err)
{
    struct arrays *x = (struct arrays *)s;
    const struct cw_arrays *a = x->arrays;
    struct cw_arrays_look look = {.cancelled = cancelled, .cancel_arg = cancel_arg};
    int r = 0;
    if (!(x->sums = calloc(a->n_elements + 1, sizeof(*x->sums))))
        return cw_error_nomem(err, a->n_elements * sizeof(*x->sums), "sums of arrays");
    for (size_t k = 0; k < a->n_columns; k++) {
        x->held[k] = op->out[k].live;
        for (uint64_t i = 0; r == 0 && x->held[k] && i < a->n_elements; i++) {
            struct cw_tensor t = cw_arrays_get(a, &a->columns[k], i);
            if ((r = cw_arrays_look(&look, t.size, err)) == 0)
                x->sums[i] = cw_hash64_next(x->sums[i], t.data, t.size);
        }
    }
    if (r == 0)
        r = cw_arrays_check(a, &look, err);
    if (r < 0)
        cw_error_op(err, op->desc->name);
    return r;
}

/* Makes the column of one array. Elements of a fixed size are copied into the column. Of other elements the
 * column refers to the arrays' own memory, except in two cases, in which they are copied: they are not
 * aligned for their dtype, or they are hashed. The program can't change a copy between hashing and use. sums:
 * NULL, or a hash for each row, to which this function adds the element. */
static int arrays_produce_column(const struct cw_arrays *a, const struct cw_array_column *c, uint64_t *sums,
                                 const struct cw_port *port, struct cw_block *b, struct cw_error *err)
{
    bool fixed = cw_type_fixed(&port->type);
    int r = cw_block_column(b, port->value, &port->type, err);
    if (r < 0)
        return r;
    struct cw_column *column = &b->columns[port->value];
    size_t value = CW_MAX(cw_dtype_size(c->type.dtype), (size_t)1);
    for (size_t i = 0; i < b->n; i++) {
        struct cw_tensor t = cw_arrays_get(a, c, b->rows[i]);
        if (fixed || sums || (uintptr_t)t.data % value != 0) {
            void *copy = fixed ? column->data + i * column->stride
                               : cw_block_alloc(b, CW_MAX(t.size, (size_t)1), err);
            if (!copy)
                return err ? err->status : CW_E_MEMORY;
            if (t.size)
                memcpy(copy, t.data, t.size);
            t.data = copy;
        }
        if (sums)
            sums[i] = cw_hash64_next(sums[i], t.data, t.size);
        if (!fixed)
            column->rows[i] = t;
    }
    return 0;
}

/* Reports that an element has another hash than before. A check of all data names the changed column; if the
 * program has restored the old values meanwhile, the error names no column. */
static int arrays_changed(const struct cw_arrays *a, const struct cw_block *b, struct cw_error *err)
{
    struct cw_arrays_look look = {.cancelled = b->cancelled, .cancel_arg = b->cancel_arg};
    int r = cw_arrays_check(a, &look, err);
    return r < 0 ? r
                 : cw_error_set(
                       err, CW_E_DATA,
                       "the program changed an array while the run read it, so the cache would store wrong "
                       "elements: make a new data set from the arrays, and do not change them during a run");
}

static int arrays_produce(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                          struct cw_error *err)
{
    const struct arrays *x = (const struct arrays *)s;
    uint64_t *sums = x->sums ? cw_block_alloc(b, CW_MAX(b->n, (size_t)1) * sizeof(*sums), err) : NULL;
    int r = 0;
    if (x->sums && !sums)
        return err ? err->status : CW_E_MEMORY;
    for (size_t i = 0; sums && i < b->n; i++)
        sums[i] = 0;
    for (unsigned i = 0; r == 0 && i < op->n_out; i++)
        if (op->out[i].live)
            r = arrays_produce_column(x->arrays, &x->arrays->columns[i], x->held[i] ? sums : NULL,
                                      &op->out[i], b, err);
    for (size_t i = 0; r == 0 && sums && i < b->n; i++)
        if (sums[i] != x->sums[b->rows[i]])
            r = arrays_changed(x->arrays, b, err);
    return r;
}

static const struct cw_source_ops arrays_ops = {
    .free = arrays_free, .hold = arrays_hold, .ids = cw_keyed_source_ids, .produce = arrays_produce};

static int arrays_open(const struct cw_op *op, const struct cw_source_env *env CW_UNUSED,
                       struct cw_source **ret, struct cw_error *err)
{
    struct arrays *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a source");
    s->arrays = cw_arrays_ref(op->state);
    uint64_t key = cw_hash64(s->arrays->id, strlen(s->arrays->id));
    cw_keyed_source_init(&s->base, &arrays_ops, key, s->arrays->n_elements, s->arrays->total_bytes);
    *ret = &s->base.base;
    return 0;
}

static int arrays_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    /* the caller frees op->state, also after an error */
    struct cw_arrays *a = op->state = cw_arrays_find(cw_attr_string(op, "data"));
    if (!a)
        return cw_attr_error(op, "data", err,
                             "the id of arrays that this process has created: their data are in memory, so "
                             "another process can't run this pipeline");
    if (a->n_columns > CW_OP_MAX_PORTS)
        return cw_attr_error(op, "data", err, "at most %d arrays, not %zu", CW_OP_MAX_PORTS, a->n_columns);
    int r = 0;
    for (size_t i = 0; r >= 0 && i < a->n_columns; i++)
        r = cw_bind_write(b, a->columns[i].name, &a->columns[i].type, err);
    return r < 0 ? r : 0;
}

static void arrays_free_state(void *state)
{
    cw_arrays_unref(state);
}

static const struct cw_attr_def attrs[] = {
    {.name = "data", .kind = CW_ATTR_STRING, .doc = "id of the arrays (cachew_arrays_id)"},
    {0},
};

const struct cw_op_desc cw_op_arrays = {
    .name = "arrays",
    .summary = "a data set in the memory of the program",
    .doc = "Gives one component for each array, under the array's name. The program creates the arrays (in C "
           "with cachew_arrays_new or cachew_arrays_from_arrow), and the operator uses them in place, "
           "without a copy. Their id is a hash of their content, so the same data have the same id in every "
           "process. A process must create the arrays before it makes a pipeline with their id.",
    .kind = CW_OP_SOURCE,
    .effects.count = CW_COUNT_KNOWN,
    .here_only = true,
    .attrs = attrs,
    .bind = arrays_bind,
    .open = arrays_open,
    .free_state = arrays_free_state,
};
