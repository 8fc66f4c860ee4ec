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

uint64_t cw_epoch_draw_key(const struct cw_compiled *c, uint64_t seed, uint64_t epoch, unsigned i)
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
        e->keys[i] = cw_epoch_draw_key(c, seed, epoch, i);
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
    const struct cw_shuffle_draw *d = &e->sequence->stream_draw;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    if (d->salt)
        cw_permute(cw_shuffle_key(e, d, 0, 1, window), order, n, sizeof(*order));
}

int cw_epoch_refs(struct cw_epoch *e, uint64_t begin, uint64_t n, struct cw_ref *ret, struct cw_error *err)
{
    e->orders->call++;
    return cw_seq_refs(e, e->sequence->root, begin, n, 0, ret, err);
}

int cw_epoch_positions(struct cw_epoch *e, const struct cw_seq *node, uint64_t begin, uint64_t n,
                       struct cw_ref *ret, struct cw_error *err)
{
    e->end = node;
    int r = cw_seq_refs(e, e->sequence->root, begin, n, 0, ret, err);
    e->end = NULL;
    return r;
}

int cw_epoch_lookup(struct cw_epoch *e, const struct cw_seq *s, struct cw_ref *refs, uint64_t n,
                    struct cw_error *err)
{
    e->orders->call++;
    return cw_seq_lookup(e, s, refs, n, err);
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
    return cw_hash64(words, n * sizeof(words[0])); /* for little-endian machines only, like base/hash.h */
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
