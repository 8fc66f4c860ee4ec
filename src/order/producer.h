/*
 * A producer gives an iterator the batches of epochs: from the runner of this process (producer_local.c), or
 * from the service (remote/remote.c). The iterator's thread calls all functions; other threads may call
 * interrupt, release, profile and tuned.
 *
 * Waits end at deadline_ns (CLOCK_MONOTONIC; 0: never) with CW_E_DEADLINE, or after an interrupt with
 * CW_E_INTERRUPTED. Then nothing has changed, and the call may be repeated.
 */
#pragma once
#include "base/hash.h"
#include "base/tuned.h"
#include "engine/assembly.h"
#include "engine/entry.h"
#include "engine/profile.h"
#include "dataset/sequence.h"

struct cw_batches; /* the batches of an epoch from an entry on; each producer has its own type */

/* A position in a job, between two batches. Batch g of the epoch is the next one, and `entry` describes the
 * elements before it. In order any, the rank may have already handed out some of its batches from g on: bit i
 * of `handed` stands for its batch of round i, counted from g. A round is one batch for each rank. */
struct cw_cursor {
    uint64_t epoch, g;
    uint64_t handed;
    struct cw_entry entry;
};

/* The number of rounds that `handed` covers: its bits. */
#define CW_ROUNDS_AHEAD 64
/* Copies *from to *to, whose entry must have room for all keys. */
void cw_cursor_set(const struct cw_compiled *c, struct cw_cursor *to, const struct cw_cursor *from);

struct cw_producer {
    const struct cw_producer_ops *ops;
    const struct cw_compiled *compiled; /* borrowed */
    struct cw_plan plan;
    uint64_t seed;
};

struct cw_producer_ops {
    /* Closes all open epochs and frees p, with the batches that were taken, except those that users still
     * hold. */
    struct cw_producer *(*free)(struct cw_producer *p);
    /* Makes another producer over the same data, to repeat batches of an epoch that is over, for padding. */
    int (*again)(struct cw_producer *p, unsigned rank, uint64_t world_size, struct cw_producer **ret,
                 struct cw_error *err);
    /* Opens an epoch at a cursor, whose g also counts batches that a `skip` leaves out. Epochs are opened in
     * ascending order. `from` is copied; an entry without keys means the beginning of the epoch. The pointer
     * is NULL in a producer that has no batches. */
    int (*open)(struct cw_producer *p, const struct cw_cursor *from, struct cw_batches **ret,
                struct cw_error *err);
    void (*close)(struct cw_producer *p, struct cw_batches *b);
    /* Takes the next batch into *ret; the caller owns *ret until take or drop. Returns 1 if the epoch has no
     * more batches. (*ret)->after is the entry after the batch; it is NULL where batches follow from
     * positions. n_ahead: the number of batches before the next one that the iterator will hand out. If
     * n_ahead is not 0, the iterator only skips this batch, and *ret may lack all contents. In order any,
     * *ret may instead be a batch of this rank that is ready before its turn: then (*ret)->n_before batches
     * come before it, and `next` still gives those, and later an assembly for the batch itself. */
    int (*next)(struct cw_producer *p, struct cw_batches *b, uint64_t n_ahead, uint64_t deadline_ns,
                struct cw_assembly **ret, struct cw_error *err);
    /* Makes a->batch, if `wanted`, and applies the operators on batches. */
    int (*finish)(struct cw_producer *p, struct cw_assembly *a, bool wanted, uint64_t epoch,
                  uint64_t deadline_ns, struct cw_error *err);
    /* Takes the batch out of a finished assembly, and frees the assembly. */
    struct cw_batch *(*take)(struct cw_producer *p, struct cw_assembly *a);
    void (*drop)(struct cw_producer *p, struct cw_assembly *a);
    /* The iterator takes no more batches. Batches that users hold stay valid until they are released. NULL:
     * not needed. */
    void (*leave)(struct cw_producer *p);
    void (*release)(struct cw_producer *p, struct cw_batch *b); /* any thread */
    void (*interrupt)(struct cw_producer *p, bool on);          /* any thread */
    /* The iterator needs no batch before this cursor any more. NULL: not needed. */
    void (*passed)(struct cw_producer *p, const struct cw_cursor *from);
    /* The digest of the batches that the consumer has hashed. NULL: not needed. */
    void (*hashed)(struct cw_producer *p, struct cw_hash128 digest);
    /* any thread; *ret as in cw_runner_profile */
    void (*profile)(struct cw_producer *p, struct cw_profile *ret);
    void (*fused)(struct cw_producer *p, unsigned *ret);
    /* adds the producer's tuning records to *ret; any thread */
    void (*tuned)(struct cw_producer *p, struct cw_tuned_log *ret);
};

/* Makes a producer with a new runner. The sequence must outlive the producer. */
struct cw_runner_options;
int cw_producer_local(const struct cw_sequence *s, uint64_t seed, const struct cw_runner_options *o,
                      struct cw_producer **ret, struct cw_error *err) _must_check_;
/* Makes a producer without batches and threads, for an iterator that is only used to check and keep a
 * position. Such an iterator must not be used to take a batch. The sequence must outlive the producer. */
int cw_producer_none(const struct cw_sequence *s, uint64_t seed, struct cw_producer **ret,
                     struct cw_error *err) _must_check_;
struct cw_runner *cw_producer_runner(struct cw_producer *p); /* NULL: a service computes the batches */
