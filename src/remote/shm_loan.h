/*
 * Memory that workers on this host share: mapped once per region, given back batch by batch, and kept when a
 * connection ends, so that the next connection to the same worker goes on with it. Owned by links and by
 * batches; the loop's thread maps and unmaps. The mutex is held throughout.
 */
#pragma once
#include "base/list.h"
#include "net/conn.h"
#include "remote/wire.h"

/* A worker's shared memory. It lives as long as a connection to the worker, the next one, or a batch needs
 * it. */
struct shm_map {
    unsigned refs;        /* the link's, and one for each loan */
    uint8_t worker[16];   /* the worker's incarnation */
    struct cw_conn *conn; /* loans are returned over it; NULL: the worker can't be reached, or is gone */
    struct cw_link loans; /* batches that lie in it: shm_loan.link */
    struct shm_region *regions;
    size_t n_regions, capacity;
};

/* The worker's memory that one batch lies in. The batch owns it. */
struct shm_loan {
    struct cw_batch *batch;
    struct shm_map *map;
    struct cw_link link;        /* in map->loans */
    uint64_t slabs[2];          /* ids of the n slabs to return */
    struct cw_memory memory[2]; /* where slab i is mapped */
    unsigned n;
    struct shm_loan *next; /* in a list of loans to return */
    /* for shm_loan_fork.c, guarded as it says: */
    struct cw_link users_link; /* in the list of users' loans, while the user has the batch */
    uint8_t *copies[2];        /* during a fork: the child's copies */
};

struct shm_map *cw_shm_map_new(const uint8_t worker[16]); /* NULL: out of memory */
void cw_shm_map_unref(struct shm_map *m);                 /* may be NULL */
/* Maps a region that a worker offered (worker: its id, for errors). 1: this process can't have the memory,
 * and *err says why; < 0: the worker broke the protocol. */
int cw_shm_map_add_region(struct shm_map *m, uint64_t worker, const Cachew__Region *region, const int *fds,
                          size_t n_fds, struct cw_error *err) _must_check_;
/* Tells the worker, before its connection is closed, that regions and slabs on their way are not wanted. No
 * batch lies in the map. */
void cw_shm_map_leave(struct shm_map *m);
/* c replaces an earlier connection to the same worker: tells it which regions and slabs are in use. */
int cw_shm_map_resume(struct shm_map *m, struct cw_conn *c, struct cw_error *err) _must_check_;

/* Makes the loan of the slabs of a batch message. The map gets no reference before cw_shm_loan_begin.
 * CW_E_SERVICE: a slab lies in no region of the map (which may be NULL). */
int cw_shm_loan_new(struct shm_map *m, uint64_t worker, const Cachew__Batch *batch, struct shm_loan **ret,
                    struct cw_error *err) _must_check_;
/* The batch is in use: its loan counts in the map, until cw_shm_loan_end. */
void cw_shm_loan_begin(struct shm_loan *l);
void cw_shm_loan_end(struct shm_loan *l);
/* Sends loans back over the connections that they came by, and moves them to *ret_done. Where the connection
 * is gone, there is nothing to send. Where sending fails, the rest stays in *list. */
void cw_shm_loans_return(struct shm_loan **list, struct shm_loan **ret_done);

/* shm_loan_fork.c: between these two calls the user has the batch, and a forked child gets a copy of it. Any
 * thread; mutex not needed. Loans may be NULL. */
void cw_shm_loan_users_add(struct shm_loan *l);
void cw_shm_loan_users_remove(struct shm_loan *l);
