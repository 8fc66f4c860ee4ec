/*
 * Order "any": the batches of the splits that belong to this rank, every world_size-th of an epoch, whichever is there first. What they leave over is joined by
 * the rank alone, in the order of its splits, so that what it joins does not depend on what came first. Numbers are given as batches are handed out.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/any_impl.h"

/* ---- splits ---- */

static int open_ahead(struct cw_iterator *it, struct cw_error *err)
{
    struct any *a = it->any;
    while (a->n_open < a->ahead && a->open_epoch < it->options.epochs && it->options.rank < cw_any_splits(it)) {
        uint64_t taken = cw_any_resumed(a, a->open_epoch, a->open_index, it->options.world_size);
        struct cw_split *s;
        int r = it->producer->splits->open(it->producer, a->open_epoch, a->open_index, taken, &s, err);
        if (r < 0)
            return r;
        *cw_any_own(a, a->n_open++) = (struct own){
            .split = s, .epoch = a->open_epoch, .index = a->open_index, .only_left = taken == UINT64_MAX, .taken = taken == UINT64_MAX ? 0 : taken};
        a->open_index += it->options.world_size;
        if (a->open_index >= cw_any_splits(it)) {
            a->open_index = it->options.rank;
            a->open_epoch++;
        }
    }
    return 0;
}

static bool all_opened(const struct cw_iterator *it) { return it->any->open_epoch > it->at.epoch || it->options.rank >= cw_any_splits(it); }

/* The place that comes next, for who looks after what may be forgotten, and for the state: all splits of this rank before at.split gave all their batches. */
static void find_place(struct cw_iterator *it)
{
    struct any *a = it->any;
    a->g = a->handed * it->options.world_size;
    a->batch = 0;
    a->split = it->at.epoch >= it->options.epochs ? 0 : all_opened(it) ? cw_any_splits(it) : CW_MAX(a->open_index, a->resumed_epoch == it->at.epoch ? a->resumed : 0);
    for (unsigned i = 0; i < a->n_open; i++) {
        const struct own *o = cw_any_own(a, i);
        if (o->epoch != it->at.epoch)
            return;
        if (!o->ended && !o->only_left) {
            a->split = o->index;
            a->batch = o->taken;
            return;
        }
    }
}

static void tell_passed(struct cw_iterator *it)
{
    find_place(it);
    it->producer->splits->passed(it->producer, it->at.epoch, it->any->split, it->any->batch);
}

/* ---- what splits leave over ---- */

static int queue_joined(struct cw_iterator *it, unsigned key, const struct unused *after,
                        struct cw_error *err)
{
    struct any *a = it->any;
    struct joined *j = calloc(1, sizeof(*j)), **at = &a->joined;
    if (!j)
        return cw_error_nomem(err, sizeof(*j), "a batch");
    *j = (struct joined){.a = CW_STEAL(it->any->joining[key]), .key = key, .before = it->any->unused[key]};
    it->any->unused[key] = *after;
    while (*at)
        at = &(*at)->next;
    *at = j;
    a->n_joined++;
    return 0;
}

/* Appends what a split left over under the present key to what waits there. 1: that filled a batch, which the caller takes, and there may be more; 0: all is in. */
static int join_split(struct cw_iterator *it, struct cw_split *s, uint64_t index, struct cw_error *err)
{
    const struct cw_split_ops *ops = it->producer->splits;
    struct any *a = it->any;
    unsigned k = a->key;
    const struct unused *u = &a->unused[k];
    uint64_t size = ops->remnant(it->producer, s, k);
    int r;
    if (!a->in_remnant)
        a->remnant_at = index < u->from ? size : index == u->from ? CW_MIN(u->skip, size) : 0;
    a->in_remnant = true;
    while (a->remnant_at < size) {
        if (!a->joining[k] && (r = ops->join_new(it->producer, k, &a->joining[k], err)) < 0)
            return r;
        struct cw_assembly *j = a->joining[k];
        uint64_t n = CW_MIN(j->capacity - j->n_assigned, size - a->remnant_at);
        if (n > 0 && (r = ops->join(it->producer, j, s, k, a->remnant_at, n, err)) < 0)
            return r;
        a->remnant_at += n;
        if (j->n_assigned == j->capacity)
            return 1;
    }
    a->in_remnant = false;
    return 0;
}

