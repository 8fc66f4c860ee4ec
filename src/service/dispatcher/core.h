/*
 * The dispatcher's core: a state machine without I/O, threads or clock. Messages, lost connections, finished
 * commits and times go in. Messages and journal entries come out, through struct cw_dispatcher_io.
 * docs/service.md says what it decides, src/proto/cachew.proto what the messages mean.
 *
 * One thread. Inputs mostly change state only. cw_dispatcher_turn, called once after one or several inputs,
 * makes leases and sends their consequences, so that a thousand completions are one transaction, and a client
 * gets one message.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "service/dispatcher/store.h"
#include "policy/policy.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

struct cw_text;

#define CW_DISPATCHER_SENDS 256 /* peers at a time */

/* None of these may call the dispatcher. `peer` is what cw_dispatcher_connected was given as user. */
struct cw_dispatcher_io {
    void *user;
    /* sends to n peers, at most CW_DISPATCHER_SENDS. m is only valid during the call */
    void (*send)(void *user, void *const *peers, size_t n, const Cachew__Envelope *m);
    /* ends the connection, and sends the peer the reason. cw_dispatcher_lost follows later */
    void (*close)(void *user, void *peer, const struct cw_error *why);
    /* makes a batch durable. It does not change until cw_dispatcher_committed. One batch at a time */
    void (*commit)(void *user, const struct cw_store_batch *batch);
    void (*log)(void *user, bool warning, const char *text); /* logs a line for people. May be NULL */
};

struct cw_dispatcher_options {
    const char *name; /* shown by "status", copied. NULL: "dispatcher" */
    uint32_t pid;
    /* Jobs that differ only in their names share a stream. Otherwise a stream has one job at a time, and a
     * slow job delays no other. */
    bool share_streams;
    /* least number of ranges that a worker has to compute at a time, limited by its capacity. 0: 2 */
    uint32_t depth;
    /* Decides how many workers a job gets (docs/autoscaling.md). Copied. NULL: all workers serve all jobs. */
    const struct cw_policy *policy;
    enum cw_objective objective;
    /* of all ranks of a job, and of a worker whose pool has no price */
    double client_price_per_h, worker_price_per_h;
};

int cw_dispatcher_new(const struct cw_dispatcher_options *o, const struct cw_dispatcher_io *io,
                      struct cw_dispatcher **ret, struct cw_error *err) _must_check_;
struct cw_dispatcher *cw_dispatcher_free(struct cw_dispatcher *d);

/* Restores a row of the store. Call for all rows, in the order of keys, then start. CW_E_DATA: the row, which
 * err names, is damaged or rests on a damaged one, and is left out. All else can be served. CW_E_STATE: a row
 * that is not damaged can't be read. */
int cw_dispatcher_load(struct cw_dispatcher *d, const void *key, size_t key_size, const void *value,
                       size_t value_size, struct cw_error *err) _must_check_;
void cw_dispatcher_start(struct cw_dispatcher *d, uint64_t now_ns);

/* Adds a connection whose handshake is done. *ret is valid until cw_dispatcher_lost. */
int cw_dispatcher_connected(struct cw_dispatcher *d, void *user, const Cachew__Hello *hello,
                            struct cw_peer **ret, struct cw_error *err) _must_check_;
/* Handles a message. A request that can't be met is answered with Failure. < 0: the caller ends the
 * connection with this error. */
int cw_dispatcher_message(struct cw_dispatcher *d, struct cw_peer *peer, const Cachew__Envelope *m,
                          uint64_t now_ns, struct cw_error *err) _must_check_;
void cw_dispatcher_lost(struct cw_dispatcher *d, struct cw_peer *peer, uint64_t now_ns);
/* The batch given to commit is durable, or (why, not NULL) is not. Then it is committed again a second later,
 * and nothing that it has was acknowledged. */
void cw_dispatcher_committed(struct cw_dispatcher *d, const struct cw_error *why, uint64_t now_ns);
/* Acts on time that passed. Returns after how many ns, at the latest, it must be called again. */
uint64_t cw_dispatcher_tick(struct cw_dispatcher *d, uint64_t now_ns);
/* Ends a turn: sends the consequences of all inputs since the last one. Returns after how many ns it must be
 * called again to notify clients of a large job. 0: need not. */
uint64_t cw_dispatcher_turn(struct cw_dispatcher *d, uint64_t now_ns);
/* *ret: the answer to a query as JSON, as the message Query gives it. The caller frees it. CW_E_OPTION: there
 * is no such query. */
int cw_dispatcher_query(struct cw_dispatcher *d, const char *what, uint64_t now_ns, char **ret,
                        struct cw_error *err) _must_check_;
/* Appends the metrics in Prometheus' text format. */
void cw_dispatcher_metrics(struct cw_dispatcher *d, uint64_t now_ns, struct cw_text *text);
/* Returns < 0 while the journal can't be written, so that nothing is acknowledged. */
int cw_dispatcher_ready(const struct cw_dispatcher *d, struct cw_error *err) _must_check_;
