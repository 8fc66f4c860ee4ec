/* Hands out the batches of epochs in order, and keeps the position. */
#include "order/iterator_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"

#define MAX_LISTED 10000 /* records that failed and are listed at most; further ones are only counted */

/* ---- epochs ---- */

static int iterator_open_epochs(struct cw_iterator *it, struct cw_error *err)
{
    while (it->producer->ops->open && it->n_open < OPEN_EPOCHS &&
           it->at.epoch + it->n_open < it->options.epochs && it->plan.n_positions) {
        struct cw_cursor from = it->n_open ? (struct cw_cursor){.epoch = it->at.epoch + it->n_open} : it->at;
        from.g = it->n_open ? 0 : it->passed;
        int r = it->producer->ops->open(it->producer, &from, &it->open[it->n_open], err);
        if (r < 0)
            return r;
        it->n_open++;
    }
    return 0;
}

static void iterator_close_epoch(struct cw_iterator *it)
{
    if (it->n_open == 0)
        return;
    it->producer->ops->close(it->producer, it->open[0]);
    memmove(it->open, it->open + 1, --it->n_open * sizeof(struct cw_batches *));
}

void cw_cursor_set(const struct cw_compiled *c, struct cw_cursor *to, const struct cw_cursor *from)
{
    to->epoch = from->epoch;
    to->g = from->g;
    to->handed = from->handed;
    cw_entry_set(c, &to->entry, &from->entry);
}

/* Makes the present position the iterator's state. The producer may then forget all batches before it. */
static void iterator_set_state(struct cw_iterator *it)
{
    cw_cursor_set(it->compiled, &it->round, &it->at);
    if (it->producer->ops->passed)
        it->producer->ops->passed(it->producer, &it->round);
}

int cw_iterator_over(struct cw_producer *producer, const struct cw_iterator_options *o, const json_t *state,
                     struct cw_iterator **ret, struct cw_error *err)
{
    const struct cw_compiled *c = producer->compiled;
    struct cw_iterator *it = malloc(sizeof(*it));
    if (!it) {
        producer->ops->free(producer);
        return cw_error_nomem(err, sizeof(*it), "an iterator");
    }
    *it = (struct cw_iterator){.producer = producer,
                               .compiled = c,
                               .plan = producer->plan,
                               .options = *o,
                               .at.epoch = o->first_epoch,
                               .quarantined_tail = &it->quarantined};
    pthread_mutex_init(&it->mutex, NULL);
    int r;
    if ((r = cw_entry_init(c, &it->at.entry, err)) < 0 || (r = cw_entry_init(c, &it->round.entry, err)) < 0 ||
        (state && (r = cw_iterator_load_state(it, state, err)) < 0) ||
        (r = iterator_open_epochs(it, err)) < 0) {
        cw_iterator_free(it);
        return r;
    }
    iterator_set_state(it);
    *ret = it;
    return 0;
}

int cw_iterator_new(const struct cw_sequence *s, const struct cw_iterator_options *o, const json_t *state,
                    struct cw_iterator **ret, struct cw_error *err)
{
    struct cw_producer *producer;
    int r = cw_iterator_check_ranks(s->compiled, o->world_size, err);
    if (r >= 0)
        r = cw_producer_local(s, o->seed, &o->runner, &producer, err);
    return r < 0 ? r : cw_iterator_over(producer, o, state, ret, err);
}

int cw_iterator_check_ranks(const struct cw_compiled *c, uint64_t world_size, struct cw_error *err)
{
    char have[32], expected[64];
    if (c->grouping.size == 1 || c->grouping.size % world_size == 0)
        return 0;
    snprintf(have, sizeof(have), "%" PRIu64, world_size);
    snprintf(expected, sizeof(expected), "a divisor of %u", c->grouping.size);
    return cw_error_value(err, CW_E_OPTION, "world_size", have, expected,
                          "world size %s: expected %s, the group of %s, so that in each step the batches of "
                          "all ranks are of one bucket",
                          have, expected, c->batcher->name);
}

struct cw_runner *cw_iterator_runner(struct cw_iterator *it)
{
    return cw_producer_runner(it->producer);
}

struct cw_iterator *cw_iterator_free(struct cw_iterator *it)
{
    if (!it)
        return NULL;
    if (it->own)
        cw_iterator_release(it, it->own);
    if (it->pending)
        it->producer->ops->drop(it->producer, it->pending);
    cw_iterator_free(it->again); /* first, because it may use this producer */
    while (it->n_open > 0)
        iterator_close_epoch(it);
    it->producer->ops->free(it->producer);
    pthread_mutex_destroy(&it->mutex);
    cw_quarantined_free(it->quarantined);
    cw_entry_deinit(&it->at.entry);
    cw_entry_deinit(&it->round.entry);
    free(it);
    return NULL;
}

