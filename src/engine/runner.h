/*
 * Runs splits: a pool of compute threads that takes splits in the order they were opened and turns each into batches and
 * remnants. Knows nothing of ranks, numbers of batches (g) or epochs following one another: that is the iterator's.
 *
 * Threads: cw_runner_* are called by one thread, the consumer's, but for cw_runner_release, _interrupt and _profile, which any may call; everything else
 * happens on the runner's own.
 */
#pragma once
#include "engine/assembly.h"
#include "engine/profile.h"
#include "pipeline/sequence.h"

struct cw_runner_options {
    unsigned threads;
    size_t memory;            /* bytes: slabs, read buffers, scratch, orders of shuffles */
    bool batches_are_users;   /* a batch that was handed out leaves the budget */
    bool optimize;            /* fuse operators */
};

struct cw_runner;
struct cw_split;

int cw_runner_new(const struct cw_sequence *s, const struct cw_runner_options *o, struct cw_runner **ret, struct cw_error *err) _must_check_;
/* Stops at once: splits are dropped. */
struct cw_runner *cw_runner_free(struct cw_runner *r);

/* Opens split `index` of an epoch; batches before first_batch are not computed where the count is known, and left out in any case. */
int cw_runner_open(struct cw_runner *r, uint64_t seed, uint64_t epoch, uint64_t index, uint64_t first_batch, struct cw_split **ret,
                   struct cw_error *err) _must_check_;
void cw_runner_close(struct cw_runner *r, struct cw_split *s);
uint64_t cw_split_index(const struct cw_split *s);

/* The next batch of a split, finished (a->batch). Waits until deadline_ns (CLOCK_MONOTONIC; 0: for ever). Returns 1 when there is none
 * left: then remnants can be had. CW_E_DEADLINE and CW_E_INTERRUPTED leave everything as it is. The caller owns *ret. */
int cw_runner_next(struct cw_runner *r, struct cw_split *s, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err) _must_check_;
/* What is left over of a split at its end, by bucket (NULL: nothing); the caller owns it. */
struct cw_assembly *cw_split_take_remnant(struct cw_split *s, unsigned bucket);
/* An empty batch to join remnants in, of the size of a bucket; waits for memory like cw_runner_next. */
int cw_runner_join_new(struct cw_runner *r, unsigned bucket, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err) _must_check_;
/* cw_assembly_join; waits for memory like cw_runner_next. */
int cw_runner_join(struct cw_runner *r, struct cw_assembly *dst, const struct cw_assembly *src, uint64_t from, uint64_t n, uint64_t deadline_ns,
                   struct cw_error *err) _must_check_;
/* Finishes a batch of an epoch where that is still to be done: it was joined, or memory was short. Waits for memory like cw_runner_next. */
int cw_runner_finish(struct cw_runner *r, struct cw_assembly *a, uint64_t seed, uint64_t epoch, uint64_t deadline_ns, struct cw_error *err) _must_check_;
/* Takes a batch out of a finished assembly and frees the rest. */
struct cw_batch *cw_runner_take_batch(struct cw_runner *r, struct cw_assembly *a);
void cw_runner_release(struct cw_runner *r, struct cw_batch *b);
void cw_runner_drop(struct cw_runner *r, struct cw_assembly *a);

/* From any thread: waits of the consumer end with CW_E_INTERRUPTED, until it is called with false. */
void cw_runner_interrupt(struct cw_runner *r, bool on);
/* ret->ops must have room for an entry per operator of the pipeline. */
void cw_runner_profile(struct cw_runner *r, struct cw_profile *ret);
void cw_runner_fused(const struct cw_runner *r, unsigned *ret);
