/*
 * The state of the dispatcher, and what its files offer each other. Who belongs to whom:
 *
 *   dispatcher -- workers -- assignments -- streams -- jobs -- ranks -- (client) peer
 *              \    |                   |         |
 *               \ peer                ranges    scaling (scaling.h)
 *                pools -- (provisioner) peer
 *
 * A assignment is a worker's part in a stream; with a policy, a stream has assignments only at the workers of
 * its worker set, and at those that have not given back everything. A range knows the assignments that hold
 * it. Positions are counted through the epochs: epoch * N + position in the epoch, where an epoch has N
 * positions. References: what a journal entry that is under way names (peer, stream, job) is kept until it is
 * durable; all else is freed with its owner.
 */
#pragma once
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "base/patience.h"
#include "service/dispatcher/computed.h"
#include "service/dispatcher/core.h"
#include "service/dispatcher/history.h"
#include "service/dispatcher/scaling.h"
#include "net/envelope.h"
#include "net/limits.h"
#include "proto/journal.pb-c.h"

/* ---- limits on what peers can make us hold ---- */

#define DP_PEERS 65536
#define DP_WORKERS 10000
#define DP_STREAMS 10000
#define DP_WARM_STREAMS 16 /* of jobs without a client that are kept ready */
#define DP_JOBS 10000
#define DP_JOBS_OVER 1000                /* finished ones that are listed */
#define DP_RANKS ((uint32_t)1 << 20)     /* of a job, and ranks known of all jobs together */
#define DP_ASSIGNMENTS ((size_t)1 << 22) /* workers times streams */
#define DP_FINISHED 4096                 /* ranks of a job that are written down as finished */
#define DP_NAME 255                      /* bytes of a job's name */
#define DP_PATH 4096                     /* bytes of a base directory, a socket's path */
#define DP_ADDRESSES 16                  /* of a worker */
#define DP_ADDRESS 300
#define DP_PIPELINES ((size_t)1 << 30) /* bytes of all together; of one: CW_PIPELINE_BYTES */
#define DP_FILES 4096                  /* named in Prepared */
#define DP_KEYS 65536                  /* of a report */
#define DP_CAPACITY 1024               /* ranges leased to a worker at a time */
#define DP_HELD 16384                  /* ranges of a stream in Holdings */
#define DP_RANGES ((size_t)1 << 20)    /* of a stream, that are known at a time */
#define DP_PENDING ((size_t)1 << 20)   /* entries that wait for the journal, and ... */
#define DP_PENDING_BYTES ((size_t)256 << 20)
#define DP_WAITING ((size_t)64 << 20) /* bytes of attachments that wait for a job's ranks to be gone */
#define DP_ENDLESS ((uint64_t)1 << 62)

/* ---- times ---- */

#define DP_S UINT64_C(1000000000)
#define DP_GRACE (2 * DP_S)     /* after a restart: for workers to come back with what they hold */
#define DP_ASK_MORE (10 * DP_S) /* a worker that takes so long to open the data is not waited for alone */
#define DP_DRAIN (10 * DP_S)    /* finished ranges stay with a worker that leaves for so long */
#define DP_SHUN (30 * DP_S) /* a worker that a client can't reach gets nothing of that stream for so long */
#define DP_WARM (30 * DP_S) /* a stream without clients is kept ready for so long */
#define DP_BACK \
    (5 * DP_S) /* a client whose connection was lost, or the dispatcher's, is there again by then */
#define DP_ABANDONED (3600 * DP_S) /* a job without clients is collected */
#define DP_LISTED (3600 * DP_S)    /* a job that is over is listed */
#define DP_GONE (600 * DP_S)       /* a worker that is gone keeps its id, if it comes back */
#define DP_SILENT \
    (cw_patience_silence_ns() + DP_S) /* a rank that is there says something each second, and one that is \
                                         not is noticed within the timeout of its connection */
#define DP_MISSING \
    (5 * DP_S) /* ranks that a dispatcher does not know of, of a job that is older than itself: they may \
                  have finished */
#define DP_LATE DP_S /* ns after its lease at which a range is late while no rate is known; else ... */
#define DP_LATE_MORE (3 * DP_S / 10) /* ... when it takes so much longer than expected, ... */
#define DP_LATE_TIMES 2              /* ... and so many times as long */
#define DP_DEPTH \
    2 /* ranges that a worker has at a time to begin with: one that it computes, one that is next */
#define DP_DEPTH_S \
    0.05 /* more ranges at a time where they take less than this together: the way to and fro takes time */
