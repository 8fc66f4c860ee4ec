/* XXH3_64 of large data, computed with the widest vector instructions of the processor if the library can
 * choose at run time. The result does not depend on the instructions. */
#pragma once
#include "base/hash.h"

#ifdef CW_XXH_DISPATCH
#define XXH_DISPATCH_DISABLE_REPLACE
#include <immintrin.h>
#include <xxh_x86dispatch.h>

/* The library (0.8.1) leaves the upper halves of vector registers in use. SSE code that runs next then takes
 * up to twice as long, as was measured when planning a resize. */
__attribute__((target("avx"))) static inline void cw_sum_zero_upper(void)
{
    _mm256_zeroupper();
}

static inline void cw_sum_end(void)
{
    if (__builtin_cpu_supports("avx"))
        cw_sum_zero_upper();
}

static inline uint64_t cw_sum(const void *data, size_t size)
{
    uint64_t h = XXH3_64bits_dispatch(data, size);
    cw_sum_end();
    return h;
}

static inline void cw_sum_update(XXH3_state_t *state, const void *data, size_t size)
{
    (void)XXH3_64bits_update_dispatch(state, data, size);
    cw_sum_end();
}
#else
static inline uint64_t cw_sum(const void *data, size_t size)
{
    return XXH3_64bits(data, size);
}

static inline void cw_sum_update(XXH3_state_t *state, const void *data, size_t size)
{
    (void)XXH3_64bits_update(state, data, size);
}
#endif
