/*
 * Runs ranges: a pool of compute threads takes ranges in their order and turns each into batches, or rows by
 * key. Ranks, numbers of batches (g) and the sequence of epochs are the iterator's: the runner does not know
 * them.
 *
 * Threads: cw_runner_* are called by one thread, the consumer's, but for cw_runner_release, _interrupt,
 * _profile, _tuned and _memory_used, which any may call; everything else happens on the runner's own.
 */
#pragma once
#include "base/tuned.h"
#include "engine/assembly.h"
#include "engine/entry.h"
#include "engine/profile.h"
#include "dataset/sequence.h"

struct cw_cache;

struct cw_runner_options {
    unsigned threads;
    size_t memory;           /* bytes: slabs, read buffers, scratch, orders of shuffles */
    const char *memory_name; /* for errors: the option that `memory` is a part of; NULL: "option memory" */
    size_t memory_whole;     /* bytes of that option; 0: `memory` is all of it */
    /* a batch that was taken leaves the budget; else at cw_runner_disown or _release */
    bool batches_are_users;
    bool lends;             /* other processes may be given the memory of batches */
    bool optimize;          /* fuse operators */
    bool detail;            /* count more, for `explain` (profile.h): it costs a few percent */
    struct cw_cache *cache; /* borrowed; NULL: none */
    /* files that fit in memory may be read as a whole while single records are read: the run needs most of
     * each epoch */
    bool read_in;
    int64_t cache_point; /* where it is used, to begin with: the number of a cache point, or
                            CW_CACHE_POINT_AUTO */
    /* what each cache point would give is measured, and a policy decides (cw_runner_set_cache_point); what is
     * slower to read than to compute is computed */
    bool adaptive;
    /* called whenever cw_runner_poll may have something new, from any thread and under the runner's mutex;
     * NULL: the caller does not poll */
    void (*notify)(void *arg);
    void *notify_arg;
    const struct cw_pull_away *away; /* borrowed; of a stream that runs in another process */
};

struct cw_runner;
struct cw_range;

int cw_runner_new(const struct cw_sequence *s, const struct cw_runner_options *o, struct cw_runner **ret,
                  struct cw_error *err) _must_check_;
/* Stops at once: ranges are dropped. */
struct cw_runner *cw_runner_free(struct cw_runner *r);

struct cw_range_options {
    uint64_t seed, epoch;
    struct cw_entry from; /* what stands before the range; copied */
    uint64_t end;         /* one past its last position */
    /* its elements are asked for by key (cw_runner_part): it gives no batches. Not where batches follow from
     * positions */
    bool rows;
};

/* Opens a range. Ranges are worked on in the order of (epoch, begin), whatever the order of opening, and
 * memory is theirs in that order. Without `rows`, one that ends with the epoch gives the short batches that
 * are left over at its end, too; of any other what is left over is lost. */
int cw_runner_open(struct cw_runner *r, const struct cw_range_options *o, struct cw_range **ret,
                   struct cw_error *err) _must_check_;
/* Ends a range behind what was begun of it, and returns the position where it ends now: at the end of a batch
 * where batches follow from positions. 0: nothing was begun, or all of it, or it can't be ended at the
 * moment. A range that was restarted for memory may have given more before than it does now. */
uint64_t cw_runner_shorten(struct cw_runner *r, struct cw_range *s);
/* Waits for what runs for it at the moment; what takes long is cancelled. */
void cw_runner_close(struct cw_runner *r, struct cw_range *s);

/* The next batch of a range, finished (a->batch), with the entry behind it (a->after; NULL where batches
 * follow from positions). Waits until deadline_ns (CLOCK_MONOTONIC; 0: for ever). Of a batch that the range
 * has a part of, its rows, not finished (a->part): for cw_part_read. Returns 1 when there is none left.
 * CW_E_DEADLINE and CW_E_INTERRUPTED leave everything as it is. The caller owns *ret. */
int cw_runner_next(struct cw_runner *r, struct cw_range *s, uint64_t deadline_ns, struct cw_assembly **ret,
                   struct cw_error *err) _must_check_;
/* The same without waiting: 2 when there is nothing yet. */
int cw_runner_poll(struct cw_runner *r, struct cw_range *s, struct cw_assembly **ret,
                   struct cw_error *err) _must_check_;
/* Whether all of a range is computed, its batches taken or not: how many they are. Not when it ends in an
 * error. It may not be so any more later, where a range before it needed the memory. */
bool cw_runner_computed(struct cw_runner *r, struct cw_range *s, uint64_t *ret_batches);

/* ---- a range opened with `rows` ---- */

/* Elements from .. from + n - 1 of a key (n: at most a full batch), in a batch of their own that is not
 * finished: for cw_runner_try_finish, or cw_part_read. A full batch whose `from` is a multiple of the
 * batch size is given away as it is: its rows must not be asked for again (CW_E_BUG) while the range is open.
 * Other parts are copies. A record that was skipped has its place among the elements. 2: not computed yet, or
 * no memory now; 1: the range is over and has fewer. < 0: the range ends in an error before them. The caller
 * owns *ret. */
