/* The dispatcher as a server: the core (core.h), a store for its journal, and connections, on one loop. Loop
 * thread only. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "policy/policy.h"

struct cw_loop;
struct cw_tls;
struct cw_dispatcher_server;

struct cw_dispatcher_server_options {
    struct cw_loop *loop;      /* lives longer than the server */
    const char *const *listen; /* "HOST:PORT", "[IPV6]:PORT", "unix:PATH" */
    size_t n_listen;
    const char *state_dir;          /* NULL: nothing is left after its end */
    const char *name;               /* NULL: "dispatcher" */
    const char *token;              /* NULL: none is asked for */
    struct cw_tls *tls;             /* NULL: plain */
    const char *http;               /* "HOST:PORT" of its pages; NULL: none */
    uint64_t timeout_ns;            /* 0: cw_patience_silence_ns(); who says nothing for so long is gone */
    bool share_streams;             /* cw_dispatcher_options */
    const struct cw_policy *policy; /* NULL: all workers serve all jobs */
    enum cw_objective objective;
    double client_price_per_h, worker_price_per_h;
    void (*log)(void *arg, bool warning, const char *text); /* a line for people; NULL: nothing is logged */
    void *log_arg;
};

/* Reads the journal, then listens: from then on it serves. Everything in o but loop and tls is copied. */
int cw_dispatcher_server_start(const struct cw_dispatcher_server_options *o,
                               struct cw_dispatcher_server **ret, struct cw_error *err) _must_check_;
/* Where it listens, as the i-th of the options, with its real port. NULL: there are not so many. */
const char *cw_dispatcher_server_address(const struct cw_dispatcher_server *s, size_t i);
/* Where its pages are, with the real port; NULL: there are none. */
const char *cw_dispatcher_server_http(const struct cw_dispatcher_server *s);
/* Stops listening, closes all connections, writes what is to be written. Peers find nothing wrong: they come
 * back when it does. */
struct cw_dispatcher_server *cw_dispatcher_server_free(struct cw_dispatcher_server *s);
