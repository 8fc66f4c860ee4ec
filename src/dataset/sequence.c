/* From opened sources and index operators to a tree of maps over positions, and the sizes of windows and
 * pieces. */
#include "dataset/seq.h"

#include "base/permutation.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STREAM_POSITIONS UINT64_C(64)       /* elements that are pulled at a time where nothing is shuffled */
#define LIMIT_POSITIONS (UINT64_C(1) << 20) /* of a window, and of a piece; */
#define LIMIT_SOURCE_BYTES (UINT64_C(64) << 20)  /* likewise */
#define PIECE_OUTPUT_BYTES (UINT64_C(128) << 20) /* of a piece alone */

static struct cw_seq *seq_free(struct cw_seq *s)
{
    if (!s)
        return NULL;
    for (size_t i = 0; i < s->n_children; i++)
        seq_free(s->children[i]);
    free(s->children);
    free(s->salt);
    free(s->ends);
    free(s);
    return NULL;
}

static struct cw_seq *seq_new(enum seq_kind kind, size_t n_children)
{
    struct cw_seq *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->kind = kind;
    s->children = calloc(n_children + 1, sizeof(*s->children));
    if (!s->children)
        return seq_free(s);
    s->n_children = n_children;
    s->passes = 1;
    return s;
}

/* ---- chunks: what a shuffle permutes ---- */

/* Chunks of unequal size, 8 bytes each: a shuffle after a repeat of many passes over a few records would take
 * all memory. */
#define MAX_CHUNKS (UINT64_C(1) << 26)
/* Positions of a chunk where the input is permuted by record: as many as a source's chunk has at most. */
#define SHUFFLED_CHUNK UINT64_C(1024)

struct chunks {
    uint64_t *ends;
    uint64_t n, capacity;
    uint64_t positions;
    bool failed, too_many;
};

