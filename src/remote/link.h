/* Links: one for each worker that the dispatcher named. A link has the connection to the worker, and makes it
 * again until the dispatcher says that the worker is gone. requests.c sends over links; arrivals.c handles
 * messages that arrive. Only the loop's thread uses connections, with the mutex held. */
#pragma once
#include "base/list.h"
#include "net/conn.h"
#include "remote/addresses.h"
#include "remote/remote.h"

struct remote;

struct link_stats { /* sums over all connections to the worker */
    /* shm if batches come in shared memory (some may be copies); else the transport of the last batch */
    enum cw_transport transport;
    uint64_t n_batches, bytes, wire_bytes;
    struct cw_conn_traffic counted; /* traffic of the present connection that is included in the sums */
};

/* When a link that is down connects again. */
struct link_retry {
    unsigned attempt;  /* number of the next attempt, which selects the address */
    bool same_address; /* the next attempt uses the same address again */
    uint64_t next_ns;
    uint64_t down_since_ns; /* 0: it is not down */
    /* when it was last reported to the dispatcher as unreachable; 0: never since it went down */
    uint64_t reported_ns;
};

struct link {
    struct cw_link in_list; /* of r->links */
    struct remote *remote;
    uint64_t worker;               /* the dispatcher's id */
    struct cw_addresses addresses; /* those that the transport option allows */
    bool gone;            /* the dispatcher said that the worker is gone: nothing more is requested from it */
    struct cw_conn *conn; /* NULL: down */
    bool open;            /* requests may be sent; false: it is connecting or closing */
    struct cw_slab *incoming; /* the payload that is being received */
    struct link_retry retry;
    struct shm_map *map; /* the worker's shared memory, from this connection or the last one */
    /* why this process can't map the worker's memory, so that it requests copies; status 0: it can */
    struct cw_error no_shm;
    struct cw_error why; /* why the last connection failed; status 0: it has been open since */
    struct link_stats stats;
};

struct link *cw_link_find(const struct remote *r, uint64_t worker); /* NULL: not known */
/* Handles a worker's address from the dispatcher: adds, changes or retires its link. */
int cw_link_set(struct remote *r, const Cachew__WorkerAddress *m, struct cw_error *err) _must_check_;
/* Returns the link to a worker if requests can be sent over it. Otherwise starts to connect if necessary, and
 * returns NULL. */
struct link *cw_link_usable(struct remote *r, uint64_t worker);
/* Closes the connection of a link. Its unanswered fetches are requested again. */
void cw_link_close(struct link *l);
/* Closes the connections to workers that are gone and whose shared memory is not in use. */
void cw_links_close_retired(struct remote *r);
/* Frees a link. It must have no connection. */
void cw_link_free(struct link *l);

/* arrivals.c calls these when a connection was opened, when it was closed or failed, and when a batch arrived
 * (loan_bytes: its bytes in shared memory). */
int cw_link_opened(struct link *l, struct cw_conn *c, const Cachew__Welcome *peer,
                   struct cw_error *err) _must_check_;
void cw_link_down(struct link *l, const struct cw_error *why);
void cw_link_count_batch(struct link *l, size_t loan_bytes);
