/*
 * Slabs: the memory of batches. A slab is a page-aligned range of a large region, and is reused. Its pages
 * are allocated by the kernel when a thread first writes to them; the slab is charged to the memory budget as
 * long as it may have pages. Any thread may call.
 *
 * The regions of a shared pool are memfds, sealed against resizing, which other processes can map. If no
 * memfd can be made, the pool uses private memory instead. The regions of a private pool are anonymous
 * memory. After a fork, the child has a copy of the slabs that are in users' hands (cw_slab_disown), and none
 * of the others.
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
    struct cw_slab *next; /* in a list of free slabs */
    struct cw_slab *made; /* the slab of the pool that was made before this one */
    uint8_t *data;
    size_t size;         /* bytes: a multiple of the page size */
    int fd;              /* the memfd it lies in, owned by the pool; -1: none */
    size_t offset;       /* of data in the memfd */
    unsigned size_class; /* index into the pool's lists */
    int charged;         /* 1: charged to the budget */
    bool retired, users; /* see cw_slab_retire; see cw_slab_disown */
};

struct cw_slab_pool {
    struct cw_budget *budget;
    bool shared;
    struct cw_slab_pool *next; /* of a private pool: in the list of slab_fork.c, guarded by the mutex there */
    pthread_mutex_t mutex;
    struct cw_slab_region *regions; /* guarded by mutex, like all that follows */
    struct cw_slab *backed[512];    /* by size class: free slabs that may have pages and are charged */
    struct cw_slab *punched[512];   /* by size class: free slabs without pages, not charged */
    struct cw_slab *retired;        /* slabs that came back and are never used again */
    struct cw_slab *made;           /* all slabs, linked by their `made` */
    size_t n_out;                   /* number of slabs in use */
    struct cw_error why_private;    /* why the first region without a memfd has none */
};

/* Initialises a pool; budget is borrowed. */
int cw_slab_pool_init(struct cw_slab_pool *p, bool shared, struct cw_budget *budget,
                      struct cw_error *err) _must_check_;
/* Frees all memory of a pool. All slabs must have been given back. */
void cw_slab_pool_deinit(struct cw_slab_pool *p);
/* Gets a slab of at least `size` bytes, whose content is undefined. CW_E_BUDGET or CW_E_MEMORY if there is
 * none. */
int cw_slab_get(struct cw_slab_pool *p, size_t size, struct cw_slab **ret, struct cw_error *err) _must_check_;
/* Gives a slab back to its pool. */
void cw_slab_put(struct cw_slab *s);
/* Marks a slab as handed to the user, until cw_slab_put: it is not charged to the budget, and a forked child
 * gets a copy of it. */
void cw_slab_disown(struct cw_slab *s);
/* Marks a slab that is never used again after cw_slab_put, because another process may still have its memory
 * mapped and may read or write it. */
void cw_slab_retire(struct cw_slab *s);
/* Returns whether other processes can't map this slab; then *why says why. */
bool cw_slab_is_private(const struct cw_slab *s, struct cw_error *why);
/* Gives the pages of free slabs back to the system and ends their charges. Returns their bytes. */
size_t cw_slab_trim(struct cw_slab_pool *p);
/* slab_fork.c: add a private pool to the list of pools that are handled when this process forks, and remove
 * it. */
void cw_slab_fork_add(struct cw_slab_pool *p);
void cw_slab_fork_remove(struct cw_slab_pool *p);
/* Returns the bytes that cw_slab_get charges for a size. */
size_t cw_slab_charge(size_t size);