static void drop_joining(struct cw_iterator *it)
{
    struct any *a = it->any;
    for (unsigned k = 0; k < a->n_keys; k++)
        if (a->joining[k])
            it->producer->ops->drop(it->producer, CW_STEAL(a->joining[k]));
    a->in_remnant = false;
}

/* Joins what a split left over under the present key. 1: that filled a batch, which is queued, and there may be more; 0: all is in. */
static int join_key(struct cw_iterator *it, const struct own *o, uint64_t deadline_ns, struct cw_error *err)
{
    struct unused *u = &it->any->unused[it->any->key], after = {.from = o->index};
    int r = join_split(it, o->split, o->index, err);
    if (r == 1) {
        after.skip = it->any->remnant_at;
        return (r = queue_joined(it, it->any->key, &after, err)) < 0 ? r : 1;
    }
    if (r == 0 && !it->any->joining[it->any->key] && u->from <= o->index)
        *u = (struct unused){.from = CW_MIN(o->index + it->options.world_size, cw_any_splits(it))};
    return r;
}

static bool may_join(const struct cw_iterator *it) { return it->any->n_joined < ANY_JOINED; }

/* Joins what splits left over that have ended, with all before them. */
static int join_ended(struct cw_iterator *it, uint64_t deadline_ns, struct cw_error *err)
{
    struct any *a = it->any;
    int r;
    while (a->n_open && a->open[a->first_open].epoch == it->at.epoch && a->open[a->first_open].ended) {
        const struct own *o = &a->open[a->first_open];
        while (it->any->key < it->any->n_keys) {
            if (!may_join(it))
                return 0;
            if ((r = join_key(it, o, deadline_ns, err)) < 0)
                return r;
            it->any->key += r == 0;
        }
        it->any->key = 0;
        it->producer->splits->close(it->producer, o->split);
        a->first_open = (a->first_open + 1) % ANY_POSITIONS;
        a->n_open--;
        if ((r = open_ahead(it, err)) < 0)
            return r;
        tell_passed(it);
    }
    if (!all_opened(it) || (a->n_open && a->open[a->first_open].epoch == it->at.epoch) || it->compiled->drop_remainder)
        return 0;
    for (; it->any->key < it->any->n_keys && may_join(it); it->any->key++) {
        struct unused after = {.from = cw_any_splits(it)};
        if (it->any->joining[it->any->key] && (r = queue_joined(it, it->any->key, &after, err)) < 0)
            return r;
    }
    return 0;
}

/* ---- batches ---- */

/* Splits of this epoch that may have more batches, or, resuming, what is left over to give. */
static unsigned candidates(struct cw_iterator *it, struct own *ret[ANY_POSITIONS], struct cw_split *splits[ANY_POSITIONS])
{
    struct any *a = it->any;
    unsigned n = 0;
    for (unsigned i = 0; i < a->n_open; i++) {
        struct own *o = cw_any_own(a, i);
        if (o->epoch != it->at.epoch)
            break;
        o->ended |= it->compiled->counted && o->taken >= cw_split_batches(it->compiled, &it->plan, o->index);
        if (!o->ended) {
            ret[n] = o;
            splits[n++] = o->split;
        }
    }
    return n;
}

/* Sets a->pending. 1: all that this rank has in the epoch was handed out. */
static int pull(struct cw_iterator *it, uint64_t deadline_ns, struct cw_error *err)
{
    const struct cw_split_ops *ops = it->producer->splits;
    struct any *a = it->any;
    struct own *own[ANY_POSITIONS];
    struct cw_split *splits[ANY_POSITIONS];
    int r;
    for (;;) {
        unsigned n, i;
        (void)candidates(it, own, splits); /* notes which have ended */
        if ((r = join_ended(it, deadline_ns, err)) < 0)
            return r;
        n = candidates(it, own, splits);
        if (n == 0 && !a->joined && (a->n_open == 0 || a->open[a->first_open].epoch != it->at.epoch))
            return 1;
        if (n == 0 && !a->joined)
            continue; /* it ended just now */
        i = a->joined ? n : 0;
        if ((r = ops->any(it->producer, splits, n, a->joined ? a->joined->a : NULL, deadline_ns, &i, err)) < 0)
            return r;
        if (i == n) {
            a->pending = a->joined->a;
            return 0;
        }
        r = ops->next(it->producer, splits[i], own[i]->only_left ? UINT64_MAX : 0, deadline_ns, &a->pending, err);
        if (r < 0)
            return r;
        own[i]->ended = r == 1;
        if (r == 0) {
            a->pending_own = own[i];
            return 0;
        }
    }
}

