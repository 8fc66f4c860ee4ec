/* shuffle: the positions of its input in pseudo-random order, by record or by chunk (docs/semantics.md,
 * section 4). A chunk is a run of neighbouring positions; a window is a number of consecutive positions of
 * the permuted chunks, which are permuted among themselves. dataset/orders.h has the permutation tables of an
 * epoch. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/philox.h"
#include "dataset/orders.h"
#include "pipeline/roles.h"

/* ---- runs of positions ---- */

/* Finds the records at positions [begin, begin + n) of the permuted chunks, before windows are permuted. */
static int shuffle_chunk_refs(struct cw_epoch *e, const struct cw_seq *s, const struct cw_order *o,
                              uint64_t begin, uint64_t n, uint64_t pass, struct cw_ref *out,
                              struct cw_error *err)
{
    const struct cw_seq *child = s->children[0];
    if (s->shuffle->kind == CW_SHUFFLE_TABLE && child->source) {
        for (uint64_t i = 0; i < n; i++)
            out[i] = (struct cw_ref){.row = o->at[begin + i], .leaf = child->leaf, .pass = (uint32_t)pass};
        return 0;
    }
    uint64_t k = o->ends ? CW_FIRST(i, 0, s->shuffle->n_chunks, o->ends[i] > begin) : begin;
    struct cw_ref *first = out;
    uint64_t all = n;
    while (n > 0) {
        uint64_t start = o->ends ? (k ? o->ends[k - 1] : 0) : k, end = o->ends ? o->ends[k] : k + 1;
        uint64_t m = CW_MIN(end - begin, n);
        uint64_t position = cw_chunk_begin(s->shuffle, o->at[k]) + (begin - start);
        int r = 0;
        if (!child->scatters)
            r = cw_seq_refs(e, child, position, m, pass, out, err);
        for (uint64_t i = 0; child->scatters && i < m; i++)
            out[i] = cw_ref_at(position + i, pass);
        if (r < 0)
            return r;
        out += m;
        begin += m;
        n -= m;
        k++;
    }
    return child->scatters ? cw_seq_lookup(e, child, first, all, err) : 0;
}

/* Finds the records at positions [begin, begin + n), which lie in window w. The window begins at position
 * `from` and has `length` positions. */
static int shuffle_window_refs(struct cw_epoch *e, const struct cw_seq *s, const struct cw_order *o,
                               uint64_t w, uint64_t from, uint64_t length, uint64_t begin, uint64_t n,
                               uint64_t pass, struct cw_ref *out, struct cw_error *err)
{
    bool whole = begin == from && n == length;
    struct cw_ref *window = out;
    size_t bytes = whole ? 0 : length * sizeof(*window);
    int r = 0;
    if (!whole) {
        if ((r = cw_budget_take(e->budget, bytes, "a window of shuffle", err)) < 0)
            return r;
        if (!(window = malloc(bytes))) {
            cw_budget_give(e->budget, bytes);
            return cw_error_nomem(err, bytes, "a window of shuffle");
        }
    }
    r = shuffle_chunk_refs(e, s, o, from, length, pass, window, err);
    if (r >= 0)
        cw_permute(cw_shuffle_key(e, &s->shuffle->draw, pass, 1, w), window, length, sizeof(*window));
    if (!whole) {
        if (r >= 0)
            memcpy(out, window + (begin - from), n * sizeof(*out));
        free(window);
        cw_budget_give(e->budget, bytes);
    }
    return r;
}

/* Finds the records at positions [begin, begin + n) of a shuffle by record that uses a Feistel network. */
static int shuffle_network_refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n,
                                uint64_t pass, struct cw_ref *out, struct cw_error *err)
{
    const struct cw_seq *child = s->children[0];
    struct cw_permutation p;
    uint64_t at[1024];
    cw_shuffle_network(e, s, pass, &p);
    for (uint64_t i = 0; i < n; i += CW_COUNT_OF(at)) {
        uint64_t m = CW_MIN(n - i, CW_COUNT_OF(at));
        cw_permutation_run(&p, begin + i, m, at);
        for (uint64_t k = 0; k < m; k++)
            out[i + k] = child->source
                             ? (struct cw_ref){.row = at[k], .leaf = child->leaf, .pass = (uint32_t)pass}
                             : cw_ref_at(at[k], pass);
    }
    return child->source ? 0 : cw_seq_lookup(e, child, out, n, err);
}