#define DP_MEASURED 16 /* completions that the rate of a stream is measured by: the last ones */

struct cw_peer {
    struct cw_link link;
    void *user;
    Cachew__Role role;
    char *name, *host;
    uint8_t incarnation[16];
    bool gone, closing;
    unsigned refs;
    struct worker *worker;
    struct rank *rank;
    struct pool *pool;
    Cachew__Attach *waiting; /* it differs from a job whose ranks may be gone; NULL: none */
    uint64_t waiting_id, waiting_since_ns;
    /* how long it has waited until then; a step in which the dispatcher stood still counts as DP_S at most */
    uint64_t waited_ns, waited_at_ns;
    size_t waiting_bytes;
};

/* What a worker says of its cache as a whole. */
struct worker_cache {
    uint64_t hits, misses, used, bad, late, refused, skipped;
    double read_bytes_per_s, write_bytes_per_s, bound; /* bound: bytes; 0: it has no cache */
};

struct worker {
    struct cw_map_node by_id, by_incarnation;
    struct cw_link link;
    uint64_t id;
    uint8_t incarnation[16];
    struct cw_peer *peer; /* NULL: gone */
    char *name, *host, *unix_path, *http, *pool;
    char **addresses;
    size_t n_addresses;
    uint32_t pid, cpu_budget;
    /* that it may have at a time (0: any number); that it has, or was asked to prepare */
    uint32_t max_streams, n_streams;
    size_t asked_bytes;   /* of the pipelines that it was asked to prepare and has not answered for */
    bool turned_away;     /* a pipeline waits until there are fewer of them */
    bool short_of_memory; /* one stream more did not fit beside those that it has */
    uint64_t memory;
    uint64_t cpu_ns, memory_bytes, n_batches, n_bytes; /* as its heartbeats say */

    /* one of them, and since then, per second: */
    struct rated {
        uint64_t at_ns, cpu_ns, n_batches, n_bytes, cache_hits, cache_misses;
    } rated;

    double cpus, batches_per_s, bytes_per_s, cache_hits_per_s;
    /* of the elements that it looked for in its cache since then, those that it read; NAN: there were none */
    double cache_part;
    struct worker_cache cache;
    bool awaited; /* known before a restart, and not back yet */
    bool ready;   /* told its id: it may be asked for things */
    /* another connection of a worker that was not lost: its Holdings tell what of its leases is left */
    bool kept;
    bool draining, released; /* released: it was told to drain; else it says so itself, and ends by itself */
    uint64_t since_ns;       /* of being gone, or draining */
    uint64_t last_request;
    struct assignment *here; /* while a stream's workers are gone through: its assignment */
    struct cw_link assignments;
    size_t n_held, n_worker_sets; /* n_worker_sets: streams that it serves */
    int slot;                     /* of its pool (scaling.h) */
};

enum assignment_state { ASSIGNMENT_IDLE, ASSIGNMENT_ASKED, ASSIGNMENT_READY, ASSIGNMENT_UNFIT };

struct span {
    uint64_t begin, end;
};

#define ASSIGNMENT_SPANS 64

struct assignment {
    struct cw_link by_worker, by_stream, dirty;
    struct worker *worker;
    struct stream *stream;
    enum assignment_state state;
    uint64_t request; /* of Prepare */
    char *why;        /* unfit */
    uint32_t capacity, n_held, n_complete;
    uint64_t most_positions; /* of a range, by the worker's memory; UINT64_MAX: any number */
    uint64_t to_compute;     /* positions of the ranges that it holds and that are not complete */
    uint64_t completed_ns;   /* when its last completion came */
    size_t heap_at;          /* 0: not among those that get leases; else place + 1 */
    uint64_t shunned_until;  /* 0: not */
    bool failed;             /* unfit: it was ready, and could not go on for a reason of its own */
    bool granted; /* its worker is of the stream's worker set: it may get leases. Without a policy all are */
    struct work work, worked;       /* worked: when the policy was asked last */
    struct computed_seen *computed; /* NULL: it said nothing yet */
    struct caching *caching;        /* NULL: there is nothing to decide */
    bool named;                     /* in Holdings, since its worker's connection changed */
    bool new_origin;                /* the stream has another one, which the worker is to learn of */
    bool beside;                    /* it was asked for while its worker had others */
    bool announced;                 /* the clients of the stream know where the worker is */
    uint64_t order;                 /* among assignments with equal room; differs from stream to stream */
    uint32_t most;                  /* capacity that it ever had */
    uint64_t *out; /* where the ranges begin whose leases are to be sent: room for most + 2 */
    size_t n_out;
    struct span revoke[ASSIGNMENT_SPANS]; /* to be sent */
    size_t n_revoke;
};

