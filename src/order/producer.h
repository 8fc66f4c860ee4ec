/*
 * Where an iterator gets the batches of epochs from: the runner of this process (producer_local.c), or the
 * service (remote/remote.c). All functions are called by the iterator's thread, but for interrupt and
 * release.
 *
 * Waits end at deadline_ns (CLOCK_MONOTONIC; 0: never) with CW_E_DEADLINE, or with CW_E_INTERRUPTED;
 * everything is as it was then, and the call may be made again.
 */
#pragma once
#include "base/tuned.h"
#include "engine/assembly.h"
#include "engine/entry.h"
#include "engine/profile.h"
#include "dataset/sequence.h"

struct cw_batches; /* those of an epoch from an entry on, in order; opaque: what it is, its producer knows */

/* The state of an iterator: batch g of the epoch is the next one, and `entry` is what stands before it. In
 * order any the rank has handed out some of its batches from g on: bit i is for its batch of the i-th round.
 */
struct cw_cursor {
    uint64_t epoch, g;
    uint64_t handed;
    struct cw_entry entry;
};

/* Rounds that `handed` covers. */
#define CW_ROUNDS_AHEAD 64
/* *to, whose entry has room for all, becomes a copy of *from. */
void cw_cursor_set(const struct cw_compiled *c, struct cw_cursor *to, const struct cw_cursor *from);

struct cw_producer {
    const struct cw_producer_ops *ops;
    const struct cw_compiled *compiled; /* borrowed */
    struct cw_plan plan;
    uint64_t seed;
};

struct cw_producer_ops {
    /* all that is open is closed with it; batches that were taken are gone too, but for users' */
    struct cw_producer *(*free)(struct cw_producer *p);
    /* Another one over the same data, to repeat batches of an epoch that is over. */
    int (*again)(struct cw_producer *p, unsigned rank, uint64_t world_size, struct cw_producer **ret,
                 struct cw_error *err);
    /* The batches of an epoch from a cursor on, whose g counts batches that a `skip` leaves out, too. Epochs
     * are opened in ascending order; `from` is copied, and an entry without keys is the epoch's beginning. */
    int (*open)(struct cw_producer *p, const struct cw_cursor *from, struct cw_batches **ret,
                struct cw_error *err);
    void (*close)(struct cw_producer *p, struct cw_batches *b);
    /* The next batch; (*ret)->after is the entry behind it, unless batches follow from positions. Wanted is
     * the one that comes `ahead` batches after it, if there are so many; where that is not 0 just the place
     * of this one is taken, and *ret may have nothing else in it. In order any *ret may instead be a batch of
     * this rank that is ready before its turn: (*ret)->n_before batches come before it, whose places are
     * still to be taken, and later its own. 1: the epoch has no more. */
    int (*next)(struct cw_producer *p, struct cw_batches *b, uint64_t ahead, uint64_t deadline_ns,
                struct cw_assembly **ret, struct cw_error *err);
    /* Makes a->batch, where it is wanted, with the operators on batches applied. */
    int (*finish)(struct cw_producer *p, struct cw_assembly *a, bool wanted, uint64_t epoch,
                  uint64_t deadline_ns, struct cw_error *err);
    /* out of a finished one; the rest is freed */
    struct cw_batch *(*take)(struct cw_producer *p, struct cw_assembly *a);
    void (*drop)(struct cw_producer *p, struct cw_assembly *a);
    /* Who iterates asks for nothing any more; batches that users have stay as they are until they are
     * released. NULL: nothing is to be done. */
    void (*leave)(struct cw_producer *p);
    void (*release)(struct cw_producer *p, struct cw_batch *b); /* any thread */
    void (*interrupt)(struct cw_producer *p, bool on);          /* any thread */
    /* What stands before this is not needed any more by who iterates. NULL: nobody wants to know. */
    void (*passed)(struct cw_producer *p, const struct cw_cursor *from);
    /* any thread; ret as for cw_runner_profile */
    void (*profile)(struct cw_producer *p, struct cw_profile *ret);
    void (*fused)(struct cw_producer *p, unsigned *ret);
    /* any thread; adds what was set by itself */
    void (*tuned)(struct cw_producer *p, struct cw_tuned_log *ret);
};

/* Batches that a runner of its own computes. Takes nothing over. */
struct cw_runner_options;
int cw_producer_local(const struct cw_sequence *s, uint64_t seed, const struct cw_runner_options *o,
                      struct cw_producer **ret, struct cw_error *err) _must_check_;
/* No batches, and no threads: an iterator over it has a position, and must not be asked for a batch. Takes
 * nothing over. */
int cw_producer_none(const struct cw_sequence *s, uint64_t seed, struct cw_producer **ret,
                     struct cw_error *err) _must_check_;
struct cw_runner *cw_producer_runner(struct cw_producer *p); /* NULL: it is the service's */
