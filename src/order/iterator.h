/*
 * The iterator hands out the batches of a pipeline as a training job takes them: epoch after epoch, numbered,
 * those of one rank. It keeps the position, and owns its producer. One thread (the consumer) uses it; other
 * threads may call only cw_iterator_release, _interrupt, _profile and _tuned.
 */
#pragma once
#include <jansson.h>

#include "engine/runner.h"
#include "order/producer.h"

struct cw_iterator_options {
    uint64_t seed, epochs;
    unsigned rank, world_size;
    /* batches are handed out as they are ready (order any; docs/semantics.md, section 8); else in exact order
     */
    bool unordered;
    bool at_most_once; /* batches may be lost, and no rank repeats one to have as many as another */
    /* each rank makes its batches of ranges of its own, so that a state belongs to one rank */
    bool own_ranges;
    uint64_t first_epoch;            /* without a state */
    struct cw_runner_options runner; /* of cw_iterator_new */
};

struct cw_iterator;
/* Makes an iterator over a producer, which it takes over, also on failure. The compiled pipeline must outlive
 * it. Options seed and runner are not used. state (may be NULL): where to go on. CW_E_STATE: it does not fit.
 */
int cw_iterator_over(struct cw_producer *producer, const struct cw_iterator_options *o, const json_t *state,
                     struct cw_iterator **ret, struct cw_error *err) _must_check_;
/* The same with a runner of its own. The compiled pipeline and the sequence must outlive it. */
int cw_iterator_new(const struct cw_sequence *s, const struct cw_iterator_options *o, const json_t *state,
                    struct cw_iterator **ret, struct cw_error *err) _must_check_;
struct cw_iterator *cw_iterator_free(struct cw_iterator *it);
/* Sets *ret to the next batch of this rank, to be released with cw_iterator_release at any time. 1: the last
 * epoch is over. deadline_ns: 0: without limit. The position stays before the batch until cw_iterator_accept,
 * which must come before the next offer. */
int cw_iterator_offer(struct cw_iterator *it, uint64_t deadline_ns, struct cw_batch **ret,
                      struct cw_error *err) _must_check_;
void cw_iterator_accept(struct cw_iterator *it);
/* Offers a batch and accepts it. timeout_ns: 0: without limit. */
int cw_iterator_next(struct cw_iterator *it, uint64_t timeout_ns, struct cw_batch **ret,
                     struct cw_error *err) _must_check_;
void cw_iterator_release(struct cw_iterator *it, struct cw_batch *b);
/* Notes the digest of the batches that were hashed so far: a service shows it. */
void cw_iterator_hashed(struct cw_iterator *it, struct cw_hash128 digest);
/* Ends the work of the producer. Only cw_iterator_release, for batches that are held, and cw_iterator_free
 * may follow. */
void cw_iterator_leave(struct cw_iterator *it);
/* Parses a saved state. name: for errors. *ret: new. */
int cw_state_parse(const char *name, const char *text, size_t size, json_t **ret,
                   struct cw_error *err) _must_check_;
/* Sets *ret, which has room for keys, to the place where a state goes on, as far as that is known without the
 * data. CW_E_STATE: it does not fit the pipeline or the seed. Where batches were handed out before their
 * turn, it must also fit the order and the ranks of the options. */
int cw_state_begin(const struct cw_compiled *c, uint64_t seed, const struct cw_iterator_options *o,
                   const json_t *state, struct cw_cursor *ret, struct cw_error *err) _must_check_;
/* Returns the position after the batch that was accepted last: at most 1 KB as text. New reference; NULL: out
 * of memory. */
json_t *cw_iterator_state(const struct cw_iterator *it);
/* Returns the records that were skipped or replaced in batches handed out so far, the oldest first. Owned by
 * the iterator. */
const struct cw_quarantined *cw_iterator_quarantined(const struct cw_iterator *it, uint64_t *ret_skipped,
                                                     uint64_t *ret_replaced);
void cw_iterator_interrupt(struct cw_iterator *it, bool on);
void cw_iterator_profile(struct cw_iterator *it, struct cw_profile *ret);
/* Returns its runner; NULL: a service computes. */
struct cw_runner *cw_iterator_runner(struct cw_iterator *it);
/* Sets ret[position of an operator] to the operator under which its time is counted: itself, unless fused. */
void cw_iterator_fused(const struct cw_iterator *it, unsigned *ret);
/* Adds the tuning records of its producer. Any thread. */
void cw_iterator_tuned(const struct cw_iterator *it, struct cw_tuned_log *ret);
