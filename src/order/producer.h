/*
 * A producer gives an iterator the batches of epochs: from the runner of this process (producer_local.c), or
 * from the service (remote/remote.c). The iterator's thread calls all functions. Other threads may call
 * interrupt, release, profile and tuned.
 *
 * Waits end at deadline_ns (CLOCK_MONOTONIC; 0: never) with CW_E_DEADLINE, or with CW_E_INTERRUPTED. Nothing
 * has changed then, and the call may be made again.
 */
#pragma once
#include "base/hash.h"
#include "base/tuned.h"
#include "engine/assembly.h"
#include "engine/entry.h"
#include "engine/profile.h"
#include "dataset/sequence.h"

struct cw_batches; /* the batches of an epoch from an entry on; each producer has its own type */

/* The state of an iterator: batch g of the epoch is the next one, and `entry` describes the elements before
 * it. Unordered, the rank has handed out some of its batches from g on: bit i of `handed` is for its batch of
 * round i. */
struct cw_cursor {
    uint64_t epoch, g;
    uint64_t handed;
    struct cw_entry entry;
};

/* Rounds that `handed` covers. */
#define CW_ROUNDS_AHEAD 64
/* Copies *from to *to, whose entry has room for all keys. */
void cw_cursor_set(const struct cw_compiled *c, struct cw_cursor *to, const struct cw_cursor *from);

struct cw_producer {
    const struct cw_producer_ops *ops;
    const struct cw_compiled *compiled; /* borrowed */
    struct cw_plan plan;
    uint64_t seed;
};

struct cw_producer_ops {
    /* Closes all that is open. Batches that were taken are gone too, except those that users have. */
    struct cw_producer *(*free)(struct cw_producer *p);
    /* Makes another producer over the same data, to repeat batches of an epoch that is over. */
    int (*again)(struct cw_producer *p, unsigned rank, uint64_t world_size, struct cw_producer **ret,
                 struct cw_error *err);
    /* Opens an epoch at a cursor, whose g also counts batches that a `skip` leaves out. Epochs are opened in
     * ascending order. `from` is copied; an entry without keys is the epoch's beginning. NULL: there are no
     * batches. */
    int (*open)(struct cw_producer *p, const struct cw_cursor *from, struct cw_batches **ret,
                struct cw_error *err);
    void (*close)(struct cw_producer *p, struct cw_batches *b);
    /* Takes the next batch. 1: the epoch has no more. (*ret)->after is the entry behind it, unless batches
     * follow from positions. The iterator wants the batch that comes n_ahead batches later, if there are as
     * many: where n_ahead is not 0, this one is only passed, and *ret may have nothing else in it. Unordered,
     * *ret may instead be a batch of this rank that is ready before its turn: (*ret)->n_before batches before
     * it are still to be passed, and later the batch itself. */
    int (*next)(struct cw_producer *p, struct cw_batches *b, uint64_t n_ahead, uint64_t deadline_ns,
                struct cw_assembly **ret, struct cw_error *err);
    /* Makes a->batch, where it is wanted, with the operators on batches applied. */
    int (*finish)(struct cw_producer *p, struct cw_assembly *a, bool wanted, uint64_t epoch,
                  uint64_t deadline_ns, struct cw_error *err);
    /* Takes the batch out of a finished assembly, and frees the rest. */
    struct cw_batch *(*take)(struct cw_producer *p, struct cw_assembly *a);
    void (*drop)(struct cw_producer *p, struct cw_assembly *a);
    /* No batch will be taken any more. Batches that users have stay until they are released. NULL: not
     * needed. */
    void (*leave)(struct cw_producer *p);
    void (*release)(struct cw_producer *p, struct cw_batch *b); /* any thread */
    void (*interrupt)(struct cw_producer *p, bool on);          /* any thread */
    /* The iterator needs nothing before this cursor any more. NULL: not needed. */
    void (*passed)(struct cw_producer *p, const struct cw_cursor *from);
    /* The digest of the batches that the consumer has hashed. NULL: not needed. */
    void (*hashed)(struct cw_producer *p, struct cw_hash128 digest);
    /* any thread; ret as for cw_runner_profile */
    void (*profile)(struct cw_producer *p, struct cw_profile *ret);
    void (*fused)(struct cw_producer *p, unsigned *ret);
    /* adds its tuning records; any thread */
    void (*tuned)(struct cw_producer *p, struct cw_tuned_log *ret);
};

/* Makes a producer with a runner of its own. Takes nothing over. */
struct cw_runner_options;
int cw_producer_local(const struct cw_sequence *s, uint64_t seed, const struct cw_runner_options *o,
                      struct cw_producer **ret, struct cw_error *err) _must_check_;
/* Makes a producer without batches and threads. An iterator over it has a position, and must not be used to
 * take a batch. Takes nothing over. */
int cw_producer_none(const struct cw_sequence *s, uint64_t seed, struct cw_producer **ret,
                     struct cw_error *err) _must_check_;
struct cw_runner *cw_producer_runner(struct cw_producer *p); /* NULL: a service computes */
