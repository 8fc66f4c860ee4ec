/* An epoch: its keys, its permutations, and the records at positions of the sequence. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/philox.h"
#include "pipeline/seq.h"

/* The permuted chunks of a shuffle in one pass. */
struct cw_order {
    struct cw_order *next;
    const struct cw_seq *node;
    uint64_t pass;
    uint32_t *chunks;
    uint64_t *ends;        /* cumulative; NULL where every chunk is one position */
    size_t charged;
};

uint64_t cw_epoch_key(uint64_t seed, uint64_t epoch, const char *salt)
{
    struct cw_key key = {0};
    cw_key_u64(&key, seed);
    cw_key_u64(&key, epoch);
    cw_key_text(&key, salt);
    return cw_key_hash(&key);
}

int cw_epoch_init(struct cw_epoch *e, const struct cw_sequence *s, uint64_t seed, uint64_t epoch, struct cw_budget *budget, struct cw_error *err)
{
    const struct cw_compiled *c = s->compiled;
    *e = (struct cw_epoch){.sequence = s, .seed = seed, .epoch = epoch, .budget = budget};
    e->keys = calloc(c->n_keys, sizeof(*e->keys));
    if (!e->keys)
        return cw_error_nomem(err, c->n_keys * sizeof(*e->keys), "keys");
    for (unsigned i = 0; i < c->n_keys; i++) {
        e->keys[i] = cw_epoch_key(seed, epoch, c->salts[i]);
    }
    return 0;
}

static void order_free(struct cw_epoch *e, struct cw_order *o)
{
    cw_budget_give(e->budget, o->charged);
    free(o->chunks);
    free(o->ends);
    free(o);
}

void cw_epoch_deinit(struct cw_epoch *e)
{
    while (e->orders) {
        struct cw_order *o = e->orders;
        e->orders = o->next;
        order_free(e, o);
    }
    free(e->keys);
    e->keys = NULL;
}

static uint64_t shuffle_key(const struct cw_epoch *e, const struct cw_seq *s, uint64_t pass, uint64_t level, uint64_t window)
{
    struct cw_key key = {0};
    cw_key_u64(&key, e->seed);
    cw_key_u64(&key, e->epoch);
    cw_key_text(&key, s->salt);
    cw_key_u64(&key, pass);
    cw_key_u64(&key, level);
    cw_key_u64(&key, window);
    return cw_key_hash(&key);
}

void cw_epoch_stream_order(const struct cw_epoch *e, uint64_t window, uint32_t *order, size_t n)
{
    const struct cw_seq s = {.salt = e->sequence->stream_salt};
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    if (s.salt)
        cw_permute(shuffle_key(e, &s, 0, 1, window), order, n, sizeof(*order));
}

static uint64_t chunk_begin(const struct cw_seq *s, uint64_t k) { return s->ends ? (k ? s->ends[k - 1] : 0) : k * s->uniform; }
static uint64_t chunk_end(const struct cw_seq *s, uint64_t k) { return s->ends ? s->ends[k] : CW_MIN((k + 1) * s->uniform, s->children[0]->n); }

static int order_get(struct cw_epoch *e, const struct cw_seq *s, uint64_t pass, const struct cw_order **ret, struct cw_error *err)
{
    struct cw_order **at = &e->orders;
    for (; *at; at = &(*at)->next) {
        if ((*at)->node != s)
            continue;
        if ((*at)->pass == pass) {
            *ret = *at;
            return 0;
        }
        struct cw_order *old = *at; /* one pass at a time is kept: positions come in order, mostly */
        *at = old->next;
        order_free(e, old);
        break;
    }
    size_t bytes = s->n_chunks * sizeof(uint32_t) + (s->uniform == 1 ? 0 : s->n_chunks * sizeof(uint64_t));
    int r = cw_budget_take(e->budget, bytes, "the order of a shuffle", err);
    if (r < 0)
        return r;
    struct cw_order *o = calloc(1, sizeof(*o));
    if (o) {
        *o = (struct cw_order){.node = s, .pass = pass, .charged = bytes, .chunks = malloc((s->n_chunks + 1) * sizeof(*o->chunks))};
        if (s->uniform != 1)
            o->ends = malloc((s->n_chunks + 1) * sizeof(*o->ends));
    }
    if (!o || !o->chunks || (s->uniform != 1 && !o->ends)) {
        if (o)
            order_free(e, o);
        else
            cw_budget_give(e->budget, bytes);
        return cw_error_nomem(err, bytes, "the order of a shuffle");
    }
    for (uint64_t k = 0; k < s->n_chunks; k++)
        o->chunks[k] = (uint32_t)k;
    cw_permute(shuffle_key(e, s, pass, 0, 0), o->chunks, s->n_chunks, sizeof(*o->chunks));
    uint64_t end = 0;
    for (uint64_t k = 0; o->ends && k < s->n_chunks; k++) {
        end += chunk_end(s, o->chunks[k]) - chunk_begin(s, o->chunks[k]);
        o->ends[k] = end;
    }
    o->next = e->orders;
    e->orders = o;
    *ret = o;
    return 0;
}

