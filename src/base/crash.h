/*
 * Named points at which a test build (-Dcrash_points=true) ends itself as kill -9 does: CACHEW_CRASH=NAME:N at the N-th passing of NAME, or, with
 * CACHEW_CRASH=NAME:N:stop, stops as SIGSTOP does, for a test that has something else in mind. Elsewhere they are nothing. Any thread.
 */
#pragma once
#include <stddef.h>

struct cw_crash_point {
    const char *name, *role, *phase; /* role: who passes it; phase: of a split's life */
};
/* All there are; *ret_n is 0 where the build has none. */
const struct cw_crash_point *cw_crash_points(size_t *ret_n);

#ifdef CW_CRASH_POINTS
void cw_crash_point(const char *name);
#else
static inline void cw_crash_point(const char *name) { (void)name; }
#endif
