/*
 * The inside of a worker; the loop's thread only, where nothing else is said. worker.c: its life. control.c:
 * the dispatcher. facts.c: what a stream is made from. heartbeat.c: what the dispatcher is told every second,
 * reports.c: of finished ranges. streams.c: streams, and what they answer. clients.c: connections of clients,
 * and what is sent over them. lent.c: memory that clients have.
 */
#pragma once
#include <pthread.h>

#include "base/list.h"
#include "base/clock.h"
#include "session/caching.h"
#include "net/conn.h"
#include "net/http.h"
#include "service/worker/stream.h"
#include "service/worker/worker.h"

struct worker_stream {
    struct worker_stream *next;
    struct cw_worker *w;
    struct cw_stream *stream;

    enum { STREAM_OPENING, STREAM_READY, STREAM_FAILED, STREAM_ENDING } state;

    uint64_t serial;     /* no other stream of this worker had it */
    uint64_t prepare_id; /* of the Prepare to be answered; 0: none on this connection */
    struct cw_plan plan;
    struct cw_command *end; /* to be said once, which must not fail for want of memory */
    struct lease *leases;   /* granted and not revoked, as the dispatcher will be told */
    size_t n_leases;
    /* by what its runner sets by itself: how often it had been set when the log was told */
    uint64_t n_logged[CW_TUNED_KEPT];
};

struct lease {
    struct lease *next;
    uint64_t epoch, begin, end;
    uint64_t number; /* as Range.lease */
    /* what it gave, which the dispatcher has acknowledged; NULL: it has not, or the range is not finished */
    struct report *report;
};

/* What a range gave. It is in w->reports until it is acknowledged, and then its lease's, to be said again to
 * the next dispatcher: that one may have no journal. */
struct report {
    struct report *next;
    uint8_t stream[16];
    uint64_t epoch, begin, end, n_batches, lease;
    uint64_t *elements;
    size_t n_elements;
    bool last;   /* as message Completed */
    uint64_t id; /* under which it was said on this connection */
};

/* A batch, rows or keys on their way to a client. */
struct sent {
    struct cw_link link; /* of the client, where it was lent */
    struct client *client;
    struct worker_stream *stream; /* of a batch; else NULL */
    struct cw_batch *batch;
    struct cw_part *rows;
    size_t bytes;
    bool handed_out;   /* its bytes are in the worker's budget of that name */
    bool loan;         /* its client has it as shared memory */
    uint64_t slabs[2]; /* loan: ids by which the client returns them; 0: returned */
};

struct region {
    struct region *next;
    uint64_t stream; /* serial */
    int fd;          /* the slab pool's */
    uint64_t id;
};

struct client {
    struct cw_peer peer; /* first: it frees the whole */
    struct client *next;
    struct cw_worker *w;
    struct cw_conn *conn;           /* NULL: it ended */
    bool closing;                   /* nothing more is sent */
    bool keeps;                     /* it named slabs of an earlier connection */
    uint8_t incarnation[16];        /* of the client */
    int process;                    /* it: readable when it ends; -1: can't be watched */
    struct cw_watch *process_watch; /* departed: of process */
    struct cw_link lent;            /* oldest first: */
    size_t n_loans, loan_bytes;
    struct region *regions; /* said to it */
};

struct cw_worker {
    /* immutable */
    struct cw_worker_options options; /* with own copies of what it points to */
    struct cw_stream_options stream_options;
    uint8_t incarnation[16];
    char host[80];
    struct cw_loop *loop;
    pthread_t thread;
    struct cw_listener *tcp, *local;
    char *unix_path, *unix_dir; /* unix_dir: ours, to be removed; or NULL */
    int unix_dir_lock;
    struct cw_post drain_post, stop_post, changed_post;
    struct cw_http *http;   /* or NULL */
    struct cw_cache *cache; /* of all streams, or NULL */
    uint64_t started_ns;

    /* the loop's thread only */
    struct cw_conn *dispatcher;
    bool registered, draining, stopping, refused;
    char why[400]; /* it is not registered */
    uint64_t id, next_id, backoff_ns, register_id;
    struct cw_timer *reconnect, *heartbeat, *stop_timer;
    uint32_t jitter;
    struct worker_stream *streams;
    size_t n_streams_using;      /* that share the memory, as it was divided last */
    struct cw_budget handed_out; /* of batches that clients have, or that are on their way to them */
    struct client *clients;
    struct client *departed; /* without a connection, but with batches that their processes may still read */
    struct report *reports, **reports_tail;
    uint64_t next_serial, next_slab, next_region;
    size_t n_out;
    uint64_t n_batches, n_bytes, wire_bytes; /* wire_bytes: over connections that ended */
    uint64_t n_skipped, n_replaced;          /* records of what was given to clients */
    bool said_copies;                        /* that batches can't be lent */
    struct cw_refusals refusals;
    struct cw_work work;          /* of streams that are over */
    struct cw_write_rate written; /* to the cache */

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct cw_worker_status status; /* guarded by mutex: as of the last change */
};

#define CW_HANDED_OUT_PART 4 /* `handed_out` is 1/CW_HANDED_OUT_PART of the worker's memory */

/* Ids of requests and slabs: not 0, and below 2^63. */
static inline uint64_t next_number(uint64_t *n)
{
    return ++*n;
}