enum range_flag {
    RANGE_REPORTED = 1,  /* what it gives is known ... */
    RANGE_DURABLE = 2,   /* ... and written down */
    RANGE_LOST = 4,      /* at-most-once: it will not be run again */
    RANGE_ANNOUNCE = 8,  /* its place changed in this turn */
    RANGE_UNSENT = 16,   /* at-most-once: its lease is being written down */
    RANGE_COMPLETE = 32, /* the first holder is through */
    RANGE_GIVEN = 64,    /* at-most-once: somebody had it before a restart */
    RANGE_HELD = 128,    /* its holder had it before this dispatcher knew: when it began is not known */
};

/* Positions begin .. end - 1, all of one epoch. */
struct range {
    uint64_t begin, end;
    uint64_t number; /* no other range of the stream ever had it */

    struct holder {
        struct assignment *assignment;
        uint64_t lease; /* its number */
    } holder[2];        /* [0] is what clients are told; [1] the one before, if it was late */

    uint64_t leased_ns;
    uint64_t before;    /* positions that the holder had to compute before it, when it was leased */
    uint64_t n_batches; /* of a sequential stream */
    uint64_t *elements; /* that it leaves, by key; none where the last are 0 */
    uint64_t reporter;  /* the worker that said so first */
    uint32_t n_elements;
    uint8_t flags;
};

struct pipeline {
    struct cw_map_node node;
    uint8_t fingerprint[16];
    char *json;
    size_t size;
    unsigned refs;
    bool journalled;
};

struct stream {
    struct cw_map_node node; /* by id */
    struct cw_link link, dirty;
    uint8_t id[16];
    uint64_t number;
    struct pipeline *pipeline;
    uint64_t seed;
    char *base_dir;
    Cachew__Prepared *data; /* as the first worker saw it; NULL: none has yet */
    bool at_most_once, journalled, dead;
    bool restored;       /* from the journal: no leases within the grace */
    bool damaged;        /* at-most-once: the journal does not know any more what was given out */
    int32_t cache_point; /* that was decided on, as in Prepare; 0: none was */
    bool parked;         /* its jobs were left: no worker has anything of it until a client comes back */
    uint64_t asked_ns;   /* when the last worker was asked first */
    bool wants;          /* a worker that might serve it has as many streams as it may have */
    uint64_t idle_ns;    /* since when it has no job */
    unsigned refs;
    struct cw_link jobs, assignments;
    size_t n_assignments, n_ready;
    uint64_t n_joined; /* worker set members that there ever were */
    /* the worker that reads its iterable, of a plan with `origin`; NULL: not chosen yet */
    struct assignment *origin;
    struct assignment **heap; /* those that may get leases, most room first */
    size_t n_heap, heap_capacity;
    size_t n_shunned;
    struct range *ranges; /* by begin, n_ranges of them from `first` on; between them there may be gaps */
    size_t first, n_ranges, room;
    uint64_t numbers;        /* of ranges, given so far */
    uint64_t base;           /* ranges that end before it, or there, are gone */
    bool based;              /* base means something */
    bool marked;             /* base is the low-water mark: before it nobody wants any */
    uint64_t total;          /* positions that its jobs want */
    uint64_t free_from;      /* before it every wanted position is in a range that has a holder */
    uint64_t begun_to;       /* no rank began behind it */
    uint64_t most_positions; /* of a range, by the memory of ready workers; 0: to be found again */
    size_t n_passed;         /* ranges whose rows may still be in the journal */

    /* the last completions; ns: of a worker's time */
    struct measured {
        uint64_t positions, ns;
    } measured[DP_MEASURED];

    uint64_t n_measured;
    double rate;    /* positions that a worker runs per second; 0: not known yet */
    uint32_t depth; /* ranges that a worker has to compute at a time, at most its capacity */
    uint64_t n_completed;
    struct computed computed; /* by its workers, those that are gone too */
    bool reports_came, announce;
    uint64_t announce_first, announce_end;
    uint64_t told_ns; /* when clients were told last */
};

enum job_state { JOB_WAITING, JOB_RUNNING, JOB_DONE, JOB_CANCELLED, JOB_FAILED };

