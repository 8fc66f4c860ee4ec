/*
 * All streams of a worker, from Prepare to Forget: their grants, their parts of the memory, and where their
 * answers go. The loop's thread only. control.c passes the dispatcher's messages on; clients.c finds streams
 * here for requests, and handles what streams answer.
 */
#pragma once
#include "service/worker/common.h"
#include "service/worker/grants.h"
#include "service/worker/stream.h"

struct cw_streams;

struct cw_worker_stream {
    struct cw_worker_stream *next;
    struct cw_streams *streams;
    struct cw_stream *stream;

    enum { STREAM_OPENING, STREAM_READY, STREAM_FAILED, STREAM_ENDING } state;

    uint64_t serial;     /* no other stream of this worker had it */
    uint64_t prepare_id; /* of the Prepare to be answered; 0: none on this connection */
    struct cw_grants grants;
    /* by kind of tuning record: how often it had been set when it was logged last */
    uint64_t n_logged[CW_TUNED_KEPT];
};

struct cw_streams {
    struct cw_worker_common *common;
    struct cw_cache *cache;           /* of all streams, or NULL */
    void (*on_answers)(void *stream); /* a struct cw_worker_stream has answers */
    struct cw_worker_stream *list;
    size_t n_sharing; /* streams that share the memory, as it was divided last */
    uint64_t next_serial;
    struct cw_work work; /* of streams that are over */
};

/* Returns the name of a stream, for messages. */
ProtobufCBinaryData cw_streams_name(const struct cw_worker_stream *s);
/* Returns the stream of this name that was not ended; NULL: none. */
struct cw_worker_stream *cw_streams_find(struct cw_streams *s, ProtobufCBinaryData name);

/* ---- messages of the dispatcher ---- */

int cw_streams_prepare(struct cw_streams *s, uint64_t id, const Cachew__Prepare *m,
                       struct cw_error *err) _must_check_;
int cw_streams_lease(struct cw_worker_stream *s, const Cachew__Leases *m, struct cw_error *err) _must_check_;
int cw_streams_revoke(struct cw_streams *s, const Cachew__Revoke *m, struct cw_error *err) _must_check_;
void cw_streams_set_caching(struct cw_streams *s, const Cachew__Caching *m);

/* ---- answers of a stream ---- */

/* OPENED. Returns whether the stream is ready; it is not if it was ended meanwhile. */
bool cw_streams_opened(struct cw_worker_stream *s);
/* EXITED. Frees the stream. */
void cw_streams_exited(struct cw_worker_stream *s);

/* Ends a stream, unless it was ended before. It is freed when its thread has ended. */
void cw_streams_end(struct cw_worker_stream *s);
/* A client's connection ended: its requests are dropped. A stream without memory for the command ends. */
void cw_streams_forget_peer(struct cw_streams *s, struct cw_peer *p);
/* A client has room again: all streams serve what waited for that. */
void cw_streams_wake(struct cw_streams *s);
/* Divides the memory among streams anew, if their number changed. Many that come or go together are one
 * change. */
void cw_streams_settle(struct cw_streams *s);
/* Returns how many ranges a worker wants to have of a stream at a time: some to compute, and some that are
 * fetched meanwhile. */
uint32_t cw_streams_capacity(const struct cw_worker_stream *s);
/* The bytes of batches that clients have, or that are on their way to them, are at most this part of the
 * worker's memory; streams share the rest. */
#define CW_HANDED_OUT_PART 4
