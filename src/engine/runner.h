/*
 * Runs ranges: a pool of compute threads takes ranges in their order and turns each into batches, or into
 * rows by key. The iterator handles ranks, numbers of batches (g) and the sequence of epochs; the runner does
 * not know them.
 *
 * Threads: one thread, the consumer, calls the functions cw_runner_*. Any thread may call cw_runner_release,
 * _interrupt, _profile, _tuned and _memory_used. All other work happens on the runner's own threads.
 */
#pragma once
#include "base/tuned.h"
#include "engine/assembly.h"
#include "engine/entry.h"
#include "engine/profile.h"
#include "dataset/sequence.h"

struct cw_cache;

#define CW_THREADS_MOST 64u /* of a runner whose functions wait */

struct cw_runner_options {
    unsigned threads;
    bool more_threads; /* more threads may run while functions wait; false: the number is exact */
    size_t memory;     /* bytes for slabs, read buffers, scratch, and the orders of shuffles */
    /* what errors call the option that `memory` is a part of; NULL: "option memory" */
    const char *memory_name;
    size_t memory_whole; /* bytes of that option; 0: `memory` is all of the option's memory */
    /* true: a batch leaves the budget when it is taken; false: at cw_runner_disown or _release */
    bool batches_are_users;
    bool lends;             /* the memory of batches may be mapped by other processes */
    bool optimize;          /* fuse operators */
    bool detail;            /* count more, for `explain` (profile.h); this costs a few percent of the rate */
    struct cw_cache *cache; /* borrowed; NULL: none */
    /* files that fit in memory may be read as a whole during reads of single records; set if the run needs
     * most of each epoch */
    bool read_in;
    int64_t cache_point; /* the cache point in use at the start: its number, or CW_CACHE_POINT_AUTO */
    /* the runner measures what each cache point would give, and the caller chooses with
     * cw_runner_set_cache_point. Rows that are slower to read than to compute are computed */
    bool adaptive;
    /* called whenever cw_runner_poll may have something new, from any thread, with the runner's mutex held.
     * NULL: the caller does not poll */
    void (*notify)(void *arg);
    void *notify_arg;
    const struct cw_pull_away *away; /* borrowed; for a stream that runs in another process; else NULL */
};

struct cw_runner;
struct cw_range;

/* Makes a runner over a sequence, which must outlive it, and starts its threads. CW_E_BUDGET: the memory is
 * too small for one batch. */
int cw_runner_new(const struct cw_sequence *s, const struct cw_runner_options *o, struct cw_runner **ret,
                  struct cw_error *err) _must_check_;
/* Stops all threads, and frees the runner with its ranges. */
struct cw_runner *cw_runner_free(struct cw_runner *r);

struct cw_range_options {
    uint64_t seed, epoch;
    struct cw_entry from; /* the entry before the range, whose position is the range's begin; copied */
    uint64_t end;         /* one past the range's last position */
    /* the range makes no batches; its elements are requested by key (cw_runner_part). Not allowed where
     * batches follow from positions */
    bool rows;
};

/* Opens a range. Ranges are computed in the order of (epoch, begin), whatever the order of opening, and get
 * memory in that order. Without `rows`, a range that ends with the epoch also gives the short batches of the
 * elements that are left at its end; a range that ends earlier drops such elements. */
int cw_runner_open(struct cw_runner *r, const struct cw_range_options *o, struct cw_range **ret,
                   struct cw_error *err) _must_check_;
/* Makes a range end at the position after everything that was begun of it, and returns that position; where
 * batches follow from positions, it is the end of a batch. Returns 0, and changes nothing, if nothing or
 * everything was begun, or if the range can't be ended at the moment. If the range began again for lack of
 * memory, it may have given batches beyond the new end before. */
uint64_t cw_runner_shorten(struct cw_runner *r, struct cw_range *s);
/* Closes and frees a range. Waits for operators and reads that run for it at the moment; those that take long
 * are cancelled. */
