/*
 * What the files of the remote source share. Two threads: the consumer's (remote.c), and the loop's, which
 * alone touches connections (remote_net.c, remote_link.c). r->mutex guards everything but what says
 * otherwise; callbacks of connections take it, and never while the consumer waits for something with it held.
 */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "remote/remote.h"
#include "remote/placer.h"
#include "order/iterator.h"
#include "engine/part.h"
#include "net/conn.h"
#include "remote/wire.h"

/* Batches asked for and not yet taken: so many bytes of them, but within these numbers. What a worker lends
 * is no memory of ours, and costs the same whatever its size: there it takes more than two to keep client and
 * worker from waiting for each other. */
#define WINDOW_BYTES ((size_t)64 << 20)
#define WINDOW_LENT_BYTES ((size_t)256 << 20)
#define WINDOW_MIN 2
#define WINDOW_LENT_MIN 4
#define WINDOW_MAX 64
#define WINDOW_FIRST 4              /* until one came */
#define MAX_KNOWN ((size_t)1 << 22) /* ranges: more is nonsense */
#define MAX_PIECES \
    ((size_t)1024) /* asked for at a time, but for those of the next batch: a quarter of what a worker takes \
                      (CW_MAX_CREDITS) */

enum asked { ASK, ASKED, HERE }; /* to be asked for; asked for; it came */

/* What one request, or a part of it, asks of the worker of a range. In r->pieces, in the order of asking. */
struct piece {
    struct piece *next, *prev;
    struct piece *more; /* the next one of the same batch */
    /* of the range; WHAT_BATCHES: the first position of the batch, wherever ranges begin */
    uint64_t epoch, begin;
    Cachew__What what;
    unsigned key;
    /* WHAT_ROWS, WHAT_PART: elements of the key; WHAT_BATCHES: the number of the batch in the epoch, and of a
     * counted pipeline positions from `begin` on; WHAT_KEYS: elements from `first` on */
    uint64_t first, n;
    bool part; /* WHAT_BATCHES: the positions of a range, of a batch that lies in several: `rows` come */
    enum asked state;
    uint64_t asked_ns, came_ns; /* where there is a trace: first asked for, received */
    struct link *of;            /* the worker that was asked last and has not answered; NULL: none */
    uint64_t request;           /* with this request, */
    uint64_t asked_begin;       /* of this range */
    bool lost;                  /* with its range, which will not be run again */
    struct cw_error *failed; /* HERE: why it can't be had; of keys, why the range ends behind them; else: */
    struct remote_batch *batch; /* WHAT_BATCHES, WHAT_ROWS */
    struct cw_quarantined *quarantined;
    struct cw_part rows; /* WHAT_PART, or `part` */
    /* WHAT_KEYS: those that came last, and the placer does not know; the others are before `first` */
    uint16_t *keys;
    size_t n_keys;
    bool over; /* WHAT_KEYS: the range has no more */
};

/* A batch that is wanted, and asked for. Once all of it is here, only the consumer's thread takes it away. */
struct slot {
    struct slot *next;
    uint64_t g;
    unsigned key;
    struct piece *pieces; /* the only one may be a whole batch */
    /* the consumer's: put together before its turn, while operators on batches are applied */
    struct cw_assembly *whole;
};

/* The batches of an epoch from an entry on: planned, asked for, and taken in order, but for those that are
 * handed out before their turn. */
struct course {
    struct course *next; /* in the order of opening */
    struct view *view;
    uint64_t epoch;
    uint64_t end; /* position: of the epoch */
    uint64_t g;   /* the next batch to be taken: number in the epoch, those before compiled->batch_from too */
    /* batches of this rank from g on that were taken before their turn: bit i mod 64 is for its batch of
     * round i */
    uint64_t handed;
    uint64_t planned;      /* the next batch to be planned */
    uint64_t wanted;       /* this one is wanted, whatever its rank; UINT64_MAX: none is known */
    struct cw_cursor from; /* where it began; owned */
    bool places;           /* batches follow from what ranges leave: */
    struct cw_placer placer;
    /* the first batch of the placer, whose batches are this rank's where it has its own ranges: each
     * world_size-th */
    uint64_t placer_g;
    /* ranges of the placer were cut again, the first one that holds or follows this position; UINT64_MAX:
     * none */
    uint64_t recut_at;
    struct piece *keys; /* of ranges of the placer, in order */
    /* of elements that wait for batches which are not planned yet, in the order of each key */
    struct piece *early;
    struct slot *slots; /* by g */
};

