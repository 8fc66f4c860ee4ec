/*
 * Connections over TCP or Unix sockets: messages with a payload, framed, checked and bounded
 * (docs/protocol.md, "Frames"). A connection belongs to the thread of its loop: all functions here are called
 * on that thread. "Owner" is the code that made the connection and whose callbacks are called. Payloads are
 * received directly into the owner's memory, and sent from where they lie, without a copy.
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

/* The versions of the protocol that this build speaks. */
#define CW_PROTOCOL_MIN 1
#define CW_PROTOCOL_MAX 1

/* Limits on what a peer may send, and on what is queued for it; net/limits.h has the values for each kind of
 * connection. */
struct cw_conn_limits {
    /* bytes of a message. Unpacked, it may take four times as many bytes, and 64 KiB */
    size_t message;
    /* bytes of a payload. Before the handshake is done: none, and a message of CW_HANDSHAKE_BYTES */
    size_t payload;
    /* bytes not yet sent, with payloads and frames, above which the peer is cut off. 0: the owner limits them
     */
    size_t queued;
};

/* Callbacks to the owner of a connection. All but message and closed may be NULL. For a listener these two
 * may be NULL too, if its `open` gives each connection other ops. All callbacks may call cw_conn_send and
 * cw_conn_close. */
struct cw_conn_ops {
    /* The handshake is done. `peer` holds the peer's Welcome, or, on an accepted connection, its Hello. < 0:
     * the peer is refused with that error. */
    int (*open)(void *user, struct cw_conn *c, const Cachew__Envelope *peer, struct cw_error *err);
    /* A message with a payload of `size` bytes (> 0) is coming. The owner sets *ret to memory for the
     * payload; the connection hands that memory back with `message`, or with `abandoned` if it ends before
     * the whole payload has come. If the callback is NULL or returns < 0, the connection is cut off. m is
     * valid during this call only. */
    int (*payload)(void *user, struct cw_conn *c, const Cachew__Envelope *m, size_t size, void **ret,
                   struct cw_error *err);
    void (*abandoned)(void *user, struct cw_conn *c, void *payload);
    /* A whole, checked message. m and fds are valid during this call only; fds are closed afterwards. < 0:
     * the connection is cut off, and the peer is sent err as the reason. */
    int (*message)(void *user, struct cw_conn *c, const Cachew__Envelope *m, void *payload, size_t size,
                   const int *fds, size_t n_fds, struct cw_error *err);
    /* The last callback: the connection is over, because of `why`. Status 0: the peer or cw_conn_close closed
     * it. CW_E_DEADLINE: nothing was received within the timeout. If the peer gave a reason, why has it.
     * Never called from within cw_conn_send or cw_conn_close. All queued frames are released before, and c is
     * freed afterwards. For connections of a listener, called only if `open` accepted them. */
    void (*closed)(void *user, struct cw_conn *c, const struct cw_error *why);
    /* All queued frames were sent. */
    void (*drained)(void *user, struct cw_conn *c);
    /* Listening, for logs: a connection from `peer` ended before its handshake was done. */
    void (*refused)(void *user, const char *peer, const struct cw_error *why);
};

/* timeout_ns for a Unix socket between a worker and a client. The kernel closes the socket when the peer's
 * process ends, so a silent peer is only stopped or busy, and may still read its shm loans. */
#define CW_CONN_LOCAL_TIMEOUT_NS (UINT64_C(3600) * 1000000000)

struct cw_conn_options {
    /* describes this side, with at most 63 capabilities; copied. Its versions and token are filled in */
    const Cachew__Hello *hello;
    struct cw_conn_limits limits;
    /* a peer that is silent for this long counts as gone; a ping is sent after a third of this time. Also the
     * limit for connecting and for the handshake. 0: cw_patience_silence_ns() */
    uint64_t timeout_ns;
    const char *token; /* listening: the token that a Hello must have; connecting: the token in our Hello;
                          NULL: none. Copied */
    /* payloads may be compressed, if the peer can decompress them and if that makes them arrive sooner
     * (pack.h); never over Unix sockets */
    bool pack;
    struct cw_tls *
        tls; /* net/tls.h; NULL: no TLS. Unix sockets never use TLS. The connection takes its own reference */
};

/* Describes this process for Hello and Welcome. Texts and incarnation stay the caller's. */
void cw_hello_init(Cachew__Hello *ret, Cachew__Role role, const char *name, const uint8_t incarnation[16],
                   const char *host);

/* Connects to "HOST:PORT", "[IPV6]:PORT" or "unix:PATH". Returns at once; `open` or `closed` is called later.
 * All addresses of a host are tried. */
int cw_conn_connect(struct cw_loop *l, const char *address, const struct cw_conn_options *o,
                    const struct cw_conn_ops *ops, void *user, struct cw_conn **ret,
                    struct cw_error *err) _must_check_;