/* ---- the batches of an epoch, in order ---- */

/* Returns how many batches come before the next one to be handed out: batches of other ranks, batches that
 * were handed out early, and batches that a `skip` leaves out. */
static uint64_t iterator_count_ahead(const struct cw_iterator *it)
{
    uint64_t skipped = it->passed < it->compiled->batch_from ? it->compiled->batch_from - it->passed : 0;
    uint64_t turn = it->at.g - it->round.g, round = turn > it->options.rank;
    while (round < CW_ROUNDS_AHEAD && it->round.handed >> round & 1)
        round++;
    return skipped + round * it->options.world_size + it->options.rank - turn;
}

/* Sets *ret to the next batch of the epoch, which may be unfinished. 1: the epoch is over. */
static int iterator_pull(struct cw_iterator *it, uint64_t deadline_ns, struct cw_assembly **ret,
                         struct cw_error *err)
{
    if (it->passed >= it->compiled->batch_to || it->n_open == 0)
        return 1;
    return it->producer->ops->next(it->producer, it->open[0], iterator_count_ahead(it), deadline_ns, ret,
                                   err);
}

static int iterator_next_epoch(struct cw_iterator *it, struct cw_error *err)
{
    iterator_close_epoch(it);
    it->at.epoch = it->plan.n_positions == 0 ? it->options.epochs : it->at.epoch + 1;
    it->at.g = it->at.handed = it->passed = 0;
    cw_entry_set(it->compiled, &it->at.entry, NULL);
    return iterator_open_epochs(it, err);
}

/* Moves the position (at.entry) past a batch. */
static void iterator_advance(struct cw_iterator *it, const struct cw_assembly *a)
{
    if (a->after)
        cw_entry_set(it->compiled, &it->at.entry, a->after);
    else if (it->compiled->counted)
        it->at.entry.position = CW_MIN(it->at.entry.position + it->compiled->batch_size,
                                       it->plan.n_positions);
}

static void iterator_note_quarantined(struct cw_iterator *it, struct cw_assembly *a)
{
    while (a->quarantined) {
        struct cw_quarantined *q = CW_POP(a->quarantined);
        q->next = NULL;
        it->n_skipped += !q->replaced && !q->note;
        it->n_replaced += q->replaced;
        if (it->n_listed < MAX_LISTED) {
            it->n_listed++;
            *it->quarantined_tail = q;
            it->quarantined_tail = &q->next;
        } else {
            cw_quarantined_free(q);
        }
    }
}

/* Finishes a batch that was pulled. Batches of other ranks, and batches that a `skip` leaves out, are
 * finished too, because an error in any batch ends the run. */
static int iterator_finish(struct cw_iterator *it, struct cw_assembly *a, bool mine, uint64_t deadline_ns,
                           struct cw_error *err)
{
    if (a->error)
        return cw_error_copy(err, a->error);
    int r = it->producer->ops->finish(it->producer, a, mine, it->at.epoch, deadline_ns, err);
    if (r < 0 && r != CW_E_DEADLINE && r != CW_E_INTERRUPTED && r != CW_E_BUDGET)
        cw_assembly_poison(a, err, 0); /* so that its Python functions are not called again */
    return r;
}

/* Takes a finished batch of this rank as it->own, the batch to offer, with number g. */
static void iterator_take_own(struct cw_iterator *it, struct cw_assembly *a, uint64_t g)
{
    iterator_note_quarantined(it, a);
    it->own = it->producer->ops->take(it->producer, a);
    it->own->epoch = it->at.epoch;
    it->own->g = g;
}

/* Ends the epoch. A rank that has no batch in the last round repeats a batch as padding. */
static int iterator_end_epoch(struct cw_iterator *it, uint64_t deadline_ns, struct cw_error *err)
{
    uint64_t total = it->at.g, rest = total - it->round.g, j = it->options.rank - rest;
    int r = 0;
    if (rest && !it->own && it->options.rank >= rest && !it->options.at_most_once)
        r = cw_padding_take(it, it->at.epoch, total + j, j % total, deadline_ns, err);
    if (r >= 0)
        r = iterator_next_epoch(it, err);
    /* the next epoch would have no batch either, and endless epochs would never give one */
    if (r >= 0 && total == 0 && it->options.epochs >= INT64_MAX)
        it->at.epoch = it->options.epochs;
    return r;
}