static int shuffle_refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n, uint64_t pass,
                        struct cw_ref *out, struct cw_error *err)
{
    struct cw_order *o = NULL;
    if (s->shuffle->kind == CW_SHUFFLE_NETWORK)
        return shuffle_network_refs(e, s, begin, n, pass, out, err);
    int r = cw_order_get(e, s, pass, CW_ORDER_CHUNKS, &o, err);
    if (r < 0)
        return r;
    uint64_t size = e->sequence->window;
    if (s->shuffle->kind == CW_SHUFFLE_TABLE) {
        r = shuffle_chunk_refs(e, s, o, begin, n, pass, out, err);
        n = 0;
    }
    while (n > 0 && r >= 0) {
        uint64_t w = begin / size, from = w * size, length = CW_MIN(size, s->n - from),
                 m = CW_MIN(from + length - begin, n);
        r = shuffle_window_refs(e, s, o, w, from, length, begin, m, pass, out, err);
        out += m;
        begin += m;
        n -= m;
    }
    cw_order_put(e, o);
    return r;
}

/* ---- positions in any order ---- */

/* Returns the number of the window that a position lies in, counted over all passes. */
static uint64_t shuffle_window_of(const struct cw_seq *s, uint64_t size, const struct cw_ref *r)
{
    uint64_t windows = s->shuffle->kind == CW_SHUFFLE_CHUNKS ? (s->n + size - 1) / size : 1;
    return cw_ref_pass(r) * windows + (s->shuffle->kind == CW_SHUFFLE_CHUNKS ? r->row / size : 0);
}

/* Sorts the indices so that positions of one window are neighbours. If there are more windows than counters,
 * some windows share a counter, and their positions are mixed. That takes more time, but does not change the
 * result. */
static void shuffle_sort(const struct cw_lookup *l, const struct cw_seq *s, uint32_t *index, uint64_t n)
{
    uint64_t size = l->epoch->sequence->window, mask = l->mask;
    while (mask > n)
        mask >>= 1;
    memset(l->counts, 0, (mask + 1) * sizeof(*l->counts));
    for (uint64_t i = 0; i < n; i++)
        l->counts[shuffle_window_of(s, size, &l->refs[index[i]]) & mask]++;
    uint32_t before = 0;
    for (uint64_t k = 0; k <= mask; k++) {
        uint32_t count = l->counts[k];
        l->counts[k] = before;
        before += count;
    }
    for (uint64_t i = 0; i < n; i++)
        l->sorted[l->counts[shuffle_window_of(s, size, &l->refs[index[i]]) & mask]++] = index[i];
    memcpy(index, l->sorted, n * sizeof(*index));
}

/* Returns the number, in [low, high), of the permuted chunk that holds a position: the first chunk that ends
 * after the position. */
static uint64_t shuffle_chunk_at(const struct cw_order *o, uint64_t low, uint64_t high, uint64_t position)
{
    return CW_FIRST(i, low, high, o->ends[i] > position);
}

/* Replaces positions of one window of a shuffle by positions of its input. */
static int shuffle_map_window(struct cw_lookup *l, const struct cw_seq *s, const struct cw_order *chunks,
                              uint64_t window, const uint32_t *index, uint64_t n)
{
    uint64_t size = l->epoch->sequence->window, from = window * size, last = CW_MIN(from + size, s->n) - 1;
    uint64_t low = shuffle_chunk_at(chunks, 0, s->shuffle->n_chunks, from),
             high = shuffle_chunk_at(chunks, low, s->shuffle->n_chunks, last);
    struct cw_order *o;
    int r = cw_order_get(l->epoch, s, chunks->pass, window, &o, l->err);
    if (r < 0)
        return r;
    for (uint64_t i = 0; i < n; i++) {
        struct cw_ref *ref = &l->refs[index[i]];
        uint64_t position = from + o->at[ref->row - from], k = shuffle_chunk_at(chunks, low, high, position);
        ref->row = cw_chunk_begin(s->shuffle, chunks->at[k]) + position - (k ? chunks->ends[k - 1] : 0);
    }
    cw_order_put(l->epoch, o);
    return 0;
}