/* A batch that an iterator has: direct ones have a batch, others pieces. */
struct remote_assembly {
    struct cw_assembly a; /* first */
    struct piece *pieces;
    /* of these pieces, until it is a.batch: operators on batches are being applied to it */
    struct cw_assembly *whole;
};

/* A batch in memory of a worker, or in a slab of ours. */
struct remote_batch {
    struct cw_batch b; /* first */
    struct remote *remote;
    struct mapping *mapping;    /* memory of a worker; NULL: ours */
    struct cw_link lent_link;   /* in mapping->batches */
    uint64_t lent[2];           /* what to give back */
    struct cw_memory memory[2]; /* where that is */
    unsigned n_lent;
    bool users;                /* the consumer has it, */
    struct cw_link users_link; /* so it is in a list, and */
    uint8_t *copies[2];        /* a child gets these: during a fork; guarded as remote_fork.c says */
    struct remote_batch *next; /* in r->returned */
};

struct region {
    uint64_t id;
    uint8_t *data;
    size_t size;
};

/* A worker. */
struct link {
    struct link *next;
    struct remote *remote;
    uint64_t worker;
    char *unix_path, *host;
    char **addresses;
    size_t n_addresses;
    bool gone; /* the dispatcher says so */
    /* loop thread only: */
    struct cw_conn *conn;
    bool open;
    uint64_t reported_ns;     /* when the dispatcher was told last that it can't be reached; 0: it was not */
    struct cw_slab *incoming; /* the payload that is received */
    unsigned attempt;         /* which address is next */
    bool same_again;          /* the one that was tried last, whatever became of it */
    uint64_t retry_ns, down_since_ns;
    struct mapping *mapping; /* of this connection, or of the last one */
    /* why memory that it lends can't be mapped here; status 0: it can, as far as is known */
    struct cw_error copies;
    struct cw_error why; /* the last failure */
    /* guarded by the mutex, over all connections: */
    enum cw_transport how; /* batches come: as shm_loans (and copies beyond), or else the last one */
    uint64_t n_batches, bytes, wire_bytes;
    struct cw_conn_traffic traffic; /* of this connection, as far as it counts in these */
};

/* Shared memory of a worker, as long as a connection, the one after it, or a batch needs it. Guarded by the
 * mutex. */
struct mapping {
    unsigned refs;
    uint8_t worker[16];     /* its incarnation */
    struct cw_conn *conn;   /* to give it back by; NULL: there is none at the moment, or the worker is gone */
    struct cw_link batches; /* that lie in it */
    struct region *regions;
    size_t n_regions, regions_room;
};

/* A range as the dispatcher told of it. */
struct known_range {
    uint64_t epoch, begin, end;
    uint64_t worker;        /* that has it; 0: none */
    uint64_t not_before_ns; /* its worker did not have it: it is not asked again before */
    unsigned n_not_here;    /* so often */
    bool lost;              /* it will not be run again, */
    bool missed;            /* and this rank did not get all of it: it is counted in n_lost */
    /* its worker had less time than the range took: others may have given more of it before */
    bool ended_early;
    bool reported;      /* it is over, and gave: */
    uint64_t n_batches; /* of a sequential pipeline */
    uint64_t elements;  /* that it leaves, of all keys */
};

/* A place in the sequence of positions. */
struct place {
    uint64_t epoch, position;
};

struct view {
    struct cw_producer base; /* first */
    struct remote *remote;
    uint64_t rank, world_size;
    uint64_t rounds_epoch, rounds_from; /* in this epoch rounds begin at this g */
    bool main;
};

/* How fast the consumer goes: message Pace. */
struct pace {
    uint64_t n, late, ready;
    double step_s, step_sq, wait_s, wait_sq;
    bool paused; /* the last step was so long that it may have been a pause */
    /* when the last batch was handed out, and what had been waited till then */
    uint64_t last_ns, last_wait_ns;
};

