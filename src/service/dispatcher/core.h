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

#define CW_DISPATCHER_SENDS 256 /* most peers of one call of send */

/* What the core calls. These functions must not call the core. peer: the `user` of cw_dispatcher_connected.
 */
struct cw_dispatcher_io {
    void *user;
    /* sends to n peers, at most CW_DISPATCHER_SENDS. m is only valid during the call */
    void (*send)(void *user, void *const *peers, size_t n, const Cachew__Envelope *m);
    /* ends the connection, and sends the peer the reason. cw_dispatcher_lost follows later */
    void (*close)(void *user, void *peer, const struct cw_error *why);
    /* makes a batch durable. It does not change until cw_dispatcher_committed. One batch at a time */
    void (*commit)(void *user, const struct cw_store_batch *batch);
    void (*log)(void *user, bool warning, const char *text); /* writes a log line. May be NULL */
};

struct cw_dispatcher_options {
    const char *name; /* shown by "status", copied. NULL: "dispatcher" */
    uint32_t pid;
    /* Jobs that differ only in their names share a stream. Otherwise a stream has one job at a time, and a
     * slow job delays no other. */
    bool share_streams;
    /* unfinished ranges that a worker is to have, at least; its capacity is the limit. 0: 2 */
    uint32_t depth;
    /* Decides how many workers a job gets (docs/autoscaling.md). Copied. NULL: all workers serve all jobs. */
    const struct cw_policy *policy;
    enum cw_objective objective;
    /* default prices: of all ranks of a job together; of one worker whose pool has no price */
    double client_price_per_h, worker_price_per_h;
    const char *currency; /* of prices and costs, for people; copied. NULL: not named */
};

int cw_dispatcher_new(const struct cw_dispatcher_options *o, const struct cw_dispatcher_io *io,
                      struct cw_dispatcher **ret, struct cw_error *err) _must_check_;
struct cw_dispatcher *cw_dispatcher_free(struct cw_dispatcher *d);

/* Restores one row of the store. Call for all rows in the order of their keys, then cw_dispatcher_start.
 * CW_E_DATA: the row is damaged, or depends on a damaged row, and is left out; err names it, and loading can
 * go on. CW_E_STATE: a row that is not damaged can't be read. */
int cw_dispatcher_load(struct cw_dispatcher *d, const void *key, size_t key_size, const void *value,
                       size_t value_size, struct cw_error *err) _must_check_;
/* Begins to serve, after all rows are loaded. */
void cw_dispatcher_start(struct cw_dispatcher *d, uint64_t now_ns);

/* Adds a connection whose handshake is done. *ret is valid until cw_dispatcher_lost. */
int cw_dispatcher_connected(struct cw_dispatcher *d, void *user, const Cachew__Hello *hello,
                            struct cw_peer **ret, struct cw_error *err) _must_check_;
/* Handles a message. A request that is refused is answered with Failure. < 0: the caller closes the
 * connection with this error. */
int cw_dispatcher_message(struct cw_dispatcher *d, struct cw_peer *peer, const Cachew__Envelope *m,
                          uint64_t now_ns, struct cw_error *err) _must_check_;
/* Call when the connection is closed. The peer must not be used after this. */
void cw_dispatcher_lost(struct cw_dispatcher *d, struct cw_peer *peer, uint64_t now_ns);
/* Call when a commit is done. why NULL: the batch is durable. Else it failed: nothing in it is acknowledged,
 * and the core commits it again one second later. */
void cw_dispatcher_committed(struct cw_dispatcher *d, const struct cw_error *why, uint64_t now_ns);
/* Does what depends on time (ranges that are late, peers that are gone). Returns after how many ns it must be
 * called again, at the latest. */
uint64_t cw_dispatcher_tick(struct cw_dispatcher *d, uint64_t now_ns);
/* Runs a turn: makes leases, and sends the consequences of all inputs since the last turn. Returns after how
 * many ns it must be called again to notify clients of a large job; 0: no call is needed. */
uint64_t cw_dispatcher_turn(struct cw_dispatcher *d, uint64_t now_ns);
/* Answers a query of the state, as message Query names it. *ret: JSON, which the caller frees. CW_E_OPTION:
 * there is no such query, or no such job. */
int cw_dispatcher_query(struct cw_dispatcher *d, const char *what, uint64_t now_ns, char **ret,
                        struct cw_error *err) _must_check_;
/* Appends the metrics in Prometheus' text format. */
void cw_dispatcher_metrics(struct cw_dispatcher *d, uint64_t now_ns, struct cw_text *text);
/* Returns < 0 while the journal can't be written, so that nothing is acknowledged. */
int cw_dispatcher_ready(const struct cw_dispatcher *d, struct cw_error *err) _must_check_;
