/* The dispatcher as a server: the core (core.h), a store for its journal, and connections, on one loop. Loop
 * thread only. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "service/dispatcher/core.h"

struct cw_loop;
struct cw_tls;
struct cw_dispatcher_server;

struct cw_dispatcher_server_options {
    struct cw_dispatcher_options core;
    struct cw_loop *loop;  /* lives longer than the server */
    const char *listen;    /* "HOST:PORT", "[IPV6]:PORT", "unix:PATH" */
    const char *state_dir; /* directory of the journal; NULL: the state is lost when the process ends */
    const char *token;     /* NULL: none is required */
    struct cw_tls *tls;    /* NULL: plain */
    const char *http;      /* "HOST:PORT" of its HTTP pages; NULL: none */
    /* a connection that is silent for this long is closed; 0: cw_patience_silence_ns() */
    uint64_t timeout_ns;
    void (*log)(void *arg, bool warning, const char *text); /* writes a log line; may be NULL */
    void *log_arg;
};

/* Reads the journal, then listens and serves. Copies everything in o except loop and tls. */
int cw_dispatcher_server_start(const struct cw_dispatcher_server_options *o,
                               struct cw_dispatcher_server **ret, struct cw_error *err) _must_check_;
/* Returns the address on which it listens, with the real port. */
const char *cw_dispatcher_server_address(const struct cw_dispatcher_server *s);
/* Returns the address of its HTTP pages, with the real port. NULL: there are none. */
const char *cw_dispatcher_server_http(const struct cw_dispatcher_server *s);
/* Stops listening, commits the pending journal entries, and closes all connections. Peers reconnect when a
 * new dispatcher is started. Returns NULL. */
struct cw_dispatcher_server *cw_dispatcher_server_free(struct cw_dispatcher_server *s);
