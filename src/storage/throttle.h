/*
 * Test builds (-Dcrash_points=true): storage as slow as a file says, which an environment variable names: CACHEW_STORE for entries of caches, CACHEW_STORE_DIR for opening
 * and listing them, CACHEW_FILES for what sources read. The file holds two numbers: bytes per second that can be read, and written; 0: as many as there are; negative: none,
 * until it says something else. All readers together get no more, and nothing is in memory already. It is looked at again at each access. Elsewhere nothing of it is there.
 *
 * With CACHEW_CLOCK=modelled (base/cost_clock.h) what is read and written costs that much on the model's clock. Nothing is
 * waited for but a negative speed. So decisions follow from the speeds in the file alone.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum cw_throttle { CW_THROTTLE_STORE, CW_THROTTLE_STORE_DIR, CW_THROTTLE_FILES, CW_N_THROTTLES };

#ifdef CW_CRASH_POINTS
bool cw_throttled(enum cw_throttle of);
void cw_throttle_read(enum cw_throttle of, size_t bytes); /* waits */
void cw_throttle_write(enum cw_throttle of, size_t bytes);
#else
static inline bool cw_throttled(enum cw_throttle of)
{
    (void)of;
    return false;
}
static inline void cw_throttle_read(enum cw_throttle of, size_t bytes) { (void)of, (void)bytes; }
static inline void cw_throttle_write(enum cw_throttle of, size_t bytes) { (void)of, (void)bytes; }
#endif
