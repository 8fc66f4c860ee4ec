/* Builds the tree of a pipeline: opens its sources, calls its index operators in turn, and sets the sizes of
 * windows and pieces. One thread calls this when a pipeline is opened. */
#include "dataset/orders.h"
#include "storage/memo.h"

#define MEMO_BYTES (UINT64_C(1) << 30) /* most bytes of the memo: about 700,000 photographs' entry points */
#define STREAM_POSITIONS UINT64_C(64)  /* elements that are taken from a stream without shuffle at a time */
#define LIMIT_POSITIONS (UINT64_C(1) << 20)      /* positions of a window, and of a piece, at most */
#define LIMIT_SOURCE_BYTES (UINT64_C(64) << 20)  /* source bytes of a window, and of a piece, at most */
#define PIECE_OUTPUT_BYTES (UINT64_C(128) << 20) /* bytes of the outputs of a piece, at most */

static struct cw_seq *seq_free(struct cw_seq *s)
{
    if (!s)
        return NULL;
    for (size_t i = 0; i < s->n_children; i++)
        seq_free(s->children[i]);
    free(s->children);
    cw_shuffle_free(s->shuffle);
    free(s);
    return NULL;
}

struct cw_seq *cw_seq_new(struct cw_seq_build *b, const struct cw_seq_ops *ops, size_t size,
                          size_t n_children)
{
    struct cw_seq *s = calloc(1, size);
    struct cw_seq **children = calloc(n_children + 1, sizeof(*children));
    if (!s || !children) {
        free(s);
        free(children);
        cw_error_nomem(b->err, size, "a sequence");
        return NULL;
    }
    *s = (struct cw_seq){.ops = ops, .children = children, .n_children = n_children, .passes = 1};
    return s;
}

struct cw_seq *cw_seq_wrap(struct cw_seq_build *b, const struct cw_seq_ops *ops, size_t size,
                           struct cw_seq **at)
{
    struct cw_seq *s = cw_seq_new(b, ops, size, 1);
    if (!s)
        return NULL;
    s->children[0] = *at;
    s->n = (*at)->n;
    s->passes = (*at)->passes;
    s->scatters = (*at)->scatters;
    return *at = s;
}

/* ---- chunks: what a shuffle permutes ---- */

static void chunks_append(struct cw_chunks *c, uint64_t size)
{
    if (size == 0 || c->failed)
        return;
    if (c->n == CW_CHUNKS_MAX) {
        c->failed = c->too_many = true;
        return;
    }
    if (c->n == c->capacity) {
        uint64_t capacity = c->capacity ? c->capacity * 2 : 64;
        uint64_t *grown = realloc(c->ends, capacity * sizeof(*grown));
        if (!grown) {
            c->failed = true;
            return;
        }
        c->ends = grown;
        c->capacity = capacity;
    }
    c->positions += size;
    c->ends[c->n++] = c->positions;
}

void cw_chunks_add(struct cw_chunks *c, uint64_t uniform, const uint64_t *ends, uint64_t n_chunks, uint64_t n,
                   uint64_t from, uint64_t to)
{
    for (uint64_t k = uniform ? from / uniform : 0; k < n_chunks && !c->failed; k++) {
        uint64_t begin = uniform ? k * uniform
                         : k     ? ends[k - 1]
                                 : 0,
                 end = uniform ? CW_MIN(begin + uniform, n) : ends[k];
        if (begin >= to)
            break;
        if (end > from)
            chunks_append(c, CW_MIN(end, to) - CW_MAX(begin, from));
    }
}

/* ---- sources ---- */

static int source_refs(struct cw_epoch *e CW_UNUSED, const struct cw_seq *s, uint64_t begin, uint64_t n,
                       uint64_t pass, struct cw_ref *ret, struct cw_error *err CW_UNUSED)
{
    for (uint64_t i = 0; i < n; i++)
        ret[i] = (struct cw_ref){.row = begin + i, .leaf = s->leaf, .pass = (uint32_t)pass};
    return 0;
}

static int source_lookup(struct cw_lookup *l, const struct cw_seq *s, uint32_t *index, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        l->refs[index[i]].leaf = s->leaf;
    return 0;
}

static void source_chunks(const struct cw_seq *s, uint64_t from, uint64_t to, struct cw_chunks *ret)
{
    cw_chunks_add(ret, s->chunk, s->source->chunk_ends, s->source->n_chunks, s->n, from, to);
}

