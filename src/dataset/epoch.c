/* An epoch: its keys, its permutations, and the records at positions of the sequence. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/philox.h"
#include "dataset/orders.h"

uint64_t cw_epoch_key(uint64_t seed, uint64_t epoch, const char *salt)
{
    struct cw_key key = {0};
    cw_key_u64(&key, seed);
    cw_key_u64(&key, epoch);
    cw_key_text(&key, salt);
    return cw_key_hash(&key);
}

/* Of the operator at a position, or of `replace`, the last. Before a cache point with `freeze` draws are
 * those of its own seed and epoch. */
static uint64_t draw_key(const struct cw_compiled *c, uint64_t seed, uint64_t epoch, unsigned i)
{
    const struct cw_freeze *f = &c->freeze[i];
    if (i + 1 == c->n_keys || !f->on)
        return cw_epoch_key(seed, epoch, c->salts[i]);
    return cw_epoch_key(f->seed < 0 ? seed : (uint64_t)f->seed, f->reuse ? epoch / f->reuse : 0, c->salts[i]);
}

int cw_epoch_init(struct cw_epoch *e, const struct cw_sequence *s, uint64_t seed, uint64_t epoch,
                  struct cw_budget *budget, struct cw_error *err)
{
    const struct cw_compiled *c = s->compiled;
    *e = (struct cw_epoch){.sequence = s, .seed = seed, .epoch = epoch, .budget = budget};
    e->keys = calloc(c->n_keys, sizeof(*e->keys));
    if (!e->keys)
        return cw_error_nomem(err, c->n_keys * sizeof(*e->keys), "keys");
    for (unsigned i = 0; i < c->n_keys; i++)
        e->keys[i] = draw_key(c, seed, epoch, i);
    int r = cw_orders_new(s, &e->orders, err);
    if (r < 0)
        cw_epoch_deinit(e);
    return r;
}

void cw_epoch_deinit(struct cw_epoch *e)
{
    cw_orders_free(e);
    free(e->keys);
    e->keys = NULL;
}

void cw_epoch_stream_order(const struct cw_epoch *e, uint64_t window, uint32_t *order, size_t n)
{
    const char *salt = e->sequence->stream_salt;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    if (salt)
        cw_permute(cw_shuffle_key(e, salt, e->sequence->stream_reshuffle, 0, 1, window), order, n,
                   sizeof(*order));
}

int cw_too_many_passes(uint64_t pass, struct cw_error *err)
{
    return cw_error_set(err, CW_E_PIPELINE,
                        "repeat: pass %" PRIu64
                        " (those of repeats before it multiplied in): expected fewer than 2^32",
                        pass);
}

static int refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n, uint64_t pass,
                struct cw_ref *out, struct cw_error *err);

/* Positions [begin, begin + n) of the permuted chunks, before windows are permuted. */
static int chunk_refs(struct cw_epoch *e, const struct cw_seq *s, const struct cw_order *o, uint64_t begin,
                      uint64_t n, uint64_t pass, struct cw_ref *out, struct cw_error *err)
{
    const struct cw_seq *child = s->children[0];
    if (s->shuffle == SHUFFLE_TABLE && child->kind == SEQ_SOURCE) {
        for (uint64_t i = 0; i < n; i++)
            out[i] = (struct cw_ref){.row = o->at[begin + i], .leaf = child->leaf, .pass = (uint32_t)pass};
        return 0;
    }
    uint64_t k = o->ends ? CW_FIRST(i, 0, s->n_chunks, o->ends[i] > begin) : begin;
    struct cw_ref *first = out;
    uint64_t all = n;
    while (n > 0) {
        uint64_t start = o->ends ? (k ? o->ends[k - 1] : 0) : k, end = o->ends ? o->ends[k] : k + 1;
        uint64_t m = CW_MIN(end - begin, n);
        uint64_t position = cw_chunk_begin(s, o->at[k]) + (begin - start);
        int r = 0;
        if (!child->shuffled)
            r = refs(e, child, position, m, pass, out, err);
        for (uint64_t i = 0; child->shuffled && i < m; i++)
            out[i] = cw_ref_at(position + i, pass);
        if (r < 0)
            return r;
        out += m;
        begin += m;
        n -= m;
        k++;
    }
    return child->shuffled ? cw_seq_lookup(e, child, first, all, err) : 0;
}

/* Positions [begin, begin + n) of window w, which starts at `from` and has `length`. */
static int window_refs(struct cw_epoch *e, const struct cw_seq *s, const struct cw_order *o, uint64_t w,
                       uint64_t from, uint64_t length, uint64_t begin, uint64_t n, uint64_t pass,
                       struct cw_ref *out, struct cw_error *err)
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
    r = chunk_refs(e, s, o, from, length, pass, window, err);
    if (r >= 0)
        cw_permute(cw_shuffle_key(e, s->salt, s->reshuffle, pass, 1, w), window, length, sizeof(*window));
    if (!whole) {
        if (r >= 0)
            memcpy(out, window + (begin - from), n * sizeof(*out));
        free(window);
        cw_budget_give(e->budget, bytes);
    }
    return r;
}

