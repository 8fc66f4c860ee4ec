/* The order of batches: splits opened ahead, remnants joined, batches numbered and shared out among ranks. */
#include "engine/iterator_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

/* Positions in splits opened ahead; in between this and AHEAD_MAX splits. */
#define AHEAD_POSITIONS 8192
#define AHEAD_MIN 4
#define MAX_LISTED 10000 /* records that failed; beyond, they are only counted */

/* ---- splits ---- */

static const struct open_split *oldest(const struct cw_iterator *it) { return it->n_open ? &it->open[it->first_open] : NULL; }

static int open_ahead(struct cw_iterator *it, struct cw_error *err)
{
    while (it->n_open < it->ahead && it->open_epoch < it->options.epochs && it->plan.n_splits) {
        bool here = it->open_epoch == it->at.epoch && it->open_split == it->at.split;
        struct cw_split *s;
        int r = it->splits->ops->open(it->splits, it->open_epoch, it->open_split, here && it->compiled->counted && !it->n_keys ? it->at.batch : 0, &s, err);
        if (r < 0)
            return r;
        it->open[(it->first_open + it->n_open++) % AHEAD_MAX] = (struct open_split){.split = s, .index = it->open_split};
        if (++it->open_split == it->plan.n_splits) {
            it->open_split = 0;
            it->open_epoch++;
        }
    }
    return 0;
}

static void close_oldest(struct cw_iterator *it)
{
    it->splits->ops->close(it->splits, it->open[it->first_open].split);
    it->first_open = (it->first_open + 1) % AHEAD_MAX;
    it->n_open--;
}

/* The source may forget what nobody needs any more. */
static void tell_passed(const struct cw_iterator *it)
{
    if (it->splits->ops->passed)
        it->splits->ops->passed(it->splits, &it->round);
}

/* How many splits are open ahead of the one whose batches are handed out: in order any it is iterator_any.c that says so. */
static void set_ahead(struct cw_iterator *it)
{
    uint64_t by_positions = AHEAD_POSITIONS / it->plan.split_size;
    it->ahead = (unsigned)CW_MIN(CW_MAX(by_positions, AHEAD_MIN), AHEAD_MAX);
    const struct cw_tuned t = {
        .what = "splits_ahead",
        .seen = {{"split_size", (double)it->plan.split_size}},
        .others = {{"elements", (double)by_positions}, {"least", AHEAD_MIN}, {"most", AHEAD_MAX}},
        .chosen = it->ahead,
        .why = by_positions < AHEAD_MIN ? "splits are large: enough of them that one ends while others run"
               : by_positions > AHEAD_MAX ? "splits are small: more of them would only take longer to look at" : "so many elements keep the threads busy",
    };
    if (!cw_any_order(it->compiled, &it->options))
        cw_tuned_add(&it->tuned, &t);
}

int cw_iterator_over(struct cw_splits *splits, const struct cw_iterator_options *o, const json_t *state, struct cw_iterator **ret, struct cw_error *err)
{
    const struct cw_compiled *c = splits->compiled;
    struct cw_iterator *it = calloc(1, sizeof(*it));
    if (!it) {
        splits->ops->free(splits);
        return cw_error_nomem(err, sizeof(*it), "an iterator");
    }
    pthread_mutex_init(&it->mutex, NULL);
    it->splits = splits;
    it->compiled = c;
    it->plan = splits->plan;
    it->options = *o;
    it->at.epoch = o->first_epoch;
    it->quarantined_tail = &it->quarantined;
    it->n_keys = cw_n_keys(c);
    it->unused = calloc(it->n_keys + 1, sizeof(*it->unused));
    it->round_unused = calloc(it->n_keys + 1, sizeof(*it->round_unused));
    it->joining = calloc(it->n_keys + 1, sizeof(*it->joining));
    int r = it->unused && it->round_unused && it->joining ? 0 : cw_error_nomem(err, 0, "an iterator");
    set_ahead(it);
    if (r >= 0)
        r = cw_iterator_check(c, o, err);
    if (r >= 0)
        r = cw_any_order(c, o) ? cw_any_new(it, err) : cw_join_ahead_new(it, err);
    if (r >= 0 && state)
        r = cw_iterator_load_state(it, state, err);
    if (r >= 0 && it->any) {
        r = cw_any_begin(it, err);
    } else if (r >= 0) {
        it->round = it->at;
        it->rounds_from = it->at.g;
        memcpy(it->round_unused, it->unused, it->n_keys * sizeof(*it->unused));
        it->discard = c->counted && !it->n_keys ? 0 : it->at.batch + (it->at.batch ? c->batch_from : 0);
        it->seen = it->discard;
        it->open_epoch = it->at.epoch;
        it->open_split = it->at.split;
        for (unsigned k = 0; k < it->n_keys; k++)
            it->open_split = CW_MIN(it->open_split, it->unused[k].from);
        r = open_ahead(it, err);
    }
    if (r < 0) {
        cw_iterator_free(it);
        return r;
    }
    if (!it->any)
        tell_passed(it);
    *ret = it;
    return 0;
}

