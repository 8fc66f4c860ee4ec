/*
 * The clock that measures costs: the time that blocks, reads and writes take. Decisions follow from costs:
 * which cache point is used, how many rows a block has, what limits a run. Waits and deadlines use cw_now_ns
 * instead. Any thread may call the functions.
 *
 * In normal builds these are the clocks of clock.h. In test builds (-Dcrash_points=true)
 * CACHEW_CLOCK=modelled replaces them by a model: a test states what work costs, and decisions depend on that
 * alone, not on the machine or its load. Each thread then has its own clock, which begins at 0 and advances
 * only by the following costs of the thread's work:
 *
 *   an operator's call      10 us of CPU time for each element
 *   a cache entry read      10 us of CPU time, as for an operator named `cache`
 *   synthetic, cost_us      cost_us more of CPU time, without using it up
 *   delay, us               us without a CPU; the thread does not sleep
 *   a byte read             by the speed in CACHEW_STORE or CACHEW_FILES (storage/throttle.h),
 *                           without a wait; 1 ns of CPU time if that speed is unlimited
 *   a byte written          by the speed in these variables, without a wait; nothing if unlimited
 *
 * Nothing else takes time. A run takes the longest of: its threads' work divided by their number, its CPU
 * time divided by the number of CPUs, its storage's time (cw_runner_now_ns). Caches wait for their storage
 * without a limit.
 *
 * The syntax is modelled[,OPERATOR=MICROSECONDS...][,sleep]. OPERATOR=MICROSECONDS states what an element
 * costs in that operator. With `sleep`, `delay` and slow storage also take their time on the real clock, for
 * tests that do something meanwhile. Example: CACHEW_CLOCK=modelled,resize=500,sleep
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/machine.h"

#ifdef CW_CRASH_POINTS
/* Replaces CACHEW_CLOCK by text (NULL: unset), for unit tests. No other thread may measure meanwhile. */
void cw_cost_model(const char *text);
bool cw_cost_modelled(void);
/* Returns whether `delay` and slow storage take real time: without a model, or with `sleep`. */
bool cw_cost_sleeps(void);
uint64_t cw_cost_now_ns(void);   /* the clock of the calling thread */
uint64_t cw_cost_cpu_ns(void);   /* CPU time of the calling thread */
uint64_t cw_cost_delay_ns(void); /* time for which the calling thread was ready to run and had no CPU */
/* Returns the limit for a wait for storage: `ns`; with a model, a time longer than any test runs. */
uint64_t cw_cost_patience_ns(uint64_t ns);
/* The next three advance the calling thread's clock by the model. They have no effect without a model. */
void cw_cost_wait(uint64_t ns);
void cw_cost_compute(uint64_t ns);
void cw_cost_operator(const char *name, size_t rows);
#else
static inline void cw_cost_model(const char *text)
{
}

static inline bool cw_cost_modelled(void)
{
    return false;
}

static inline bool cw_cost_sleeps(void)
{
    return true;
}

static inline uint64_t cw_cost_now_ns(void)
{
    return cw_now_ns();
}

static inline uint64_t cw_cost_cpu_ns(void)
{
    return cw_thread_cpu_ns();
}

static inline uint64_t cw_cost_delay_ns(void)
{
    return cw_thread_delay_ns();
}

static inline uint64_t cw_cost_patience_ns(uint64_t ns)
{
    return ns;
}

static inline void cw_cost_wait(uint64_t ns)
{
}

static inline void cw_cost_compute(uint64_t ns)
{
}

static inline void cw_cost_operator(const char *name, size_t rows)
{
}
#endif
