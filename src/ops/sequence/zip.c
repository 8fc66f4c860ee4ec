/* zip: its inputs side by side. It is a source: each of its records consists of one record of each input.
 * `load` finds and reads these when a block is planned; `produce` runs the inputs' sources on them. */
#include "base/hash.h"
#include "dataset/seq.h"
#include "ops/sequence/gather.h"
#include "ops/source/keyed_source.h"
#include "pipeline/roles.h"

struct zip {
    struct cw_keyed_source base;
    struct cw_sequence *inputs; /* source k and child k of the root belong to input k */
    const struct cw_program *program;
};

static int zip_load(const struct cw_source *s, const struct cw_load *l, struct cw_tensor *raw,
                    struct cw_error *err)
{
    const struct zip *z = (const struct zip *)s;
    unsigned n_inputs = z->inputs->n_sources;
    struct cw_error local = {0};
    err = err ? err : &local;
    struct cw_gathered *to = cw_arena_alloc(l->arena, l->n * n_inputs * sizeof(*to), err);
    if (!to)
        return err->status;
    struct cw_epoch e;
    int r = cw_epoch_init(&e, z->inputs, l->epoch->seed, l->epoch->epoch, l->arena->budget, err);
    if (r < 0)
        return r;
    e.stopped = l->epoch->stopped;
    e.stop_arg = l->epoch->stop_arg;
    for (unsigned k = 0; k < n_inputs && r >= 0; k++)
        r = cw_gather_load(&e, k, l, to + k, n_inputs, err);
    cw_epoch_deinit(&e);
    for (size_t i = 0; i < l->n; i++)
        raw[i] = (struct cw_tensor){.data = to + i * n_inputs, .size = n_inputs * sizeof(*to)};
    return r;
}

/* Keeps one fault per row, the first that was recorded: removes the newer faults, those before `older` in the
 * list, of rows that have a fault from `older` on. */
static void zip_keep_first_faults(struct cw_block *b, const struct cw_fault *older)
{
    for (struct cw_fault **at = &b->faults; *at != older;) {
        const struct cw_fault *first = older;
        while (first && (first->note || first->row != (*at)->row))
            first = first->next;
        if (first)
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
}

static int zip_produce(const struct cw_source *s, const struct cw_op *op CW_UNUSED, struct cw_block *b,
                       struct cw_error *err)
{
    const struct zip *z = (const struct zip *)s;
    const struct cw_tensor *loaded = b->raw;
    const uint64_t *positions = b->rows;
    uint64_t *rows = cw_block_alloc(b, b->n * sizeof(*rows), err);
    struct cw_tensor *raw = cw_block_alloc(b, b->n * sizeof(*raw), err);
    int r = rows && raw ? 0 : err->status;
    for (unsigned k = 0; k < z->inputs->n_sources && r >= 0; k++) {
        const struct cw_source *input = z->inputs->sources[k];
        const struct cw_fault *older = b->faults;
        bool bytes = cw_gather_has_bytes(input);
        for (size_t i = 0; i < b->n; i++) {
            const struct cw_gathered *from = (const struct cw_gathered *)loaded[i].data + k;
            rows[i] = from->row;
            if (bytes)
                raw[i] = cw_gathered_raw(from);
        }
        b->rows = rows;
        b->raw = raw;
        r = input->ops->produce(input, cw_program_source(z->program, k), b, err);
        zip_keep_first_faults(b, older);
    }
    b->rows = positions;
    b->raw = loaded;
    return r;
}

static void zip_free(struct cw_source *s)
{
    struct zip *z = (struct zip *)s;
    cw_sequence_free(z->inputs);
    free(z);
}

static void zip_trim(struct cw_source *s, struct cw_budget *budget)
{
    cw_sequence_trim(((struct zip *)s)->inputs, budget);
}

static const struct cw_source_ops zip_ops = {
    .free = zip_free, .ids = cw_keyed_source_ids, .load = zip_load, .trim = zip_trim, .produce = zip_produce};

static int zip_build(struct cw_seq_build *b, const struct cw_node *node, bool batched CW_UNUSED,
                     struct cw_seq **at)
{
    const struct cw_compiled *c = b->sequence->compiled;
    struct zip *z = calloc(1, sizeof(*z));
    if (!z)
        return cw_error_nomem(b->err, sizeof(*z), "a source");
    int r = cw_seq_open_chains(b, node->inputs, node->n_inputs, &z->inputs);
    if (r < 0) {
        free(z);
        return r;
    }
    uint64_t n = CW_ENDLESS, bytes = 0;
    bool random_access = true;
    for (unsigned k = 0; k < z->inputs->n_sources; k++) {
        n = CW_MIN(n, z->inputs->root->children[k]->n);
        bytes += z->inputs->sources[k]->source_bytes;
        random_access &= z->inputs->sources[k]->random_access;
    }
    struct cw_key key = {0}, snapshot = {0};
    cw_key_text(&key, c->salts[node->position]);
    cw_keyed_source_init(&z->base, &zip_ops, cw_key_hash(&key), n, bytes);
    cw_key_u64(&snapshot, z->base.base.snapshot);
    cw_key_u64(&snapshot, z->inputs->snapshot);
    z->base.base.snapshot = cw_key_hash(&snapshot);
    z->base.base.random_access = random_access;
    z->base.base.loaded_bytes = z->inputs->n_sources * sizeof(struct cw_gathered);
    z->program = cw_seq_program(b);
    *at = cw_seq_new_leaf(b, &z->base.base);
    if (!*at)
        return CW_E_MEMORY;
    (*at)->joins = true;
    for (unsigned k = 0; k < z->inputs->n_sources; k++)
        (*at)->passes = CW_MAX((*at)->passes, z->inputs->root->children[k]->passes);
    return 0;
}

static const struct cw_index_map map = {.zips = true, .build = zip_build};

static const char *const stops[] = {"first", NULL};

static const struct cw_attr_def attrs[] = {
    {.name = "inputs",
     .kind = CW_ATTR_CHAINS,
     .doc = "a list of chains; a chain is a list of operators that "
            "begins with a source"},
    {.name = "stop",
     .kind = CW_ATTR_STRING,
     .def = "\"first\"",
     .choices = stops,
     .doc = "first: the result ends with the shortest input"},
    {0},
};

const struct cw_op_desc cw_op_zip = {
    .name = "zip",
    .summary = "joins the elements of several chains, one element of each chain to one element",
    .doc = "`zip` takes the place of a source, at the start of a pipeline. Element i has the components of "
           "element i of each input; the names of components must differ between inputs. An input is a "
           "source other than `iterable`, which may be followed by operators of the kinds \"map\" and "
           "\"index\" (such as `take`). One thread reads the records of all inputs for a block of elements, "
           "one input after the other. The record id of an element is its position in the result of `zip`.",
    .kind = CW_OP_INDEX,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .index = &map,
};
