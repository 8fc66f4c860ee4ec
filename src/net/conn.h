/*
 * Connections over TCP or Unix sockets: messages with a payload, framed, checked and bounded
 * (docs/protocol.md, "Frames"). A connection belongs to its loop's thread. Payloads are received straight
 * into memory that the owner names, and sent straight from where they lie.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "base/tuned.h"
#include "net/envelope.h"
#include "net/loop.h"
#include "proto/cachew.pb-c.h"

struct cw_conn;

/* The versions of the protocol that are spoken here. */
#define CW_PROTOCOL_MIN 1
#define CW_PROTOCOL_MAX 1

/* Each kind of connection has its own: net/limits.h. */
struct cw_conn_limits {
    /* bytes of a message that a peer may send. In memory it may take four times that (and 64 KiB) */
    size_t message;
    /* of a payload. Before the handshake is done: none, and a message of CW_HANDSHAKE_BYTES */
    size_t payload;
    /* bytes not yet sent, above which the peer is cut off; payloads count, and what keeping them takes. 0:
     * the owner sees to it */
    size_t queued;
};

/* How the owner learns of things. Any may be NULL but message and closed; these too for a listener whose
 * `open` gives each connection other ops. All may call cw_conn_send and cw_conn_close. */
struct cw_conn_ops {
    /* The handshake is done: `peer` has its Welcome (who was connected to) or its Hello (who connected). < 0:
     * it is refused with that error. */
    int (*open)(void *user, struct cw_conn *c, const Cachew__Envelope *peer, struct cw_error *err);
    /* A message came that has a payload of `size` bytes (> 0): *ret is where to put it. Without this, or when
     * it returns < 0, the connection is cut off. What it gave is handed back with `message`, or with
     * `abandoned` when the connection ends before it is all there. m is gone when this returns. */
    int (*payload)(void *user, struct cw_conn *c, const Cachew__Envelope *m, size_t size, void **ret,
                   struct cw_error *err);
    void (*abandoned)(void *user, struct cw_conn *c, void *payload);
    /* A message, whole and checked. m is gone when this returns. fds are closed when this returns. < 0: the
     * peer is cut off, with err as the reason, said to it. */
    int (*message)(void *user, struct cw_conn *c, const Cachew__Envelope *m, void *payload, size_t size,
                   const int *fds, size_t n_fds, struct cw_error *err);
    /* The last call: the connection is over, because of `why`; status 0: the peer closed it, or
     * cw_conn_close. CW_E_DEADLINE: nothing was heard. If the peer gave a reason, why has it. Not called
     * within cw_conn_send or cw_conn_close. Everything queued was released. c is freed afterwards. Of a
     * listener's connections, only those that `open` accepted. */
    void (*closed)(void *user, struct cw_conn *c, const struct cw_error *why);
    /* What was queued has been sent down to nothing. */
    void (*drained)(void *user, struct cw_conn *c);
    /* Listening: somebody at `peer` connected and was sent away, or went, before the handshake was done. For
     * logs. */
    void (*refused)(void *user, const char *peer, const struct cw_error *why);
};

/* For timeout_ns between a worker and a client, over a Unix socket: it ends when its peer does. Who is silent
 * there is stopped or busy, and may go on; what is lent is in use until then. */
#define CW_CONN_LOCAL_TIMEOUT_NS (UINT64_C(3600) * 1000000000)

struct cw_conn_options {
    /* what we say of ourselves; at most 63 capabilities. Versions and token are filled in. Copied */
    const Cachew__Hello *hello;
    struct cw_conn_limits limits;
    /* nothing heard for so long: the peer is gone. A ping is sent after a third of it. Also for connecting
     * and shaking hands. 0: cw_patience_silence_ns() */
    uint64_t timeout_ns;
    const char *token; /* listening: what a Hello must have; connecting: what ours has; NULL: none. Copied */
    /* not over Unix sockets: payloads may be compressed, where the peer knows how, and where it pays (pack.h)
     */
    bool pack;
    struct cw_tls *tls; /* net/tls.h; NULL: plain. Unix sockets always are. Counted */
};

/* What a process says of itself when it connects, or is connected to. Texts and incarnation stay the
 * caller's. */
void cw_hello_init(Cachew__Hello *ret, Cachew__Role role, const char *name, const uint8_t incarnation[16],
                   const char *host);

/* Connects to "HOST:PORT", "[IPV6]:PORT" or "unix:PATH". Returns at once; `open` or `closed` follows. All
 * addresses of a host are tried. */
