/*
 * Where an iterator gets splits from: the runner of this process (runner.c), or the service. A split gives batches in order, then remnants; the iterator knows
 * what they are for. All functions are called by the iterator's thread, but for interrupt and release.
 *
 * Waits end at deadline_ns (CLOCK_MONOTONIC; 0: never) with CW_E_DEADLINE, or with CW_E_INTERRUPTED; everything is as it was then, and the call may be made again.
 */
#pragma once
#include "base/tuned.h"
#include "engine/assembly.h"
#include "engine/profile.h"
#include "pipeline/sequence.h"

struct cw_split; /* opaque; what it is, its source knows */
struct cw_joined_name;
struct cw_joined_part;

/* A place in the sequence of batches: the next one, number g of its epoch, batch `batch` of its split. */
struct cw_cursor {
    uint64_t epoch, g, split, batch;
};

struct cw_splits {
    const struct cw_splits_ops *ops;
    const struct cw_compiled *compiled; /* borrowed */
    struct cw_plan plan;
    uint64_t seed;
};

struct cw_splits_ops {
    struct cw_splits *(*free)(struct cw_splits *s); /* all splits are closed with it; batches that were taken are gone too, but for users' */
    /* Another one over the same splits, to repeat batches of an epoch that is over. */
    int (*again)(struct cw_splits *s, unsigned rank, uint64_t world_size, struct cw_splits **ret, struct cw_error *err);
    /* Batches before first_batch are not wanted. UINT64_MAX: none is, but what is left over. */
    int (*open)(struct cw_splits *s, uint64_t epoch, uint64_t index, uint64_t first_batch, struct cw_split **ret, struct cw_error *err);
    void (*close)(struct cw_splits *s, struct cw_split *split);
    /* The next batch. Wanted is the one that comes `ahead` batches after it, if the split has so many (UINT64_MAX: none); where that is not 0 just the place
     * of this one is taken, and *ret may have nothing in it. 1: there are no more, and remnants can be had. */
    int (*next)(struct cw_splits *s, struct cw_split *split, uint64_t ahead, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err);
    /* Waits until one of n splits has its next batch, or has no more, and sets *ret to its place, that of the first such; or until what was joined (NULL: nothing)
     * can be finished, and sets it to n. NULL: then it is what was joined, or the first. */
    int (*any)(struct cw_splits *s, struct cw_split *const *splits, unsigned n, const struct cw_assembly *joined, uint64_t deadline_ns, unsigned *ret,
               struct cw_error *err);
    /* How many elements are left over, by key. */
    uint64_t (*remnant)(struct cw_splits *s, struct cw_split *split, unsigned key);
    void (*drop_remnant)(struct cw_splits *s, struct cw_split *split, unsigned key);
    /* An empty batch of a key, and what is appended to it. The contents may come as late as in `finish`. */
    int (*join_new)(struct cw_splits *s, unsigned key, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err);
    int (*join)(struct cw_splits *s, struct cw_assembly *dst, struct cw_split *split, unsigned key, uint64_t from, uint64_t n, uint64_t deadline_ns,
                struct cw_error *err);
    /* NULL, all three: nothing is made ahead. What a split leaves over, by key, once that is known; joined batches begun before their turn; and the turn of
     * one that was joined, before it is finished (engine/ahead.h). */
    bool (*remnants)(struct cw_splits *s, struct cw_split *split, uint64_t *ret_sizes);
    bool (*join_ahead)(struct cw_splits *s, const struct cw_joined_name *name, const struct cw_joined_part *parts, unsigned n_parts);
    void (*claim)(struct cw_splits *s, const struct cw_joined_name *name, struct cw_assembly *a);
    /* Makes a->batch, where it is wanted, with the operators on batches applied. 1: some of it is lost for good, with a split that is not run again. */
    int (*finish)(struct cw_splits *s, struct cw_assembly *a, bool wanted, uint64_t epoch, uint64_t deadline_ns, struct cw_error *err);
    struct cw_batch *(*take)(struct cw_splits *s, struct cw_assembly *a); /* out of a finished one; the rest is freed */
    void (*drop)(struct cw_splits *s, struct cw_assembly *a);
    /* Who iterates asks for nothing any more; batches that users have stay as they are until they are released. NULL: nothing is to be done. */
    void (*leave)(struct cw_splits *s);
    void (*release)(struct cw_splits *s, struct cw_batch *b);             /* any thread */
    void (*interrupt)(struct cw_splits *s, bool on);                      /* any thread */
    /* Batches before this are not needed any more by who iterates; what is left over of splits may be. NULL: nobody wants to know. */
    void (*passed)(struct cw_splits *s, const struct cw_cursor *from);
    void (*profile)(struct cw_splits *s, struct cw_profile *ret);         /* any thread; ret as for cw_runner_profile */
    void (*fused)(struct cw_splits *s, unsigned *ret);
    void (*tuned)(struct cw_splits *s, struct cw_tuned_log *ret);         /* any thread; adds what was set by itself */
};

/* Splits that a runner of its own computes. Takes nothing over. */
struct cw_runner_options;
int cw_splits_local(const struct cw_sequence *s, uint64_t seed, const struct cw_runner_options *o, struct cw_splits **ret,
                    struct cw_error *err) _must_check_;
/* Splits with nothing in them, and without threads: an iterator over them has a position, and must not be asked for a batch. Takes nothing over. */
int cw_splits_none(const struct cw_sequence *s, uint64_t seed, struct cw_splits **ret, struct cw_error *err) _must_check_;
struct cw_runner *cw_splits_runner(struct cw_splits *s); /* NULL: they are the service's */
/* Batches of a split of a pipeline whose count is known, those of a dropped remainder not counted. */
static inline uint64_t cw_split_batches(const struct cw_compiled *c, const struct cw_plan *p, uint64_t index)
{
    uint64_t size = c->batch_size, each = p->split_size / size, n = p->n_positions;
    uint64_t total = c->drop_remainder ? n / size : n / size + (n % size != 0);
    return total > index * each ? CW_MIN(total - index * each, each) : 0;
}
/* Keys of remnants that are joined: buckets; 0: they are never joined. */
unsigned cw_n_keys(const struct cw_compiled *c);
