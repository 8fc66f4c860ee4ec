/* Probes: how fast storage gives back what was written. The store's thread only. */
#pragma once
#include <stdint.h>

#include "cache/speed.h"

struct cw_cache_set;

struct cw_cache_probes {
    struct cw_cache_speed lately; /* of several probes */
    struct cw_cache_speed last;   /* of the last one; ns 0: nothing could be read yet */
    uint64_t last_ns;             /* when that was; 0: never */
};

/* Reads a little of a segment of the set that was just published, past the page cache if possible. At most
 * once a second, unless compression waits for a second opinion. */
void cw_cache_probe(struct cw_cache_set *s, const char *name);