static void drop_first_joined(struct any *a)
{
    struct joined *j = a->joined;
    a->joined = j->next;
    a->n_joined--;
    free(j);
}

/* What is pending becomes the user's; where it came from stays as it is until it is accepted. */
static struct cw_batch *hand_out(struct cw_iterator *it)
{
    struct any *a = it->any;
    const struct own *o = a->pending_own;
    cw_iterator_note_quarantined(it, a->pending);
    struct cw_batch *b = it->producer->ops->take(it->producer, CW_STEAL(a->pending));
    b->epoch = it->at.epoch;
    b->g = it->options.rank + a->handed * it->options.world_size;
    if (!o)
        a->joined->a = NULL;
    return b;
}

void cw_any_accept(struct cw_iterator *it)
{
    struct any *a = it->any;
    struct own *o = CW_STEAL(a->pending_own);
    if (o)
        o->taken++;
    else if (a->joined && !a->joined->a)
        drop_first_joined(a);
    a->handed++;
    tell_passed(it);
}

/* With splits that are not run again, it is dropped what was joined with something of one that is lost. */
static void drop_pending(struct cw_iterator *it)
{
    struct any *a = it->any;
    it->producer->ops->drop(it->producer, CW_STEAL(a->pending));
    if (!CW_STEAL(a->pending_own))
        drop_first_joined(a);
}

/* ---- the end of an epoch ---- */

/* Batches that each rank gets, where they are known beforehand: rank 0 has the most. Else, and where a split may be lost, a rank ends when its splits do. */
static uint64_t batches_of_ranks(const struct cw_iterator *it)
{
    uint64_t ranks = it->options.world_size, splits = cw_any_splits(it) / ranks + (cw_any_splits(it) % ranks != 0);
    if (!it->compiled->counted || it->options.at_most_once || splits == 0)
        return 0;
    return (splits - 1) * (it->plan.split_size / it->compiled->batch_size) + cw_split_batches(it->compiled, &it->plan, (splits - 1) * ranks);
}

/* Batches of this rank that are no padding; the pipeline is counted. */
static uint64_t own_batches(const struct cw_iterator *it)
{
    uint64_t ranks = it->options.world_size, rank = it->options.rank, n = cw_any_splits(it), last = rank + (n - 1 - rank) / ranks * ranks;
    if (rank >= n)
        return 0;
    return (last - rank) / ranks * (it->plan.split_size / it->compiled->batch_size) + cw_split_batches(it->compiled, &it->plan, last);
}

/* Number j of a rank's padding repeats batch j of the epoch, in exact order: all of them are batches of its first split. */
static int padding(struct cw_iterator *it, uint64_t deadline_ns, struct cw_batch **ret, struct cw_error *err)
{
    struct any *a = it->any;
    uint64_t j = a->handed - own_batches(it);
    struct cw_batch *b = NULL;
    int r = cw_padding_open(it, it->at.epoch, 0, 1, err);
    for (; r >= 0 && a->repeated <= j; a->repeated++) {
        cw_batch_free(b); /* handed out before the run was interrupted */
        b = NULL;
        if ((r = cw_padding_next(it, it->at.epoch, it->options.rank + a->handed * it->options.world_size, deadline_ns, &b, err)) < 0)
            break;
    }
    if (r < 0)
        return r;
    *ret = b;
    return 0;
}