struct job {
    struct cw_map_node node;
    struct cw_link link, by_stream;
    char *name;
    struct stream *stream; /* NULL: over */
    uint8_t stream_id[16], fingerprint[16];
    uint64_t seed, epochs;
    uint32_t world_size;
    Cachew__Order order;
    Cachew__Guarantee guarantee;
    enum job_state state;
    char *why;
    bool paused, durable, dead;
    bool lost;              /* failed since the journal was damaged: with at-most-once it can't go on */
    bool left;              /* its last client said that it goes; else the connection was lost */
    unsigned refs, writing; /* journal entries of it under way */
    struct rank **ranks;    /* those ever attached, by number */
    size_t n_ranks, ranks_room, n_finished, n_attached;
    uint64_t first_from; /* where the first rank began: ranks that were not here yet begin there, ... */
    /* ... if the job is not older than this dispatcher: then, since when it is here; else 0 */
    uint64_t resumed_ns;
    bool missing_over;   /* and nobody waits for them any more */
    Cachew__Place round; /* where rounds begin: epoch, and g in `batch` */
    bool round_known;
    bool began;
    uint64_t mark;     /* least position of its ranks */
    size_t n_at_mark;  /* how many are there; 0: to be found again */
    uint64_t since_ns; /* without clients, or over */
    struct scaling scaling;
    struct point now;        /* the last one */
    struct history *history; /* NULL: none yet, or there are too many */

    /* at its stream's `computed`, at the last point */
    struct {
        double compute_s, positions, cached;
    } looked;
};

struct rank {
    struct job *job;
    uint32_t number;
    struct cw_peer *client; /* NULL: not attached */
    uint64_t attach_id;     /* of the Attach to be answered; 0: answered */
    Cachew__Place from;     /* cursor */
    uint64_t snapshot;      /* that its state had; 0: none */
    uint64_t pos, began_at; /* its cursor; where it began when it attached */
    uint64_t next_report;   /* position: reports of ranges before it were sent */

    /* as it said last */
    struct progress {
        uint64_t n_batches, n_lost, wait_ns, g, digest_lo, digest_hi;
    } progress;
    struct pace pace, paced; /* paced: when the policy was asked last */
    bool paces;              /* it said so since it attached: before, what its process did is not known */
    bool waits;              /* for something, when it said something last */
    struct pace looked;      /* when the last point was taken */
    uint64_t looked_batches;
    float waited;      /* part of the time between the last two points; NAN: not known */
    double would_take; /* batches per second, if it did not wait, by the last steps that are known; 0: none */
    uint64_t heard_ns; /* when it said something last */
    uint8_t incarnation[16]; /* of the last client */
    bool began, finished, greeted;
    bool leaves;         /* it said so */
    char took_over[200]; /* whose place it took, for its greeting; "": nobody's */
    uint64_t held;       /* hash of what it was told that keeps it; 0: nothing */
};

/* ---- the journal ---- */

enum action_kind { ACTION_NONE, ACTION_DONE, ACTION_REGISTERED, ACTION_REPORT, ACTION_JOB, ACTION_LEASE };

struct action { /* what follows once an entry is durable */
    enum action_kind kind;
    struct cw_peer *peer;
    uint64_t re;

    struct {
        uint64_t begin, number;
    } range;
    struct stream *stream;
    struct job *job;
};

struct entries {
    struct cw_store_batch batch;
    struct action *actions;
    size_t n, capacity;
};

struct cw_dispatcher {
    struct cw_dispatcher_io io;
    char *name, *software;
    uint32_t pid;
    bool share_streams, started;
    uint32_t depth; /* of new streams */
    uint64_t now_ns, start_ns;
    uint64_t grace_until_ns; /* 0: over */
    struct cw_link peers, workers, streams, jobs, dirty_streams, dirty_assignments;
    struct cw_map workers_by_id, workers_by_incarnation, streams_by_id, jobs_by_name, pipelines;
    size_t n_peers, n_workers, n_awaited, n_streams, n_jobs, n_over, n_ranks, n_assignments, pipeline_bytes,
        waiting_bytes;
    uint64_t worker_ids, stream_numbers;
    /* number; begins with the time, so that it differs from those of an earlier dispatcher, which workers may
     * still name */
    uint64_t last_lease;
    struct entries pending, flight;
    bool in_flight;
    bool room;             /* a worker may have a stream more than a moment ago */
    uint64_t slow_tick_ns; /* when what may wait a second was looked after last */
    uint64_t retry_ns;     /* when what could not be written is tried again; 0: all is well */
    struct cw_error journal_error;
    /* Entries of the journal were left out when it was read, in this or an earlier start: until DP_LISTED
     * after the start, a job that is not known may be one of them. */
    bool damaged;
    bool ranges_lost;  /* in this start, entries of ranges or floors of any stream */
    bool numbers_lost; /* in this start, the numbers that were given last */
    uint64_t n_leased, n_completed, n_late, n_moved, n_lost;
    uint64_t commit_began_ns, commit_ns, n_commits, n_commit_failures;
    uint64_t n_workers_lost; /* without having said that they leave */
    struct pace paces;       /* of all ranks there ever were, as far as they told of it: n, step_s, wait_s */
    uint64_t looked_ns;      /* when points were taken last */
    size_t n_histories;
    double waited_most; /* of all ranks, at the last point */
    /* scaling; without a policy nothing of it is used */
    bool scales, worker_sets_due;
    struct cw_policy policy;
    enum cw_objective objective;
    double client_price_per_h, worker_price_per_h;
    struct cw_link pools;
    uint64_t busy_ns; /* when there was a job last */
    /* serial: one more with each change of what shares follow from */
    uint64_t n_decisions, claims_hash, claims_serial;
    uint64_t n_cache_moves; /* decisions by which something is cached elsewhere */
    uint64_t supply_serial; /* one more whenever there may be more workers than before */
};