/* Replaces positions of one pass of a shuffle of kind CW_SHUFFLE_NETWORK by positions of its input. */
static void shuffle_map_network(struct cw_lookup *l, const struct cw_seq *s, uint64_t pass,
                                const uint32_t *index, uint64_t n)
{
    struct cw_permutation p;
    uint64_t at[256];
    cw_shuffle_network(l->epoch, s, pass, &p);
    for (uint64_t i = 0; i < n; i += CW_COUNT_OF(at)) {
        uint64_t m = CW_MIN(n - i, CW_COUNT_OF(at));
        for (uint64_t k = 0; k < m; k++)
            at[k] = l->refs[index[i + k]].row;
        cw_permutation_map(&p, at, m);
        for (uint64_t k = 0; k < m; k++)
            l->refs[index[i + k]].row = at[k];
    }
}

/* Replaces positions of one pass of a shuffle by positions of its input, for shuffles of the other kinds. The
 * positions of a window are neighbours in `index`. */
static int shuffle_map_pass(struct cw_lookup *l, const struct cw_seq *s, uint64_t pass, const uint32_t *index,
                            uint64_t n)
{
    uint64_t size = l->epoch->sequence->window;
    struct cw_order *chunks;
    int r = cw_order_get(l->epoch, s, pass, CW_ORDER_CHUNKS, &chunks, l->err);
    if (r < 0)
        return r;
    for (uint64_t i = 0; s->shuffle->kind == CW_SHUFFLE_TABLE && i < n; i++)
        l->refs[index[i]].row = chunks->at[l->refs[index[i]].row];
    for (uint64_t i = 0, end; s->shuffle->kind == CW_SHUFFLE_CHUNKS && i < n && r >= 0; i = end) {
        uint64_t window = l->refs[index[i]].row / size;
        for (end = i + 1; end < n && l->refs[index[end]].row / size == window; end++)
            ;
        r = shuffle_map_window(l, s, chunks, window, index + i, end - i);
    }
    cw_order_put(l->epoch, chunks);
    return r;
}

static int shuffle_lookup(struct cw_lookup *l, const struct cw_seq *s, uint32_t *index, uint64_t n)
{
    int r = 0;
    shuffle_sort(l, s, index, n);
    for (uint64_t i = 0, end; i < n && r >= 0; i = end) {
        uint64_t pass = cw_ref_pass(&l->refs[index[i]]);
        for (end = i + 1; end < n && cw_ref_pass(&l->refs[index[end]]) == pass; end++)
            ;
        if (s->shuffle->kind == CW_SHUFFLE_NETWORK)
            shuffle_map_network(l, s, pass, index + i, end - i);
        else
            r = shuffle_map_pass(l, s, pass, index + i, end - i);
    }
    return r < 0 ? r : s->children[0]->ops->lookup(l, s->children[0], index, n);
}

/* ---- building ---- */

/* The salt of a shuffle that has a seed of its own. */
#define SEEDED_SALT "shuffle"

/* The chunks of a shuffle by chunk are given in their order before the permutation: only their sizes matter,
 * because the caller permutes them anyway. */
static void shuffle_chunks(const struct cw_seq *s, uint64_t from, uint64_t to, struct cw_chunks *ret)
{
    const struct cw_shuffle *f = s->shuffle;
    if (f->kind == CW_SHUFFLE_CHUNKS)
        cw_chunks_add(ret, f->uniform, f->ends, f->n_chunks, s->n, from, to);
    else
        cw_chunks_add(ret, CW_CHUNK_POSITIONS, NULL, (s->n + CW_CHUNK_POSITIONS - 1) / CW_CHUNK_POSITIONS,
                      s->n, from, to);
}

