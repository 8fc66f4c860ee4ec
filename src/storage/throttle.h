/*
 * Artificially slow storage for test builds (-Dcrash_points=true); other builds contain no such code. An
 * environment variable names a file that says how slow the storage is: CACHEW_STORE for cache entries,
 * CACHEW_STORE_DIR for opening and listing them, CACHEW_FILES for the records of sources. The file holds two
 * to five numbers and is read again at each access:
 *
 *   1. bytes per second that all readers together can read; 0: no limit; negative: reads hang until the file
 *      changes
 *   2. bytes per second that can be written, with the same special values
 *   3. reads per second of all readers together; 0: no limit
 *   4. seconds that a read takes at least; reads of several threads overlap
 *   5. 1: bytes that were read once are in memory (a page cache; CACHEW_FILES only); 0: no bytes ever are
 *
 * A read occupies the storage for 1/(reads per second) + length/(bytes per second) seconds; the storage
 * serves one read after the other. With CACHEW_CLOCK=modelled (base/cost_clock.h) a read does not wait,
 * except for a negative speed. It only costs this time on the model's clock, or the seconds of number 4 if
 * neither rate is limited. So decisions follow only from the numbers in the file.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cw_throttle { CW_THROTTLE_STORE, CW_THROTTLE_STORE_DIR, CW_THROTTLE_FILES, CW_N_THROTTLES };

#ifdef CW_CRASH_POINTS
/* Returns whether a read of this number of bytes is not slowed down now; it does not wait. */
bool cw_throttle_read_at_once(enum cw_throttle of, size_t bytes);
/* Wait as long as reading or writing this number of bytes takes on the slow storage. */
void cw_throttle_read(enum cw_throttle of, size_t bytes);
void cw_throttle_write(enum cw_throttle of, size_t bytes);
/* CACHEW_FILES: returns whether reading these bytes of a file would wait. */
bool cw_throttle_absent(const char *path, uint64_t offset, size_t length);
/* CACHEW_FILES: waits as long as reading these bytes of a file takes. With number 5 set, the bytes are in
 * memory from then on. nowait: returns false instead of waiting. */
bool cw_throttle_range(const char *path, uint64_t offset, size_t length, bool nowait);
/* Returns how many reads wait in cw_throttle_range now. */
unsigned cw_throttle_waiting(void);
#else
static inline bool cw_throttle_read_at_once(enum cw_throttle of, size_t bytes)
{
    return true;
}

static inline void cw_throttle_read(enum cw_throttle of, size_t bytes)
{
}

static inline void cw_throttle_write(enum cw_throttle of, size_t bytes)
{
}

static inline bool cw_throttle_absent(const char *path, uint64_t offset, size_t length)
{
    return false;
}

static inline bool cw_throttle_range(const char *path, uint64_t offset, size_t length, bool nowait)
{
    return true;
}

static inline unsigned cw_throttle_waiting(void)
{
    return 0;
}
#endif