/* core.c */
void cw_dp_send(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m);
/* The same to n peers. */
void cw_dp_send_all(struct cw_dispatcher *d, struct cw_peer *const *peers, size_t n,
                    const Cachew__Envelope *m);
void cw_dp_done(struct cw_dispatcher *d, struct cw_peer *p, uint64_t re);
void cw_dp_fail(struct cw_dispatcher *d, struct cw_peer *p, uint64_t re, const struct cw_error *why);
void cw_dp_close(struct cw_dispatcher *d, struct cw_peer *p, const struct cw_error *why);
void cw_dp_log(struct cw_dispatcher *d, bool warning, const char *fmt, ...) _printf_(3, 4);
struct cw_peer *cw_dp_peer_unref(struct cw_peer *p);
char *cw_dp_hex(const uint8_t id[16], char ret[33]);
bool cw_dp_grace(const struct cw_dispatcher *d, const struct stream *s);

/* journal.c: each adds to the batch that is committed next. An action is carried out when it is durable. < 0:
 * nothing was added. */
int cw_dp_journal_counters(struct cw_dispatcher *d, struct cw_error *err) _must_check_;
int cw_dp_journal_worker(struct cw_dispatcher *d, const struct worker *w, const struct action *then,
                         struct cw_error *err) _must_check_;
int cw_dp_journal_worker_gone(struct cw_dispatcher *d, const struct worker *w,
                              struct cw_error *err) _must_check_;
/* and its pipeline */
int cw_dp_journal_stream(struct cw_dispatcher *d, struct stream *s, struct cw_error *err) _must_check_;
/* with all that it has, but its pipeline */
int cw_dp_journal_stream_gone(struct cw_dispatcher *d, struct stream *s, struct cw_error *err) _must_check_;
int cw_dp_journal_pipeline_gone(struct cw_dispatcher *d, const struct pipeline *p,
                                struct cw_error *err) _must_check_;
int cw_dp_journal_job(struct cw_dispatcher *d, const struct job *j, const struct action *then,
                      struct cw_error *err) _must_check_;
int cw_dp_journal_job_gone(struct cw_dispatcher *d, const struct job *j, struct cw_error *err) _must_check_;
/* The action gets the stream and the range. */
int cw_dp_journal_range(struct cw_dispatcher *d, struct stream *s, const struct range *x,
                        enum action_kind then, struct cw_error *err) _must_check_;
int cw_dp_journal_range_gone(struct cw_dispatcher *d, const struct stream *s, uint64_t begin,
                             struct cw_error *err) _must_check_;
/* Rows of ranges that begin before `upto`. */
int cw_dp_journal_purge(struct cw_dispatcher *d, struct stream *s, uint64_t upto,
                        struct cw_error *err) _must_check_;
/* when all so far is durable */
int cw_dp_journal_then(struct cw_dispatcher *d, const struct action *then, struct cw_error *err) _must_check_;
/* For entries whose lack does no harm: after a restart, what they say is found out again. */
void cw_dp_journal_tried(struct cw_dispatcher *d, int result);
void cw_dp_journal_commit(struct cw_dispatcher *d);
void cw_dp_journal_loaded(struct cw_dispatcher *d); /* all of it was read */
void cw_dp_journal_deinit(struct cw_dispatcher *d);

