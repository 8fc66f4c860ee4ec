/* Measures how fast a cache in a directory would be. Uses the same store as real caches (cache/cache.h), in a
 * new subdirectory. Called by explain_run.c. */
#pragma once
#include <stdbool.h>

#include "base/error.h"

struct cw_cache_speed {
    /* Seconds of one thread to read an entry, and for each byte of the entry in addition. */
    double entry_s, byte_s; /* from the page cache */
    /* from the disk: right after writing, which bypasses the page cache if the file system allows that */
    double cold_entry_s, cold_byte_s;
};

/* Writes up to 40 MB and reads them, scattered or in the order in which they were written. dir NULL: $TMPDIR,
 * else /tmp. interrupt: another thread sets *interrupt to end the call with CW_E_INTERRUPTED; may be NULL. */
int cw_probe_cache(const char *dir, bool scattered, const volatile int *interrupt, struct cw_cache_speed *ret,
                   struct cw_error *err) _must_check_;

/* Makes a new directory below dir (NULL: $TMPDIR, else /tmp). The caller frees *ret, its path. */
int cw_scratch_dir(const char *dir, char **ret, struct cw_error *err) _must_check_;
/* Removes a directory and everything in it. Ignores errors. */
void cw_scratch_remove(const char *path);