/* Positions [begin, begin + n) of a shuffle whose positions are computed one by one. */
static int network_refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n, uint64_t pass,
                        struct cw_ref *out, struct cw_error *err)
{
    const struct cw_seq *child = s->children[0];
    struct cw_permutation p;
    uint64_t at[1024];
    cw_shuffle_network(e, s, pass, &p);
    for (uint64_t i = 0; i < n; i += CW_COUNT_OF(at)) {
        uint64_t m = CW_MIN(n - i, CW_COUNT_OF(at));
        cw_permutation_run(&p, begin + i, m, at);
        for (uint64_t k = 0; k < m; k++)
            out[i + k] = child->kind == SEQ_SOURCE
                             ? (struct cw_ref){.row = at[k], .leaf = child->leaf, .pass = (uint32_t)pass}
                             : cw_ref_at(at[k], pass);
    }
    return child->kind == SEQ_SOURCE ? 0 : cw_seq_lookup(e, child, out, n, err);
}

static int shuffle_refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n, uint64_t pass,
                        struct cw_ref *out, struct cw_error *err)
{
    struct cw_order *o = NULL;
    if (s->shuffle == SHUFFLE_NETWORK)
        return network_refs(e, s, begin, n, pass, out, err);
    int r = cw_order_get(e, s, pass, CW_ORDER_CHUNKS, &o, err);
    if (r < 0)
        return r;
    uint64_t size = e->sequence->window;
    if (s->shuffle == SHUFFLE_TABLE) {
        r = chunk_refs(e, s, o, begin, n, pass, out, err);
        n = 0;
    }
    while (n > 0 && r >= 0) {
        uint64_t w = begin / size, from = w * size, length = CW_MIN(size, s->n - from),
                 m = CW_MIN(from + length - begin, n);
        r = window_refs(e, s, o, w, from, length, begin, m, pass, out, err);
        out += m;
        begin += m;
        n -= m;
    }
    cw_order_put(e, o);
    return r;
}

static int refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n, uint64_t pass,
                struct cw_ref *out, struct cw_error *err)
{
    int r = 0;
    switch (s->kind) {
    case SEQ_SOURCE:
        for (uint64_t i = 0; i < n; i++)
            out[i] = (struct cw_ref){.row = begin + i, .leaf = s->leaf, .pass = (uint32_t)pass};
        break;
    case SEQ_CONCAT:
        for (size_t i = 0; i < s->n_children && n > 0 && r >= 0; i++) {
            uint64_t here = s->children[i]->n;
            if (begin < here) {
                uint64_t m = CW_MIN(here - begin, n);
                r = refs(e, s->children[i], begin, m, pass, out, err);
                out += m;
                n -= m;
                begin = 0;
            } else {
                begin -= here;
            }
        }
        break;
    case SEQ_CUT:
        return refs(e, s->children[0], s->from + begin, n, pass, out, err);
    case SEQ_REPEAT: {
        uint64_t size = s->children[0]->n;
        while (n > 0 && r >= 0) {
            uint64_t m = CW_MIN(size - begin % size, n), o = begin / size,
                     combined = s->count >= CW_ENDLESS ? o : o + s->count * pass;
            r = combined >> 32 ? cw_too_many_passes(combined, err) : 0;
            if (r >= 0)
                r = refs(e, s->children[0], begin % size, m, combined, out, err);
            out += m;
            begin += m;
            n -= m;
        }
        break;
    }
    case SEQ_SHUFFLE:
        return shuffle_refs(e, s, begin, n, pass, out, err);
    }
    return r;
}

int cw_epoch_refs(struct cw_epoch *e, uint64_t begin, uint64_t n, struct cw_ref *ret, struct cw_error *err)
{
    e->orders->call++;
    return refs(e, e->sequence->root, begin, n, 0, ret, err);
}

uint64_t cw_element_id(const struct cw_program *g, const struct cw_record_id *id)
{
    uint64_t words[2 + 64 + 1];
    unsigned n = 0;
    uint64_t pass = id->pass;
    words[n++] = id->file_key;
    words[n++] = id->row;
    for (unsigned i = 0; i < g->n_repeats && i < 64; i++) {
        int64_t c = g->repeat_counts[i];
        words[n++] = c > 0 ? pass % (uint64_t)c : pass;
        pass = c > 0 ? pass / (uint64_t)c : 0;
    }
    if (id->element)
        words[n++] = id->element - 1;
    return cw_hash64(words, n * sizeof(words[0])); /* little-endian hosts only, as base/hash.h */
}

void cw_record_print(const struct cw_program *g, const struct cw_record_id *id, char buf[128])
{
    uint64_t pass = id->pass;
    int at = snprintf(buf, 128, "%016" PRIx64 ":%" PRIu64, id->file_key, id->row);
    for (unsigned i = 0; i < g->n_repeats && at < 110; i++) {
        int64_t c = g->repeat_counts[i];
        at += snprintf(buf + at, (size_t)(128 - at), ".%" PRIu64, c > 0 ? pass % (uint64_t)c : pass);
        pass = c > 0 ? pass / (uint64_t)c : 0;
    }
    if (id->element && at < 120)
        snprintf(buf + at, (size_t)(128 - at), ".%" PRIu32, id->element - 1);
}
