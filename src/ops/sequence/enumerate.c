/* enumerate: numbers elements. Where the number of elements before it is known, the numbers are positions of
 * the sequence; its node is the identity, and marks the place. Elsewhere the engine counts the elements
 * (struct cw_limit). The engine writes the numbers in both cases. */
#include "base/array.h"
#include "dataset/seq.h"
#include "ops/element/component.h"
#include "pipeline/roles.h"

static int enumerate_refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n,
                          uint64_t pass, struct cw_ref *ret, struct cw_error *err)
{
    if (e->end != s)
        return cw_seq_refs(e, s->children[0], begin, n, pass, ret, err);
    for (uint64_t i = 0; i < n; i++)
        ret[i] = (struct cw_ref){.row = begin + i};
    return 0;
}

static int enumerate_lookup(struct cw_lookup *l, const struct cw_seq *s, uint32_t *index, uint64_t n)
{
    return l->epoch->end == s ? 0 : s->children[0]->ops->lookup(l, s->children[0], index, n);
}

static void enumerate_chunks(const struct cw_seq *s, uint64_t from, uint64_t to, struct cw_chunks *ret)
{
    s->children[0]->ops->chunks(s->children[0], from, to, ret);
}

static const struct cw_seq_ops enumerate_seq_ops = {
    .refs = enumerate_refs, .lookup = enumerate_lookup, .chunks = enumerate_chunks};

static int enumerate_build(struct cw_seq_build *b, const struct cw_node *node, bool batched CW_UNUSED,
                           struct cw_seq **at)
{
    struct cw_sequence *q = b->sequence;
    struct cw_enumerate *grown = realloc(q->enumerates, (q->n_enumerates + 1) * sizeof(*grown));
    if (!grown)
        return cw_error_nomem(b->err, sizeof(*grown), "a sequence");
    q->enumerates = grown;
    struct cw_seq *s = cw_seq_wrap(b, &enumerate_seq_ops, sizeof(*s), at);
    if (!s)
        return CW_E_MEMORY;
    q->enumerates[q->n_enumerates++] = (struct cw_enumerate){
        .node = s,
        .position = node->position,
        .start = json_integer_value(json_object_get(node->attrs, "start"))};
    return 0;
}

static int enumerate_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type = cw_type_scalar(CW_INT64);
    return cw_component_write(b, op, "name", &type, err);
}

/* Makes the column of the numbers, unless it has them already. */
static int enumerate_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct cw_port *out = &op->out[0];
    return b->columns[out->value].data ? 0 : cw_block_dense(b, out->value, &out->type, err);
}

static const struct cw_index_map map = {
    .limit = CW_LIMIT_ENUMERATE, .instead = "a source with an index", .build = enumerate_build};

static const struct cw_attr_def attrs[] = {
    {.name = "name",
     .kind = CW_ATTR_STRING,
     .def = "\"index\"",
     .doc = "the name of the component with the numbers, which are int64; it replaces a component of that "
            "name"},
    {.name = "start",
     .kind = CW_ATTR_INT,
     .def = "0",
     .min = -0x1p62,
     .max = 0x1p62,
     .doc = "the first number"},
    {0},
};

const struct cw_op_desc cw_op_enumerate = {
    .name = "enumerate",
    .summary = "numbers the elements of an epoch",
    .doc = "Each element gets its place among the elements that arrive, from `start` on. The numbers begin "
           "again in each epoch, and in each pass of a `repeat` after `enumerate`. A `shuffle` before "
           "`enumerate` does not change the numbers, and a `shuffle` after it moves them with their "
           "elements. After a filter, `flat_map`, `pack` or a stream the elements must be counted one after "
           "the other; in a service, one worker then runs the whole epoch. `enumerate` must come before "
           "`batch` and after `zip` and `window`. It can't be used with `on_error` \"replace\".",
    .kind = CW_OP_INDEX,
    .effects = {.count = CW_COUNT_KNOWN, .state = CW_STATE_COUNTED},
    .attrs = attrs,
    .index = &map,
    .bind = enumerate_bind,
    .run = enumerate_run,
};
