/*
 * Connections over TCP or Unix sockets: messages with a payload, framed, checked and bounded (docs/protocol.md, "Frames"). A connection belongs to its
 * loop's thread. Payloads are received straight into memory that the owner names, and sent straight from where they lie.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "net/loop.h"
#include "proto/cachew.pb-c.h"

struct cw_conn;

struct cw_conn_limits {
    size_t message;  /* bytes of a message that a peer may send */
    size_t payload;  /* of a payload */
    size_t queued;   /* bytes not yet sent, above which the peer is cut off; payloads count */
};

/* How the owner learns of things. Any may be NULL but message and closed. They may call cw_conn_send and cw_conn_close. */
struct cw_conn_ops {
    /* The handshake is done: `peer` is its Hello (who was connected to) or Welcome (who connected). < 0: it is refused with that error. */
    int (*open)(void *user, struct cw_conn *c, const Cachew__Envelope *peer, struct cw_error *err);
    /* A message came that has a payload of `size` bytes (> 0): *ret is where to put it. Without this, or when it returns < 0, the connection is cut off.
     * What it gave is handed back with `message`, or with `abandoned` when the connection ends before it is all there. */
    int (*payload)(void *user, struct cw_conn *c, const Cachew__Envelope *m, size_t size, void **ret, struct cw_error *err);
    void (*abandoned)(void *user, struct cw_conn *c, void *payload);
    /* A message, whole and checked. m is freed afterwards. fds are the callee's. < 0: the peer is cut off, with err as the reason, said to it. */
    int (*message)(void *user, struct cw_conn *c, const Cachew__Envelope *m, void *payload, size_t size, const int *fds, size_t n_fds,
                   struct cw_error *err);
    /* The last call: the connection is over, because of `why`; status 0: the peer closed it, or cw_conn_close. Not called within cw_conn_send or
     * cw_conn_close. Everything queued was released. c is freed afterwards. */
    void (*closed)(void *user, struct cw_conn *c, const struct cw_error *why);
    /* What was queued has been sent down to nothing. */
    void (*drained)(void *user, struct cw_conn *c);
};

struct cw_conn_options {
    const Cachew__Hello *hello;    /* what we say of ourselves; versions and capabilities are filled in. Copied */
    struct cw_conn_limits limits;
    uint64_t timeout_ns;           /* nothing heard for so long: the peer is gone. A ping is sent after a third of it. Also for connecting and shaking hands */
    const char *token;             /* listening: what a Hello must have; connecting: what ours has; NULL: none */
    struct cw_tls *tls;            /* NULL: plain */
};

/* Connects to "HOST:PORT", "[IPV6]:PORT" or "unix:PATH". Returns at once; `open` or `closed` follows. */
int cw_conn_connect(struct cw_loop *l, const char *address, const struct cw_conn_options *o, const struct cw_conn_ops *ops, void *user,
                    struct cw_conn **ret, struct cw_error *err) _must_check_;

/* Queues a message. The n pieces of payload (at most 1,024, all together `size` of the frame) must stay as they are until release(arg) is called: once, after
 * they were sent or the connection ended, also when the result is negative. fds are duplicated; Unix sockets only. */
int cw_conn_send(struct cw_conn *c, const Cachew__Envelope *m, const struct iovec *payload, size_t n, void (*release)(void *arg), void *arg,
                 const int *fds, size_t n_fds, struct cw_error *err) _must_check_;
size_t cw_conn_queued(const struct cw_conn *c);
/* What is queued is still sent, within the timeout; then `closed`. why (may be NULL): told to the peer as Failure. No more calls but `closed` follow. */
void cw_conn_close(struct cw_conn *c, const struct cw_error *why);
bool cw_conn_is_local(const struct cw_conn *c); /* a Unix socket: descriptors may be sent */
const char *cw_conn_peer(const struct cw_conn *c); /* its address, for people */
void cw_conn_set_user(struct cw_conn *c, const struct cw_conn_ops *ops, void *user);

/* Listens at "HOST:PORT" (port 0: any that is free), "[IPV6]:PORT" or "unix:PATH". accepted(user, c) is called for each connection whose handshake is done
 * (its `open`, of `ops`, accepted it): it may set another user. */
struct cw_listener;
int cw_listener_new(struct cw_loop *l, const char *address, const struct cw_conn_options *o, const struct cw_conn_ops *ops, void *user,
                    struct cw_listener **ret, struct cw_error *err) _must_check_;
/* "HOST:PORT" with the real port, or "unix:PATH". */
const char *cw_listener_address(const struct cw_listener *l);
/* Connections stay. A Unix socket's file is removed. */
struct cw_listener *cw_listener_free(struct cw_listener *l);

/* Failure messages from errors and back. The texts of *ret are those of err. */
void cw_failure_init(Cachew__Failure *ret, const struct cw_error *err);
/* Returns the status. */
int cw_failure_error(const Cachew__Failure *f, struct cw_error *err);
/* Who says the same may share memory: boot id and network namespace. */
void cw_host_identity(char ret[80]);
