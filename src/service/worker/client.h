/*
 * A client that is connected to this worker, and what is on its way to it. The loop's thread only. clients.c
 * owns clients, shm_loan.c their shm_loans; answers.c sends what streams answer.
 */
#pragma once
#include "base/list.h"
#include "net/conn.h"
#include "service/worker/streams.h"

struct cw_client;

/* A piece of shared memory whose descriptor a client has. */
struct cw_region {
    struct cw_region *next;
    uint64_t stream; /* serial */
    int fd;          /* the slab pool's */
    uint64_t id;
};

/* What a client has as shared memory, also after its connection has ended (shm_loan.h). */
struct cw_shm_loans {
    struct cw_link list; /* of answers (delivery.link), oldest first */
    size_t n, bytes;
    struct cw_region *regions;
    bool kept;              /* the client named slabs of an earlier connection */
    int process;            /* descriptor, readable when the client's process ends; -1: can't be watched */
    struct cw_watch *watch; /* of process, once the connection has ended */
};

struct cw_client {
    struct cw_peer peer; /* first: it frees the whole */
    struct cw_client *next;
    struct cw_clients *clients;
    struct cw_conn *conn;    /* NULL: it ended */
    bool closing;            /* nothing more is sent */
    uint8_t incarnation[16]; /* of the client */
    struct cw_shm_loans loans;
};

/* Of all clients so far. */
struct cw_clients_stats {
    uint64_t n_batches, n_bytes;    /* sent */
    uint64_t wire_bytes;            /* over connections that ended */
    uint64_t n_skipped, n_replaced; /* records of what was sent */
};

/* All clients of a worker. */
struct cw_clients {
    struct cw_worker_common *common;
    struct cw_streams *streams;
    struct cw_listener *tcp, *local;
    char *unix_path, *unix_dir; /* unix_dir: made by this worker, and removed at the end; or NULL */
    int unix_dir_lock;
    struct cw_client *list;
    struct cw_client *departed;  /* without a connection, but with shm_loans that their processes may read */
    struct cw_budget handed_out; /* of batches that clients have, or that are on their way to them */
    size_t n_out;                /* answers that were not released */
    uint64_t next_slab, next_region;
    bool copies_logged; /* that batches can't be shm_loans */
    struct cw_refusals refusals;
    struct cw_clients_stats stats;
};

/* Gives back bytes that were on their way to a client. Streams that wait for that are woken. */
void cw_client_give_room(struct cw_client *c, size_t bytes);
/* Ends the connection, after what is queued was sent; why may be NULL. */
void cw_client_close(struct cw_client *c, const struct cw_error *why);
/* Sends a message; a (may be NULL), which it takes over, is released when that was sent. fds are duplicated.
 * CW_E_SERVICE: the client does not read what it is sent. */
int cw_client_send(struct cw_client *c, const Cachew__Envelope *m, const struct iovec *pieces, size_t n,
                   struct cw_answer *a, const int *fds, size_t n_fds, struct cw_error *err) _must_check_;

/* Returns the client of an answer. */
struct cw_client *cw_delivery_client(const struct cw_answer *a);
/* An answer was sent, or won't be, or its batch came back: gives back what it took, and frees it. */
void cw_delivery_free(void *answer);
