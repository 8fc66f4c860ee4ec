/* XXH3 of much data: by the widest instructions that the processor has, where the library offers to choose. The result is the same. */
#pragma once
#include "base/hash.h"

#ifdef CW_XXH_DISPATCH
#define XXH_DISPATCH_DISABLE_REPLACE
#include <xxh_x86dispatch.h>
static inline uint64_t cw_sum(const void *data, size_t size) { return XXH3_64bits_dispatch(data, size); }
static inline void cw_sum_update(XXH3_state_t *state, const void *data, size_t size) { (void)XXH3_64bits_update_dispatch(state, data, size); }
#else
static inline uint64_t cw_sum(const void *data, size_t size) { return XXH3_64bits(data, size); }
static inline void cw_sum_update(XXH3_state_t *state, const void *data, size_t size) { (void)XXH3_64bits_update(state, data, size); }
#endif