int cw_runner_part(struct cw_runner *r, struct cw_range *s, unsigned key, uint64_t from, uint64_t n,
                   struct cw_assembly **ret, struct cw_error *err) _must_check_;
/* Whether these elements are computed: cw_runner_part lacks at most memory for them. */
bool cw_runner_part_there(struct cw_runner *r, const struct cw_range *s, unsigned key, uint64_t from,
                          uint64_t n);
/* Elements of a key before `upto` will not be asked for (again). */
void cw_runner_drop_rows(struct cw_runner *r, struct cw_range *s, unsigned key, uint64_t upto);
/* The summary of a range that is over: elements that it leaves, by key ([cw_n_keys]). 2: it is not over; < 0:
 * it ends in an error, behind so many elements. */
int cw_runner_summary(struct cw_runner *r, struct cw_range *s, uint64_t *ret_elements,
                      struct cw_error *err) _must_check_;
/* Whether a stream ended, or failed, before the end of this range. */
bool cw_runner_stream_over(struct cw_runner *r, struct cw_range *s);
/* The key of each element so far in order, *ret_n of them; the caller frees them. The range may have begun
 * again, and have fewer than before. */
int cw_runner_keys(struct cw_runner *r, struct cw_range *s, uint16_t **ret, size_t *ret_n,
                   struct cw_error *err) _must_check_;
/* Positions that a range with `rows` has at most, so that its elements fit in memory as far as that is known;
 * a multiple of the batch size. */
uint64_t cw_runner_rows_most(struct cw_runner *r);

/* For a caller that polls several ranges: whether the runner stands still with work left to do, until a batch
 * is taken or released, or a range is closed. */
bool cw_runner_stuck(struct cw_runner *r);
/* A caller that polls will not ask again for what was not there: nothing waits for it any more. */
void cw_runner_relent(struct cw_runner *r);
/* The error that ended the runner as a whole, and not just a range; 0: the runner goes on. */
int cw_runner_fatal(struct cw_runner *r, struct cw_error *err);
/* Another limit of memory, at least what one batch needs; less than what is in use is waited for. Returns the
 * runner's limit. */
size_t cw_runner_set_memory(struct cw_runner *r, size_t given);
size_t cw_runner_memory_used(struct cw_runner *r);
unsigned cw_runner_threads(const struct cw_runner *r);
/* Finishes a batch of an epoch where that is still to be done: it was joined, or memory was short. Waits for
 * memory, and for operators on batches, like cw_runner_next. */
int cw_runner_finish(struct cw_runner *r, struct cw_assembly *a, uint64_t seed, uint64_t epoch,
                     uint64_t deadline_ns, struct cw_error *err) _must_check_;
/* The same for a batch of range s, without waiting: 2 when there is no memory now, or an operator still runs
 * on it. */
int cw_runner_try_finish(struct cw_runner *r, struct cw_assembly *a, const struct cw_range *s,
                         struct cw_error *err) _must_check_;
/* Takes a batch out of a finished assembly and frees the rest. */
struct cw_batch *cw_runner_take_batch(struct cw_runner *r, struct cw_assembly *a);
/* A batch that was taken, and is still in the budget, leaves it: the caller has memory of its own for it. */
void cw_runner_disown(struct cw_runner *r, struct cw_batch *b);
void cw_runner_release(struct cw_runner *r, struct cw_batch *b);
void cw_runner_drop(struct cw_runner *r, struct cw_assembly *a);

/* From any thread: waits of the consumer end with CW_E_INTERRUPTED, until it is called with false. */
void cw_runner_interrupt(struct cw_runner *r, bool on);

struct cw_cache_stats;
/* What is known of each cache point (policy/cache_stats.h). Any thread, like the next two. */
void cw_runner_cache_stats(struct cw_runner *r, struct cw_cache_stats *ret);

/* What was done so far: positions, threads' time, the time in which any read thread was at it. */
struct cw_effort {
    uint64_t positions, busy_ns, cold_ns;
};

void cw_runner_effort(struct cw_runner *r, struct cw_effort *ret);
/* Seconds in which a thread computes an element, as it was lately; 0: none was computed yet. */
double cw_runner_row_s(struct cw_runner *r);
/* The clock by which waits for its batches are measured: cw_now_ns; of modelled costs (base/cost_clock.h),
 * how long what was done so far takes. */
uint64_t cw_runner_now_ns(struct cw_runner *r);
/* Another cache point, as in Prepare (-1: none), for what is planned from now on. Batches, order, digest and
 * state are what they are. Where there is no such variant it stays as it is. */
void cw_runner_set_cache_point(struct cw_runner *r, int32_t cache_point);
/* The one in use, as in Prepare. */
int32_t cw_runner_cache_point(const struct cw_runner *r);
/* ret->ops must have room for an entry per operator of the pipeline; ret->values for all values, or be NULL.
 */
void cw_runner_profile(struct cw_runner *r, struct cw_profile *ret);
/* Adds what it set by itself: how many rows a block has, blocks and batches that are under way, and whether
 * joined batches are made ahead (docs/explain.md). */
void cw_runner_tuned(struct cw_runner *r, struct cw_tuned_log *ret);
void cw_runner_fused(const struct cw_runner *r, unsigned *ret);
