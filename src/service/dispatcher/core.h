/*
 * The dispatcher's decisions: a state machine without I/O, threads or clock. Messages, lost connections,
 * finished commits and times go in; messages and journal entries come out, through struct cw_dispatcher_io.
 * docs/service.md says what it decides, src/proto/cachew.proto what the messages mean.
 *
 * One thread. Inputs only change state; cw_dispatcher_turn, called once after one or several of them, makes
 * leases and sends what they caused, so that a thousand completions are one transaction, and a client gets
 * one message.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "service/dispatcher/store.h"
#include "policy/policy.h"
#include "proto/cachew.pb-c.h"

struct cw_dispatcher;
struct cw_text;
struct cw_peer;

#define CW_DISPATCHER_SENDS 256 /* peers at a time */

/* None of these may call the dispatcher. `peer` is what cw_dispatcher_connected was given as user. */
struct cw_dispatcher_io {
    void *user;
    /* to n peers, at most CW_DISPATCHER_SENDS; copied, or packed at once */
    void (*send)(void *user, void *const *peers, size_t n, const Cachew__Envelope *m);
    /* The connection is to be ended, with the reason told to the peer; cw_dispatcher_lost follows from
     * outside, soon. */
    void (*close)(void *user, void *peer, const struct cw_error *why);
    /* Makes a batch durable; it stays as it is until cw_dispatcher_committed. One at a time. */
    void (*commit)(void *user, const struct cw_store_batch *batch);
    void (*log)(void *user, bool warning, const char *text); /* a line for people; may be NULL */
};

struct cw_dispatcher_options {
    const char *name;     /* shown by "status"; copied. NULL: "dispatcher" */
    const char *software; /* likewise */
    uint32_t pid;
    /* Jobs that differ in nothing but their names share a stream. Else a stream has one job at a time, and a
     * batch that one job is slow to take stops no other. */
    bool share_streams;
    /* ranges that a worker has to compute at a time, at least; never more than its capacity; 0: 2 */
    uint32_t depth;
    /* Decides how many workers a job gets (docs/autoscaling.md); copied. NULL: all workers serve all jobs. */
    const struct cw_policy *policy;
    enum cw_objective objective;
    /* of all ranks of a job; of a worker whose pool names none */
    double client_price_per_h, worker_price_per_h;
};

int cw_dispatcher_new(const struct cw_dispatcher_options *o, const struct cw_dispatcher_io *io,
                      struct cw_dispatcher **ret, struct cw_error *err) _must_check_;
struct cw_dispatcher *cw_dispatcher_free(struct cw_dispatcher *d);

/* What the store has, row by row in the order of keys; then the start. CW_E_DATA: the row, which err names,
 * is damaged or rests on one that is; it is left out, and all else can be served. CW_E_STATE: a row that is
 * not damaged can't be understood. */
int cw_dispatcher_load(struct cw_dispatcher *d, const void *key, size_t key_size, const void *value,
                       size_t value_size, struct cw_error *err) _must_check_;
void cw_dispatcher_start(struct cw_dispatcher *d, uint64_t now_ns);

/* A connection whose handshake is done. *ret is valid until cw_dispatcher_lost. */
int cw_dispatcher_connected(struct cw_dispatcher *d, void *user, const Cachew__Hello *hello,
                            struct cw_peer **ret, struct cw_error *err) _must_check_;
/* What a request asks for wrongly is answered with Failure. < 0: the peer is to be cut off with this error.
 */
int cw_dispatcher_message(struct cw_dispatcher *d, struct cw_peer *peer, const Cachew__Envelope *m,
                          uint64_t now_ns, struct cw_error *err) _must_check_;
void cw_dispatcher_lost(struct cw_dispatcher *d, struct cw_peer *peer, uint64_t now_ns);
/* The batch given to commit is durable, or (why, not NULL) is not: then it is committed again a second later,
 * and nothing that it has was acknowledged. */
void cw_dispatcher_committed(struct cw_dispatcher *d, const struct cw_error *why, uint64_t now_ns);
/* Returns after how many ns, at the latest, it wants to be called again. */
uint64_t cw_dispatcher_tick(struct cw_dispatcher *d, uint64_t now_ns);
/* Returns after how many ns it wants to be called again, since there is something that many clients are to be
 * told; 0: there is not. */
uint64_t cw_dispatcher_turn(struct cw_dispatcher *d, uint64_t now_ns);
/* JSON, as the message Query gives it; the caller frees it. CW_E_OPTION: there is no such question. */
int cw_dispatcher_query(struct cw_dispatcher *d, const char *what, uint64_t now_ns, char **ret,
                        struct cw_error *err) _must_check_;
/* Prometheus' text format, appended. */
void cw_dispatcher_metrics(struct cw_dispatcher *d, uint64_t now_ns, struct cw_text *text);
/* < 0: the journal can't be written at the moment, so that nothing is acknowledged. */
int cw_dispatcher_ready(const struct cw_dispatcher *d, struct cw_error *err) _must_check_;