static const struct cw_seq_ops source_seq_ops = {
    .refs = source_refs, .lookup = source_lookup, .chunks = source_chunks};

struct cw_seq *cw_seq_new_leaf(struct cw_seq_build *b, struct cw_source *source)
{
    struct cw_sequence *q = b->sequence;
    unsigned leaf = b->leaf++;
    q->sources[leaf] = source;
    struct cw_seq *s = cw_seq_new(b, &source_seq_ops, sizeof(*s), 0);
    if (!s)
        return NULL;
    s->leaf = leaf;
    s->source = source;
    s->n = source->n_records;
    s->chunk = source->chunk_records;
    q->needs_load |= source->ops->load || source->ops->pull;
    return s;
}

static int source_build(struct cw_seq_build *b, struct cw_seq **ret)
{
    const struct cw_op *op = cw_program_source(cw_seq_program(b), b->program ? b->leaf : 0);
    struct cw_source *source;
    int r = op->desc->open(op, b->env, &source, b->err);
    if (r < 0) {
        cw_error_op(b->err, op->desc->name);
        return r;
    }
    *ret = cw_seq_new_leaf(b, source);
    if (cw_op_is_stream(op->desc))
        b->sequence->stream = source;
    return *ret ? 0 : CW_E_MEMORY;
}

/* ---- chains ---- */

static int index_build(struct cw_seq_build *b, const struct cw_node *node, bool batched, struct cw_seq **at)
{
    const struct cw_index_map *map = node->desc->index;
    if (b->sequence->compiled->is_limit[node->position])
        return 0;
    int r = b->sequence->stream && map->instead
                ? cw_error_set(b->err, CW_E_PIPELINE,
                               "%s: its input is a stream, whose end is not known: expected %s",
                               node->desc->name, map->instead)
                : map->build(b, node, batched, at);
    if (r < 0)
        cw_error_op(b->err, node->desc->name);
    return r;
}

int cw_seq_build_chain(struct cw_seq_build *b, const struct cw_chain *chain, struct cw_seq **ret)
{
    const struct cw_node *first = &chain->nodes[0];
    bool batched = false;
    size_t i = chain->n - 1;
    while (i > 0 && !(chain->nodes[i].desc->index && chain->nodes[i].desc->index->gathers))
        i--;
    const struct cw_chain before = {.nodes = chain->nodes, .n = i};
    b->before = &before;
    int r = i > 0             ? index_build(b, &chain->nodes[i], false, ret)
            : first->n_inputs ? first->desc->index->build(b, first, false, ret)
                              : source_build(b, ret);
    b->before = NULL;
    for (i++; i < chain->n && r >= 0; i++) {
        batched = chain->nodes[i].desc->kind == CW_OP_BATCHER ||
                  (batched && !chain->nodes[i].desc->takes_batches);
        if (chain->nodes[i].desc->index)
            r = index_build(b, &chain->nodes[i], batched, ret);
    }
    return r;
}

/* Sets the window size W (docs/semantics.md, section 4) and the piece size: positions that are planned at a
 * time. */
static void sequence_set_sizes(struct cw_sequence *s)
{
    const struct cw_compiled *c = s->compiled;
    uint64_t batch = c->batch_size, unit = cw_piece_unit(c), bytes = 0, records = 0, loaded = 0,
             limit = LIMIT_POSITIONS;
    if (s->stream) { /* a stream without shuffle has no window to fill: elements are passed on in small pieces
                      */
        s->window = s->stream_draw.salt ? s->window : CW_MAX(STREAM_POSITIONS / batch * batch, batch);
        s->piece_size = s->window;
        return;
    }
    for (unsigned i = 0; i < s->n_sources; i++) {
        bytes += s->sources[i]->source_bytes;
        records += s->sources[i]->n_records;
        loaded = CW_MAX(loaded, s->sources[i]->loaded_bytes);
    }
    if (records > 0)
        limit = CW_MIN(limit, LIMIT_SOURCE_BYTES / CW_MAX((bytes + records - 1) / records, 1));
    s->window = CW_MAX(limit / batch * batch, batch);
    bool fixed = true;
    uint64_t out = 0;
    for (unsigned i = 0; i < c->n_outputs; i++) {
        fixed &= cw_type_fixed(&c->outputs[i].type);
        if (fixed)
            out += cw_type_bytes(&c->outputs[i].type);
    }
    if (fixed)
        limit = CW_MIN(limit, PIECE_OUTPUT_BYTES / CW_MAX(out, 1));
    limit = CW_MIN(limit, LIMIT_SOURCE_BYTES / CW_MAX(loaded, 1));
    uint64_t bytes_limit = limit;
    if (s->n_positions < CW_ENDLESS)
        limit = CW_MIN(limit, s->n_positions / 256);
    s->piece_size = limit;
    if (!c->counted)
        s->piece_size = CW_MAX(s->piece_size / unit * unit, CW_MIN(16 * unit, bytes_limit));
    if (s->by_chunk)
        s->piece_size = CW_MIN(s->window, (s->n_positions + unit - 1) / unit * unit);
    s->piece_size = CW_MAX(s->piece_size / unit * unit, unit);
}

