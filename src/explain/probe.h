/* Measures how fast a cache would be in a directory, with the store that caches use (cache/cache.h), in a new
 * directory below it. explain_run.c calls it. */
#pragma once
#include <stdbool.h>

#include "base/error.h"

struct cw_cache_speed {
    /* One thread: seconds for an entry, and for each byte of it. */
    double entry_s, byte_s; /* from the page cache */
    /* right after they were written, past the page cache where the file system allows that */
    double cold_entry_s, cold_byte_s;
};

/* Writes up to 40 MB and reads them, scattered or in the order in which they were written. dir NULL: $TMPDIR,
 * else /tmp. interrupt: set by another thread, it ends with CW_E_INTERRUPTED; may be NULL. */
int cw_probe_cache(const char *dir, bool scattered, const volatile int *interrupt, struct cw_cache_speed *ret,
                   struct cw_error *err) _must_check_;

/* Makes a new directory below dir (NULL: as above); removes it with all that is in it. The caller frees *ret.
 */
int cw_scratch_dir(const char *dir, char **ret, struct cw_error *err) _must_check_;
void cw_scratch_remove(const char *path);