static int epoch_over(struct cw_iterator *it, struct cw_error *err)
{
    struct any *a = it->any;
    bool endless_for_nothing = a->handed == 0 && it->options.epochs >= INT64_MAX; /* the next one need not have a batch either */
    if (it->again)
        cw_padding_close(it);
    drop_joining(it);
    a->repeated = a->handed = 0;
    it->any->key = 0;
    it->at.epoch = cw_any_splits(it) == 0 || endless_for_nothing ? it->options.epochs : it->at.epoch + 1;
    for (unsigned k = 0; k < it->any->n_keys; k++)
        it->any->unused[k] = (struct unused){.from = it->options.rank};
    int r = open_ahead(it, err);
    tell_passed(it);
    return r;
}

int cw_any_offer(struct cw_iterator *it, uint64_t deadline_ns, struct cw_batch **ret, struct cw_error *err)
{
    struct any *a = it->any;
    int r;
    while (it->at.epoch < it->options.epochs) {
        r = a->pending ? 0 : pull(it, deadline_ns, err);
        if (r < 0)
            return r;
        if (r == 1 && a->handed < batches_of_ranks(it))
            return padding(it, deadline_ns, ret, err);
        if (r == 1) {
            if ((r = epoch_over(it, err)) < 0)
                return r;
            continue;
        }
        if ((r = cw_iterator_finish(it, a->pending, it->at.epoch, true, deadline_ns, err)) < 0)
            return r; /* nothing is lost, and nobody gets past a failure */
        if (r == 0) {
            *ret = hand_out(it);
            return 0;
        }
        drop_pending(it);
    }
    return 1;
}

/* ---- life ---- */

int cw_iterator_check(const struct cw_compiled *c, const struct cw_iterator_options *o, struct cw_error *err)
{
    char ranks[32];
    if (!o->any_order || !c->sequential || o->world_size == 1)
        return 0;
    snprintf(ranks, sizeof(ranks), "%u", o->world_size);
    cw_error_attribute(err, "world_size", ranks, "1, or order \"exact\"");
    return cw_error_set(err, CW_E_OPTION, "order \"any\" with %u ranks: one worker runs each epoch of this pipeline (explain says why), and all of it would be one rank's; "
                        "expected order \"exact\", or a world size of 1", o->world_size);
}

int cw_any_new(struct cw_iterator *it, struct cw_error *err)
{
    struct any *a = it->any = calloc(1, sizeof(*a));
    if (!a)
        return cw_error_nomem(err, sizeof(*a), "an iterator");
    a->n_keys = it->compiled->batcher == CW_BATCHER_NONE ? 0 : cw_n_keys(it->compiled);
    a->unused = calloc(a->n_keys + 1, sizeof(*a->unused));
    a->joining = calloc(a->n_keys + 1, sizeof(*a->joining));
    return a->unused && a->joining ? 0 : cw_error_nomem(err, 0, "an iterator");
}

int cw_any_begin(struct cw_iterator *it, struct cw_error *err)
{
    struct any *a = it->any;
    uint64_t first = CW_MAX(a->resumed, it->options.rank);
    a->ahead = CW_MAX(ANY_POSITIONS / it->options.world_size, ANY_LEAST);
    a->resumed_epoch = it->at.epoch;
    for (unsigned k = 0; k < it->any->n_keys; k++) {
        it->any->unused[k].from = CW_MAX(it->any->unused[k].from, it->options.rank);
        first = CW_MIN(first, it->any->unused[k].from);
    }
    a->open_epoch = it->at.epoch + (first >= cw_any_splits(it));
    a->open_index = first >= cw_any_splits(it) ? it->options.rank : first;
    int r = open_ahead(it, err);
    tell_passed(it);
    return r;
}

void cw_any_free(struct cw_iterator *it)
{
    struct any *a = it->any;
    if (!a)
        return;
    if (a->pending_own && a->pending)
        it->producer->ops->drop(it->producer, a->pending);
    while (a->joined) {
        if (a->joined->a)
            it->producer->ops->drop(it->producer, a->joined->a);
        drop_first_joined(a);
    }
    if (a->joining && a->unused)
        drop_joining(it);
    while (a->n_open > 0) {
        it->producer->splits->close(it->producer, cw_any_own(a, 0)->split);
        a->first_open = (a->first_open + 1) % ANY_POSITIONS;
        a->n_open--;
    }
    free(a->unused);
    free(a->joining);
    free(a);
    it->any = NULL;
}