/* workers.c */
int cw_dp_worker_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                         struct cw_error *err) _must_check_;
void cw_dp_worker_lost(struct cw_dispatcher *d, struct worker *w);
void cw_dp_worker_registered(struct cw_dispatcher *d, struct cw_peer *p, uint64_t re);
void cw_dp_worker_drain(struct cw_dispatcher *d, struct worker *w, bool tell);
void cw_dp_worker_tick(struct cw_dispatcher *d);
struct worker *cw_dp_worker_free(struct cw_dispatcher *d, struct worker *w);
struct worker *cw_dp_worker_find(struct cw_dispatcher *d, uint64_t id);
int cw_dp_worker_restore(struct cw_dispatcher *d, const Cachew__Journal__Worker *row,
                         struct cw_error *err) _must_check_;

/* assignments.c: what a worker has to do with a stream */
void cw_dp_assignment_ask(struct cw_dispatcher *d, struct stream *s); /* Prepare, to whom it may concern */
/* The same for all streams, or those that wait until a worker may have one more: first those that nobody has,
 * the oldest first. */
void cw_dp_assignment_ask_all(struct cw_dispatcher *d, bool waiting);
/* If there is room since the last time, who waits for it is asked for, before anybody else is. */
void cw_dp_assignment_room(struct cw_dispatcher *d);
/* The worker has nothing of the stream any more. */
int cw_dp_assignment_failed(struct cw_dispatcher *d, struct worker *w, const Cachew__StreamFailed *m,
                            struct cw_error *err) _must_check_;
int cw_dp_assignment_answer(struct cw_dispatcher *d, struct worker *w, uint64_t re, const Cachew__Envelope *m,
                            struct cw_error *err) _must_check_;
int cw_dp_assignment_prepared(struct cw_dispatcher *d, struct assignment *t, const Cachew__Prepared *p,
                              struct cw_error *err) _must_check_;
struct assignment *cw_dp_assignment_find(struct worker *w, const struct stream *s);
struct assignment *cw_dp_assignment_new(struct cw_dispatcher *d, struct worker *w, struct stream *s);
struct assignment *cw_dp_assignment_free(struct cw_dispatcher *d, struct assignment *t);
/* frees it, and the worker is told to forget the stream */
struct assignment *cw_dp_assignment_forget(struct cw_dispatcher *d, struct assignment *t);
void cw_dp_assignment_dirty(struct cw_dispatcher *d, struct assignment *t);
/* Of all ranges within these positions: they are revoked; leases that are not sent yet are not sent. */
void cw_dp_assignment_revoke(struct cw_dispatcher *d, struct assignment *t, uint64_t begin, uint64_t end);
void cw_dp_assignment_unsend(struct assignment *t, uint64_t begin, uint64_t end);
void cw_dp_assignment_usable(struct cw_dispatcher *d,
                             struct assignment *t); /* its place in the heap, after any change */
void cw_dp_assignment_shun(struct cw_dispatcher *d, struct assignment *t);
void cw_dp_assignment_unshun(struct cw_dispatcher *d, struct stream *s, bool all);
void cw_dp_assignment_flush(struct cw_dispatcher *d);

/* streams.c */
struct stream *cw_dp_stream_find(struct cw_dispatcher *d, const uint8_t id[16]);
int cw_dp_stream_get(struct cw_dispatcher *d, const Cachew__Attach *a, struct stream **ret,
                     struct cw_error *err) _must_check_;
int cw_dp_stream_restore(struct cw_dispatcher *d, const uint8_t id[16], const Cachew__Journal__Stream *row,
                         struct cw_error *err) _must_check_;
int cw_dp_pipeline_get(struct cw_dispatcher *d, const uint8_t fingerprint[16], const char *json,
                       struct pipeline **ret, struct cw_error *err) _must_check_;
void cw_dp_stream_dirty(struct cw_dispatcher *d, struct stream *s);
/* There may be reports that a rank was not told, since what it had to wait for came, was lost or is passed.
 */
void cw_dp_stream_reports(struct cw_dispatcher *d, struct stream *s);
int cw_dp_stream_ready(struct cw_dispatcher *d, struct stream *s, const Cachew__Prepared *p,
                       struct cw_error *err) _must_check_;
/* Fills *ret with the reasons of all workers that can't serve the stream. `why`: the last of them, which
 * gives the kind. */
void cw_dp_assignment_reasons(const struct cw_dispatcher *d, const struct stream *s,
                              const Cachew__Failure *why, struct cw_error *ret);
