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
    while (a->n_open < a->ahead && a->open_epoch < it->options.epochs && it->options.rank < it->plan.n_splits) {
        uint64_t taken = cw_any_resumed(a, a->open_epoch, a->open_index, it->options.world_size);
        struct cw_split *s;
        int r = it->splits->ops->open(it->splits, a->open_epoch, a->open_index, taken, &s, err);
        if (r < 0)
            return r;
        *cw_any_own(a, a->n_open++) = (struct own){
            .split = s, .epoch = a->open_epoch, .index = a->open_index, .only_left = taken == UINT64_MAX, .taken = taken == UINT64_MAX ? 0 : taken};
        a->open_index += it->options.world_size;
        if (a->open_index >= it->plan.n_splits) {
            a->open_index = it->options.rank;
            a->open_epoch++;
        }
    }
    return 0;
}

static bool all_opened(const struct cw_iterator *it) { return it->any->open_epoch > it->at.epoch || it->options.rank >= it->plan.n_splits; }

/* The place that comes next, for who looks after what may be forgotten, and for the state: all splits of this rank before at.split gave all their batches. */
static void find_place(struct cw_iterator *it)
{
    struct any *a = it->any;
    it->at.g = a->handed * it->options.world_size;
    it->at.batch = 0;
    it->at.split = it->at.epoch >= it->options.epochs ? 0 : all_opened(it) ? it->plan.n_splits : CW_MAX(a->open_index, a->resumed_epoch == it->at.epoch ? a->resumed : 0);
    for (unsigned i = 0; i < a->n_open; i++) {
        const struct own *o = cw_any_own(a, i);
        if (o->epoch != it->at.epoch)
            return;
        if (!o->ended && !o->only_left) {
            it->at.split = o->index;
            it->at.batch = o->taken;
            return;
        }
    }
}

static void tell_passed(struct cw_iterator *it)
{
    find_place(it);
    if (it->splits->ops->passed)
        it->splits->ops->passed(it->splits, &it->at);
}

/* ---- what splits leave over ---- */

static int queue_joined(struct cw_iterator *it, unsigned key, uint64_t split, uint64_t index, const struct unused *after, struct cw_error *err)
{
    struct any *a = it->any;
    struct joined *j = calloc(1, sizeof(*j)), **at = &a->joined;
    if (!j)
        return cw_error_nomem(err, sizeof(*j), "a batch");
    *j = (struct joined){.a = CW_STEAL(it->joining[key]), .key = key, .before = it->unused[key], .split = split, .index = index};
    it->unused[key] = *after;
    while (*at)
        at = &(*at)->next;
    *at = j;
    a->n_joined++;
    return 0;
}

/* Joins what a split left over under the present key. 1: that filled a batch, which is queued, and there may be more; 0: all is in. */
static int join_key(struct cw_iterator *it, const struct own *o, uint64_t deadline_ns, struct cw_error *err)
{
    struct unused *u = &it->unused[it->key], after = {.from = o->index};
    int r = cw_iterator_join(it, o->split, o->index, deadline_ns, err);
    if (r == 1) {
        after.skip = it->remnant_at;
        /* Behind all that a split can give: so it is the same wherever the run was interrupted. */
        return (r = queue_joined(it, it->key, o->index, (UINT64_C(1) << 32) + it->key, &after, err)) < 0 ? r : 1;
    }
    if (r == 0 && !it->joining[it->key] && u->from <= o->index)
        *u = (struct unused){.from = CW_MIN(o->index + it->options.world_size, it->plan.n_splits)};
    return r;
}

/* Whether more may be joined now. Who can't say what is there first hands out one after the other. */
static bool may_join(const struct cw_iterator *it) { return it->any->n_joined < (it->splits->ops->any ? ANY_JOINED : 1); }

