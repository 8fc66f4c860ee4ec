/* Clocks for waits and profiles. The results of a pipeline must never depend on them. */
#pragma once
#include <stdint.h>
#include <time.h>

static inline uint64_t cw_clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Returns a monotonic time in ns; it is not the time of day. */
static inline uint64_t cw_now_ns(void)
{
    return cw_clock_ns(CLOCK_MONOTONIC);
}

/* Converts a time, which may be negative, to nanoseconds. */
static inline int64_t cw_timespec_ns(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

/* Returns the CPU time of the calling thread in ns. */
static inline uint64_t cw_thread_cpu_ns(void)
{
    return cw_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}
