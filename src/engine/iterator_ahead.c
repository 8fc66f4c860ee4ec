/*
 * Which batches will be joined of what splits leave over, worked out before the iterator comes there: so operators on them run beside those of other batches, and
 * not while the consumer waits. The consumer's thread. Nothing is kept from call to call but room: it is worked out anew from where the iterator is.
 */
#include "engine/ahead.h"
#include "engine/iterator_impl.h"

/* Splits looked at, from the oldest open one on. */
#define LOOK_AHEAD 32

struct joining_ahead {
    uint64_t n; /* elements */
    unsigned n_parts;
    struct cw_joined_part parts[LOOK_AHEAD + 1];
};

int cw_join_ahead_new(struct cw_iterator *it, struct cw_error *err)
{
    if (!it->n_keys || !it->compiled->n_batch_ops || !it->splits->ops->join_ahead)
        return 0;
    it->joining_ahead = calloc(it->n_keys, sizeof(*it->joining_ahead));
    it->remnant_sizes = calloc(it->n_keys, sizeof(*it->remnant_sizes));
    return it->joining_ahead && it->remnant_sizes ? 0 : cw_error_nomem(err, 0, "an iterator");
}

void cw_join_ahead_free(struct cw_iterator *it)
{
    free(it->joining_ahead);
    free(it->remnant_sizes);
}

/* The first element of what a split leaves over under a key that is in no batch yet, nor waits for one. The first split's may be joined just now, key by key. */
static uint64_t first_unused(const struct cw_iterator *it, const struct open_split *s, unsigned key, uint64_t size)
{
    const struct unused *u = &it->unused[key];
    if (s == &it->open[it->first_open] && it->phase == PHASE_JOIN && key <= it->key && (key < it->key || it->in_remnant))
        return key < it->key ? size : CW_MIN(it->remnant_at, size);
    return s->index < u->from ? size : s->index == u->from ? CW_MIN(u->skip, size) : 0;
}

/* Adds what a split leaves over under a key to what waits there, and begins the batches that fills. False: no more can be begun. */
static bool add_remnant(struct cw_iterator *it, const struct open_split *s, unsigned key, uint64_t size)
{
    struct joining_ahead *j = &it->joining_ahead[key];
    uint64_t capacity = it->compiled->bucket_sizes[key], at = first_unused(it, s, key, size);
    while (at < size) {
        uint64_t n = CW_MIN(capacity - j->n, size - at);
        j->parts[j->n_parts++] = (struct cw_joined_part){.split = s->split, .from = at, .n = n};
        j->n += n;
        at += n;
        if (j->n < capacity)
            break;
        struct cw_joined_name name = {.epoch = it->at.epoch, .split = s->index, .end = at, .key = key};
        if (!it->splits->ops->join_ahead(it->splits, &name, j->parts, j->n_parts))
            return false;
        j->n = j->n_parts = 0;
    }
    return true;
}

void cw_join_ahead(struct cw_iterator *it)
{
    if (!it->joining_ahead || it->phase == PHASE_FLUSH)
        return;
    for (unsigned k = 0; k < it->n_keys; k++) {
        const struct cw_assembly *waiting = it->joining[k];
        struct joining_ahead *j = &it->joining_ahead[k];
        j->n = waiting ? waiting->n_assigned : 0;
        j->n_parts = waiting != NULL;
        j->parts[0] = (struct cw_joined_part){.waiting = waiting, .n = j->n};
    }
    for (unsigned i = 0; i < it->n_open && i < LOOK_AHEAD; i++) {
        const struct open_split *s = &it->open[(it->first_open + i) % AHEAD_MAX];
        if (i > 0 && s->index == 0) /* what the epoch's end leaves over stays there */
            return;
        if (!it->splits->ops->remnants(it->splits, s->split, it->remnant_sizes))
            return;
        for (unsigned k = 0; k < it->n_keys; k++)
            if (!add_remnant(it, s, k, it->remnant_sizes[k]))
                return;
    }
}

void cw_join_claim(struct cw_iterator *it, struct cw_assembly *a, uint64_t split)
{
    struct cw_joined_name name = {.epoch = it->at.epoch, .split = split, .end = it->remnant_at, .key = a->bucket};
    if (it->joining_ahead)
        it->splits->ops->claim(it->splits, &name, a);
}