/* Queues a message; allowed from `open` on. Ids of requests are below 2^63. The loop sends all queued
 * messages together before it waits again. The payload is the n pieces joined (at most 1,024 pieces). They
 * are hashed now, and must not change until release(arg) is called. It is called exactly once, after the
 * payload was sent or the connection ended, also if this function fails. fds (at most 4, Unix sockets only)
 * are duplicated. */
int cw_conn_send(struct cw_conn *c, const Cachew__Envelope *m, const struct iovec *payload, size_t n,
                 void (*release)(void *arg), void *arg, const int *fds, size_t n_fds,
                 struct cw_error *err) _must_check_;
/* Sends the same message to n connections, but packs it only once. A connection that can't send it is closed
 * with the error as its reason. */
void cw_conn_send_all(struct cw_conn *const *conns, size_t n, const Cachew__Envelope *m);
/* Returns the bytes that are queued and not sent yet, as limits.queued counts them. */
size_t cw_conn_queued(const struct cw_conn *c);
/* Closes a connection in order: sends the queue, waits until the peer has closed too (at most the timeout,
 * and at most 3 s after the peer last took bytes), and then calls `closed`. why (may be NULL) is sent to the
 * peer as Failure. Of the callbacks, only `closed` and `abandoned` are called from now on. */
void cw_conn_close(struct cw_conn *c, const struct cw_error *why);
/* Ends the connection at once, without a reason: queued frames are released unsent, and `closed` follows from
 * the loop's deferred work. For a loop that is being stopped. */
void cw_conn_abort(struct cw_conn *c);
bool cw_conn_is_local(const struct cw_conn *c); /* a Unix socket: descriptors may be sent */

/* Bytes of payloads so far: uncompressed, and on the wire. */
struct cw_conn_traffic {
    uint64_t in, in_wire, out, out_wire;
};

void cw_conn_traffic(const struct cw_conn *c, struct cw_conn_traffic *ret);
/* Returns the last decision whether to compress payloads; its `what` is NULL: there was none. */
const struct cw_tuned *cw_conn_tuned(const struct cw_conn *c);
bool cw_conn_has(const struct cw_conn *c, const char *capability); /* both sides have it */
/* Unix sockets: returns a pidfd of the process that connected, which the caller owns; -1: there is none. */
int cw_conn_peer_process(const struct cw_conn *c);
const char *cw_conn_peer(const struct cw_conn *c); /* its address, for messages */
void cw_conn_set_user(struct cw_conn *c, const struct cw_conn_ops *ops, void *user);

/* Listens at "HOST:PORT" (port 0: any free port), "[IPV6]:PORT" or "unix:PATH". `open` of ops is called with
 * `user` for each connection whose handshake is done; it may set another user for the connection. The
 * connections of a listener take at most three quarters of the process's file descriptors. Connections that
 * have sent no request yet take at most a quarter, and are at most 1,024: beyond that, the oldest of them is
 * closed for each new one. */
struct cw_listener;
int cw_listener_new(struct cw_loop *l, const char *address, const struct cw_conn_options *o,
                    const struct cw_conn_ops *ops, void *user, struct cw_listener **ret,
                    struct cw_error *err) _must_check_;
/* "HOST:PORT" with the real port, or "unix:PATH". */
const char *cw_listener_address(const struct cw_listener *l);
/* Closes the listening socket, and connections whose handshake is not done; other connections stay. Removes
 * the file of a Unix socket. Returns NULL. */
struct cw_listener *cw_listener_free(struct cw_listener *l);

/* Limits the log of refused connections to ten lines in ten seconds. */
struct cw_refusals {
    uint64_t since_ns;
    unsigned n, unsaid;
};

/* Counts a refused connection. Returns whether to log it; if so, *ret_unsaid is the number of earlier ones
 * that were not logged since the last line. */
bool cw_refusal_said(struct cw_refusals *r, uint64_t now_ns, unsigned *ret_unsaid);

/* Makes a Failure message. It points to the texts of err, and to memory of this thread that the next call
 * writes. */
void cw_failure_init(Cachew__Failure *ret, const struct cw_error *err);
/* Makes an envelope with a Failure, as the answer to request `re`; it points to *failure. */
void cw_failure_envelope(Cachew__Envelope *ret, Cachew__Failure *failure, uint64_t re,
                         const struct cw_error *err);
/* Returns whether another try would fail in the same way: the error is about the token, the version, or TLS.
 */
bool cw_failure_is_final(const struct cw_error *err);
/* Converts a Failure to an error, with control characters escaped so that it may be logged. Returns the
 * status. */
int cw_failure_error(const Cachew__Failure *f, struct cw_error *err);
#define CW_PROCESS_NAME 160 /* bytes of a process's name, with its 0 */
/* Identifies this machine by boot id and network namespace: processes with the same identity may share
 * memory. */
void cw_host_identity(char ret[80]);
/* Writes the name of this process for people, HOST:PID. */
void cw_process_name(char ret[CW_PROCESS_NAME]);
