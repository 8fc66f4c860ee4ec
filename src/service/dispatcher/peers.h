/* Peers: the connections of clients, workers, admin clients and provisioners, and functions to send messages
 * to them. The core creates peers; every layer sends through these functions. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "net/envelope.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* An Attach whose terms differ from those of its job. It waits, because the clients of the job's ranks may be
 * gone without the dispatcher knowing it yet. */
struct waiting_attach {
    Cachew__Attach *attach; /* owned; NULL: none waits */
    uint64_t id, since_ns;  /* id of the request; when it came */
    /* how long it had waited at last_tick_ns. If the dispatcher's process was stopped between two ticks, that
     * counts as DP_S at most */
    uint64_t waited_ns, last_tick_ns;
};

enum peer_state {
    PEER_OPEN,
    PEER_CLOSING, /* the dispatcher closes the connection; nothing more is sent or accepted */
    PEER_GONE     /* the connection is closed; references keep the peer */
};

struct cw_peer {
    struct cw_link link;
    void *user; /* as given to cw_dispatcher_connected */
    Cachew__Role role;
    char *name, *host;
    uint8_t incarnation[16];
    enum peer_state state;
    unsigned refs;
    /* the worker, rank or pool of this connection; at most one of them is not NULL */
    struct worker *worker;
    struct rank *rank;
    struct pool *pool;
    struct waiting_attach waiting;
};

struct peer_table {
    struct cw_link list;
    size_t n, waiting_bytes;
};

/* Returns a new peer with one reference and adds it to the table; NULL: no memory. */
struct cw_peer *cw_dp_peer_new(struct cw_dispatcher *d, void *user, const Cachew__Hello *hello);
/* Drops a reference; the last one frees the peer. Accepts NULL, returns NULL. */
struct cw_peer *cw_dp_peer_unref(struct cw_peer *p);

/* Sends a message to the peer, unless it is closing or gone. */
void cw_dp_peer_send(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m);
/* Sends the same message to n peers. */
void cw_dp_peer_send_all(struct cw_dispatcher *d, struct cw_peer *const *peers, size_t n,
                         const Cachew__Envelope *m);
/* Answers request `re` with Done. re 0: the message was not a request, and nothing is sent. */
void cw_dp_peer_done(struct cw_dispatcher *d, struct cw_peer *p, uint64_t re);
/* Answers request `re` with Failure. */
void cw_dp_peer_fail(struct cw_dispatcher *d, struct cw_peer *p, uint64_t re, const struct cw_error *why);
/* Sends the peer the reason, and closes its connection. Does nothing if it is closing already. */
void cw_dp_peer_close(struct cw_dispatcher *d, struct cw_peer *p, const char *why);

/* Writes a line to the log. */
void cw_dp_log(struct cw_dispatcher *d, bool warning, const char *fmt, ...) _printf_(3, 4);
/* Returns a copy of the message, freed with protobuf_c_message_free_unpacked. NULL: no memory, or it takes
 * more than `most` bytes. */
void *cw_dp_message_copy(const ProtobufCMessage *m, size_t most);
/* Writes an id as 32 hexadecimal digits to ret, and returns ret. */
char *cw_dp_hex(const uint8_t id[16], char ret[33]);
