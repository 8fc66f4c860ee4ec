/*
 * A client that is connected to this worker, and the answers on their way to it. The loop's thread only.
 * clients.c owns clients, shm_loan.c their shm_loans (batches in shared memory that the client uses);
 * answers.c sends the answers of streams.
 */
#pragma once
#include "base/list.h"
#include "net/conn.h"
#include "service/worker/streams.h"

struct cw_client;

/* A region of shared memory whose descriptor was sent to the client. */
struct cw_region {
    struct cw_region *next;
    uint64_t stream; /* serial number of its stream */
    int fd;          /* the slab pool's descriptor, borrowed */
    uint64_t id;     /* by which messages name it */
};

/* The shared memory that a client uses, also after its connection has ended (shm_loan.h). */
struct cw_shm_loans {
    struct cw_link list; /* the answers (delivery.link), oldest first */
    size_t n, bytes;
    struct cw_region *regions;
    bool kept; /* the client named slabs of an earlier connection */
    /* a descriptor that becomes readable when the client's process ends; -1: the process can't be watched */
    int process;
    struct cw_watch *watch; /* watches `process`, once the connection has ended */
};

struct cw_client {
    struct cw_peer peer; /* must be first: cw_peer_unref frees the struct */
    struct cw_client *next;
    struct cw_clients *clients;
    struct cw_conn *conn;    /* NULL: the connection ended */
    bool closing;            /* nothing more is sent to it */
    uint8_t incarnation[16]; /* of the client's process */
    struct cw_shm_loans loans;
};

/* Sums over all clients so far. */
struct cw_clients_stats {
    uint64_t n_batches, n_bytes;    /* sent */
    uint64_t wire_bytes;            /* sent over connections that have ended */
    uint64_t n_skipped, n_replaced; /* records that were skipped or replaced in sent batches */
};

/* All clients of a worker. */
struct cw_clients {
    struct cw_worker_common *common;
    struct cw_streams *streams;
    struct cw_listener *tcp, *local;
    char *unix_path,
        *unix_dir; /* unix_dir: made by this worker, which removes it at the end; NULL: the path was given */
    int unix_dir_lock;
    struct cw_client *list;
    /* clients without a connection whose processes may still read their shm_loans */
    struct cw_client *departed;
    struct cw_budget handed_out; /* bytes of batches that clients use, or that are on their way to them */
    size_t n_out;                /* answers with batches or rows that are not freed yet */
    uint64_t next_slab, next_region;
    bool copies_logged; /* it was logged that batches can't be shared */
    struct cw_refusals refusals;
    struct cw_clients_stats stats;
};

/* Subtracts bytes that are no longer on their way to the client, and wakes streams that wait for that. */
void cw_client_give_room(struct cw_client *c, size_t bytes);
/* Closes the connection after the queued messages are sent. why: the error that the client is sent; may be
 * NULL. */
void cw_client_close(struct cw_client *c, const struct cw_error *why);
/* Sends a message. Takes ownership of a (may be NULL), which is freed when the message is sent, or on errors.
 * fds are duplicated. CW_E_SERVICE: the client does not read its messages. */
int cw_client_send(struct cw_client *c, const Cachew__Envelope *m, const struct iovec *pieces, size_t n,
                   struct cw_answer *a, const int *fds, size_t n_fds, struct cw_error *err) _must_check_;

/* Returns the client of an answer. */
struct cw_client *cw_delivery_client(const struct cw_answer *a);
/* Frees an answer that was sent, can't be sent, or whose batch the client returned; gives back the bytes that
 * it used in budgets. */
void cw_delivery_free(void *answer);
