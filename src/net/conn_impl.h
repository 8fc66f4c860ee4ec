/*
 * The inside of a connection, for the files of net/ only. conn.c: its life; connect.c: connecting;
 * handshake.c: the first two messages; conn_in.c and conn_out.c: frames; listener.c: accepting. Loop thread
 * only. Only the loop's deferred work frees a connection, so a callback may close any connection.
 */
#pragma once
#include "base/list.h"
#include "net/address.h"
#include "net/conn.h"
#include "net/conn_in.h"
#include "net/conn_out.h"
#include "net/loop_impl.h"
#include "net/tls.h"

enum conn_state {
    CONN_RESOLVING,  /* the host's name */
    CONN_CONNECTING, /* to one of its addresses */
    CONN_SHAKING,    /* Hello and Welcome are exchanged */
    CONN_OPEN,
    CONN_CLOSING, /* the queue is sent and received bytes are dropped, until the peer closes too */
    CONN_DEAD,    /* the deferred work will free it */
};

/* Whether the owner's `open` has accepted the connection; OWNER_OPENING: it is being called. */
enum conn_owner { OWNER_NONE, OWNER_OPENING, OWNER_OPEN };

/* With TLS: what the peer speaks. */
enum conn_tls {
    TLS_UNKNOWN, /* an accepted peer has sent nothing yet */
    TLS_SPOKEN,
    TLS_PLAIN,  /* the peer sends frames without TLS: it gets a Failure that it understands */
    TLS_BROKEN, /* TLS failed and sent its alert: nothing more is sent, received bytes are dropped */
};

/* Settings that all connections of a listener share. Counted by `refs`, otherwise immutable. */
struct cw_conn_setup {
    unsigned refs;
    Cachew__Hello *hello; /* ours, with the token if we connect */
    char *token;          /* that a peer's Hello must have; NULL: none */
    struct cw_conn_limits limits;
    uint64_t timeout_ms;
    struct cw_tls *tls; /* counted; NULL: plain */
    bool pack;
};

/* Times of a connection, in ms of the loop's clock. */
struct conn_times {
    uint64_t since;               /* when the connection was made */
    uint64_t deadline;            /* of connecting, of the handshake and of closing */
    uint64_t closing_since;       /* when CONN_CLOSING began */
    uint64_t heard, sent, pinged; /* when bytes were received, bytes sent, and a Ping queued last */
    uint64_t due;                 /* CONN_OPEN: when the timer is to call */
};

struct conn_connecting {
    struct cw_address address;
    struct resolving *resolving; /* NULL: no name is being resolved */
    struct addrinfo *addresses;  /* of the host, owned */
    struct addrinfo *next;       /* to be tried; NULL: none is left */
};

struct cw_conn {
    struct cw_loop *loop;
    struct cw_conn_setup *setup;
    const struct cw_conn_ops *ops;
    void *user;
    enum conn_state state;
    enum conn_owner owner;
    enum conn_tls tls_state;
    bool accepted;             /* it came from a listener */
    bool local;                /* a Unix socket */
    bool packs;                /* both sides may compress payloads */
    int fd;                    /* -1: none yet */
    struct cw_watch *watch;    /* of fd */
    struct cw_tls_stream *tls; /* on fd; NULL: plain */
    struct cw_timer *timer;
    struct cw_defer defer;
    struct conn_times at_ms;
    struct conn_connecting to;
    struct cw_error why; /* the reason of its end; status 0: none so far */
    char peer[320];      /* the peer's address, for messages */
    /* of an accepted connection that has sent no request yet: */
    struct cw_listener *listener; /* NULL: not in its list */
    struct cw_link waiting;
    uint64_t last_id;  /* of the connection's own requests */
    uint64_t hello_id; /* of the peer's Hello */
    uint64_t common;   /* capabilities of both sides: bit i is setup->hello->capabilities[i] */
    struct cw_conn_in in;
    struct cw_conn_out out;
    struct cw_conn_traffic traffic;
};

/* Set in the ids of a connection's own requests (Hello, Ping), never in those of its owner. */
#define CW_CONN_OWN_ID (UINT64_C(1) << 63)

/* ---- conn.c ---- */

int cw_conn_new(struct cw_loop *l, struct cw_conn_setup *setup, const struct cw_conn_ops *ops, void *user,
                struct cw_conn **ret, struct cw_error *err) _must_check_;
/* Begins the handshake on a connected socket, which c owns from here on, also on failure. */
int cw_conn_establish(struct cw_conn *c, int fd, struct cw_error *err) _must_check_;
/* Frees a connection whose owner has never seen it. */
void cw_conn_drop(struct cw_conn *c);
/* Ends the connection at once, without sending the queue. err: the reason; NULL: no fault. */
void cw_conn_die(struct cw_conn *c, const struct cw_error *err);
/* Ends the connection because of what the peer did, and sends the peer the reason. */
void cw_conn_cut(struct cw_conn *c, const struct cw_error *err);

/* Returns whether messages are received. */
static inline bool cw_conn_listens(const struct cw_conn *c)
{
    return c->state == CONN_SHAKING || c->state == CONN_OPEN;
}

/* As cw_socket_send and cw_socket_receive, through TLS if the connection uses it. */
ssize_t cw_conn_write(struct cw_conn *c, struct iovec *pieces, size_t n, const int *fds, size_t n_fds);
ssize_t cw_conn_read(struct cw_conn *c, struct iovec *pieces, size_t n, int *fds, size_t *n_fds);
/* Ends the connection, because cw_conn_write or cw_conn_read returned -errnum. */
void cw_conn_broke(struct cw_conn *c, int errnum);
/* Lets the loop report when the socket is readable, and, if sending is blocked, when it is writable. */
void cw_conn_watch(struct cw_conn *c);
/* CONN_OPEN: lets the timer check at this time whether the peer is alive. */
void cw_conn_call_at(struct cw_conn *c, uint64_t ms);
/* Makes c->watch. */
int cw_conn_watch_new(struct cw_conn *c, int fd, struct cw_error *err) _must_check_;

/* ---- connect.c ---- */

/* Cancels the resolving of a host's name, if it is in progress. */
void cw_conn_resolve_cancel(struct cw_conn *c);
/* Begins to connect to the next address of the host; addresses that fail at once are skipped. */
void cw_conn_try_addresses(struct cw_conn *c);
/* Gives the current address up, because it did not answer in time, and tries the next one. */
void cw_conn_next_address(struct cw_conn *c);
/* Handles the event of a socket that was connecting. */
void cw_conn_connected(struct cw_conn *c);

/* ---- handshake.c ---- */

int cw_conn_setup_new(const struct cw_conn_options *o, bool connecting, struct cw_conn_setup **ret,
                      struct cw_error *err) _must_check_;
struct cw_conn_setup *cw_conn_setup_ref(struct cw_conn_setup *s);
struct cw_conn_setup *cw_conn_setup_unref(struct cw_conn_setup *s);
int cw_conn_send_hello(struct cw_conn *c, struct cw_error *err) _must_check_;
/* Handles the peer's first message. */
int cw_conn_shake(struct cw_conn *c, const Cachew__Envelope *m, struct cw_error *err) _must_check_;

/* ---- listener.c ---- */

/* Takes a connection that sent a request, or ended, out of its listener's list. */
void cw_listener_forget(struct cw_conn *c);
