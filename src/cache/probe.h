/* Probes: short reads that measure how fast storage delivers what was written. The store's thread only. */
#pragma once
#include <stdint.h>

#include "cache/speed.h"

struct cw_cache_set;

struct cw_cache_probes {
    struct cw_cache_speed lately; /* average over the recent probes */
    struct cw_cache_speed last;   /* result of the last probe; ns 0: no probe could read yet */
    uint64_t last_ns;             /* when the last probe ended, by cw_now_ns; 0: never */
};

/* Reads up to 1 MiB of the segment `name` of the set, which was just published, past the page cache if
 * possible. Does so at most once a second, unless the decision to compress waits for a second probe. */
void cw_cache_probe(struct cw_cache_set *s, const char *name);