/* Joins what splits left over that have ended, with all before them. */
static int join_ended(struct cw_iterator *it, uint64_t deadline_ns, struct cw_error *err)
{
    struct any *a = it->any;
    int r;
    while (a->n_open && a->open[a->first_open].epoch == it->at.epoch && a->open[a->first_open].ended) {
        const struct own *o = &a->open[a->first_open];
        while (it->key < it->n_keys) {
            if (!may_join(it))
                return 0;
            if ((r = join_key(it, o, deadline_ns, err)) < 0)
                return r;
            it->key += r == 0;
        }
        it->key = 0;
        it->splits->ops->close(it->splits, o->split);
        a->first_open = (a->first_open + 1) % ANY_POSITIONS;
        a->n_open--;
        if ((r = open_ahead(it, err)) < 0)
            return r;
        tell_passed(it);
    }
    if (!all_opened(it) || (a->n_open && a->open[a->first_open].epoch == it->at.epoch) || it->compiled->drop_remainder)
        return 0;
    for (; it->key < it->n_keys && may_join(it); it->key++) {
        struct unused after = {.from = it->plan.n_splits};
        uint64_t last = it->options.rank + (it->plan.n_splits - 1 - it->options.rank) / it->options.world_size * it->options.world_size;
        if (it->joining[it->key] && (r = queue_joined(it, it->key, last, (UINT64_C(1) << 32) + it->n_keys + it->key, &after, err)) < 0)
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
    const struct cw_splits_ops *ops = it->splits->ops;
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
        if (ops->any && (r = ops->any(it->splits, splits, n, a->joined ? a->joined->a : NULL, deadline_ns, &i, err)) < 0)
            return r;
        if (i == n) {
            a->pending = a->joined->a;
            return 0;
        }
        r = ops->next(it->splits, splits[i], own[i]->only_left ? UINT64_MAX : 0, deadline_ns, &a->pending, err);
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
    struct cw_batch *b = it->splits->ops->take(it->splits, CW_STEAL(a->pending));
    b->epoch = it->at.epoch;
    b->g = it->options.rank + a->handed * it->options.world_size;
    b->split = o ? o->index : a->joined->split;
    b->index = o ? o->taken : a->joined->index;
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
    it->splits->ops->drop(it->splits, CW_STEAL(a->pending));
    if (!CW_STEAL(a->pending_own))
        drop_first_joined(a);
}

/* ---- the end of an epoch ---- */

/* Batches that each rank gets, where they are known beforehand: rank 0 has the most. Else, and where a split may be lost, a rank ends when its splits do. */
static uint64_t batches_of_ranks(const struct cw_iterator *it)
{
    uint64_t ranks = it->options.world_size, splits = it->plan.n_splits / ranks + (it->plan.n_splits % ranks != 0);
    if (!it->compiled->counted || it->options.at_most_once || splits == 0)
        return 0;
    return (splits - 1) * (it->plan.split_size / it->compiled->batch_size) + cw_split_batches(it->compiled, &it->plan, (splits - 1) * ranks);
}

/* Batches of this rank that are no padding; the pipeline is counted. */
static uint64_t own_batches(const struct cw_iterator *it)
{
    uint64_t ranks = it->options.world_size, rank = it->options.rank, n = it->plan.n_splits, last = rank + (n - 1 - rank) / ranks * ranks;
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
    cw_iterator_drop_joining(it);
    a->repeated = a->handed = 0;
    it->key = 0;
    it->at.epoch = it->plan.n_splits == 0 || endless_for_nothing ? it->options.epochs : it->at.epoch + 1;
    for (unsigned k = 0; k < it->n_keys; k++)
        it->unused[k] = (struct unused){.from = it->options.rank};
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
        if ((r = cw_iterator_finish(it, a->pending, true, deadline_ns, err)) < 0)
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
    if (!o->any_order || !c->whole_epoch || o->world_size == 1)
        return 0;
    snprintf(ranks, sizeof(ranks), "%u", o->world_size);
    cw_error_attribute(err, "world_size", ranks, "1, or order \"exact\"");
    return cw_error_set(err, CW_E_OPTION, "order \"any\" with %u ranks: the epoch of this pipeline is one split (explain says why), which would be one rank's alone; "
                        "expected order \"exact\", or a world size of 1", o->world_size);
}

int cw_any_new(struct cw_iterator *it, struct cw_error *err)
{
    if (!(it->any = calloc(1, sizeof(*it->any))))
        return cw_error_nomem(err, sizeof(*it->any), "an iterator");
    return 0;
}

int cw_any_begin(struct cw_iterator *it, struct cw_error *err)
{
    struct any *a = it->any;
    uint64_t first = CW_MAX(a->resumed, it->options.rank);
    a->ahead = CW_MAX(ANY_POSITIONS / it->options.world_size, ANY_LEAST);
    if (!it->splits->ops->any) /* they come one after the other: so many as are needed to compute ahead */
        a->ahead = CW_MIN(a->ahead, it->ahead);
    a->resumed_epoch = it->at.epoch;
    for (unsigned k = 0; k < it->n_keys; k++) {
        it->unused[k].from = CW_MAX(it->unused[k].from, it->options.rank);
        first = CW_MIN(first, it->unused[k].from);
    }
    a->open_epoch = it->at.epoch + (first >= it->plan.n_splits);
    a->open_index = first >= it->plan.n_splits ? it->options.rank : first;
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
        it->splits->ops->drop(it->splits, a->pending);
    while (a->joined) {
        if (a->joined->a)
            it->splits->ops->drop(it->splits, a->joined->a);
        drop_first_joined(a);
    }
    free(a);
    it->any = NULL;
}