static const struct cw_seq_ops shuffle_seq_ops = {
    .refs = shuffle_refs, .lookup = shuffle_lookup, .chunks = shuffle_chunks};

/* Clears *all_random if a source below s has records that can't be read one by one, and *all_single if a
 * source has more than one record per file. */
static void shuffle_survey(const struct cw_seq *s, bool *all_random, bool *all_single)
{
    if (s->source) {
        *all_random &= s->source->random_access;
        *all_single &= s->source->one_file_per_record;
    }
    for (size_t i = 0; i < s->n_children; i++)
        shuffle_survey(s->children[i], all_random, all_single);
}

/* Chooses the kind of the shuffle: by record if each record can be read by itself, except if by_chunk is set
 * and chunks have more than one record. */
static int shuffle_choose(struct cw_shuffle *f, const struct cw_seq *child, bool by_chunk,
                          struct cw_error *err)
{
    bool all_random = true, all_single = true;
    shuffle_survey(child, &all_random, &all_single);
    if (all_single || (all_random && !by_chunk)) {
        f->kind = child->n <= CW_PERMUTATION_TABLE ? CW_SHUFFLE_TABLE : CW_SHUFFLE_NETWORK;
        f->n_chunks = child->n;
        f->uniform = 1;
        return 0;
    }
    if (f->draw.seed >= 0) {
        char shown[24];
        snprintf(shown, sizeof(shown), "%" PRId64, f->draw.seed);
        return cw_error_value(err, CW_E_PIPELINE, "seed", shown, "-1",
                              "shuffle: seed is %s: expected -1, because this shuffle is by chunk%s, and its "
                              "order also depends on the batch size",
                              shown, by_chunk ? "" : " (its input has compressed files or row groups)");
    }
    f->kind = CW_SHUFFLE_CHUNKS;
    f->uniform = child->chunk;
    if (f->uniform) {
        f->n_chunks = (child->n + f->uniform - 1) / f->uniform;
    } else {
        struct cw_chunks c = {0};
        child->ops->chunks(child, 0, child->n, &c);
        f->ends = c.ends;
        f->n_chunks = c.n;
        if (c.too_many)
            return cw_error_set(err, CW_E_PIPELINE,
                                "shuffle: its input has more than %" PRIu64
                                " chunks: expected fewer elements, or the attribute by \"record\"",
                                CW_CHUNKS_MAX);
        if (c.failed)
            return cw_error_nomem(err, 0, "the chunks of a shuffle");
    }
    if (f->n_chunks >> 32)
        return cw_error_set(err, CW_E_PIPELINE,
                            "shuffle: its input has %" PRIu64 " chunks: expected fewer than 2^32",
                            f->n_chunks);
    return 0;
}

/* Builds a shuffle of a stream (an iterable, whose length is unknown): the engine permutes each window once
 * it has been read. */
static int shuffle_build_stream(struct cw_sequence *q, uint64_t window, bool by_chunk,
                                struct cw_shuffle_draw draw, struct cw_error *err)
{
    if (by_chunk)
        return cw_error_set(err, CW_E_PIPELINE,
                            "shuffle: by is \"chunk\": expected \"record\", because a stream has no chunks");
    if (q->stream_draw.salt)
        return cw_error_set(err, CW_E_PIPELINE,
                            "shuffle: the stream is shuffled already: expected only one shuffle");
    q->window = window;
    q->stream_draw = draw;
    return (q->stream_draw.salt = strdup(draw.salt)) ? 0 : cw_error_nomem(err, 0, "a salt");
}

