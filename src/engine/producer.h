/*
 * Where an iterator gets the batches of epochs from: the runner of this process (producer_local.c), or the service (client/remote.c). All functions are called by
 * the iterator's thread, but for interrupt and release.
 *
 * Waits end at deadline_ns (CLOCK_MONOTONIC; 0: never) with CW_E_DEADLINE, or with CW_E_INTERRUPTED; everything is as it was then, and the call may be made again.
 */
#pragma once
#include "base/tuned.h"
#include "engine/assembly.h"
#include "engine/entry.h"
#include "engine/profile.h"
#include "pipeline/sequence.h"

struct cw_batches; /* those of an epoch from an entry on, in order; opaque: what it is, its producer knows */
struct cw_split_ops;

/* The state of an iterator: batch g of the epoch is the next one, and `entry` is what stands before it. */
struct cw_cursor {
    uint64_t epoch, g;
    struct cw_entry entry;
};

struct cw_producer {
    const struct cw_producer_ops *ops;
    const struct cw_split_ops *splits; /* for order any (iterator_any.c); NULL: the order is always exact */
    const struct cw_compiled *compiled; /* borrowed */
    struct cw_plan plan;
    uint64_t seed;
};

struct cw_producer_ops {
    struct cw_producer *(*free)(struct cw_producer *p); /* all that is open is closed with it; batches that were taken are gone too, but for users' */
    /* Another one over the same data, to repeat batches of an epoch that is over. */
    int (*again)(struct cw_producer *p, unsigned rank, uint64_t world_size, struct cw_producer **ret, struct cw_error *err);
    /* The batches of an epoch from an entry on, of which the first is number g. Epochs are opened in ascending order; `from` is copied. */
    int (*open)(struct cw_producer *p, uint64_t epoch, const struct cw_entry *from, uint64_t g, struct cw_batches **ret, struct cw_error *err);
    void (*close)(struct cw_producer *p, struct cw_batches *b);
    /* The next batch; (*ret)->after is the entry behind it, unless batches follow from positions. Wanted is the one that comes `ahead` batches after it, if there are
     * so many; where that is not 0 just the place of this one is taken, and *ret may have nothing else in it. 1: the epoch has no more. */
    int (*next)(struct cw_producer *p, struct cw_batches *b, uint64_t ahead, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err);
    /* Makes a->batch, where it is wanted, with the operators on batches applied. */
    int (*finish)(struct cw_producer *p, struct cw_assembly *a, bool wanted, uint64_t epoch, uint64_t deadline_ns, struct cw_error *err);
    struct cw_batch *(*take)(struct cw_producer *p, struct cw_assembly *a); /* out of a finished one; the rest is freed */
    void (*drop)(struct cw_producer *p, struct cw_assembly *a);
    /* Who iterates asks for nothing any more; batches that users have stay as they are until they are released. NULL: nothing is to be done. */
    void (*leave)(struct cw_producer *p);
    void (*release)(struct cw_producer *p, struct cw_batch *b);             /* any thread */
    void (*interrupt)(struct cw_producer *p, bool on);                      /* any thread */
    /* What stands before this is not needed any more by who iterates. NULL: nobody wants to know. */
    void (*passed)(struct cw_producer *p, const struct cw_cursor *from);
    void (*profile)(struct cw_producer *p, struct cw_profile *ret);         /* any thread; ret as for cw_runner_profile */
    void (*fused)(struct cw_producer *p, unsigned *ret);
    void (*tuned)(struct cw_producer *p, struct cw_tuned_log *ret);         /* any thread; adds what was set by itself */
};

/*
 * Order any: splits of plan.split_size positions, of which split i is rank i mod world_size's. Each is batched by itself from its begin on, and what it leaves over
 * is joined by the rank.
 */
struct cw_split;
struct cw_split_ops {
    /* Batches before first_batch are not wanted. UINT64_MAX: none is, but what is left over. */
    int (*open)(struct cw_producer *p, uint64_t epoch, uint64_t index, uint64_t first_batch, struct cw_split **ret, struct cw_error *err);
    void (*close)(struct cw_producer *p, struct cw_split *split);
    /* As cw_producer_ops.next. 1: there are no more, and remnants can be had. */
    int (*next)(struct cw_producer *p, struct cw_split *split, uint64_t ahead, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err);
    /* Waits until one of n splits has its next batch, or has no more, and sets *ret to its place, that of the first such; or until what was joined (NULL: nothing)
     * can be finished, and sets it to n. */
    int (*any)(struct cw_producer *p, struct cw_split *const *splits, unsigned n, const struct cw_assembly *joined, uint64_t deadline_ns, unsigned *ret,
               struct cw_error *err);
    /* How many elements are left over, by key. */
    uint64_t (*remnant)(struct cw_producer *p, struct cw_split *split, unsigned key);
    /* An empty batch of a key, and what is appended to it. The contents may come as late as in `finish`, which returns 1 where some of it is lost for good. */
    int (*join_new)(struct cw_producer *p, unsigned key, struct cw_assembly **ret, struct cw_error *err);
    int (*join)(struct cw_producer *p, struct cw_assembly *dst, struct cw_split *split, unsigned key, uint64_t from, uint64_t n, struct cw_error *err);
    void (*passed)(struct cw_producer *p, uint64_t epoch, uint64_t split, uint64_t batch); /* the cursor of order any */
};

/* Splits of an epoch; CW_ENDLESS: without end. */
static inline uint64_t cw_plan_splits(const struct cw_plan *p)
{
    return p->n_positions >= CW_ENDLESS ? CW_ENDLESS : (p->n_positions + p->split_size - 1) / p->split_size;
}
/* Batches of a split of a pipeline whose count is known, those of a dropped remainder not counted. */
static inline uint64_t cw_split_batches(const struct cw_compiled *c, const struct cw_plan *p, uint64_t index)
{
    uint64_t size = c->batch_size, each = p->split_size / size, n = p->n_positions;
    uint64_t total = c->drop_remainder ? n / size : n / size + (n % size != 0);
    return total > index * each ? CW_MIN(total - index * each, each) : 0;
}

/* Batches that a runner of its own computes. Takes nothing over. */
struct cw_runner_options;
int cw_producer_local(const struct cw_sequence *s, uint64_t seed, const struct cw_runner_options *o, struct cw_producer **ret, struct cw_error *err) _must_check_;
/* No batches, and no threads: an iterator over it has a position, and must not be asked for a batch. Takes nothing over. */
int cw_producer_none(const struct cw_sequence *s, uint64_t seed, struct cw_producer **ret, struct cw_error *err) _must_check_;
struct cw_runner *cw_producer_runner(struct cw_producer *p); /* NULL: it is the service's */