struct remote {
    struct view view; /* the iterator's; others are made for padding */
    const struct cw_compiled *compiled;
    unsigned n_keys; /* 0: batches follow from positions, or an epoch is one range */
    bool own_ranges; /* at-most-once: this rank's batches are made of ranges of its own */
    bool any; /* batches are handed out as they are ready; false too where the pipeline has but one order */
    struct cw_remote_options options;
    char *service, *job, *token, *base_dir, *pipeline;
    char host[80];
    uint8_t incarnation[16], stream[16];
    struct cw_budget budget;
    struct cw_slab_pool slabs;
    struct cw_layout layout; /* of batches that are joined */
    struct cw_loop *loop;
    pthread_t thread;
    bool running;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* guarded by mutex: */
    bool attached, interrupted, closing, finished;
    bool left; /* nothing will be asked for any more: the connections are there to give back what is lent */
    struct cw_error failed;         /* for good */
    struct cw_error service_down;   /* why there is no dispatcher at the moment; status 0: there is one */
    uint64_t snapshot;              /* of the state, then of the plan; 0: any */
    struct cw_cursor from;          /* the cursor, as the iterator passed it */
    struct cw_cursor attached_from; /* as it was when the dispatcher was attached to: ranges begin there */
    struct known_range *ranges;     /* sorted, none overlaps; of those that end behind the cursor */
    size_t n_ranges, ranges_capacity;
    struct link *links;
    struct course *courses; /* in the order of opening */
    struct piece *pieces, *last_piece;
    size_t n_pieces;
    bool unasked; /* there are new ones that the loop's thread does not know of */
    struct remote_batch *returned;
    size_t n_outstanding; /* slots */
    size_t batch_bytes;   /* of the largest that came */
    bool lent;            /* all that came are shm_loans: none is in memory of ours */
    size_t window_told;   /* cw_remote_window, as tuned has it last */
    struct cw_tuned_log tuned;
    uint64_t wait_ns;
    /* by position in the pipeline: operators on batches, of those that are joined */
    struct cw_op_profile *ops;
    struct pace pace;
    bool waiting;                /* the consumer, at the moment */
    uint64_t waited_ns, note_ns; /* for what is taken next, so far; so long until somebody is told */
    uint64_t n_lost;             /* ranges that were lost before this rank had all that is its of them */
    char lagging[160];   /* the rank that is farthest behind, as the dispatcher said when it was told so */
    char held[640];      /* what keeps the job, as the dispatcher said; "": nothing */
    char took_over[240]; /* the client whose place this one took, when it attached first; "": nobody's */
    bool paused;         /* that is what keeps it, ... */
    uint64_t resumed_ns; /* ... or was, until then */
    atomic_uint_fast64_t n_batches; /* handed out; the consumer's */
    unsigned n_cpus;                /* immutable */

    /* loop thread only: */
    Cachew__Hello *hello;
    struct cw_conn *dispatcher;
    bool answered;                /* the last Attach, on this connection: before that, nothing else is said */
    bool reached;                 /* the dispatcher was there, once */
    bool dispatcher_open, parted; /* the dispatcher knows that nothing more will be asked for, or need not */
    uint64_t started_ns, dispatcher_retry_ns, goodbye_ns;
    unsigned n_conns; /* those whose `closed` is to come */
    uint64_t next_id, attach_id, detach_id;
    struct place told; /* of the cursor */
    uint64_t told_ns, told_batches;
    struct cw_timer *timer;
    uint64_t timer_ns; /* when it rings; 0: it does not */
    struct cw_post wake;
};

/* remote_plan.c, mutex held */
static inline bool cw_before(struct place a, struct place b)
{
    return a.epoch != b.epoch ? a.epoch < b.epoch : a.position < b.position;
}
/* The range that holds a position; NULL: none is known. Good until the next message. */
struct known_range *cw_remote_range(const struct remote *r, uint64_t epoch, uint64_t position);
int cw_remote_place(struct remote *r, const Cachew__Placement *m, struct cw_error *err);
/* by_worker: a range with other bounds than are known is none of ours. */
int cw_remote_report(struct remote *r, const Cachew__Report *m, bool by_worker, struct cw_error *err);
/* What stands before the cursor that the dispatcher was told: it will not say it again without being asked.
 */