static int shuffle_build(struct cw_seq_build *b, const struct cw_node *node, bool batched CW_UNUSED,
                         struct cw_seq **at)
{
    struct cw_sequence *q = b->sequence;
    int64_t seed = json_integer_value(json_object_get(node->attrs, "seed"));
    /* an order with a seed of its own is the same wherever the shuffle stands, so its salt has no occurrence
     */
    struct cw_shuffle_draw draw = {.salt = seed < 0 ? q->compiled->salts[node->position] : SEEDED_SALT,
                                   .seed = seed,
                                   .reshuffle = json_is_true(json_object_get(node->attrs, "reshuffle"))};
    bool by_chunk = strcmp(json_string_value(json_object_get(node->attrs, "by")), "chunk") == 0;
    uint64_t window = (uint64_t)json_integer_value(json_object_get(node->attrs, "window"));
    if (!window == !!q->stream) {
        char shown[24];
        const char *expected =
            window ? "0, because the number of elements is known and all of them are permuted"
                   : "the number of consecutive elements to permute among themselves, because the end of "
                     "the stream is not known";
        snprintf(shown, sizeof(shown), "%" PRIu64, window);
        cw_error_attribute(b->err, "window", shown, expected);
        return cw_error_set(b->err, CW_E_PIPELINE, "shuffle: window is %s: expected %s", shown, expected);
    }
    if (q->stream)
        return shuffle_build_stream(q, window, by_chunk, draw, b->err);
    for (; (*at)->n >= CW_ENDLESS;
         at = &(*at)->children[0]) /* goes below the endless repeat, so that each pass is permuted */
        if ((*at)->joins)
            return cw_error_set(b->err, CW_E_PIPELINE,
                                "shuffle: the elements of the inputs before it are endless: write shuffle "
                                "inside each input, or take after them");
    struct cw_seq *s = cw_seq_wrap(b, &shuffle_seq_ops, sizeof(*s), at);
    if (!s)
        return CW_E_MEMORY;
    struct cw_shuffle *f = s->shuffle = calloc(1, sizeof(*f));
    if (!f)
        return cw_error_nomem(b->err, sizeof(*f), "a shuffle");
    f->draw = draw;
    if (!(f->draw.salt = strdup(draw.salt)))
        return cw_error_nomem(b->err, 0, "a salt");
    s->scatters = true;
    f->id = q->n_shuffles++;
    f->position = node->position;
    int r = shuffle_choose(f, s->children[0], by_chunk, b->err);
    s->chunk = f->kind == CW_SHUFFLE_CHUNKS ? 0 : CW_CHUNK_POSITIONS;
    q->by_chunk |= f->kind == CW_SHUFFLE_CHUNKS;
    return r;
}

static const struct cw_index_map map = {.permutes = true, .build = shuffle_build};

static const char *const units[] = {"record", "chunk", NULL};

static const struct cw_attr_def attrs[] = {
    {.name = "by",
     .kind = CW_ATTR_STRING,
     .def = "\"record\"",
     .choices = units,
     .doc = "record: permute all elements; chunk: permute chunks of neighbouring records, and elements only "
            "within windows of chunks, for storage where random reads are slow"},
    {.name = "window",
     .kind = CW_ATTR_INT,
     .def = "0",
     .min = 0,
     .max = 1 << 20,
     .doc = "for the source `iterable`, whose length is not known: number of consecutive elements that are "
            "permuted among themselves; for any other source: 0"},
    {.name = "reshuffle",
     .kind = CW_ATTR_BOOL,
     .def = "true",
     .doc = "true: a new order in each epoch; false: the same order in all epochs"},
    {.name = "seed",
     .kind = CW_ATTR_INT,
     .def = "-1",
     .min = -1,
     .max = 0x1p62,
     .doc = "-1: the order follows from the seed of the run; else the order follows from this seed, in every "
            "run, and wherever the shuffle stands. With reshuffle false it is also the same in all passes of "
            "a later `repeat`. Not for shuffles by chunk"},
    {0},
};

const struct cw_op_desc cw_op_shuffle = {
    .name = "shuffle",
    .summary = "puts the elements in random order, in a new order in each epoch",
    .doc = "The order is a pseudo-random permutation of all elements, whatever their number. `shuffle` has "
           "no buffer: it permutes indices, not data. If the records of a source can't be read one by one "
           "(compressed files, Parquet), the shuffle is by chunk, which mixes less well (docs/shuffling.md).",
    .hint = "there is no buffer to size: shuffle() permutes all elements",
    .kind = CW_OP_INDEX,
    .effects = {.count = CW_COUNT_KNOWN, .state = CW_STATE_WINDOWED},
    .attrs = attrs,
    .index = &map,
};
