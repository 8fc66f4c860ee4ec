/*
 * The iterator hands out the batches of a pipeline in the order in which a training job takes them: epoch
 * after epoch, numbered, and only those of one rank. It keeps the position in the job, and owns its producer.
 * One thread (the consumer) uses it; other threads may call only cw_iterator_release, _interrupt, _profile
 * and _tuned.
 */
#pragma once
#include <jansson.h>

#include "engine/runner.h"
#include "order/producer.h"

struct cw_iterator_options {
    uint64_t seed, epochs;
    unsigned rank, world_size;
    /* order any: batches are handed out as soon as they are ready (docs/semantics.md, section 8); else in
     * exact order */
    bool unordered;
    /* batches may be lost, and no rank repeats a batch so that all ranks have equally many */
    bool at_most_once;
    /* each rank makes its batches from ranges of its own, so a state can be used by that rank only */
    bool own_ranges;
    uint64_t first_epoch;            /* used if no state is given */
    struct cw_runner_options runner; /* used by cw_iterator_new only */
};

struct cw_iterator;
/* Makes an iterator over a producer, which it takes over, also on failure. The compiled pipeline must outlive
 * the iterator. Options seed and runner are not used. state (may be NULL): the saved position to continue
 * from. CW_E_STATE: the state does not fit the pipeline, the seed, the data or the ranks. */
int cw_iterator_over(struct cw_producer *producer, const struct cw_iterator_options *o, const json_t *state,
                     struct cw_iterator **ret, struct cw_error *err) _must_check_;
/* As cw_iterator_over, with a new runner in this process as the producer. The compiled pipeline and the
 * sequence must outlive the iterator. */
int cw_iterator_new(const struct cw_sequence *s, const struct cw_iterator_options *o, const json_t *state,
                    struct cw_iterator **ret, struct cw_error *err) _must_check_;
/* Checks that the ranks of a job can share the pipeline's batches. */
int cw_iterator_check_ranks(const struct cw_compiled *c, uint64_t world_size,
                            struct cw_error *err) _must_check_;
struct cw_iterator *cw_iterator_free(struct cw_iterator *it);
/* Sets *ret to the next batch of this rank; the caller may release it with cw_iterator_release at any time.
 * Returns 1 after the last epoch. deadline_ns: 0: no limit. The position stays before the batch until
 * cw_iterator_accept, which must be called before the next offer. */
int cw_iterator_offer(struct cw_iterator *it, uint64_t deadline_ns, struct cw_batch **ret,
                      struct cw_error *err) _must_check_;
/* Moves the position past the batch that was offered last. */
void cw_iterator_accept(struct cw_iterator *it);
/* Offers the next batch and accepts it. timeout_ns: 0: no limit. */
int cw_iterator_next(struct cw_iterator *it, uint64_t timeout_ns, struct cw_batch **ret,
                     struct cw_error *err) _must_check_;
/* Gives a batch back, and frees it. Any thread. */
void cw_iterator_release(struct cw_iterator *it, struct cw_batch *b);
/* Passes on the digest of the batches that were hashed so far, which a service shows. */
void cw_iterator_hashed(struct cw_iterator *it, struct cw_hash128 digest);
/* Ends the work of the producer. Afterwards only cw_iterator_release, for batches that the caller still
 * holds, and cw_iterator_free may be called. */
void cw_iterator_leave(struct cw_iterator *it);
/* Parses a saved state into a new JSON value. name: what errors call the state. */
int cw_state_parse(const char *name, const char *text, size_t size, json_t **ret,
                   struct cw_error *err) _must_check_;
/* Sets *ret, whose entry has room for all keys, to the position of a state, and checks the state as far as
 * possible without the data. CW_E_STATE: the state does not fit the pipeline or the seed, or, if batches were
 * handed out before their turn, the order and the ranks of the options. */
int cw_state_begin(const struct cw_compiled *c, uint64_t seed, const struct cw_iterator_options *o,
                   const json_t *state, struct cw_cursor *ret, struct cw_error *err) _must_check_;
/* Returns the position after the batch that was accepted last, as JSON of at most 1 KB of text. New
 * reference; NULL: out of memory. */
json_t *cw_iterator_state(const struct cw_iterator *it);
/* Returns a list of the records that were skipped or replaced in batches handed out so far, the oldest first.
 * The iterator owns the list. */
const struct cw_quarantined *cw_iterator_quarantined(const struct cw_iterator *it, uint64_t *ret_skipped,
                                                     uint64_t *ret_replaced);
/* Makes waits end with CW_E_INTERRUPTED, until it is called with false. Any thread. */
void cw_iterator_interrupt(struct cw_iterator *it, bool on);
/* Sets *ret as cw_runner_profile does. Any thread. */
void cw_iterator_profile(struct cw_iterator *it, struct cw_profile *ret);
/* Returns the iterator's runner; NULL: a service computes the batches. */
struct cw_runner *cw_iterator_runner(struct cw_iterator *it);
/* Sets ret[position of an operator] to the position of the operator under which its time is counted: its own,
 * unless it is fused with another. */
void cw_iterator_fused(const struct cw_iterator *it, unsigned *ret);
/* Adds the tuning records of the iterator's producer to *ret. Any thread. */
void cw_iterator_tuned(const struct cw_iterator *it, struct cw_tuned_log *ret);