void cw_runner_close(struct cw_runner *r, struct cw_range *s);

/* Takes the next batch of a range, finished (a->batch), with the entry after it (a->after; NULL where batches
 * follow from positions). Waits until deadline_ns (CLOCK_MONOTONIC; 0: for ever). If the range has only a
 * part of the batch's rows (a->part), the batch is not finished, and cw_part_read gives its rows. Returns 1
 * when the range has no more batches. CW_E_DEADLINE and CW_E_INTERRUPTED change nothing. The caller owns
 * *ret. */
int cw_runner_next(struct cw_runner *r, struct cw_range *s, uint64_t deadline_ns, struct cw_assembly **ret,
                   struct cw_error *err) _must_check_;
/* As cw_runner_next, without waiting. Returns 2 when the next batch is not ready. */
int cw_runner_poll(struct cw_runner *r, struct cw_range *s, struct cw_assembly **ret,
                   struct cw_error *err) _must_check_;
/* Returns whether all of a range is computed without an error, and sets *ret_batches to the number of its
 * batches, including those that were taken. The result can become false later, when an earlier range needs
 * the memory. */
bool cw_runner_computed(struct cw_runner *r, struct cw_range *s, uint64_t *ret_batches);

/* ---- a range opened with `rows` ---- */

/* Gives elements from .. from + n - 1 of a key (n: at most a full batch) in a batch that is not finished, for
 * cw_runner_try_finish or cw_part_read. If `from` is a multiple of the batch size and n is a full batch, the
 * range gives the batch away without a copy: its rows must not be requested again (CW_E_BUG) while the range
 * is open. Other parts are copies. A skipped record has its place among the elements. Returns 2: the elements
 * are not computed yet, or there is no memory now; 1: the range is over and has fewer elements; < 0: the
 * range ends in an error before these elements. The caller owns *ret. */
int cw_runner_part(struct cw_runner *r, struct cw_range *s, unsigned key, uint64_t from, uint64_t n,
                   struct cw_assembly **ret, struct cw_error *err) _must_check_;
/* Returns whether these elements are computed, so that cw_runner_part lacks at most memory for a copy. */
bool cw_runner_part_there(struct cw_runner *r, const struct cw_range *s, unsigned key, uint64_t from,
                          uint64_t n);
/* Frees the elements of a key before `upto`, which will not be requested any more. */
void cw_runner_drop_rows(struct cw_runner *r, struct cw_range *s, unsigned key, uint64_t upto);
/* Sets ret_elements, [cw_n_keys], to the number of elements of each key that a range leaves. Returns 2: the
 * range is not over; < 0: it ends in an error after that many elements. */
int cw_runner_summary(struct cw_runner *r, struct cw_range *s, uint64_t *ret_elements,
                      struct cw_error *err) _must_check_;
/* Returns whether a stream ended, or failed, before the end of this range. */
bool cw_runner_stream_over(struct cw_runner *r, struct cw_range *s);
/* Sets *ret to the key of each element so far, in order, *ret_n keys; the caller frees them. The number can
 * become smaller when the range begins again. */
int cw_runner_keys(struct cw_runner *r, struct cw_range *s, uint16_t **ret, size_t *ret_n,
                   struct cw_error *err) _must_check_;
/* Returns the number of positions that a range with `rows` should have at most, so that its elements fit in
 * memory as far as their size is known; a multiple of the batch size. */
uint64_t cw_runner_rows_most(struct cw_runner *r);

/* For a caller that polls several ranges: returns whether the runner has work left but can't continue until a
 * batch is taken or released, or a range is closed. */
bool cw_runner_stuck(struct cw_runner *r);
/* The caller, which polls, will not repeat requests that lacked memory, so the runner stops keeping memory
 * free for them. */
