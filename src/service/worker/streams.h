/* All streams of a worker, from Prepare to Forget: their grants, and their shares of the memory. The loop's
 * thread only. control.c passes the dispatcher's messages to this module, and handles the streams' answers;
 * clients.c looks up the streams of requests. */
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

    uint64_t serial;     /* unique among all streams that this worker has had */
    uint64_t prepare_id; /* id of the unanswered Prepare; 0: none came over this connection */
    struct cw_grants grants;
    /* for each kind of tuning record: its count when it was logged last */
    uint64_t n_logged[CW_TUNED_KEPT];
};

struct cw_streams {
    struct cw_worker_common *common;
    struct cw_cache *cache;           /* shared by all streams; or NULL */
    void (*on_answers)(void *stream); /* called when a stream (struct cw_worker_stream) has answers */
    struct cw_worker_stream *list;
    size_t n_sharing; /* number of streams among which the memory was divided last */
    uint64_t next_serial;
    struct cw_work work; /* sums of streams that have ended */
};

/* Returns the id of a stream, as it is in messages. Borrowed. */
ProtobufCBinaryData cw_streams_name(const struct cw_worker_stream *s);
/* Returns the stream with this id, unless it is ending; NULL: there is none. */
struct cw_worker_stream *cw_streams_find(struct cw_streams *s, ProtobufCBinaryData name);

/* ---- messages of the dispatcher ---- */

int cw_streams_prepare(struct cw_streams *s, uint64_t id, const Cachew__Prepare *m,
                       struct cw_error *err) _must_check_;
int cw_streams_lease(struct cw_worker_stream *s, const Cachew__Leases *m, struct cw_error *err) _must_check_;
int cw_streams_revoke(struct cw_streams *s, const Cachew__Revoke *m, struct cw_error *err) _must_check_;
void cw_streams_set_caching(struct cw_streams *s, const Cachew__Caching *m);

/* ---- answers of a stream ---- */

/* Handles OPENED. Returns whether the stream is ready now; false: it was ended in the meantime. */
bool cw_streams_opened(struct cw_worker_stream *s);
/* Handles EXITED: frees the stream. */
void cw_streams_exited(struct cw_worker_stream *s);

/* Begins to end a stream, unless it is ending already. It is freed when its thread has ended. */
void cw_streams_end(struct cw_worker_stream *s);
/* Call when a client's connection ended: all streams drop its requests. A stream that can't be told, because
 * memory is short, ends. */
void cw_streams_forget_peer(struct cw_streams *s, struct cw_peer *p);
/* Call when a client has room again: wakes all streams. */
void cw_streams_wake(struct cw_streams *s);
/* Divides the memory among the streams again, if their number has changed. Called once per iteration of the
 * loop, so that streams that come or go together are one change. */
void cw_streams_settle(struct cw_streams *s);
/* Returns how many ranges of a stream the worker wants to have at a time: some that it computes, and some
 * that clients fetch. */
uint32_t cw_streams_capacity(const struct cw_worker_stream *s);
/* Batches that clients use, or that are on their way to clients, have at most 1/4 of the worker's memory;
 * streams share the rest. */
#define CW_HANDED_OUT_PART 4
