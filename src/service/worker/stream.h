/* A stream on a worker: a pipeline with a seed, of which the worker computes the ranges that are leased to
 * it. It owns a thread, which opens the data, and then takes batches from the stream's runner. streams.c
 * makes and ends streams. The loop's thread and the stream's thread communicate through the stream's mailbox.
 */
#pragma once
#include "base/tuned.h"
#include "service/worker/common.h"
#include "service/worker/lease.h"
#include "service/worker/work.h"
#include "session/local.h"

struct cw_stream {
    /* immutable */
    const struct cw_worker_options *options;
    struct cw_cache *cache; /* or NULL */
    uint8_t name[16], fingerprint[16];
    char *text, *base_dir; /* of the pipeline */
    pthread_t thread;

    struct cw_mailbox mailbox;
    volatile int interrupt;          /* set by the loop's thread, to interrupt opening */
    _Atomic uint64_t most_positions; /* as in message Prepared; set by the stream's thread */

    /* Lock order: the runner's mutex must not be taken while this one is held. */
    pthread_mutex_t mutex;
    /* guarded by mutex: */
    int32_t cache_point; /* the chosen cache point, numbered as in message Prepare */
    /* set from OPENED to EXITED; the loop's thread may release batches and query memory */
    struct cw_runner *runner;

    /* the loop's thread only: */
    /* the command END, until it is sent; NULL: it was sent, and the runner may be freed at any time */
    struct cw_command *end;
    /* the runner's counters as of the last query, which is just before END at the latest */
    struct cw_work work;

    /* the stream's thread only; immutable from OPENED to END, when the loop's thread may read them: */
    struct cw_local local;
    struct cw_origin *origin; /* if one worker runs the source for all; else NULL */
    struct cw_leases leases;  /* the loop's thread may read kind and n_keys */
    bool ending;
};

/* Makes a stream, and starts its thread, which opens the pipeline of m. cache: may be NULL. memory: bytes
 * that the stream may use. on_answers(arg) is called on the loop's thread when there are answers. */
int cw_stream_new(const struct cw_worker_common *w, struct cw_cache *cache, const Cachew__Prepare *m,
                  size_t memory, void (*on_answers)(void *arg), void *arg, struct cw_stream **ret,
                  struct cw_error *err) _must_check_;

/* ---- the loop's thread ---- */

/* Sends the command END; the answer EXITED follows. Call once. */
void cw_stream_end(struct cw_stream *s);
/* Joins the thread and frees the stream. Call after EXITED. Accepts NULL. Returns NULL. */
struct cw_stream *cw_stream_free(struct cw_stream *s);
/* Queues a copy of a command for the stream's thread. Returns false if memory is short. */
bool cw_stream_command(struct cw_stream *s, const struct cw_command *c);
/* Releases a batch of an answer. */
void cw_stream_release(struct cw_stream *s, struct cw_batch *b);
/* Returns the bytes that the runner uses; 0: there is none. */
size_t cw_stream_memory_used(struct cw_stream *s);
/* Sets the cache point from now on, numbered as in Prepare. A number that does not exist changes nothing. */
void cw_stream_set_cache_point(struct cw_stream *s, int32_t cache_point);
/* Calls cw_runner_cache_stats; if there is no runner, *ret stays as it is. */
void cw_stream_cache_stats(struct cw_stream *s, struct cw_cache_stats *ret);
/* Calls cw_runner_tuned; if there is no runner, *ret stays as it is. */
void cw_stream_tuned(struct cw_stream *s, struct cw_tuned_log *ret);
/* Adds what the stream has computed so far to *sum. */
void cw_stream_add_work(struct cw_stream *s, struct cw_work *sum);
