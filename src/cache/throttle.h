/*
 * Test builds (-Dcrash_points=true): with CACHEW_STORE=FILE a store is as slow as FILE says, which holds two numbers: bytes per second that can be read, and written; 0: as
 * many as there are; negative: none, until FILE says something else. All readers together get no more, and nothing is in memory already. The file is looked at again at each access. Elsewhere nothing of it is there.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#ifdef CW_CRASH_POINTS
bool cw_throttled(void);
void cw_throttle_read(size_t bytes); /* waits */
void cw_throttle_write(size_t bytes);
#else
static inline bool cw_throttled(void) { return false; }
static inline void cw_throttle_read(size_t bytes) { (void)bytes; }
static inline void cw_throttle_write(size_t bytes) { (void)bytes; }
#endif
