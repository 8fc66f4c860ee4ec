/*
 * Slabs: the memory of batches, page-aligned ranges of a few large regions, reused; faulted in by the thread
 * that writes them first. Charged to the memory budget while their pages may be there. Thread-safe.
 *
 * The regions of a shared pool are memfds, sealed against resizing, that other processes can be given; where
 * there can be none, memory that they can't. The regions of a private pool are memory of which a forked child
 * gets what users have, as it is at the fork, and nothing else.
 */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/budget.h"

struct cw_slab_pool;

struct cw_slab {
    struct cw_slab_pool *pool;
    struct cw_slab *next; /* in a free list */
    struct cw_slab *made; /* the one that was made before it */
    uint8_t *data;
    size_t size; /* of the range: a multiple of the page size */
    int fd;      /* the memfd it lies in, the pool's; -1: none. Offset in it: */
    size_t offset;
    unsigned size_class;
    int charged;
    bool retired, users;
};

struct cw_slab_pool {
    struct cw_budget *budget;
    bool shared;
    struct cw_slab_pool *next; /* private ones, guarded as slab_fork.c says */
    pthread_mutex_t mutex;
    struct cw_slab_region *regions; /* guarded by mutex, like all that follows */
    struct cw_slab *backed[512];    /* free, pages may be there, charged; by size class */
    struct cw_slab *punched[512];   /* free, no pages */
    struct cw_slab *retired;        /* came back, and are left alone */
    struct cw_slab *made;           /* all */
    size_t n_out;
    struct cw_error why_private; /* the first time that there was no memfd */
};

int cw_slab_pool_init(struct cw_slab_pool *p, bool shared, struct cw_budget *budget,
                      struct cw_error *err) _must_check_;
/* All slabs must be back. */
void cw_slab_pool_deinit(struct cw_slab_pool *p);
/* At least size bytes, contents undefined. CW_E_BUDGET or CW_E_MEMORY. */
int cw_slab_get(struct cw_slab_pool *p, size_t size, struct cw_slab **ret, struct cw_error *err) _must_check_;
void cw_slab_put(struct cw_slab *s);
/* The slab's bytes are the user's from now on, until it comes back: not in the budget, and a forked child
 * gets them. */
void cw_slab_disown(struct cw_slab *s);
/* When it comes back it is not used again: another process may still read it, or write to it, as long as the
 * memory is mapped anywhere. */
void cw_slab_retire(struct cw_slab *s);
/* Whether no other process can be given this memory, and *why. */
bool cw_slab_is_private(const struct cw_slab *s, struct cw_error *why);
/* Gives the pages of free slabs back to the system and the budget. Returns the bytes. */
size_t cw_slab_trim(struct cw_slab_pool *p);
/* slab_fork.c: between these two, a private pool is looked after when this process forks. */
void cw_slab_fork_add(struct cw_slab_pool *p);
void cw_slab_fork_remove(struct cw_slab_pool *p);
/* Bytes that cw_slab_get charges for a size. */
size_t cw_slab_charge(size_t size);
