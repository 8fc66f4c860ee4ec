/* How fast storage was lately: an average in which a measurement counts half as much as the one after it. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct cw_cache_speed {
    double bytes, ns; /* weighted sums; ns 0: nothing was measured */
};

static inline void cw_cache_speed_add(struct cw_cache_speed *s, size_t bytes, uint64_t ns)
{
    s->bytes = s->bytes / 2 + (double)bytes;
    s->ns = s->ns / 2 + (double)ns;
}

static inline double cw_cache_speed_ns_per_byte(const struct cw_cache_speed *s)
{
    return s->bytes > 0 ? s->ns / s->bytes : 0;
}