/* ---- worker.c ---- */
void cw_worker_log(struct cw_worker *w, const char *format, ...) _printf_(2, 3);
/* Something in the status may have changed, or who shares the memory: once the messages at hand are dealt
 * with, the status is looked at, once for all of them, and who waits for it looks again. */
void cw_worker_changed(struct cw_worker *w);
/* The status is what it is now. */
void cw_worker_look(struct cw_worker *w);
/* Stopping: the loop ends once nothing is left. */
void cw_worker_maybe_over(struct cw_worker *w);

/* ---- control.c ---- */
int cw_control_init(struct cw_worker *w, struct cw_error *err) _must_check_;
void cw_control_deinit(struct cw_worker *w);
void cw_control_start(struct cw_worker *w);
void cw_control_connect(struct cw_worker *w);
void cw_control_drain(struct cw_worker *w);
void cw_control_close(struct cw_worker *w);
void cw_control_cut(struct cw_worker *w); /* as cw_clients_cut */
uint64_t cw_control_cpu_ns(void);         /* of this process so far */
/* Said to the dispatcher, if it is there. */
void cw_control_prepared(struct cw_worker *w, struct worker_stream *s);
void cw_control_prepare_failed(struct cw_worker *w, struct worker_stream *s, const struct cw_error *why);
void cw_control_stream_failed(struct cw_worker *w, ProtobufCBinaryData stream, const struct cw_error *why);
void cw_control_say(struct cw_worker *w, const Cachew__Envelope *m);

/* ---- heartbeat.c ---- */
int cw_heartbeat_init(struct cw_worker *w, struct cw_error *err) _must_check_;
void cw_heartbeat_start(struct cw_worker *w);

/* ---- tuning.c ---- */
void cw_tuning_log(struct cw_worker *w); /* what is new */
/* {"streams": [{"stream", "tuning"}], "clients": [{"client", "tuning"}]}; NULL: out of memory */
json_t *cw_tuning_status(const struct cw_worker *w);

/* ---- facts.c ---- */
/* What a stream that is ready says: *m and *plan, and what they point to, until the result is freed. NULL:
 * out of memory, and its files are not named. */
void *cw_facts_prepared(const struct worker_stream *s, Cachew__Prepared *m, Cachew__Plan *plan);

/* ---- reports.c ---- */
void cw_reports_init(struct cw_worker *w);
void cw_reports_deinit(struct cw_worker *w);
void cw_report_free(struct report *r);
/* A range is finished. Takes the counts of elements over. */
void cw_reports_completed(struct cw_worker *w, struct worker_stream *s, struct cw_answer *a);
/* done: acknowledged; else refused: the dispatcher knows the stream no more. */
void cw_reports_answered(struct cw_worker *w, uint64_t id, bool done);
void cw_reports_forget(struct cw_worker *w, ProtobufCBinaryData stream);
void cw_reports_say(struct cw_worker *w); /* all of them, on a new connection */

/* ---- streams.c ---- */
/* one that has not ended; NULL: none */
struct worker_stream *cw_streams_find(struct cw_worker *w, ProtobufCBinaryData name);
/* NULL: it has none that begins there */
struct lease *cw_streams_find_lease(struct worker_stream *s, uint64_t epoch, uint64_t begin);
int cw_streams_prepare(struct cw_worker *w, uint64_t id, const Cachew__Prepare *m,
                       struct cw_error *err) _must_check_;
int cw_streams_lease(struct cw_worker *w, const Cachew__Leases *m, struct cw_error *err) _must_check_;
int cw_streams_revoke(struct cw_worker *w, const Cachew__Revoke *m, struct cw_error *err) _must_check_;
void cw_streams_caching(struct cw_worker *w, const Cachew__Caching *m);
void cw_streams_end(struct cw_worker *w, struct worker_stream *s);
/* Sends a command; c NULL: there is no memory for it, and the stream ends. */
void cw_streams_do(struct worker_stream *s, struct cw_command *c);
void cw_streams_wake(struct cw_worker *w);
/* Divides the memory among streams anew, if there are more of them or fewer than there were. Many that come
 * or go together are one change. */
void cw_streams_settle(struct cw_worker *w);
/* Ranges that a worker wants to have at a time: some to compute, and some that are fetched meanwhile. */
uint32_t cw_streams_capacity(const struct worker_stream *s);

/* ---- clients.c ---- */
int cw_clients_listen(struct cw_worker *w, struct cw_error *err) _must_check_;
void cw_clients_close(struct cw_worker *w);
/* Bytes of payloads, as they went over connections. */
uint64_t cw_clients_wire_bytes(const struct cw_worker *w);
/* Those that do not close when they are told to. */
void cw_clients_cut(struct cw_worker *w);
/* A batch, rows or keys were sent, or the batch came back: arg is a struct sent, which it frees. */
void cw_sent_free(void *arg);
/* Sends a message; x, which it takes over, is done with when that was sent. fds are duplicated. */
int cw_client_send(struct client *c, const Cachew__Envelope *m, const struct iovec *pieces, size_t n,
                   struct sent *x, const int *fds, size_t n_fds, struct cw_error *err) _must_check_;
/* Sends what a stream said to a client, if it is still there. */
void cw_clients_answer(struct worker_stream *s, struct cw_answer *a);