static int refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n, uint64_t pass, struct cw_ref *out, struct cw_error *err);

/* Positions [begin, begin + n) of the permuted chunks, before windows are permuted. */
static int chunk_refs(struct cw_epoch *e, const struct cw_seq *s, const struct cw_order *o, uint64_t begin, uint64_t n, uint64_t pass,
                      struct cw_ref *out, struct cw_error *err)
{
    const struct cw_seq *child = s->children[0];
    if (s->uniform == 1 && child->kind == SEQ_SOURCE) {
        for (uint64_t i = 0; i < n; i++)
            out[i] = (struct cw_ref){.row = o->chunks[begin + i], .leaf = child->leaf, .pass = (uint32_t)pass};
        return 0;
    }
    uint64_t low = 0, high = s->n_chunks; /* first chunk that ends after begin */
    while (o->ends && low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (o->ends[mid] > begin)
            high = mid;
        else
            low = mid + 1;
    }
    uint64_t k = o->ends ? low : begin;
    while (n > 0) {
        uint64_t start = o->ends ? (k ? o->ends[k - 1] : 0) : k, end = o->ends ? o->ends[k] : k + 1;
        uint64_t m = CW_MIN(end - begin, n);
        int r = refs(e, child, chunk_begin(s, o->chunks[k]) + (begin - start), m, pass, out, err);
        if (r < 0)
            return r;
        out += m;
        begin += m;
        n -= m;
        k++;
    }
    return 0;
}

static int shuffle_refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n, uint64_t pass, struct cw_ref *out,
                        struct cw_error *err)
{
    const struct cw_order *o = NULL;
    int r = order_get(e, s, pass, &o, err);
    if (r < 0 || s->uniform == 1)
        return r < 0 ? r : chunk_refs(e, s, o, begin, n, pass, out, err);
    uint64_t size = e->sequence->split_size;
    while (n > 0) {
        uint64_t w = begin / size, from = w * size, length = CW_MIN(size, s->n - from), m = CW_MIN(from + length - begin, n);
        bool whole = begin == from && m == length;
        struct cw_ref *window = out;
        size_t bytes = whole ? 0 : length * sizeof(*window);
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
            cw_permute(shuffle_key(e, s, pass, 1, w), window, length, sizeof(*window));
        if (!whole) {
            if (r >= 0)
                memcpy(out, window + (begin - from), m * sizeof(*out));
            free(window);
            cw_budget_give(e->budget, bytes);
        }
        if (r < 0)
            return r;
        out += m;
        begin += m;
        n -= m;
    }
    return 0;
}

static int refs(struct cw_epoch *e, const struct cw_seq *s, uint64_t begin, uint64_t n, uint64_t pass, struct cw_ref *out, struct cw_error *err)
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
            uint64_t m = CW_MIN(size - begin % size, n), o = begin / size, combined = s->count >= CW_ENDLESS ? o : o + s->count * pass;
            if (combined >> 32) /* of an endless one; finite ones were checked */
                return cw_error_set(err, CW_E_PIPELINE, "repeat: pass %" PRIu64 " (those of repeats before it multiplied in): expected fewer than 2^32", combined);
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
