/*
 * Keeps to the memory budget of a runner: how many batches may be under way, and what is dropped when memory
 * is short (docs/engine.md, "When memory is short"). The mutex is held, unless a comment says otherwise.
 */
#pragma once
#include "data/slab.h"
#include "engine/assembly.h"
#include "engine/memory_estimate.h"
#include "engine/runner.h"

/* What happens to starved blocks. */
enum starved_state {
    STARVED_TRY,   /* the earliest one runs alone as soon as nothing else runs */
    STARVED_ALONE, /* the earliest starved block runs, and no other thread begins anything */
    /* the earliest starved block got all free memory and that was not enough, or it waits for a batch: wait
     * until something is released */
    STARVED_STUCK,
};

struct cw_memory {
    struct cw_budget budget;
    struct cw_slab_pool slabs;
    size_t least; /* bytes that a run with one batch needs at least; set once */
    size_t given; /* bytes that the caller gave; the budget has at least `least` */
    /* batches under way, including those of the consumer; their limit */
    unsigned n_assemblies, max_assemblies;
    bool few_assemblies; /* the limit would be higher with more memory */
    unsigned n_handed;   /* assemblies and batches that the consumer has and will release */
    uint64_t n_released; /* how often something was released, or a range was closed */
    enum starved_state starved;
    bool consumer_short; /* the consumer waits for memory, so nothing new is begun */
    /* there was no memory to plan a piece; it is not tried again until something ends or is released */
    bool plan_short;
    bool poll_short; /* a batch of a range other than the first could not be finished */
    /* Low-memory mode: only the first range is computed, one block and one batch at a time. low_rows: rows of
     * a block at most; 0: the mode is off. low_left: pieces until the mode ends. low_term: pieces for which
     * it lasts, or lasted the last time. */
    atomic_uint low_rows;
    unsigned low_left, low_term;
};

/* Sets how many batches may be under way. CW_E_BUDGET: the budget is too small for one batch. Call it before
 * threads start. */
int cw_memory_start(struct cw_runner *r, struct cw_error *err) _must_check_;

/* Sets how many batches may be under way with the present memory and width (width.h), and adds a tuning
 * record. */
void cw_memory_set_assemblies(struct cw_runner *r);

/* ---- batches ---- */

/* Makes a batch for a range. 1: no further batch may be under way now. Other errors are about memory. */
int cw_memory_take_assembly(struct cw_runner *r, struct cw_range *s, unsigned bucket,
                            struct cw_assembly **ret, struct cw_error *err) _must_check_;
/* Allows plans, and the earliest starved block, to be tried again. */
void cw_memory_retry(struct cw_runner *r);
/* Call it when memory was given back: what waits for memory tries again. */
void cw_memory_released(struct cw_runner *r);
/* Returns whether the consumer has, or can take, something that it will release. While it waits for a batch
 * it releases nothing. */
bool cw_memory_may_be_released(const struct cw_runner *r);

/* ---- what gives way ---- */

/* Frees memory that is not in use: free slabs, spare arenas. */
void cw_memory_trim(struct cw_runner *r);
/* Frees everything that can be computed again: blocks that wait, plans of later pieces. Nothing may run. */
void cw_memory_evict(struct cw_runner *r);
/* Frees all memory of the last range after `s` that holds any; that range will be computed again. False:
 * there is no such range. Nothing may run. */
bool cw_memory_reclaim(struct cw_runner *r, const struct cw_range *s);

/* Enters the low-memory mode, or continues it with fewer rows. Everything except what the consumer has is
 * freed, to be computed again with less at a time. False: there can't be fewer rows. Nothing may run. */
bool cw_low_memory_begin(struct cw_runner *r);
/* Counts n pieces that are done, and ends the low-memory mode after its last piece. */
void cw_low_memory_passed(struct cw_runner *r, unsigned n);
/* In low-memory mode: returns whether nothing may begin before the consumer has taken and released what is
 * ready. */
bool cw_low_memory_waits(const struct cw_runner *r);

/* Sets the error of a budget that is too small, with a budget that would be enough. Call it after the budget
 * refused memory. The mutex is released meanwhile. 1: something was released meanwhile, so the caller tries
 * again. */
int cw_memory_lacks(struct cw_runner *r, const struct cw_place *at, const char *what,
                    struct cw_error *err) _must_check_;

/* ---- the consumer ---- */

/* A deadline that means: do not wait. What lacks memory is tried again later, and nothing new is begun until
 * it has its memory. */
#define CW_AT_ONCE UINT64_MAX

typedef int (*cw_memory_attempt)(struct cw_runner *r, void *arg, struct cw_error *err);
/* Runs `attempt`, which needs memory for something of range s (NULL: the runner has no such range). Later
 * ranges give up memory for it. If that is not enough and s is the first range, s begins again: then it
 * returns 2, as it does where there is no memory now, and the caller tries again later. of_first: what needs
 * the memory belongs to the range, and is lost when the range begins again; otherwise it is a batch that the
 * consumer has. The mutex is released while it waits. */
int cw_memory_try(struct cw_runner *r, cw_memory_attempt attempt, void *arg, const struct cw_range *s,
                  bool of_first, uint64_t deadline_ns, struct cw_error *err) _must_check_;
/* The consumer got the memory that it lacked, if it lacked any: threads may begin something new. */
void cw_memory_served(struct cw_runner *r);