/* Moves the position past a finished batch whose turn it is. Takes the batch if it is this rank's (`mine`),
 * else frees it. */
static void iterator_pass(struct cw_iterator *it, struct cw_assembly *a, bool mine)
{
    iterator_advance(it, a);
    bool left_out = it->passed++ < it->compiled->batch_from;
    if (mine && !left_out)
        iterator_take_own(it, a, it->at.g);
    else
        it->producer->ops->drop(it->producer, a);
    it->at.g += !left_out;
}

static int iterator_offer(struct cw_iterator *it, uint64_t deadline_ns, struct cw_error *err)
{
    while (it->at.epoch < it->options.epochs) {
        struct cw_assembly *a = CW_STEAL(it->pending);
        int r = a ? 0 : iterator_pull(it, deadline_ns, &a, err);
        if (r == 0) {
            bool mine = (a->n_before || iterator_count_ahead(it) == 0) && !a->lost;
            if ((r = iterator_finish(it, a, mine, deadline_ns, err)) < 0) {
                /* keep the batch for the next call: no batch is lost, and no batch after a failed one is
                 * handed out */
                it->pending = a;
                return r;
            }
            if (a->n_before) {
                uint64_t g = it->passed + a->n_before - it->compiled->batch_from;
                it->offered_bit = UINT64_C(1) << (g - it->round.g) / it->options.world_size;
                iterator_take_own(it, a, g);
                return 0;
            }
            iterator_pass(it, a, mine);
            if (it->at.g - it->round.g < it->options.world_size)
                continue;
            it->at.handed = it->round.handed >> 1;
        } else if (r < 0 || (r = iterator_end_epoch(it, deadline_ns, err)) < 0) {
            return r;
        }
        if (it->own)
            return 0;
        iterator_set_state(it);
    }
    return 1;
}

int cw_iterator_offer(struct cw_iterator *it, uint64_t deadline_ns, struct cw_batch **ret,
                      struct cw_error *err)
{
    it->offered_bit = 0;
    int r = iterator_offer(it, deadline_ns, err);
    it->offered = r == 0;
    if (r == 0)
        *ret = CW_STEAL(it->own);
    return r;
}

void cw_iterator_accept(struct cw_iterator *it)
{
    if (!it->offered)
        return;
    it->offered = false;
    if (it->offered_bit)
        it->round.handed |= it->offered_bit;
    else
        iterator_set_state(it);
}

int cw_iterator_next(struct cw_iterator *it, uint64_t timeout_ns, struct cw_batch **ret, struct cw_error *err)
{
    int r = cw_iterator_offer(it, timeout_ns ? cw_now_ns() + timeout_ns : 0, ret, err);
    if (r == 0)
        cw_iterator_accept(it);
    return r;
}

void cw_iterator_release(struct cw_iterator *it, struct cw_batch *b)
{
    if (b->flags & CW_RECORD_PADDING)
        cw_batch_free(b);
    else
        it->producer->ops->release(it->producer, b);
}

const struct cw_quarantined *cw_iterator_quarantined(const struct cw_iterator *it, uint64_t *ret_skipped,
                                                     uint64_t *ret_replaced)
{
    *ret_skipped = it->n_skipped;
    *ret_replaced = it->n_replaced;
    return it->quarantined;
}

void cw_iterator_interrupt(struct cw_iterator *it, bool on)
{
    it->producer->ops->interrupt(it->producer, on);
    CW_GUARD(&it->mutex);
    it->interrupted = on;
    if (it->again)
        cw_iterator_interrupt(it->again, on);
}

void cw_iterator_leave(struct cw_iterator *it)
{
    if (it->pending)
        it->producer->ops->drop(it->producer, CW_STEAL(it->pending));
    if (it->producer->ops->leave)
        it->producer->ops->leave(it->producer);
}

void cw_iterator_hashed(struct cw_iterator *it, struct cw_hash128 digest)
{
    if (it->producer->ops->hashed)
        it->producer->ops->hashed(it->producer, digest);
}

void cw_iterator_profile(struct cw_iterator *it, struct cw_profile *ret)
{
    it->producer->ops->profile(it->producer, ret);
}

void cw_iterator_tuned(const struct cw_iterator *it, struct cw_tuned_log *ret)
{
    it->producer->ops->tuned(it->producer, ret);
}

void cw_iterator_fused(const struct cw_iterator *it, unsigned *ret)
{
    it->producer->ops->fused(it->producer, ret);
}
