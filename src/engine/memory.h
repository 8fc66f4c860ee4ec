/*
 * The memory governor: the budget of a runner, how many batches may be under way, and what gives way when
 * memory is short (docs/engine.md, "When memory is short"). All with the mutex held, where nothing else is
 * said.
 */
#pragma once
#include "data/slab.h"
#include "engine/assembly.h"
#include "engine/memory_estimate.h"
#include "engine/runner.h"

/* What becomes of starved blocks. */
enum starved_state {
    STARVED_TRY,   /* the earliest one runs alone as soon as nothing else runs */
    STARVED_ALONE, /* it runs: no other thread begins anything */
    STARVED_STUCK, /* it got all there is, and that was not enough, or it waits for a batch: until something
                      is released */
};

struct cw_memory {
    struct cw_budget budget;
    struct cw_slab_pool slabs;
    size_t least;                          /* bytes that one batch needs at least; set once */
    size_t given;                          /* the option's bytes; the budget has `least` at least */
    unsigned n_assemblies, max_assemblies; /* under way, the consumer's too; may be */
    bool few_assemblies;                   /* there would be more of them with more memory */
    unsigned n_handed;   /* assemblies and batches that the consumer has, and will release */
    uint64_t n_released; /* how often something was released, or a range closed */
    enum starved_state starved;
    bool consumer_short; /* the consumer waits for memory: nothing new is begun */
    bool plan_short; /* a piece could not be planned: not tried again before something ends or is released */
    bool poll_short; /* a batch of a range that is not the first could not be finished */
    /* Low memory: only the first range is computed, one block and one batch at a time. Rows of a block at
     * most; 0: as usual. Pieces until it ends; pieces that it lasts, or lasted the last time. */
    atomic_uint low_rows;
    unsigned low_left, low_term;
};

/* Decides how many batches may be under way. CW_E_BUDGET: the budget is too small for one. Before threads
 * start. */
int cw_memory_start(struct cw_runner *r, struct cw_error *err) _must_check_;

/* ---- batches ---- */

/* Makes a batch for a range. 1: none may be under way now. Other errors are of memory. */
int cw_memory_take_assembly(struct cw_runner *r, struct cw_range *s, unsigned bucket,
                            struct cw_assembly **ret, struct cw_error *err) _must_check_;
/* What was given up for lack of memory is tried again: plans, and the earliest starved block. */
void cw_memory_retry(struct cw_runner *r);
/* Memory came back: what waits for it tries again. */
void cw_memory_released(struct cw_runner *r);
/* Whether the consumer has, or can take, something that it will release. While it waits for a batch it
 * releases nothing. */
bool cw_memory_may_be_released(const struct cw_runner *r);

/* ---- what gives way ---- */

/* Gives back what can be had again at once: free slabs, spare arenas. */
void cw_memory_trim(struct cw_runner *r);
/* Takes back everything that can be computed again: blocks that wait, plans of later pieces. Nothing must
 * run. */
void cw_memory_evict(struct cw_runner *r);
/* Takes all memory of the last range behind `s` that holds any; that range will be computed again. False:
 * there is no such range. Nothing must run. */
bool cw_memory_reclaim(struct cw_runner *r, const struct cw_range *s);

/* Begins with low memory, or goes on with fewer rows: all but what the consumer has is given up, to be
 * computed again with less at a time. False: there is no less. Nothing must run. */
bool cw_low_memory_begin(struct cw_runner *r);
/* n pieces are used up. */
void cw_low_memory_passed(struct cw_runner *r, unsigned n);
/* With low memory: nothing more is begun before the consumer has taken, and released, what is there. */
bool cw_low_memory_waits(const struct cw_runner *r);

/* The budget is too small, and its last refusal was the reason: the error says how much would do. The mutex
 * is released meanwhile. 1: what was the matter is over, it is to be tried again. */
int cw_memory_lacks(struct cw_runner *r, const struct cw_place *at, const char *what,
                    struct cw_error *err) _must_check_;

/* ---- the consumer ---- */

/* A deadline: no wait at all. What lacks memory is tried again later, and nothing new is begun until it has
 * it. */
#define CW_AT_ONCE UINT64_MAX

typedef int (*cw_memory_attempt)(struct cw_runner *r, void *arg, struct cw_error *err);
/* Runs `attempt`, which needs memory for something of range s (NULL: the runner has no such range). Later
 * ranges give memory up for it, and if that is not enough and s is the first range, s starts over: 2, as
 * where there is no memory now; the caller tries again later. of_first: what needs the memory is the range's,
 * and gone when that starts over; else it is a batch that the consumer has. The mutex is released while it
 * waits. */
int cw_memory_try(struct cw_runner *r, cw_memory_attempt attempt, void *arg, const struct cw_range *s,
                  bool of_first, uint64_t deadline_ns, struct cw_error *err) _must_check_;
/* The consumer has the memory that it lacked, if it did: threads begin something new again. */
void cw_memory_served(struct cw_runner *r);