/* A worker failed to prepare it: another is asked. If there is none that could, who waits is told why. */
void cw_dp_stream_unfit(struct cw_dispatcher *d, struct stream *s, const Cachew__Failure *why);
void cw_dp_stream_total(struct stream *s);
/* the low-water mark, and what it revokes */
void cw_dp_stream_mark(struct cw_dispatcher *d, struct stream *s);
void cw_dp_pipelines_loaded(struct cw_dispatcher *d); /* those that no stream has are dropped */
void cw_dp_stream_free(struct cw_dispatcher *d, struct stream *s);
uint64_t cw_dp_job_total(const struct stream *s, uint64_t epochs); /* positions of so many epochs */
bool cw_dp_stream_attended(const struct stream *s);                /* a job of it has a client */
void cw_dp_stream_idle(struct cw_dispatcher *d, struct stream *s); /* its last job left */
void cw_dp_stream_forget(struct cw_dispatcher *d, struct stream *s);
struct stream *cw_dp_stream_unref(struct stream *s);
void cw_dp_stream_tick(struct cw_dispatcher *d);
/* Positions that an epoch has room for, in positions of the stream, which count through its epochs. */
uint64_t cw_dp_stream_epoch(const struct stream *s);
/* *ret: the position, counted through the epochs. CW_E_OPTION: the plan does not have it. */
int cw_dp_stream_position(const struct stream *s, const Cachew__Place *at, uint64_t *ret,
                          struct cw_error *err) _must_check_;
/* *ret: the range's positions, counted through the epochs. CW_E_SERVICE: the plan has no such range. */
int cw_dp_stream_span(const struct stream *s, uint64_t epoch, uint64_t begin, uint64_t end, struct span *ret,
                      struct cw_error *err) _must_check_;
void cw_dp_stream_place(const struct stream *s, uint64_t pos, uint64_t *epoch, uint64_t *position);
bool cw_dp_stream_counted(const struct stream *s); /* batches follow from positions, and the order is exact */
/* they follow from the elements before them, and the order is exact */
bool cw_dp_stream_placed(const struct stream *s);
/* Returns what ranges' bounds are multiples of, in positions of their epoch; the epoch's end is a bound, too.
 */
uint64_t cw_dp_stream_align(const struct stream *s);

/* ranges.c: the table of a stream's ranges. Pointers to ranges are valid until one is added or removed. */
struct range *cw_dp_range_at(const struct stream *s, size_t i);  /* NULL: there are no more */
size_t cw_dp_range_index(const struct stream *s, uint64_t pos);  /* of the first range that ends behind pos */
struct range *cw_dp_range(const struct stream *s, uint64_t pos); /* that has the position; NULL: none does */
/* NULL: no memory or room, or it overlaps others */
struct range *cw_dp_range_add(struct stream *s, struct span span);
uint64_t cw_dp_range_begin(const struct stream *s); /* of the first one, or base if that is less */
uint64_t cw_dp_range_end(const struct stream *s);   /* of the last one, or base */
/* Sets base, and takes out ranges that end before it. -1: no memory. */
int cw_dp_range_rebase(struct cw_dispatcher *d, struct stream *s, uint64_t base);
void cw_dp_range_clear(struct cw_dispatcher *d, struct stream *s);
/* Call when a rank begins at pos: in a placed plan, a range that has pos inside is cut in two, and both are
 * run anew. */
void cw_dp_range_begin_at(struct cw_dispatcher *d, struct stream *s, uint64_t pos);
int cw_dp_range_report(struct range *x, const uint64_t *elements, size_t n, uint64_t n_batches);
bool cw_dp_range_same(const struct range *x, const uint64_t *elements, size_t n, uint64_t n_batches);
/* Marks it as lost for good: ranks that waited for its report are sent those behind it. */
void cw_dp_range_lose(struct cw_dispatcher *d, struct stream *s, struct range *x);
uint64_t cw_dp_elements_sum(const uint64_t *elements, size_t n);
void cw_dp_range_announce(struct cw_dispatcher *d, struct stream *s, struct range *x);

/* leases.c */
void cw_dp_lease_fill(struct cw_dispatcher *d, struct stream *s);
/* A holder ended a range early, at `end`: the rest is free. Another holder would compute all of it, and loses
 * it. */
/* holder i has ended it there */
void cw_dp_lease_shorten(struct cw_dispatcher *d, struct range *x, int i, uint64_t end);
/* as Holdings says */
void cw_dp_lease_hold(struct cw_dispatcher *d, struct assignment *t, struct span span, uint64_t lease);

