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
    const char *state_dir; /* NULL: its state ends with the process */
    const char *token;     /* NULL: none is required */
    struct cw_tls *tls;    /* NULL: plain */
    const char *http;      /* "HOST:PORT" of its pages. NULL: none */
    uint64_t timeout_ns;   /* of silent connections. 0: cw_patience_silence_ns() */
    void (*log)(void *arg, bool warning, const char *text); /* logs a line for people. NULL: none */
    void *log_arg;
};

/* Reads the journal, then listens and serves. Everything in o but loop and tls is copied. */
int cw_dispatcher_server_start(const struct cw_dispatcher_server_options *o,
                               struct cw_dispatcher_server **ret, struct cw_error *err) _must_check_;
/* Returns the address of the options with its real port. */
const char *cw_dispatcher_server_address(const struct cw_dispatcher_server *s);
/* Returns the address of its pages with the real port. NULL: there are none. */
const char *cw_dispatcher_server_http(const struct cw_dispatcher_server *s);
/* Stops listening, commits what is pending, and closes all connections. Peers reconnect to its successor. */
struct cw_dispatcher_server *cw_dispatcher_server_free(struct cw_dispatcher_server *s);