int cw_iterator_new(const struct cw_sequence *s, const struct cw_iterator_options *o, const json_t *state, struct cw_iterator **ret,
                    struct cw_error *err)
{
    struct cw_splits *splits;
    int r = cw_splits_local(s, o->seed, &o->runner, &splits, err);
    return r < 0 ? r : cw_iterator_over(splits, o, state, ret, err);
}

struct cw_runner *cw_iterator_runner(struct cw_iterator *it) { return cw_splits_runner(it->splits); }

void cw_iterator_drop_joining(struct cw_iterator *it)
{
    for (unsigned k = 0; k < it->n_keys; k++)
        if (it->joining[k])
            it->splits->ops->drop(it->splits, CW_STEAL(it->joining[k]));
    it->in_remnant = false;
}

struct cw_iterator *cw_iterator_free(struct cw_iterator *it)
{
    if (!it)
        return NULL;
    if (it->mine)
        it->splits->ops->release(it->splits, it->mine);
    if (it->pending)
        it->splits->ops->drop(it->splits, it->pending);
    if (it->joining)
        cw_iterator_drop_joining(it);
    cw_any_free(it);
    cw_join_ahead_free(it);
    cw_iterator_free(it->again); /* its splits may be a view of ours */
    it->splits->ops->free(it->splits);
    pthread_mutex_destroy(&it->mutex);
    cw_quarantined_free(it->quarantined);
    free(it->unused);
    free(it->round_unused);
    free(it->joining);
    free(it);
    return NULL;
}

/* ---- the batches of an epoch, in order ---- */

int cw_iterator_join(struct cw_iterator *it, struct cw_split *s, uint64_t index, uint64_t deadline_ns, struct cw_error *err)
{
    const struct cw_splits_ops *ops = it->splits->ops;
    unsigned k = it->key;
    const struct unused *u = &it->unused[k];
    uint64_t size = ops->remnant(it->splits, s, k);
    int r;
    if (!it->in_remnant)
        it->remnant_at = index < u->from ? size : index == u->from ? CW_MIN(u->skip, size) : 0;
    it->in_remnant = true;
    while (it->remnant_at < size) {
        if (!it->joining[k] && (r = ops->join_new(it->splits, k, deadline_ns, &it->joining[k], err)) < 0)
            return r;
        struct cw_assembly *j = it->joining[k];
        uint64_t n = CW_MIN(j->capacity - j->n_assigned, size - it->remnant_at);
        if (n > 0 && (r = ops->join(it->splits, j, s, k, it->remnant_at, n, deadline_ns, err)) < 0)
            return r;
        it->remnant_at += n;
        if (j->n_assigned == j->capacity)
            return 1;
    }
    ops->drop_remnant(it->splits, s, k);
    it->in_remnant = false;
    return 0;
}

/* Joins the remnants of the oldest split, key by key. 0: that filled a batch, *ret; 1: all are in. */
static int join(struct cw_iterator *it, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err)
{
    const struct open_split *s = oldest(it);
    for (; it->key < it->n_keys; it->key++) {
        struct unused *u = &it->unused[it->key];
        int r = cw_iterator_join(it, s->split, s->index, deadline_ns, err);
        if (r < 0)
            return r;
        if (r == 1) {
            *u = (struct unused){.from = s->index, .skip = it->remnant_at};
            *ret = CW_STEAL(it->joining[it->key]);
            cw_join_claim(it, *ret, s->index);
            return 0;
        }
        if (!it->joining[it->key] && u->from <= s->index)
            *u = (struct unused){.from = s->index + 1};
    }
    return 1;
}

/* Batches before the next one that is to be handed out: other ranks', and those that are left out. */
static uint64_t ahead(const struct cw_iterator *it)
{
    uint64_t ranks = it->options.world_size, skipped = it->seen < it->compiled->batch_from ? it->compiled->batch_from - it->seen : 0;
    uint64_t turn = (it->at.g - it->rounds_from) % ranks;
    return it->discard + skipped + (it->options.rank + ranks - turn) % ranks;
}