void cw_runner_relent(struct cw_runner *r);
/* Returns the status of the error that ended the runner as a whole, not only a range, and copies it to err;
 * 0: the runner still works. */
int cw_runner_fatal(struct cw_runner *r, struct cw_error *err);
/* Sets another memory limit, at least what one batch needs, and returns the limit set. If more memory is in
 * use, the runner waits until it is given back. */
size_t cw_runner_set_memory(struct cw_runner *r, size_t given);
/* Returns the bytes of the budget that are in use. Any thread. */
size_t cw_runner_memory_used(struct cw_runner *r);
unsigned cw_runner_threads(const struct cw_runner *r);
/* Finishes a batch of an epoch if that is still to be done, because its rows were joined or memory was short.
 * Waits for memory, and for operators on batches, like cw_runner_next. */
int cw_runner_finish(struct cw_runner *r, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                     uint64_t deadline_ns, struct cw_error *err) _must_check_;
/* As cw_runner_finish, for a batch of range s and without waiting. Returns 2 when there is no memory now, or
 * an operator still runs on the batch. */
int cw_runner_try_finish(struct cw_runner *r, struct cw_assembly *a, const struct cw_range *s,
                         struct cw_error *err) _must_check_;
/* Takes the batch out of a finished assembly and frees the assembly. */
struct cw_batch *cw_runner_take_batch(struct cw_runner *r, struct cw_assembly *a);
/* Removes from the budget a batch that was taken; the caller has memory of its own for it. */
void cw_runner_disown(struct cw_runner *r, struct cw_batch *b);
/* Frees a batch that was taken. Any thread. */
void cw_runner_release(struct cw_runner *r, struct cw_batch *b);
/* Frees a batch that was not taken out of its assembly, and cancels a call that runs on it. */
void cw_runner_drop(struct cw_runner *r, struct cw_assembly *a);

/* Makes waits of the consumer end with CW_E_INTERRUPTED, until it is called with false. Any thread. */
void cw_runner_interrupt(struct cw_runner *r, bool on);

struct cw_cache_stats;
/* Sets *ret to the measurements of each cache point (policy/cache_stats.h). Any thread, also for the next two
 * functions. */
void cw_runner_cache_stats(struct cw_runner *r, struct cw_cache_stats *ret);

/* The work done so far: positions; the time of compute threads; the time in which at least one read thread
 * was reading. */
struct cw_effort {
    uint64_t positions, busy_ns, cold_ns;
};

void cw_runner_effort(struct cw_runner *r, struct cw_effort *ret);
/* Returns the seconds that a thread takes to compute an element, from recent blocks; 0: none was computed
 * yet. */
double cw_runner_row_s(struct cw_runner *r);
/* Returns the time of the clock by which waits for the runner's batches are measured: cw_now_ns. Where costs
 * are modelled (base/cost_clock.h), it is how long the work done so far takes. */
uint64_t cw_runner_now_ns(struct cw_runner *r);
/* Uses another cache point (numbered as in Prepare; -1: none) for pieces that are planned from now on.
 * Batches, their order, the digest and the state do not change. If there is no such variant, nothing
 * happens. */
void cw_runner_set_cache_point(struct cw_runner *r, int32_t cache_point);
/* Returns the cache point in use, numbered as in Prepare. */
int32_t cw_runner_cache_point(const struct cw_runner *r);
/* Sets *ret to the profile so far. ret->ops must have room for each operator of the pipeline; ret->values
 * must have room for all values, or be NULL. Any thread. */
void cw_runner_profile(struct cw_runner *r, struct cw_profile *ret);
/* Adds the runner's tuning records: the rows of a block, the blocks and batches under way, and others
 * (docs/explain.md). Any thread. */
void cw_runner_tuned(struct cw_runner *r, struct cw_tuned_log *ret);
/* Sets ret[position of an operator] to the position of the operator that it is fused into; its own if none.
 */
void cw_runner_fused(const struct cw_runner *r, unsigned *ret);