static void chunks_add(struct chunks *c, uint64_t size)
{
    if (size == 0 || c->failed)
        return;
    if (c->n == MAX_CHUNKS) {
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

/* Appends the chunks of positions [from, to) of s, cut to that range. */
static void chunks_of(const struct cw_seq *s, uint64_t from, uint64_t to, struct chunks *out)
{
    if (from >= to || out->failed)
        return;
    switch (s->kind) {
    case SEQ_SOURCE:
    case SEQ_SHUFFLE: {
        bool single = s->kind == SEQ_SHUFFLE && s->shuffle != SHUFFLE_CHUNKS;
        uint64_t uniform = s->kind == SEQ_SOURCE ? s->source->chunk_records
                           : single              ? SHUFFLED_CHUNK
                                                 : s->uniform;
        uint64_t n = s->kind == SEQ_SOURCE ? s->source->n_chunks
                     : single              ? (s->n + uniform - 1) / uniform
                                           : s->n_chunks;
        const uint64_t *ends = s->kind == SEQ_SOURCE ? s->source->chunk_ends : s->ends;
        /* A shuffled child is cut as its chunks lie before permuting: sizes only matter, the order is
         * permuted anyway. */
        for (uint64_t k = uniform ? from / uniform : 0; k < n && !out->failed; k++) {
            uint64_t begin = uniform ? k * uniform
                             : k     ? ends[k - 1]
                                     : 0,
                     end = uniform ? CW_MIN(begin + uniform, s->n) : ends[k];
            if (begin >= to)
                break;
            if (end > from)
                chunks_add(out, CW_MIN(end, to) - CW_MAX(begin, from));
        }
        break;
    }
    case SEQ_CONCAT: {
        uint64_t base = 0;
        for (size_t i = 0; i < s->n_children; i++) {
            uint64_t n = s->children[i]->n;
            if (from < base + n && to > base)
                chunks_of(s->children[i], from > base ? from - base : 0, CW_MIN(to - base, n), out);
            base += n;
        }
        break;
    }
    case SEQ_CUT:
        chunks_of(s->children[0], s->from + from, s->from + to, out);
        break;
    case SEQ_REPEAT: {
        uint64_t n = s->children[0]->n;
        while (from < to && n > 0 && !out->failed) {
            uint64_t pass_end = (from / n + 1) * n, end = CW_MIN(to, pass_end);
            chunks_of(s->children[0], from % n, end - from + from % n, out);
            from = end;
        }
        break;
    }
    }
}

static void survey(const struct cw_seq *s, bool *all_random, bool *all_single)
{
    if (s->kind == SEQ_SOURCE) {
        *all_random &= s->source->random_access;
        *all_single &= s->source->one_file_per_record;
    }
    for (size_t i = 0; i < s->n_children; i++)
        survey(s->children[i], all_random, all_single);
}

/* By record where each record can be read by itself, unless chunks are asked for and have more than one
 * record. */
static int shuffle_choose(struct cw_seq *s, bool by_chunk, struct cw_error *err)
{
    const struct cw_seq *child = s->children[0];
    bool all_random = true, all_single = true;
    survey(child, &all_random, &all_single);
    if (all_single || (all_random && !by_chunk)) {
        s->shuffle = child->n <= CW_PERMUTATION_TABLE ? SHUFFLE_TABLE : SHUFFLE_NETWORK;
        s->n_chunks = child->n;
        s->uniform = 1;
        return 0;
    }
    s->shuffle = SHUFFLE_CHUNKS;
    if (child->kind == SEQ_SOURCE && child->source->chunk_records)
        s->uniform = child->source->chunk_records;
    else if (child->kind == SEQ_SHUFFLE && child->shuffle != SHUFFLE_CHUNKS)
        s->uniform = SHUFFLED_CHUNK;
    if (s->uniform) {
        s->n_chunks = (child->n + s->uniform - 1) / s->uniform;
    } else {
        struct chunks c = {0};
        chunks_of(child, 0, child->n, &c);
        s->ends = c.ends;
        s->n_chunks = c.n;
        if (c.too_many)
            return cw_error_set(err, CW_E_PIPELINE,
                                "shuffle: what stands before it has more than %" PRIu64
                                " chunks: expected fewer elements, or by \"record\"",
                                MAX_CHUNKS);
        if (c.failed)
            return cw_error_nomem(err, 0, "the chunks of a shuffle");
    }
    if (s->n_chunks >> 32)
        return cw_error_set(err, CW_E_PIPELINE, "shuffle: %" PRIu64 " chunks are more than 2^32",
                            s->n_chunks);
    return 0;
}

/* ---- building ---- */

struct build {
    struct cw_sequence *sequence;
    const struct cw_source_env *env;
    unsigned leaf;
    struct cw_error *err;
};

static int wrap(struct build *b, struct cw_seq **at, enum seq_kind kind, struct cw_seq **ret)
{
    struct cw_seq *s = seq_new(kind, 1);
    if (!s)
        return cw_error_nomem(b->err, sizeof(*s), "a sequence");
    s->children[0] = *at;
    s->n = (*at)->n;
    s->passes = (*at)->passes;
    s->shuffled = kind == SEQ_SHUFFLE || (*at)->shuffled;
    *at = *ret = s;
    return 0;
}

static int build_shuffle(struct build *b, const struct cw_node *node, struct cw_seq **at)
{
    struct cw_seq *s;
    bool by_chunk = strcmp(json_string_value(json_object_get(node->attrs, "by")), "chunk") == 0;
    bool reshuffle = json_is_true(json_object_get(node->attrs, "reshuffle"));
    uint64_t window = (uint64_t)json_integer_value(json_object_get(node->attrs, "window"));
    char shown[24];
    snprintf(shown, sizeof(shown), "%" PRIu64, window);
    if (!window == !!b->sequence->stream) {
        const char *expected =
            window ? "0, as the number of elements is known and all of them are permuted"
                   : "how many elements are permuted among themselves, as the stream's end is not known";
        cw_error_attribute(b->err, "window", shown, expected);
        return cw_error_set(b->err, CW_E_PIPELINE, "shuffle: window is %s: expected %s", shown, expected);
    }
    if (b->sequence->stream) {
        if (by_chunk)
            return cw_error_set(b->err, CW_E_PIPELINE,
                                "shuffle: by is \"chunk\": expected \"record\", as a stream has no chunks");
        if (b->sequence->stream_salt)
            return cw_error_set(b->err, CW_E_PIPELINE,
                                "shuffle: the stream is shuffled already: expected one shuffle");
        b->sequence->stream_reshuffle = reshuffle;
        b->sequence->window = window;
        b->sequence->stream_salt = strdup(b->sequence->compiled->salts[node->position]);
        return b->sequence->stream_salt ? 0 : cw_error_nomem(b->err, 0, "a salt");
    }
    while ((*at)->n >= CW_ENDLESS) { /* stands before the endless repeat */
        if ((*at)->kind == SEQ_CONCAT)
            return cw_error_set(
                b->err, CW_E_PIPELINE,
                "shuffle: an input of concat before it is endless: expected repeat after concat");
        at = &(*at)->children[0];
    }
    int r = wrap(b, at, SEQ_SHUFFLE, &s);
    if (r < 0)
        return r;
    s->id = b->sequence->n_shuffles++;
    s->position = node->position;
    s->reshuffle = reshuffle;
    s->salt = strdup(b->sequence->compiled->salts[node->position]);
    if (!s->salt)
        return cw_error_nomem(b->err, 0, "a salt");
    r = shuffle_choose(s, by_chunk, b->err);
    b->sequence->by_chunk |= s->shuffle == SHUFFLE_CHUNKS;
    return r;
}

static int build_index(struct build *b, const struct cw_node *node, bool batched, struct cw_seq **at)
{
    const struct cw_compiled *c = b->sequence->compiled;
    const char *name = node->desc->name;
    int64_t count = json_integer_value(json_object_get(node->attrs, "count"));
    uint64_t scale = batched ? c->batch_size : 1;
    struct cw_seq *s;
    int r;
    if (c->is_limit[node->position])
        return 0;
    if (strcmp(name, "shuffle") == 0)
        return build_shuffle(b, node, at);
    if (b->sequence->stream)
        return cw_error_set(
            b->err, CW_E_PIPELINE, "%s: its input is a stream, whose end is not known: expected %s", name,
            strcmp(name, "repeat") == 0 ? "several epochs instead" : "a source with an index");
    if (strcmp(name, "repeat") == 0) {
        uint64_t n = (*at)->n;
        if (batched && n % c->batch_size != 0 && n < CW_ENDLESS) {
            if (!c->drop_remainder) {
                cw_error_op(b->err, "repeat");
                return cw_error_set(b->err, CW_E_PIPELINE,
                                    "repeat: stands after batch, but %" PRIu64
                                    " elements leave a short batch of size %" PRIu64
                                    ": write repeat before batch, set drop_remainder, or use --epochs",
                                    n, c->batch_size);
            }
            if ((r = wrap(b, at, SEQ_CUT, &s)) < 0)
                return r;
            s->n = n = n / c->batch_size * c->batch_size;
        }
        if ((r = wrap(b, at, SEQ_REPEAT, &s)) < 0)
            return r;
        s->count = count < 0 ? CW_ENDLESS : (uint64_t)count;
        if (n == 0 || count == 0)
            s->n = 0;
        else if (count < 0 || n >= CW_ENDLESS)
            s->n = CW_ENDLESS;
        else if (__builtin_mul_overflow(n, s->count, &s->n) || s->n >= CW_ENDLESS ||
                 __builtin_mul_overflow(s->passes, s->count, &s->passes) || s->passes >> 32)
            return cw_error_set(b->err, CW_E_PIPELINE,
                                "repeat: %" PRIu64 " elements times %" PRIi64
                                " are too many: expected fewer than 2^32 passes, those of repeats before it "
                                "multiplied in, or -1",
                                n, count);
        return 0;
    }
    uint64_t n;
    if (__builtin_mul_overflow((uint64_t)count, scale, &n) || n > CW_ENDLESS)
        n = CW_ENDLESS;
    if ((r = wrap(b, at, SEQ_CUT, &s)) < 0)
        return r;
    if (strcmp(name, "take") == 0) {
        s->n = CW_MIN(s->n, n);
    } else { /* skip */
        s->from = CW_MIN(n, s->n);
        s->n = s->n >= CW_ENDLESS ? CW_ENDLESS : s->n - s->from;
    }
    return 0;
}

static int build_chain(struct build *b, const struct cw_chain *chain, struct cw_seq **ret)
{
    const struct cw_node *first = &chain->nodes[0];
    bool batched = false;
    int r = 0;
    if (first->n_inputs) {
        struct cw_seq *s = *ret = seq_new(SEQ_CONCAT, first->n_inputs);
        if (!s)
            return cw_error_nomem(b->err, sizeof(*s), "a sequence");
        for (size_t i = 0; i < first->n_inputs; i++) {
            r = build_chain(b, &first->inputs[i], &s->children[i]);
            if (r < 0)
                return r;
            if (b->sequence->stream)
                return cw_error_set(
                    b->err, CW_E_PIPELINE,
                    "concat: input %zu is a stream, whose end is not known: expected a source with an index",
                    i);
            if (s->n >= CW_ENDLESS)
                return cw_error_set(b->err, CW_E_PIPELINE,
                                    "concat: input %zu is endless: nothing after it would ever be reached",
                                    i - 1);
            s->n = CW_MIN(s->n + s->children[i]->n, CW_ENDLESS);
            s->passes = CW_MAX(s->passes, s->children[i]->passes);
            s->shuffled |= s->children[i]->shuffled;
        }
    } else {
        struct cw_seq *s = *ret = seq_new(SEQ_SOURCE, 0);
        if (!s)
            return cw_error_nomem(b->err, sizeof(*s), "a sequence");
        s->leaf = b->leaf++;
        const struct cw_op *op = b->sequence->compiled->programs[s->leaf].ops[0];
        r = op->desc->open(op, b->env, &b->sequence->sources[s->leaf], b->err);
        if (r < 0) {
            cw_error_op(b->err, op->desc->name);
            return r;
        }
        s->source = b->sequence->sources[s->leaf];
        s->n = s->source->n_records;
        b->sequence->needs_load |= s->source->ops->load || s->source->ops->pull;
        if (op->desc->stream)
            b->sequence->stream = b->sequence->sources[s->leaf];
    }
    for (size_t i = 1; i < chain->n; i++) {
        batched |= chain->nodes[i].desc->kind == CW_OP_BATCHER;
        if (chain->nodes[i].desc->kind == CW_OP_INDEX &&
            (r = build_index(b, &chain->nodes[i], batched, ret)) < 0) {
            cw_error_op(b->err, chain->nodes[i].desc->name);
            return r;
        }
    }
    return 0;
}

/* W, docs/semantics.md, section 4, and the size of pieces. */
static void set_sizes(struct cw_sequence *s)
{
    const struct cw_compiled *c = s->compiled;
    uint64_t batch = c->batch_size, bytes = 0, records = 0, limit = LIMIT_POSITIONS;
    if (s->stream) { /* without a window to fill, what comes is passed on */
        s->window = s->stream_salt ? s->window : CW_MAX(STREAM_POSITIONS / batch * batch, batch);
        s->piece_size = s->window;
        return;
    }
    for (unsigned i = 0; i < c->n_programs; i++) {
        bytes += s->sources[i]->source_bytes;
        records += s->sources[i]->n_records;
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
    uint64_t bytes_limit = limit;
    if (s->n_positions < CW_ENDLESS)
        limit = CW_MIN(limit, s->n_positions / 256);
    s->piece_size = CW_MAX(limit / batch * batch, batch);
    if (!c->counted || c->batcher == CW_BATCHER_BUCKET)
        s->piece_size = CW_MAX(s->piece_size, CW_MIN(16 * batch, bytes_limit / batch * batch));
    if (s->by_chunk)
        s->piece_size = CW_MIN(s->window, CW_MAX((s->n_positions + batch - 1) / batch * batch, batch));
}

int cw_sequence_open(struct cw_compiled *c, const struct cw_source_env *env, struct cw_sequence **ret,
                     struct cw_error *err)
{
    struct cw_sequence *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a sequence");
    s->compiled = c;
    s->sources = calloc(c->n_programs, sizeof(*s->sources));
    struct build b = {.sequence = s, .env = env, .err = err};
    int r = s->sources ? build_chain(&b, &c->pipeline->chain, &s->root) : cw_error_nomem(err, 0, "sources");
    if (r < 0) {
        cw_sequence_free(s);
        return r;
    }
    struct cw_key key = {0};
    for (unsigned i = 0; i < c->n_programs; i++) {
        cw_key_u64(&key, s->sources[i]->snapshot);
        uint64_t so_far = cw_key_hash(&key);
        key.size = 0;
        cw_key_u64(&key, so_far);
    }
    s->snapshot = cw_key_hash(&key);
    s->n_positions = s->root->n;
    set_sizes(s);
    *ret = s;
    return 0;
}

struct cw_sequence *cw_sequence_free(struct cw_sequence *s)
{
    if (!s)
        return NULL;
    seq_free(s->root);
    for (unsigned i = 0; s->sources && i < s->compiled->n_programs; i++)
        cw_source_free(s->sources[i]);
    free(s->sources);
    free(s->stream_salt);
    free(s);
    return NULL;
}
