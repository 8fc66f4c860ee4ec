/*
 * A stream on a worker: a pipeline with a seed, whose ranges are run as they are leased. It has a thread of
 * its own, which opens the data and then is the consumer of the stream's runner (stream.c, serve.c, rows.c).
 * The loop's thread hands it commands, and takes its answers when it is called by its post.
 */
#pragma once
#include <pthread.h>

#include "base/trace.h"
#include "session/local.h"
#include "engine/part.h"
#include "net/loop.h"
#include "proto/cachew.pb-c.h"
#include "service/worker/peer.h"
#include "service/worker/work.h"

/* Of a stream's memory one part in so many is for batches that were taken for one rank while another asked
 * for those behind them. */
#define CW_KEPT_PART 8

/* A Get of a client: batches at .. end - 1 of a range, its elements at .. end - 1 of a key, or its keys from
 * `at` on. */
struct cw_request {
    struct cw_request *next;
    struct cw_peer *peer;
    uint64_t id;       /* of the message */
    uint64_t asked_ns; /* where there is a trace */
    uint64_t epoch, begin;
    Cachew__What what;
    uint32_t key;
    uint64_t at, end;
    struct cw_assembly *part; /* ROWS: the elements, waiting for memory or for map_batches */
};

void cw_request_free(struct cw_request *r);

enum cw_command_kind { CW_DO_LEASE, CW_DO_REVOKE, CW_DO_GET, CW_DO_FORGET_PEER, CW_DO_MEMORY, CW_DO_END };

struct cw_command {
    struct cw_command *next;
    enum cw_command_kind kind;
    uint64_t epoch, begin, end; /* LEASE; REVOKE: all ranges that lie within */
    uint64_t from;              /* LEASE: the first position that is wanted */
    uint64_t lease;             /* LEASE: its number */
    bool whole;                 /* LEASE: it must not be ended early */
    size_t memory;
    struct cw_request *request; /* GET */
    struct cw_peer *peer;       /* FORGET_PEER */
};

enum cw_answer_kind {
    CW_SAY_OPENED,
    CW_SAY_NOT_OPENED, /* the first one; after NOT_OPENED comes EXITED */
    /* to a request */
    CW_SAY_BATCH,
    CW_SAY_PART,
    CW_SAY_KEYS,
    CW_SAY_END,
    CW_SAY_RANGE_FAILED,
    CW_SAY_NOT_HERE,
    CW_SAY_PULLED, /* to Pull */
    CW_SAY_COMPLETED,
    CW_SAY_FAILED, /* the stream: its leases are gone */
    CW_SAY_EXITED, /* the last one: the thread ends */
};

struct cw_answer {
    struct cw_answer *next;
    enum cw_answer_kind kind;
    struct cw_peer *peer;
    uint64_t re, epoch, begin, end;
    /* BATCH: its number, or its first element; PART, KEYS: the first element; RANGE_FAILED: as the request */
    uint64_t at;
    Cachew__What what;  /* RANGE_FAILED */
    uint32_t key;       /* BATCH, PART */
    uint64_t n_batches; /* END, COMPLETED: of a sequential range */
    uint64_t *elements; /* END, COMPLETED: of a placed range, by key */
    size_t n_elements;
    size_t bytes;    /* taken from the peer's room */
    bool handed_out; /* BATCH, PART: the peer's budget of that name has them; else the runner's */
    struct cw_batch *batch;
    struct cw_quarantined *quarantined;
    struct cw_part *rows; /* PART */
    uint8_t *keys;        /* KEYS: `bytes` of them, and in `why` what ended the range */
    uint8_t *pulled;      /* PULLED: `bytes` of them; NULL: `why` */
    bool over;            /* KEYS: there are no more */
    bool last;            /* COMPLETED: as message Completed */
    uint64_t lease;       /* COMPLETED: the number */
    uint64_t asked_ns;    /* BATCH, PART: as the request */
    struct cw_error *why;
};

/* What all streams of a worker have in common; immutable. */
struct cw_stream_options {
    unsigned threads;
    size_t memory; /* of the worker, of which the streams have parts */
    const char *index_dir;
    const char *const *data_roots; /* files elsewhere are refused; none: no file is */
    size_t n_data_roots;
    bool allow_python;
    struct cw_cache *cache; /* or NULL */
    struct cw_trace *trace; /* or NULL */
    uint64_t range_ns;      /* a range that was computed for so long is ended early */
};

struct cw_lease; /* lease.h */

struct cw_stream {
    /* immutable */
    const struct cw_stream_options *options;
    struct cw_loop *loop;
    uint8_t name[16], fingerprint[16];
    uint64_t seed;
    char *text, *base_dir;
    size_t text_size;
    pthread_t thread;
    volatile int interrupt; /* set by the loop's thread: opening ends */

    pthread_mutex_t mutex;
    pthread_cond_t wake;
    /* guarded by mutex: */
    struct cw_command *commands, **commands_tail;
    struct cw_answer *answers, **answers_tail;
    bool woken;
    size_t n_out;        /* batches that the loop's thread has, and will release */
    int32_t cache_point; /* as in Prepare */
    /* from OPENED to EXITED; the loop's thread may release and ask for memory in use */
    struct cw_runner *runner;
    bool over; /* the runner is freed, and this is what it had computed: */
    struct cw_work work;