static struct cw_sequence *sequence_new(struct cw_compiled *c, unsigned n_sources, struct cw_error *err)
{
    struct cw_sequence *s = calloc(1, sizeof(*s));
    struct cw_source **sources = calloc(n_sources, sizeof(*sources));
    if (!s || !sources) {
        free(s);
        free(sources);
        cw_error_nomem(err, sizeof(*s), "a sequence");
        return NULL;
    }
    *s = (struct cw_sequence){.compiled = c, .sources = sources, .n_sources = n_sources};
    return s;
}

/* Sets the fields that follow from the tree and its sources, and stores the sequence in *ret. r < 0: frees
 * the sequence instead. Returns the status. */
static int sequence_finish(struct cw_sequence *s, int r, struct cw_sequence **ret)
{
    if (r < 0) {
        cw_sequence_free(s);
        return r;
    }
    struct cw_key key = {0};
    for (unsigned i = 0; i < s->n_sources; i++) {
        cw_key_u64(&key, s->sources[i]->snapshot);
        uint64_t so_far = cw_key_hash(&key);
        key.size = 0;
        cw_key_u64(&key, so_far);
    }
    s->snapshot = cw_key_hash(&key);
    s->n_positions = s->root->n;
    sequence_set_sizes(s);
    *ret = s;
    return 0;
}

int cw_sequence_open(struct cw_compiled *c, const struct cw_source_env *env, struct cw_sequence **ret,
                     struct cw_error *err)
{
    struct cw_sequence *s = sequence_new(c, c->n_programs, err);
    struct cw_seq_build b = {.sequence = s, .env = env, .err = err};
    int r = s ? cw_seq_build_chain(&b, &c->pipeline->chain, &s->root) : CW_E_MEMORY;
    if (r >= 0 && env->index_dir)
        r = cw_memo_new(env->index_dir, "entry-points", MEMO_BYTES, &s->memo, err);
    return s ? sequence_finish(s, r, ret) : r;
}

int cw_seq_open_chains(struct cw_seq_build *b, const struct cw_chain *chains, size_t n,
                       struct cw_sequence **ret)
{
    struct cw_sequence *s = sequence_new(b->sequence->compiled, (unsigned)n, b->err);
    struct cw_seq_build own = {.sequence = s, .env = b->env, .program = cw_seq_program(b), .err = b->err};
    int r = s && (s->root = cw_seq_new(&own, NULL, sizeof(*s->root), n)) ? 0 : CW_E_MEMORY;
    for (size_t i = 0; i < n && r >= 0; i++)
        r = cw_seq_build_chain(&own, &chains[i], &s->root->children[i]);
    return s ? sequence_finish(s, r, ret) : r;
}

void cw_sequence_trim(const struct cw_sequence *s, struct cw_budget *budget)
{
    for (unsigned i = 0; i < s->n_sources; i++)
        if (s->sources[i]->ops->trim)
            s->sources[i]->ops->trim(s->sources[i], budget);
}

struct cw_sequence *cw_sequence_free(struct cw_sequence *s)
{
    if (!s)
        return NULL;
    seq_free(s->root);
    for (unsigned i = 0; i < s->n_sources; i++)
        cw_source_free(s->sources[i]);
    free(s->sources);
    free(s->stream_draw.salt);
    free(s->enumerates);
    cw_memo_free(s->memo);
    free(s);
    return NULL;
}
