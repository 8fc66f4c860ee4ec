/*
 * A stream on a worker: a pipeline with a seed, whose ranges are run as they are leased. It owns a thread,
 * which opens the data and then is the consumer of the stream's runner. streams.c makes and ends it; the
 * loop's thread and the stream's thread talk through its mailbox.
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
    volatile int interrupt;          /* set by the loop's thread: opening ends */
    _Atomic uint64_t most_positions; /* as in Prepared; set by the stream's thread */

    /* The runner's mutex is never taken with this one held. */
    pthread_mutex_t mutex;
    /* guarded by mutex: */
    int32_t cache_point;      /* as in Prepare */
    struct cw_runner *runner; /* from OPENED to EXITED; the loop's thread may release and query memory */

    /* the loop's thread only: */
    struct cw_command *end; /* END, before it is sent; NULL: from now on the runner may go at any time */
    struct cw_work work;    /* of the runner, when it was queried last: at the latest before END */

    /* the stream's thread only; immutable from OPENED to END, when the loop's thread may read them: */
    struct cw_local local;
    struct cw_origin *origin; /* of a source that one worker runs; else NULL */
    struct cw_leases leases;  /* the loop's thread: kind and n_keys */
    bool ending;
};

/* Starts the thread, which opens the pipeline of m. cache: may be NULL. memory: bytes that it may use.
 * on_answers(arg) is called on the loop's thread when there are answers. */
int cw_stream_new(const struct cw_worker_common *w, struct cw_cache *cache, const Cachew__Prepare *m,
                  size_t memory, void (*on_answers)(void *arg), void *arg, struct cw_stream **ret,
                  struct cw_error *err) _must_check_;

/* ---- the loop's thread ---- */

/* Sends END, once; EXITED follows. */
void cw_stream_end(struct cw_stream *s);
/* After EXITED. Returns NULL. */
struct cw_stream *cw_stream_free(struct cw_stream *s);
/* Sends a copy of a command. Returns false if there is no memory for it. */
bool cw_stream_command(struct cw_stream *s, const struct cw_command *c);
/* Releases a batch that an answer brought. */
void cw_stream_release(struct cw_stream *s, struct cw_batch *b);
/* Returns the bytes that the runner uses. */
size_t cw_stream_memory_used(struct cw_stream *s);
/* Uses a cache point, as in Prepare, from here on; one that does not exist changes nothing. */
void cw_stream_set_cache_point(struct cw_stream *s, int32_t cache_point);
/* As cw_runner_cache_stats of the runner; without one *ret stays as it is. */
void cw_stream_cache_stats(struct cw_stream *s, struct cw_cache_stats *ret);
/* As cw_runner_tuned of the runner, if there is one. */
void cw_stream_tuned(struct cw_stream *s, struct cw_tuned_log *ret);
/* Adds what it has computed so far. */
void cw_stream_add_work(struct cw_stream *s, struct cw_work *sum);