int cw_conn_connect(struct cw_loop *l, const char *address, const struct cw_conn_options *o,
                    const struct cw_conn_ops *ops, void *user, struct cw_conn **ret,
                    struct cw_error *err) _must_check_;

/* Queues a message, from `open` on; ids of requests are below 2^63. It goes before the loop waits again, with
 * everything that is queued until then. The n pieces of payload (at most 1,024, all together `size` of the
 * frame) are hashed now, and must stay as they are until release(arg) is called: once, after they were sent
 * or the connection ended, also when the result is negative. fds (at most 4) are duplicated; Unix sockets
 * only. */
int cw_conn_send(struct cw_conn *c, const Cachew__Envelope *m, const struct iovec *payload, size_t n,
                 void (*release)(void *arg), void *arg, const int *fds, size_t n_fds,
                 struct cw_error *err) _must_check_;
/* The same message to n connections, packed once. Those that can't be sent it are closed, with the reason. */
void cw_conn_send_all(struct cw_conn *const *conns, size_t n, const Cachew__Envelope *m);
size_t cw_conn_queued(const struct cw_conn *c); /* as limits.queued counts */
/* What is queued is still sent, within the timeout and 3 s; then `closed`, once the peer has closed too. why
 * (may be NULL): told to the peer as Failure. No more calls but `closed` (and `abandoned`) follow. */
void cw_conn_close(struct cw_conn *c, const struct cw_error *why);
/* Ends the connection at once, without a reason: queued frames are released unsent, and `closed` follows from
 * the loop's deferred work. For a loop that is being stopped. */
void cw_conn_abort(struct cw_conn *c);
bool cw_conn_is_local(const struct cw_conn *c); /* a Unix socket: descriptors may be sent */

/* Payloads so far: as they are, and as they went over the wire. */
struct cw_conn_traffic {
    uint64_t in, in_wire, out, out_wire;
};

void cw_conn_traffic(const struct cw_conn *c, struct cw_conn_traffic *ret);
/* whether payloads are compressed, as it was decided last; what NULL: they never were, nor tried to be */
const struct cw_tuned *cw_conn_tuned(const struct cw_conn *c);
bool cw_conn_has(const struct cw_conn *c, const char *capability); /* both sides have it */
/* Over a Unix socket: a descriptor (the caller's) that is readable when the process that connected has ended;
 * -1: there is none. */
int cw_conn_peer_process(const struct cw_conn *c);
const char *cw_conn_peer(const struct cw_conn *c); /* its address, for people */
void cw_conn_set_user(struct cw_conn *c, const struct cw_conn_ops *ops, void *user);

/* Listens at "HOST:PORT" (port 0: any that is free), "[IPV6]:PORT" or "unix:PATH". `open` of ops is called
 * for each connection whose handshake is done, with `user`; it may set another user for the connection. At
 * most 1,024 connections, and a quarter of the descriptors that the process may have, are there at a time
 * that have asked for nothing yet: then the oldest of them make room. All together have three quarters. */
struct cw_listener;
int cw_listener_new(struct cw_loop *l, const char *address, const struct cw_conn_options *o,
                    const struct cw_conn_ops *ops, void *user, struct cw_listener **ret,
                    struct cw_error *err) _must_check_;
/* "HOST:PORT" with the real port, or "unix:PATH". */
const char *cw_listener_address(const struct cw_listener *l);
/* Connections stay, but for those that still shake hands. A Unix socket's file is removed. */
struct cw_listener *cw_listener_free(struct cw_listener *l);

/* For logs of who was refused: ten lines in ten seconds are enough. Whether this one is to be written;
 * *ret_unsaid: so many before it were not. */
struct cw_refusals {
    uint64_t since_ns;
    unsigned n, unsaid;
};

bool cw_refusal_said(struct cw_refusals *r, uint64_t now_ns, unsigned *ret_unsaid);

/* Failure messages from errors and back. The texts of *ret are those of err. What comes back has no control
 * characters: it may be logged. */
void cw_failure_init(Cachew__Failure *ret, const struct cw_error *err);
/* An envelope that says it, as the answer to re; it points to *failure. */
void cw_failure_envelope(Cachew__Envelope *ret, Cachew__Failure *failure, uint64_t re,
                         const struct cw_error *err);
/* Whether it would be refused the same way the next time: for its token, its version, or TLS. */
bool cw_failure_is_final(const struct cw_error *err);
/* Returns the status. */
int cw_failure_error(const Cachew__Failure *f, struct cw_error *err);
/* Who says the same may share memory: boot id and network namespace. */
void cw_host_identity(char ret[80]);
