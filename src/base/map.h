/* Hash maps of structs that contain their node. The map compares hashes only; the caller compares keys. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/macro.h"

struct cw_map_node {
    struct cw_map_node *next;
    uint64_t hash;
};

struct cw_map {
    struct cw_map_node **slots;
    size_t n, n_slots; /* a power of 2, or 0 */
};

static inline void cw_map_deinit(struct cw_map *m)
{
    free(m->slots);
    *m = (struct cw_map){0};
}

/* Returns the first node with this hash, or the next one after `from`; NULL: there is none. */
static inline struct cw_map_node *cw_map_find(const struct cw_map *m, uint64_t hash,
                                              const struct cw_map_node *from)
{
    struct cw_map_node *at = from ? from->next : m->n_slots > 0 ? m->slots[hash & (m->n_slots - 1)] : NULL;
    while (at && at->hash != hash)
        at = at->next;
    return at;
}

/* Adds a node. -1: out of memory, and nothing was added; only the first call can fail, later ones make longer
 * chains instead. */
static inline int cw_map_add(struct cw_map *m, struct cw_map_node *node, uint64_t hash)
{
    if (m->n >= m->n_slots) {
        size_t n_slots = m->n_slots > 0 ? 2 * m->n_slots : 16;
        struct cw_map_node **slots = calloc(n_slots, sizeof(*slots));
        if (!slots && m->n_slots == 0)
            return -1;
        for (size_t i = 0; slots && i < m->n_slots; i++)
            for (struct cw_map_node *at = m->slots[i], *next; at; at = next) {
                next = at->next;
                at->next = slots[at->hash & (n_slots - 1)];
                slots[at->hash & (n_slots - 1)] = at;
            }
        if (slots) {
            free(m->slots);
            m->slots = slots;
            m->n_slots = n_slots;
        }
    }
    node->hash = hash;
    node->next = m->slots[hash & (m->n_slots - 1)];
    m->slots[hash & (m->n_slots - 1)] = node;
    m->n++;
    return 0;
}

/* Removes a node, which must be in the map. */
static inline void cw_map_remove(struct cw_map *m, struct cw_map_node *node)
{
    struct cw_map_node **at = &m->slots[node->hash & (m->n_slots - 1)];
    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
    m->n--;
}
