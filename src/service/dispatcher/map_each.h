/* A loop over the structs in a hash map that have a given hash. The body compares keys. */
#pragma once
#include "base/map.h"

/* Returns the next struct with this hash after `from` (NULL: the first one); NULL: there are no more. member:
 * offset of the map's node in the struct. */
static inline void *cw_dp_map_next(const struct cw_map *m, uint64_t hash, const void *from, size_t member)
{
    const void *node = from ? (const char *)from + member : NULL;
    struct cw_map_node *at = cw_map_find(m, hash, node);
    return at ? (char *)at - member : NULL;
}

#define DP_MAP_EACH(var, type, member, map, hash) \
    for (type *var = NULL; (var = cw_dp_map_next(map, hash, var, offsetof(type, member)));)