/* It does not hold it any more. DROP_SILENTLY: and it knows, or there is nobody to tell. */
enum drop { DROP_REVOKED, DROP_SILENTLY };

void cw_dp_lease_drop(struct cw_dispatcher *d, struct assignment *t, struct range *x, enum drop how);
/* All ranges that end behind `from`. */
void cw_dp_lease_drop_from(struct cw_dispatcher *d, struct assignment *t, uint64_t from, enum drop how);
/* All ranges that the worker can't be computing yet. */
void cw_dp_lease_drop_unbegun(struct cw_dispatcher *d, struct assignment *t);
int cw_dp_lease_completed(struct cw_dispatcher *d, struct worker *w, uint64_t re, const Cachew__Completed *c,
                          struct cw_error *err) _must_check_;
void cw_dp_lease_written(struct cw_dispatcher *d, struct stream *s, struct range *x);
void cw_dp_lease_late(struct cw_dispatcher *d, struct stream *s);

/* jobs.c */
struct job *cw_dp_job_find(struct cw_dispatcher *d, const char *name);
/* 1: it differs (err says how), and none of the job's ranks was heard of since: perhaps they are gone. */
int cw_dp_job_get(struct cw_dispatcher *d, const Cachew__Attach *a, uint64_t since_ns, struct job **ret,
                  struct cw_error *err) _must_check_;
int cw_dp_job_restore(struct cw_dispatcher *d, const Cachew__Journal__Job *row,
                      struct cw_error *err) _must_check_;
void cw_dp_jobs_loaded(struct cw_dispatcher *d); /* ends the jobs that a damaged entry of the journal costs */
void cw_dp_job_ready(struct cw_dispatcher *d, struct job *j); /* its stream is */
void cw_dp_job_written(struct cw_dispatcher *d, struct job *j);
/* who waits for it is told; it is freed */
void cw_dp_job_refused(struct cw_dispatcher *d, struct job *j, const Cachew__Failure *why);
const char *cw_dp_job_state(const struct job *j); /* for people */
/* At-most-once: ranges of which a rank did not get all that was its, summed over ranks. */
uint64_t cw_dp_job_lost(const struct job *j);
void cw_dp_job_over(struct cw_dispatcher *d, struct job *j, enum job_state state, const struct cw_error *why);
void cw_dp_job_free(struct cw_dispatcher *d, struct job *j);
struct job *cw_dp_job_unref(struct job *j);
void cw_dp_job_tick(struct cw_dispatcher *d);
uint64_t cw_dp_job_mark(struct job *j); /* UINT64_MAX: not known, or nothing more is wanted */

/* clients.c */
int cw_dp_client_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                         struct cw_error *err) _must_check_;
void cw_dp_client_lost(struct cw_dispatcher *d, struct rank *r);
void cw_dp_client_tick(struct cw_dispatcher *d);
void cw_dp_client_forget_waiting(struct cw_dispatcher *d, struct cw_peer *p);
/* made where it is not known */
int cw_dp_rank_get(struct cw_dispatcher *d, struct job *j, uint32_t number, struct rank **ret,
                   struct cw_error *err) _must_check_;
/* the plan is known: its position, or it is refused */
void cw_dp_client_begin(struct cw_dispatcher *d, struct rank *r);
/* its Attach */
void cw_dp_client_refuse(struct cw_dispatcher *d, struct rank *r, const struct cw_error *why);
void cw_dp_client_greet(struct cw_dispatcher *d, struct rank *r); /* Attached, and all that is known */
void cw_dp_client_ended(struct cw_dispatcher *d, struct rank *r, const struct cw_error *why);

/* tell.c: what the clients of a stream are told */
/* Returns 0, or after how many ns it is time for it. */
uint64_t cw_dp_tell_stream(struct cw_dispatcher *d, struct stream *s);
void cw_dp_tell_all(struct cw_dispatcher *d, struct rank *r);
void cw_dp_tell_gone(struct cw_dispatcher *d, struct worker *w);
Cachew__WorkerAddress cw_dp_worker_address(const struct worker *w); /* borrows from w */
void cw_dp_tell_assignment(struct cw_dispatcher *d, struct assignment *t);
/* what keeps it, for people; "": nothing is known to */
void cw_dp_held_why(const struct cw_dispatcher *d, const struct job *j, char *buf, size_t size);
void cw_dp_tell_held(struct cw_dispatcher *d, struct job *j); /* what keeps its ranks, where that changed */

/* admin.c */
int cw_dp_admin_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                        struct cw_error *err) _must_check_;
