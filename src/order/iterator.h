/*
 * The batches of a pipeline, epoch after epoch, as a training job takes them: epoch after epoch, numbers
 * batches, keeps the position. One thread (the consumer) uses it; only cw_iterator_release, _interrupt,
 * _profile and _tuned may come from others.
 */
#pragma once
#include <jansson.h>

#include "engine/runner.h"
#include "order/producer.h"

struct cw_iterator_options {
    uint64_t seed, epochs;
    unsigned rank, world_size;
    /* a rank hands out its batches as they are ready (docs/semantics.md, section 8); else in exact order */
    bool unordered;
    bool at_most_once; /* batches may be lost: then no rank makes up for what another one has more */
    /* a rank's batches are made of ranges that no other rank uses: its states are no other's */
    bool own_ranges;
    uint64_t first_epoch;            /* without a state */
    struct cw_runner_options runner; /* of cw_iterator_new */
};

struct cw_iterator;
/* Over a producer, which it takes over, in case of error too; the compiled pipeline must outlive it. Of the
 * options, seed (the producer has it) and runner do not matter. state (may be NULL): where to go on;
 * CW_E_STATE when it does not fit. */
int cw_iterator_over(struct cw_producer *producer, const struct cw_iterator_options *o, const json_t *state,
                     struct cw_iterator **ret, struct cw_error *err) _must_check_;
/* The same with a runner of its own. Takes nothing over: compiled pipeline and sequence must outlive it. */
int cw_iterator_new(const struct cw_sequence *s, const struct cw_iterator_options *o, const json_t *state,
                    struct cw_iterator **ret, struct cw_error *err) _must_check_;
struct cw_iterator *cw_iterator_free(struct cw_iterator *it);
/* The next batch of this rank (caller gives it back with cw_iterator_release before asking for the next, or
 * holds on to it); 1: the last epoch is over. The position stays before it until it is accepted, which has to
 * be before the next one is asked for. */
int cw_iterator_offer(struct cw_iterator *it, uint64_t timeout_ns, struct cw_batch **ret,
                      struct cw_error *err) _must_check_;
void cw_iterator_accept(struct cw_iterator *it);
/* Both. */
int cw_iterator_next(struct cw_iterator *it, uint64_t timeout_ns, struct cw_batch **ret,
                     struct cw_error *err) _must_check_;
void cw_iterator_release(struct cw_iterator *it, struct cw_batch *b);
/* There will be no calls but cw_iterator_release, for batches that are held, and cw_iterator_free: what
 * others keep ready for it they need not any more, and a function that was waited for ends. */
void cw_iterator_leave(struct cw_iterator *it);
/* A saved state from its text; name: what errors call it. ret: new. */
int cw_state_parse(const char *name, const char *text, size_t size, json_t **ret,
                   struct cw_error *err) _must_check_;
/* Where an iterator begins that goes on from a state, as far as that is known without the data. ret has room
 * for keys. CW_E_STATE where it does not fit the pipeline, the seed or, where batches were handed out before
 * their turn, the options' order and ranks. */
int cw_state_begin(const struct cw_compiled *c, uint64_t seed, const struct cw_iterator_options *o,
                   const json_t *state, struct cw_cursor *ret, struct cw_error *err) _must_check_;
/* The position after the batch accepted last: at most 1 KB as text. New reference; NULL: out of memory. */
json_t *cw_iterator_state(const struct cw_iterator *it);
/* Records that were skipped or replaced in batches handed out so far; the oldest first. Owned by the
 * iterator. */
const struct cw_quarantined *cw_iterator_quarantined(const struct cw_iterator *it, uint64_t *ret_skipped,
                                                     uint64_t *ret_replaced);
void cw_iterator_interrupt(struct cw_iterator *it, bool on);
void cw_iterator_profile(struct cw_iterator *it, struct cw_profile *ret);
/* its own; NULL: none, it is a service that computes */
struct cw_runner *cw_iterator_runner(struct cw_iterator *it);
/* By operator position: the operator under which its time is counted (itself, unless fused). ret has room for
 * all operators. */
void cw_iterator_fused(const struct cw_iterator *it, unsigned *ret);
/* Adds what its producer set by itself. Any thread. */
void cw_iterator_tuned(const struct cw_iterator *it, struct cw_tuned_log *ret);
