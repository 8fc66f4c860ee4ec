/* Memory that workers on this host share with this process. Each region is mapped once. Batches in it are
 * returned to the worker one by one. If a connection ends, the map is kept, and the next connection to the
 * same worker uses it again. Links and batches own references; the loop's thread maps and unmaps. The mutex
 * must be held, unless a comment says otherwise. */
#pragma once
#include "base/list.h"
#include "net/conn.h"
#include "remote/wire.h"

/* The shared memory of one worker. It is unmapped when neither the link nor a batch needs it any more. */
struct shm_map {
    unsigned refs;        /* one reference of the link, and one of each loan */
    uint8_t worker[16];   /* the worker's incarnation */
    struct cw_conn *conn; /* for returning loans; NULL: the worker can't be reached, or is gone */
    struct cw_link loans; /* loans of batches in this memory: shm_loan.link */
    struct shm_region *regions;
    size_t n_regions, capacity;
};

/* A loan: the worker's memory that one batch uses. The batch owns it. */
struct shm_loan {
    struct cw_batch *batch;
    struct shm_map *map;
    struct cw_link link;        /* in map->loans */
    uint64_t slabs[2];          /* ids of its n slabs, by which they are returned */
    struct cw_memory memory[2]; /* where slab i is mapped */
    unsigned n;
    struct shm_loan *next; /* next in a list of loans to return */
    /* for shm_loan_fork.c, which says what guards them: */
    struct cw_link users_link; /* in the list of loans whose batches users have */
    uint8_t *copies[2];        /* during a fork: copies of the memory for the child */
};

struct shm_map *cw_shm_map_new(const uint8_t worker[16]); /* NULL: out of memory */
void cw_shm_map_unref(struct shm_map *m);                 /* may be NULL */
/* Maps a region that a worker shares. worker: its id, for messages. 1: this process can't map the memory, and
 * *err says why; < 0: the worker broke the protocol, or memory is short. */
int cw_shm_map_add_region(struct shm_map *m, uint64_t worker, const Cachew__Region *region, const int *fds,
                          size_t n_fds, struct cw_error *err) _must_check_;
/* Call before the connection is closed, when no batch uses the map: tells the worker that this process uses
 * none of its memory, nor what is still on its way. */
void cw_shm_map_leave(struct shm_map *m);
/* Call when connection c replaces an earlier one to the same worker: tells the worker which regions and slabs
 * are still in use. */
int cw_shm_map_resume(struct shm_map *m, struct cw_conn *c, struct cw_error *err) _must_check_;

/* Makes the loan for the slabs that a batch message names. It has no reference to the map until
 * cw_shm_loan_begin. CW_E_SERVICE: a slab is in no region of the map (which may be NULL). Needs no mutex. */
int cw_shm_loan_new(struct shm_map *m, uint64_t worker, const Cachew__Batch *batch, struct shm_loan **ret,
                    struct cw_error *err) _must_check_;
/* Adds the loan to the map's loans, with a reference to the map. */
void cw_shm_loan_begin(struct shm_loan *l);
/* Removes the loan from the map's loans, and drops its reference. */
void cw_shm_loan_end(struct shm_loan *l);
/* Returns loans to their workers, and moves them to *ret_done. If a worker's connection is gone, nothing is
 * sent. If sending fails, the remaining loans stay in *list. */
void cw_shm_loans_return(struct shm_loan **list, struct shm_loan **ret_done);

/* Call when the user gets a batch, and when the user has released it. If this process forks in between, the
 * child gets a copy of the batch (shm_loan_fork.c). l may be NULL. Any thread; needs no mutex. */
void cw_shm_loan_users_add(struct shm_loan *l);
void cw_shm_loan_users_remove(struct shm_loan *l);