void cw_remote_forget(struct remote *r);
/* The first place that may still be asked for. */
struct place cw_remote_cursor(const struct remote *r);
bool cw_remote_moved(const struct remote *r); /* it lies in a later range than the dispatcher was told */
struct piece *cw_piece_new(struct remote *r, const struct piece *what); /* NULL: no memory */
/* What came of a piece was only a part of it: it is asked for behind all that was asked for so far. */
void cw_piece_again(struct remote *r, struct piece *p);
void cw_piece_drop(struct remote *r, struct piece **at); /* takes it out of its list, and frees it */
/* `first` of the request: batches are counted from asked_begin on */
uint64_t cw_piece_asked(const struct remote *r, const struct piece *p);
void cw_pieces_free(struct remote *r, struct piece **pieces); /* of a batch */
size_t cw_remote_window(const struct remote *r);
void cw_remote_window_tell(struct remote *r); /* r->batch_bytes or r->lent may be another */
/* Marks the next batches that will be wanted, as far as the window goes, and asks for what is to be asked
 * for. Loop thread. */
void cw_remote_pump(struct remote *r);
/* What was asked of a worker is to be asked again: it is gone; or it did not have the range, or had another
 * one there, when this was asked of it (and no other request). */
void cw_remote_unask(struct remote *r, const struct link *l);
void cw_remote_not_here(struct remote *r, const struct link *l, uint64_t request, uint64_t epoch,
                        uint64_t begin);

/* remote_course.c, mutex held */
/* *to, which has nothing, becomes a copy of *from, whose entry need not have room for all. */
int cw_cursor_init(const struct cw_compiled *c, struct cw_cursor *to, const struct cw_cursor *from,
                   struct cw_error *err);
/* From batch number from->g on, before which from->entry stands. NULL: no memory. */
struct course *cw_course_new(struct view *v, const struct cw_cursor *from);
/* It is in the list no more; what it has is freed. The consumer's thread; the mutex is given up meanwhile. */
struct course *cw_course_free(struct course *c);
/* The range that begins there ends at `end`, before its end so far. False: the plan may count on elements
 * behind that. */
bool cw_course_shorten(struct course *c, uint64_t begin, uint64_t end);
void cw_course_drop_slots(struct course *c); /* all of them; likewise */
/* Ranges of a counted pipeline were cut again from this position on: batches behind it that are not here are
 * in one piece again. */
void cw_course_recut(struct course *c, uint64_t position);
/* Hears what is known of ranges by now, plans batches before number g, and asks for those that are wanted. 1:
 * it has fewer; 2: it is not known yet what comes. */
int cw_course_plan(struct course *c, uint64_t g, struct cw_error *err);
/* As cw_producer_ops.next. Mutex not held. */
int cw_course_next(struct course *c, uint64_t ahead, uint64_t deadline_ns, struct cw_assembly **ret,
                   struct cw_error *err);
bool cw_course_over(const struct course *c);         /* all its batches are planned */
uint64_t cw_course_position(const struct course *c); /* the first that it needs */
bool cw_slot_here(const struct slot *s);

/* remote_link.c, loop thread, mutex held */
struct link *cw_remote_link(struct remote *r, uint64_t worker); /* NULL: not known */
void cw_link_connect(struct link *l);
void cw_link_close(struct link *l);
/* ends connections to workers that are gone, once what they lent is back */
void cw_remote_retired(struct remote *r);
struct link *cw_link_free(struct link *l); /* its connection is over */
int cw_remote_worker(struct remote *r, const Cachew__WorkerAddress *m, struct cw_error *err);

/* remote_lent.c, mutex held */
struct mapping *cw_mapping_new(const uint8_t worker[16]); /* NULL: no memory */
void cw_mapping_unref(struct mapping *m);
/* b, which has this mapping, lies in it; and does no more. */
void cw_mapping_add(struct mapping *m, struct remote_batch *b);
void cw_mapping_remove(struct remote_batch *b);
const struct region *cw_mapping_region(const struct mapping *m, uint64_t id); /* NULL: it is not known */
/* A piece of memory came. < 0: the connection ends; where this process can't have it, the next one is without
 * lending. */