/* The next batch of the epoch, unfinished where it was joined. 1: the epoch is over. */
static int pull(struct cw_iterator *it, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err)
{
    int r;
    for (;;) {
        const struct open_split *s = oldest(it);
        if (it->phase == PHASE_FLUSH) {
            for (; it->key < it->n_keys; it->key++)
                if (it->joining[it->key] && !it->compiled->drop_remainder) {
                    it->unused[it->key] = (struct unused){.from = it->plan.n_splits};
                    *ret = CW_STEAL(it->joining[it->key]);
                    return 0;
                }
            return 1;
        }
        if (!s)
            return 1;
        bool again = s->index < it->at.split; /* resuming: only its remnants are wanted */
        if (it->phase == PHASE_BATCHES) {
            cw_join_ahead(it);
            r = it->splits->ops->next(it->splits, s->split, again ? UINT64_MAX : ahead(it), deadline_ns, ret, err);
            if (r == 0 && !again && it->discard == 0)
                return 0;
            if (r == 0) {
                it->discard -= !again;
                it->splits->ops->drop(it->splits, *ret);
                continue;
            }
            if (r < 0)
                return r;
            it->discard = again ? it->discard : 0;
            it->phase = PHASE_JOIN;
            it->key = 0;
        }
        r = join(it, deadline_ns, ret, err);
        if (r <= 0)
            return r;
        bool last = s->index + 1 == it->plan.n_splits;
        close_oldest(it);
        it->phase = PHASE_BATCHES;
        if (last) {
            it->phase = PHASE_FLUSH;
            it->key = 0;
        } else if (!again) {
            it->at.split++;
            it->at.batch = 0;
        }
        if ((r = open_ahead(it, err)) < 0)
            return r;
    }
}

/* Whether all batches of the epoch were handed out though its splits have more: behind a `take` of batches, or a short batch to drop. */
static bool cut_short(const struct cw_iterator *it)
{
    const struct cw_compiled *c = it->compiled;
    uint64_t n = it->plan.n_positions;
    return it->seen >= c->batch_to || (!it->n_keys && c->drop_remainder && n < CW_ENDLESS && it->at.g >= n / c->batch_size);
}

/* The next one up to which `take` of batches and drop_remainder let come. 1: the epoch is over. */
static int pull_counted(struct cw_iterator *it, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err)
{
    return cut_short(it) ? 1 : pull(it, deadline_ns, ret, err);
}

static int epoch_over(struct cw_iterator *it, struct cw_error *err)
{
    while (it->phase != PHASE_FLUSH && it->n_open && cut_short(it)) {
        bool last = oldest(it)->index + 1 == it->plan.n_splits;
        close_oldest(it);
        if (last)
            break;
    }
    cw_iterator_drop_joining(it);
    memset(it->unused, 0, it->n_keys * sizeof(*it->unused));
    it->at = (struct cw_cursor){.epoch = it->at.epoch + 1};
    it->rounds_from = 0;
    it->phase = PHASE_BATCHES;
    it->key = 0;
    it->seen = it->discard = 0;
    if (it->plan.n_splits == 0)
        it->at.epoch = it->options.epochs;
    return open_ahead(it, err);
}

static void round_done(struct cw_iterator *it)
{
    it->round = it->at;
    memcpy(it->round_unused, it->unused, it->n_keys * sizeof(*it->unused));
    tell_passed(it);
}

