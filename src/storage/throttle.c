#include "storage/throttle.h"

#ifdef CW_CRASH_POINTS

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/cost_clock.h"
#include "base/macro.h"

#define HANG_NS UINT64_C(10000000) /* between two looks at the file */
#define MEMORY_NS UINT64_C(1)       /* a byte that is read of what is not slow, where costs are modelled */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t free_ns[CW_N_THROTTLES][2]; /* guarded by mutex: when what was asked for so far is done; reading, writing */

static const char *speeds(enum cw_throttle of)
{
    static const char *const names[] = {[CW_THROTTLE_STORE] = "CACHEW_STORE", [CW_THROTTLE_STORE_DIR] = "CACHEW_STORE_DIR", [CW_THROTTLE_FILES] = "CACHEW_FILES"};
    return getenv(names[of]);
}

/* 0: not limited. */
static double speed(enum cw_throttle of, int which)
{
    double v[2] = {0, 0};
    FILE *f = speeds(of) ? fopen(speeds(of), "re") : NULL;
    if (f && fscanf(f, "%lf %lf", &v[0], &v[1]) != 2)
        v[0] = v[1] = 0;
    if (f)
        fclose(f);
    return v[which];
}

static void wait_until(uint64_t ns)
{
    const struct timespec at = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0)
        ;
}

static void throttle(enum cw_throttle of, int which, size_t bytes)
{
    double per_s;
    while ((per_s = speed(of, which)) < 0)
        wait_until(cw_now_ns() + HANG_NS);
    if (!(per_s > 0)) {
        cw_cost_compute(which == 0 ? bytes * MEMORY_NS : 0);
        return;
    }
    uint64_t ns = (uint64_t)((double)bytes * 1e9 / per_s);
    cw_cost_wait(ns);
    if (!cw_cost_sleeps())
        return;
    pthread_mutex_lock(&mutex);
    uint64_t until = free_ns[of][which] = CW_MAX(free_ns[of][which], cw_now_ns()) + ns;
    pthread_mutex_unlock(&mutex);
    wait_until(until);
}

bool cw_throttled(enum cw_throttle of) { return speed(of, 0) != 0; }
void cw_throttle_read(enum cw_throttle of, size_t bytes) { throttle(of, 0, bytes); }
void cw_throttle_write(enum cw_throttle of, size_t bytes) { throttle(of, 1, bytes); }

#endif