    /* the loop's thread only: */
    bool end_said;       /* from now on the runner may go at any time */
    struct cw_work seen; /* of the runner, when it was looked at last */

    struct cw_post post;             /* posted when there are answers */
    _Atomic uint64_t most_positions; /* as in Prepared; set by the stream's thread */

    /* the stream's thread only: */
    struct cw_local local;

    /* batches follow from positions; an epoch is one range; rows by key */
    enum { RANGES_COUNTED, RANGES_SEQUENTIAL, RANGES_PLACED } kind;

    unsigned n_keys;
    size_t memory;     /* of the stream; the runner has all but one part in CW_KEPT_PART, which is for: */
    size_t kept_bytes; /* of batches taken from the runner before a client requested them */
    struct cw_lease *leases; /* in the order of (epoch, begin) */
    unsigned n_parts;        /* that requests hold, */
    size_t part_bytes;       /* and the bytes of the last one */
    /* of a source that one worker runs; else NULL. From OPENED on the loop's thread may use it, too */
    struct cw_origin *origin;
    uint64_t completed_ns; /* when a range was completed last */
    /* memory is short for this one: no other begins a part, or a range again */
    const struct cw_request *short_of;
    bool failed; /* the runner is of no use any more */
    bool ending;
};

/* Starts its thread, which opens it; text must be the pipeline that has this fingerprint. memory: bytes that
 * it may use. on_answers(arg) is called on the loop's thread. */
int cw_stream_new(const struct cw_stream_options *o, struct cw_loop *l, const uint8_t name[16],
                  const uint8_t fingerprint[16], const char *text, size_t text_size, const char *base_dir,
                  uint64_t seed, size_t memory, void (*on_answers)(void *arg), void *arg,
                  struct cw_stream **ret, struct cw_error *err) _must_check_;
/* After EXITED. */
struct cw_stream *cw_stream_free(struct cw_stream *s);
/* From the loop's thread. Takes c over; after END nothing but END is done. */
void cw_stream_do(struct cw_stream *s, struct cw_command *c);
void cw_stream_wake(struct cw_stream *s);
/* What the stream said since the last call, in order; the caller frees each with cw_answer_free, after it
 * took batch and rows out of it. */
struct cw_answer *cw_stream_answers(struct cw_stream *s);
void cw_answer_free(struct cw_answer *a);
/* A batch that an answer brought is done with. */
void cw_stream_release(struct cw_stream *s, struct cw_batch *b);
/* Bytes that it uses. */
size_t cw_stream_memory_used(struct cw_stream *s);
/* From here on this cache point is used, as in Prepare; one that there is not changes nothing. */
void cw_stream_set_cache_point(struct cw_stream *s, int32_t cache_point);
/* What there is to decide about cache points, and which one is in use; 0: nothing. The loop's thread. */
unsigned cw_stream_choices(struct cw_stream *s, struct cw_choice ret[CW_CHOICES_MAX],
                           int32_t *ret_cache_point);
int32_t cw_stream_cache_point(int64_t number); /* as in Prepare */
/* cw_runner_tuned of its runner, if it has one. The loop's thread. */
void cw_stream_tuned(struct cw_stream *s, struct cw_tuned_log *ret);
/* Adds what it has computed so far. */
void cw_stream_work(struct cw_stream *s, struct cw_work *sum);

/* ---- between stream.c and leases.c, serve.c and rows.c; the stream's thread only ---- */

/* Queues an answer, which it takes over; NULL (out of memory) fails the stream. */
void cw_stream_say(struct cw_stream *s, struct cw_answer *a);
/* The same to a request that is done with, which it frees. */
void cw_stream_reply(struct cw_stream *s, struct cw_request *r, enum cw_answer_kind kind,
                     const struct cw_error *why);
/* A copy of an error for an answer, with what to change here. NULL: out of memory. */
struct cw_error *cw_stream_why(const struct cw_error *why);
/* The worker can't go on with the stream, for a reason of its own: others run its ranges. */
void cw_stream_fail(struct cw_stream *s, const struct cw_error *why);

/* from: the first position that is wanted; only a counted range may begin there. */
void cw_leases_add(struct cw_stream *s, const struct cw_command *c);
/* All that lie within. */
void cw_leases_revoke(struct cw_stream *s, uint64_t epoch, uint64_t begin, uint64_t end);
/* Everything goes; who asked is told that it is not here. */
void cw_leases_clear(struct cw_stream *s);
void cw_leases_request(struct cw_stream *s, struct cw_request *r);
void cw_leases_forget_peer(struct cw_stream *s, const struct cw_peer *p);
/* Answers what can be answered. Returns whether it did anything: then there may be more. */
bool cw_leases_serve(struct cw_stream *s);
/* Gives back what ranges have in the runner: they are begun again from where they are. */
void cw_leases_set_aside(struct cw_stream *s);
