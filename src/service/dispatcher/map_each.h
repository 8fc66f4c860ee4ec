/* Visits the structs of a hash map that have a hash; the caller compares keys. */
#pragma once
#include "base/map.h"

/* Returns the struct behind `from` (NULL: the first one) with this hash, whose node lies `member` bytes
 * behind its begin; NULL: there are no more. */
static inline void *cw_dp_map_next(const struct cw_map *m, uint64_t hash, const void *from, size_t member)
{
    const void *node = from ? (const char *)from + member : NULL;
    struct cw_map_node *at = cw_map_find(m, hash, node);
    return at ? (char *)at - member : NULL;
}

#define DP_MAP_EACH(var, type, member, map, hash) \
    for (type *var = NULL; (var = cw_dp_map_next(map, hash, var, offsetof(type, member)));)