int cw_mapping_on_region(struct link *l, const Cachew__Region *m, const int *fds, size_t n_fds,
                         struct cw_error *err);
/* Its connection is about to be closed, and no batch lies in it: says that what is on its way is not wanted.
 */
void cw_mapping_leave(struct mapping *m);
/* c is open, in the place of an earlier connection to the same worker: says what is in use of what that one
 * brought. */
int cw_mapping_again(struct mapping *m, struct cw_conn *c, struct cw_error *err);

/* remote_net.c */
void cw_remote_wake_at(struct remote *r, uint64_t when_ns); /* loop thread: pump then, or before */
int cw_remote_start(struct remote *r, struct cw_error *err);
void cw_remote_stop(struct remote *r);
void cw_remote_over(struct remote *r); /* ends the loop, if it is to end and nothing is left to do */
/* Says something to the dispatcher if it is there. Loop thread. */
void cw_remote_tell(struct remote *r, const Cachew__Envelope *m);
/* The run is over: who waits gets this error. Mutex held. */
void cw_remote_fail(struct remote *r, const struct cw_error *why);

/* remote_pace.c; mutex not held */
void cw_remote_note_pace(struct remote *r); /* a batch is handed out */

/* remote_batch.c */
struct remote_batch *cw_remote_batch_new(struct remote *r);
void cw_remote_batch_release(struct remote_batch *b); /* mutex not held */
void cw_remote_batch_drop(struct remote_batch *b);    /* the same of one that was no user's; mutex held */

/* remote_fork.c: between these two a batch is the user's, and a forked child gets a copy of what is lent of
 * it. */
void cw_remote_users_add(struct remote_batch *b);
void cw_remote_users_remove(struct remote_batch *b);

/* remote_wait.c: waits for something to change. Mutex held, but not while somebody is told what is waited
 * for. 0: something may have. at: what stands there, or NULL; what: for the error. */
int cw_remote_wait(struct remote *r, uint64_t deadline_ns, const struct place *at, const char *what,
                   struct cw_error *err) _must_check_;
/* The same for what this process itself is at: none of the service's time, and nothing that it would be told
 * or asked about. */
int cw_remote_wait_here(struct remote *r, uint64_t deadline_ns, const char *what,
                        struct cw_error *err) _must_check_;
/* What was waited for is there. Mutex held. */
void cw_remote_waited(struct remote *r);
/* The job is paused, or goes on. Mutex held. */
void cw_remote_hold(struct remote *r, const Cachew__Held *m);
/* What the dispatcher said of that holds no longer: with the connection it is gone, and behind an Attach,
 * which nothing follows where nothing keeps the job, it is said anew. As with a job that goes on, there is a
 * moment for that before a deadline passes. Mutex held. */
void cw_remote_unhold(struct remote *r);
extern const struct cw_producer_ops cw_remote_ops;

/* the loop looks what is to be done; any thread */
static inline void cw_remote_wake(struct remote *r)
{
    cw_loop_post(r->loop, &r->wake);
}

/* remote_open.c: its threads and connections end, and what it has is freed. */
void cw_remote_deinit(struct remote *r);

/* remote_join.c */
struct remote_assembly *cw_remote_assembly_new(void); /* NULL: no memory */
int cw_remote_finish(struct cw_producer *base, struct cw_assembly *assembly, bool wanted, uint64_t epoch,
                     uint64_t deadline_ns, struct cw_error *err);
struct cw_batch *cw_remote_take(struct cw_producer *base, struct cw_assembly *assembly);
void cw_remote_drop(struct cw_producer *base, struct cw_assembly *assembly);
void cw_whole_free(struct cw_assembly **whole); /* mutex not held */
/* Puts batches together whose pieces are all here, and begins operators on them, before their turn: whenever
 * something may have come, or ended. The consumer's thread; mutex held, but given up meanwhile. */
void cw_remote_meanwhile(struct remote *r);