void cw_iterator_note_quarantined(struct cw_iterator *it, struct cw_assembly *a)
{
    while (a->quarantined) {
        struct cw_quarantined *q = a->quarantined;
        a->quarantined = q->next;
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

/* Makes a batch from what was pulled, whether it is handed out or another rank's, or left out by a `skip`: what is wrong in one ends the run, wherever its
 * elements came from. */
int cw_iterator_finish(struct cw_iterator *it, struct cw_assembly *a, bool mine, uint64_t deadline_ns, struct cw_error *err)
{
    if (a->error) {
        *err = *a->error;
        return a->error->status;
    }
    int r = it->splits->ops->finish(it->splits, a, mine, it->at.epoch, deadline_ns, err);
    if (r < 0 && r != CW_E_DEADLINE && r != CW_E_INTERRUPTED && r != CW_E_BUDGET)
        cw_assembly_poison(a, err, 0); /* its functions are not called again */
    return r;
}

/* A repetition of batch j of an epoch, as batch g. A wait that ends leaves it where it is: the next call goes on. */
static int padding(struct cw_iterator *it, uint64_t epoch, uint64_t g, uint64_t j, uint64_t deadline_ns, struct cw_error *err)
{
    int r = cw_padding_open(it, epoch, (unsigned)j, j + 1, err); /* j is less than the world size */
    if (r >= 0)
        r = cw_padding_next(it, epoch, g, deadline_ns, &it->mine, err);
    if (r >= 0)
        cw_padding_close(it);
    return r;
}

static int offer_until(struct cw_iterator *it, uint64_t deadline_ns, struct cw_batch **ret, struct cw_error *err)
{
    uint64_t ranks = it->options.world_size;
    while (it->at.epoch < it->options.epochs) {
        struct cw_assembly *a = CW_STEAL(it->pending);
        int r = a ? 0 : pull_counted(it, deadline_ns, &a, err);
        if (r < 0)
            return r;
        if (r == 1) {
            uint64_t total = it->at.g, epoch = it->at.epoch, rest = (total - it->rounds_from) % ranks;
            uint64_t j = it->options.rank - rest; /* a rank that has no batch in the last round repeats one */
            if (rest && !it->mine && it->options.rank >= rest &&
                (r = padding(it, epoch, total + j, j % total, deadline_ns, err)) < 0)
                return r;
            r = epoch_over(it, err);
            if (r < 0)
                return r;
            if (total == 0 && it->options.epochs >= INT64_MAX) /* nor will the next one have a batch: without end would be for ever */
                it->at.epoch = it->options.epochs;
        } else {
            bool mine = ahead(it) == 0;
            cw_join_ahead(it); /* before it is waited for what is made of this one */
            if ((r = cw_iterator_finish(it, a, mine, deadline_ns, err)) < 0) {
                it->pending = a; /* nothing is lost, and nobody gets past a failure */
                return r;
            }
            if (r > 0) { /* it is lost with a split */
                it->splits->ops->drop(it->splits, a);
                continue;
            }
            if (it->seen++ < it->compiled->batch_from) {
                it->splits->ops->drop(it->splits, a);
                continue;
            }
            if (mine) {
                cw_iterator_note_quarantined(it, a);
                it->mine = it->splits->ops->take(it->splits, a);
                it->mine->epoch = it->at.epoch;
                it->mine->g = it->at.g;
                it->mine->split = it->at.split;
                it->mine->index = it->at.batch;
            } else {
                it->splits->ops->drop(it->splits, a);
            }
            it->at.g++;
            it->at.batch++;
            if ((it->at.g - it->rounds_from) % ranks)
                continue;
        }
        if (it->mine) {
            *ret = CW_STEAL(it->mine);
            return 0;
        }
        round_done(it);
    }
    return 1;
}

int cw_iterator_offer_until(struct cw_iterator *it, uint64_t deadline_ns, struct cw_batch **ret, struct cw_error *err)
{
    int r = it->any ? cw_any_offer(it, deadline_ns, ret, err) : offer_until(it, deadline_ns, ret, err);
    it->offered = r == 0;
    return r;
}

int cw_iterator_offer(struct cw_iterator *it, uint64_t timeout_ns, struct cw_batch **ret, struct cw_error *err)
{
    return cw_iterator_offer_until(it, timeout_ns ? cw_now_ns() + timeout_ns : 0, ret, err);
}

void cw_iterator_accept(struct cw_iterator *it)
{
    if (!it->offered)
        return;
    it->offered = false;
    if (it->any)
        cw_any_accept(it);
    else
        round_done(it);
}

int cw_iterator_next(struct cw_iterator *it, uint64_t timeout_ns, struct cw_batch **ret, struct cw_error *err)
{
    int r = cw_iterator_offer(it, timeout_ns, ret, err);
    if (r == 0)
        cw_iterator_accept(it);
    return r;
}

void cw_iterator_release(struct cw_iterator *it, struct cw_batch *b)
{
    if (b->flags & CW_RECORD_PADDING)
        cw_batch_free(b);
    else
        it->splits->ops->release(it->splits, b);
}

const struct cw_quarantined *cw_iterator_quarantined(const struct cw_iterator *it, uint64_t *ret_skipped, uint64_t *ret_replaced)
{
    *ret_skipped = it->n_skipped;
    *ret_replaced = it->n_replaced;
    return it->quarantined;
}

void cw_iterator_interrupt(struct cw_iterator *it, bool on)
{
    it->splits->ops->interrupt(it->splits, on);
    pthread_mutex_lock(&it->mutex);
    it->interrupted = on;
    if (it->again)
        cw_iterator_interrupt(it->again, on);
    pthread_mutex_unlock(&it->mutex);
}

void cw_iterator_leave(struct cw_iterator *it)
{
    if (it->pending)
        it->splits->ops->drop(it->splits, CW_STEAL(it->pending));
    cw_any_free(it); /* likewise */
    if (it->splits->ops->leave)
        it->splits->ops->leave(it->splits);
}

void cw_iterator_profile(struct cw_iterator *it, struct cw_profile *ret) { it->splits->ops->profile(it->splits, ret); }
void cw_iterator_tuned(const struct cw_iterator *it, struct cw_tuned_log *ret)
{
    cw_tuned_add_all(ret, &it->tuned);
    it->splits->ops->tuned(it->splits, ret);
}

void cw_iterator_fused(const struct cw_iterator *it, unsigned *ret) { it->splits->ops->fused(it->splits, ret); }
