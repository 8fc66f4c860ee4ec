/*
 * Links: a connection to each worker that the dispatcher named, retried while the worker lives. requests.c
 * sends over them; what arrives is arrivals.c's. The loop's thread alone touches connections, with the mutex
 * held.
 */
#pragma once
#include "base/list.h"
#include "net/conn.h"
#include "remote/addresses.h"
#include "remote/remote.h"

struct remote;

struct link_stats { /* over all connections to the worker */
    /* shm where batches are shm_loans (copies may be among them), else the last one */
    enum cw_transport transport;
    uint64_t n_batches, bytes, wire_bytes;
    struct cw_conn_traffic counted; /* traffic of this connection that the above include */
};

/* When a link that is down connects again. */
struct link_retry {
    unsigned attempt;  /* counts up; says which address is next */
    bool same_address; /* the next attempt tries the same address, whatever became of this one */
    uint64_t next_ns;
    uint64_t down_since_ns; /* 0: it was up until now */
    uint64_t reported_ns;   /* when the dispatcher was told last that it can't be reached; 0: it was not */
};

struct link {
    struct cw_link in_list; /* of r->links */
    struct remote *remote;
    uint64_t worker;               /* the dispatcher's id */
    struct cw_addresses addresses; /* by the transport that the user wants */
    bool gone;                /* the dispatcher says that the worker is gone: nothing is requested any more */
    struct cw_conn *conn;     /* NULL: down */
    bool open;                /* requests may be sent; else it connects, or closes */
    struct cw_slab *incoming; /* the payload that is being received */
    struct link_retry retry;
    struct shm_map *map; /* the worker's shared memory, of this connection or the last one */
    /* why this process can't map the worker's memory, so that copies are asked for; status 0: it can */
    struct cw_error no_shm;
    struct cw_error why; /* the last failure of a connection; status 0: none since it was open */
    struct link_stats stats;
};

struct link *cw_link_find(const struct remote *r, uint64_t worker); /* NULL: not known */
/* Adds, changes or retires the link to a worker, as the dispatcher says. */
int cw_link_set(struct remote *r, const Cachew__WorkerAddress *m, struct cw_error *err) _must_check_;
/* Returns the link to a worker if requests can be sent over it; else begins to connect, and returns NULL. */
struct link *cw_link_usable(struct remote *r, uint64_t worker);
/* Closes a connection; what was requested over it is requested again. */
void cw_link_close(struct link *l);
/* Closes links to workers that are gone, once their shared memory is not in use. */
void cw_links_close_retired(struct remote *r);
/* Frees a link without a connection. */
void cw_link_free(struct link *l);

/* For arrivals.c: a connection is open; it is over; a batch arrived, loan_bytes of it in shared memory. */
int cw_link_opened(struct link *l, struct cw_conn *c, const Cachew__Welcome *peer,
                   struct cw_error *err) _must_check_;
void cw_link_down(struct link *l, const struct cw_error *why);
void cw_link_count_batch(struct link *l, size_t loan_bytes);
