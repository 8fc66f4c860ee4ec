/*
 * What the files of the runner share. Three kinds of threads: compute threads (pool.c) plan pieces, carve
 * blocks and run them; read threads fetch the bytes of blocks that are not in memory; the consumer takes
 * batches. One mutex guards everything that they share; a block, while it runs, belongs to its thread alone.
 */
#pragma once
#include <pthread.h>

#include "engine/runner.h"
#include "exec/cached.h"
#include "exec/exec.h"

/* Permutations and keys of an epoch, shared by its ranges. Used by whoever holds r->planning. */
struct epoch_ref {
    unsigned refs;
    struct cw_epoch epoch;
};

/* Positions of a range that are planned together: piece_size of them, from a multiple of it on. */
struct piece {
    struct piece *next;
    struct cw_exec_plan plan;
    bool planned;
    unsigned choice;         /* of cache points, for its blocks: as it was when it was planned */
    uint8_t *kept;           /* by position: the cache has it; NULL: not looked up */
    bool cut;                /* the stream gave less than was asked for; nothing: it is over */
    uint64_t carved;         /* positions that have a block, or are not wanted */
    unsigned users;          /* blocks in flight */
    struct read_in *read_in; /* chunks of files that are read before it is planned; NULL: none */
};

/* Elements of a key, where a range keeps them by key: batch i has elements i * size .. of them. */
struct key_rows {
    struct cw_assembly **batches; /* NULL: given away, or dropped */
    size_t n, room, first;        /* first: those before are gone */
    uint64_t dropped;             /* elements before it are not wanted any more */
};

struct cw_range {
    struct cw_range *next;
    const struct cw_runner *runner;
    struct epoch_ref *epoch;
    uint64_t begin, limit; /* as it was opened: positions begin .. limit - 1 */
    bool rows;             /* elements are kept by key */
    /* where it begins, or begins again: behind the last batch that the consumer took */
    struct cw_entry entry;
    /* of the sequence; from `position` on not yet in a piece. end: limit, or where a stream ended */
    uint64_t position, end;
    uint64_t n_taken; /* batches that the consumer took */
    struct piece *first, *last;
    uint64_t next_seq; /* of the next block carved */
    uint64_t *passed;  /* by point: the block whose turn it is */
    struct block *parked;
    struct cw_limit_count *limits;
    uint64_t *arrived; /* by key: elements that passed the last point since it began (again) */
    /* by key: of these and of those to come, so many are in batches that are full, or were before */
    uint64_t *batched;
    uint64_t slots_at;               /* the position behind the blocks that passed the last point */
    struct cw_assembly *head, *tail; /* batches in the order of delivery */
    struct cw_assembly **open;       /* by key: the one that fills */
    struct key_rows *by_key;         /* rows: by key, */
    unsigned n_held;                 /* and so many batches of them that are there */
    uint16_t *keys;                  /* rows, several keys: of each element in order */
    size_t n_keys, keys_room;
    struct cw_quarantined *quarantined; /* of records that left no trace in a batch */
    /* of a stream: comes after everything that it gave; rows: of a record, behind all elements. NULL: it did
     * not fail */
    struct cw_error *failed;
    unsigned n_blocks; /* carved and not done */
    bool over;         /* nothing more is carved: positions used up, a full `take`, an error */
    bool poisoned;
    bool flushed;           /* what is left over at the epoch's end is among the batches */
    bool closed;            /* by the consumer */
    _Atomic bool cancelled; /* closed, and what still runs for it takes long */
};

struct segment { /* rows idx[first .. first+n) of a block go to slots from slot0 on */
    struct cw_assembly *assembly;
    uint64_t slot0;
    size_t first, n;
    bool completed;      /* its batch, by this block */
    uint8_t *staged;     /* for values of varying size: in a chunk of the assembly */
    size_t staged_bytes; /* there; 0: none yet */
};

/* What a limit had counted before each position of a block, and behind the last. */
struct limit_passage {
    struct cw_limit_count before;
    uint64_t *counts; /* n_refs + 1; NULL: the block's rows do not pass the limit */
};

struct block {
    struct block *next;
    struct cw_exec exec;
    struct cw_range *range;
    struct piece *piece;
    unsigned choice;   /* of cache points */
    bool probe;        /* not the choice in use: to know what it would take */
    uint64_t seq;      /* order in its range */
    unsigned point;    /* stage that is to run */
    unsigned n_passed; /* points passed, in an earlier attempt too */
    /* In runner->reading. Guarded by the runner's mutex, but for reads_low. */
    _Atomic bool
        reads_low;      /* fewer than READ_DEPTH reads are left: compute threads know that there is room */
    unsigned n_readers; /* read threads at it */
    bool queued, read_failed;             /* it is in runner->reading; a read of it failed */
    bool waited;                          /* was parked before the point after the stage just run */
    uint8_t **dropped;                    /* by limit: rows that it dropped, for a second attempt */
    struct limit_passage *limit_passages; /* by limit; NULL: no limits, or none passed */
    size_t n_given;   /* of the rows that live: they have slots, or are in earlier batches */
    uint64_t *shapes; /* by point: exec.shape as it was there in the first attempt */
    uint32_t *idx;    /* rows that live, in order; kept for a second attempt, like the segments */
    size_t n_live;
    bool has_failed; /* one of them failed */
    struct segment *segments;
    unsigned n_segments;
    size_t segment_capacity;
    uint64_t spent_ns, cold_ns; /* of compute threads in all; of read threads (choices.c) */
};

struct thread {
    struct cw_runner *r;
    pthread_t id;
    struct cw_counts counts; /* since the last block */
    uint64_t n_run;          /* blocks */
};

/* Reads of sources in flight at most: what a solid-state disk or a network file system needs to give its full
 * rate. Each has a thread, which is started when a read is to be done and no thread is idle. As many reads
 * may wait for a thread, so that storage never runs dry. */
#define READ_DEPTH 64
/* Threads that read chunks of files into the page cache: chunks are large, so that fewer at a time are
 * enough. */
#define READ_IN_THREADS 16
/* Threads that read the cache's storage: entries are large, and a cache is on a local disk. */
#define STORE_THREADS 4
/* Where more blocks wait for the cache's storage, it is behind: others are computed instead (choices.c). */
#define STORE_DEPTH 16

struct row_pace {
    uint64_t aim_ns, most; /* a block takes about so long, and has no more; set once */
    uint64_t ns;           /* mean time of one, lately */
    uint64_t told;         /* so many for a block, as was told last */
};

/* What positions took lately: sums, halved now and then. */
struct pace {
    double rows, ns;  /* of compute threads */
    double cold_ns;   /* of storage, for all reads together: time during which read threads were at it */
    double prefix_ns; /* of ns, up to the cache point */
};

/* One of what can be done about cache points: none, or a certain one. Guarded by the runner's mutex, but for
 * the first two, which are immutable. */
struct choice {
    int64_t number;          /* of the cache point, CW_CACHE_POINT_AUTO or CW_CACHE_POINT_NONE */
    struct cw_variant *ways; /* by leaf */
    struct pace computed, hit;
    double content_rows, content_bytes;
    uint64_t epoch;       /* that is planned: */
    double looked, found; /* positions of it, lately, and those that the cache has */
    uint64_t n_kept;      /* that went to the cache */
    double found_before;  /* part of the epoch before it; negative: not known */
    /* probed_reading: since there was something to read; stored: by an earlier run */
    bool probed, probed_reading, stored;
    bool stale; /* a probe begins: what was measured before is forgotten, once there is something new */
};

struct cw_runner {
    const struct cw_sequence *sequence;
    const struct cw_compiled *compiled;
    struct cw_runner_options options;
    struct choice *choices; /* the first is to use no cache point */
    unsigned n_choices;
    atomic_uint choice;                 /* in use, for pieces that are planned from now on */
    unsigned probing, probe_left;       /* blocks that are still to be carved under another choice */
    unsigned n_probes;                  /* that are carved, and not done with */
    double probe_ns, spent_ns;          /* of compute threads and storage: by probes, and by all blocks */
    uint64_t busy_ns, n_positions_done; /* by blocks that are done, of compute threads alone */
    uint64_t n_positions_cached;        /* of these, read from the cache */
    /* read threads were at it, any of them: in all; accounted for up to here */
    uint64_t cold_ns, at_store_ns;
    unsigned n_at_store; /* of them */
    struct cw_layout layout;
    struct cw_budget budget;
    struct cw_slab_pool slabs;
    struct cw_exec_env env;

    pthread_mutex_t mutex;
    pthread_cond_t work, done, reads;
    /* guarded by mutex: */
    struct cw_range *ranges; /* in the order of (epoch, begin) */
    struct block *ready;     /* can run now */
    struct block *starved;   /* had not enough memory; run one at a time when nothing else runs */
    struct block *reading, **reading_tail;
    struct block *idle;        /* spare ones, with an empty arena */
    struct epoch_ref *epoch;   /* of the range opened last */
    struct cw_ref *spare_plan; /* of a piece that is done, for the next one */
    unsigned n_idle, n_blocks, n_running, n_reading;
    /* of n_reading: blocks that wait for the cache's storage; and read threads that read it */
    unsigned n_fetching, n_fetchers;
    size_t reading_bytes; /* of sources, of blocks that are being read or wait for it */
    unsigned n_assemblies, max_assemblies;
    bool few_assemblies;       /* there would be more of them with more memory */
    uint64_t reading_since_ns; /* where n_reading or n_reading_in is not 0 */
    size_t least;              /* memory; set once */
    size_t given;              /* memory, with the part that who opened it keeps */
    bool planning, stop;
    bool interrupted;
    /* Short of memory (docs/engine.md): */
    bool consumer_short; /* the consumer waits for some: nothing new is begun */
    bool plan_short; /* a piece could not be planned: not tried again before something ends or is released */
    bool alone;      /* a starved block runs: nobody else begins anything */
    bool starving; /* a starved block got all there is, and it was not enough: until something is released */
    /* Rows of a block at most, while only the first range is computed, one block and one batch at a time
     * (frugal.c); 0: as usual. Pieces until that ends; pieces that it lasts, or lasted the last time. */
    atomic_uint frugal;
    unsigned frugal_left, frugal_term;
    bool awaited;          /* the consumer waits for a batch: what it has it won't release before */
    uint64_t n_released;   /* how often something was released, or a range closed */
    unsigned n_handed;     /* assemblies and batches that the consumer has, and will release */
    bool poll_short;       /* a batch of a range that is not the first could not be finished */
    bool settled;          /* a thread found nothing to do, and nothing was done by others */
    bool cold;             /* reads go to the read threads first */
    struct row_pace *rows; /* by leaf: of those that are computed, and of those from the cache (rows.c) */
    struct cw_tuned_log tuned;
    struct cw_error fatal;
    struct thread *threads;
    unsigned n_threads;
    pthread_t readers[READ_DEPTH];
    unsigned n_readers, n_readers_idle; /* read threads; those that wait for work */
    uint64_t n_cold_reads;              /* done by read threads */
    pthread_t read_in_threads[READ_IN_THREADS];
    pthread_cond_t read_in_work;
    unsigned n_read_in_threads, n_read_in_idle;
    bool read_in_files;       /* a thread is going to decide whether it reads all files in */
    bool read_in_useless;     /* the page cache does not keep what is read */
    struct read_in *read_ins; /* of pieces, in order */
    unsigned n_reading_in;    /* of them there are. They hold no memory, so n_reading does not count them */
    struct cw_profile profile;
    uint64_t started_ns;
    _Atomic bool cancelled;
    _Atomic unsigned n_calls; /* of operators on the consumer's batches, that are under way */
};

/* rows.c: mutex held, but for the first */
int cw_rows_new(struct cw_runner *r, struct cw_error *err);
uint64_t cw_rows_most(const struct cw_runner *r, unsigned leaf, bool hit);
/* a row of a block that is done took so long */
void cw_rows_timed(struct cw_runner *r, unsigned leaf, bool hit, uint64_t ns);
bool cw_blocks_full(const struct cw_runner *r); /* no more may be in flight now */
void cw_blocks_tell(struct cw_runner *r);       /* it is another number now */

/* carve.c: mutex held */
struct block *cw_carve(struct cw_runner *r);
int cw_assembly_take(struct cw_runner *r, struct cw_range *s, unsigned bucket, struct cw_assembly **ret,
                     struct cw_error *err);
/* Memory that the system does not give ends the run: there is nobody to wait for. */
void cw_out_of_memory(struct cw_runner *r, const char *what);

/* pieces.c: mutex held, where nothing else is said */
struct piece *cw_piece_to_plan(struct cw_runner *r, struct cw_range **ret_range);
/* Mutex not held. Where it fails, p is to be unplanned. */
int cw_piece_plan(struct cw_runner *r, struct thread *t, struct cw_range *s, struct piece *p,
                  struct cw_error *err);
void cw_piece_unplan(struct piece *p);
/* Two pieces in the place of one that is not planned, for whose plan there is no memory. False: it can not be
 * divided, or there is none for that either. */
bool cw_piece_halve(struct cw_runner *r, struct cw_range *s, struct piece *p);

/* block.c: mutex held, where nothing else is said */
struct block *cw_block_new(struct cw_runner *r);             /* NULL: the run ends */
void cw_block_recycle(struct cw_runner *r, struct block *b); /* done with; kept for another use */
void cw_block_free(struct cw_runner *r, struct block *b);
/* back to the start, memory given back; mutex need not be held */
void cw_block_reset(struct cw_runner *r, struct block *b);

/* range.c: mutex held */
void cw_range_free(struct cw_runner *r, struct cw_range *s);

static inline bool cw_range_before(const struct cw_range *a, const struct cw_range *b)
{
    return a->epoch->epoch.epoch != b->epoch->epoch.epoch ? a->epoch->epoch.epoch < b->epoch->epoch.epoch
                                                          : a->begin < b->begin;
}

/* No thread computes, reads or plans. Mutex held. */
static inline bool cw_nothing_runs(const struct cw_runner *r)
{
    return r->n_running + r->n_reading + r->n_reading_in == 0;
}

/* Everything was computed. */
static inline bool cw_range_computed(const struct cw_range *s)
{
    return s->over && s->n_blocks == 0;
}

/* Nothing of it is computed yet, or any more: it begins at its entry. */
void cw_range_begin(struct cw_runner *r, struct cw_range *s);
void cw_range_restart(struct cw_runner *r, struct cw_range *s);  /* no block of it is in flight */
void cw_range_append(struct cw_range *s, struct cw_assembly *a); /* at the end of the batches to deliver */
/* Whether clients can take rows of the range before more of it is computed, which frees memory. They can once
 * a batch and all rows but one of the next are computed: wherever their batches begin, one of them lies
 * within. */
bool cw_rows_may_be_taken(const struct cw_runner *r, const struct cw_range *s);
/* at the end of its key's */
int cw_range_append_rows(struct cw_range *s, struct cw_assembly *a, struct cw_error *err) _must_check_;
/* Takes a batch that is not full, the last one, out of those to deliver. */
void cw_range_remove_last(struct cw_range *s);
void cw_epoch_unref(struct epoch_ref *e);                       /* may be NULL */
void cw_range_collect(struct cw_runner *r, struct cw_range *s); /* frees what is used up */

/* pieces.c; non-zero once a run ends, or a range is not wanted any more: for what may take long */
int cw_stopped(void *runner);
int cw_range_stopped(void *range);

/* Where rows from slot0 on of a batch go. */
static inline struct cw_exec_dest cw_assembly_dest(const struct cw_assembly *a, uint64_t slot0)
{
    return (struct cw_exec_dest){.offset = a->layout->offset,
                                 .row_bytes = a->layout->row_bytes,
                                 .data = a->slab ? a->slab->data : NULL,
                                 .slot0 = slot0};
}

/* Which positions of a piece the cache has. Where there is no memory for the answer it is left open. Mutex
 * not held. */
void cw_piece_look_up(struct cw_runner *r, const struct cw_range *s, struct piece *p);

/* account.c */
/* room to count in: each thread's, and that of the sums */
int cw_account_new(struct cw_runner *r, struct cw_error *err);
/* adds what a thread counted since last time. Mutex held */
void cw_account(struct cw_runner *r, struct thread *t);
/* waits for something to do, and counts why there was nothing. Mutex held */
void cw_idle(struct cw_runner *r);

/* choices.c */
int cw_choices_new(struct cw_runner *r, struct cw_error *err);
void cw_choices_free(struct cw_runner *r); /* and keeps what was measured for later runs */
#define CW_CHOICE_KNOWN_ROWS 16.0          /* positions, before which nothing is concluded of a pace */
/* choice_profile.c: at the start, and at the end */
void cw_choices_load(struct cw_runner *r);
void cw_choice_recall(struct choice *none, struct choice *c, const char *text);
void cw_choice_save(const struct choice *none, const struct choice *c, struct cw_cached *to);
/* How long it is worth waiting for what the cache has of a block. Mutex held. */
uint64_t cw_block_patience(const struct cw_runner *r, const struct block *b);
/* What is done about cache points in a block that begins at p->refs[p->carved]. Mutex held. */
void cw_block_choose(struct cw_runner *r, struct block *b, const struct piece *p);
/* Positions of an epoch were looked for under a choice. Mutex held. */
void cw_choice_looked(struct choice *c, uint64_t epoch, uint64_t looked, uint64_t found);
/* A read thread begins; returns when, by cw_cost_now_ns. Mutex held. */
uint64_t cw_store_enter(struct cw_runner *r);
/* The read thread that began then leaves off. Returns the time of storage that it stands for: with others
 * together no more than has passed. Mutex held. */
uint64_t cw_store_leave(struct cw_runner *r, uint64_t began_ns);
/* What a block took that is done. Mutex held. */
void cw_block_measured(struct cw_runner *r, const struct block *b);

static inline const struct cw_variant *cw_way(const struct cw_runner *r, unsigned choice, unsigned leaf)
{
    return &r->choices[choice].ways[leaf];
}

/* places.c: mutex held */
/* What stands before the record of live row idx[at] of a block whose rows before it have passed: where its
 * batch begins. NULL: out of memory. */
struct cw_entry *cw_block_entry(const struct cw_runner *r, const struct block *b, size_t at);
/* The entry behind a batch that idx[at] completed, and everything before it. NULL: out of memory. */
struct cw_entry *cw_block_after(const struct cw_runner *r, const struct block *b, size_t at);
/* The entry behind a batch of what is left over at the end. */
struct cw_entry *cw_range_after(const struct cw_runner *r, const struct cw_range *s);
int32_t cw_block_key(const struct cw_runner *r, const struct block *b, size_t row);

/* emit.c: mutex not held */
/* Runs the block to its next point. */
int cw_block_stage(struct cw_runner *r, struct thread *t, struct block *b, struct cw_error *err);
int cw_block_emit(struct cw_runner *r, struct thread *t, struct block *b, struct cw_error *err);

/* slots.c: mutex held. 0: passed; 1: has to wait for a batch to be released; < 0: memory. */
int cw_block_pass(struct cw_runner *r, struct block *b, struct cw_error *err);
/* after emit: rows are done, faults find their place */
void cw_block_settle(struct cw_runner *r, struct block *b);

/* consumer.c: memory came back, who waits for it tries again. Mutex held. */
void cw_released(struct cw_runner *r);
/* A deadline: not waiting at all. What lacks memory then is tried again later, and nothing new is begun until
 * it has it. */
#define CW_AT_ONCE UINT64_MAX
/* The consumer waits for something to change. what: for the error. Mutex held. */
int cw_wait_change(struct cw_runner *r, uint64_t deadline_ns, const char *what,
                   struct cw_error *err) _must_check_;
/* The consumer has the memory that it lacked, if it did: threads begin something new again. Mutex held. */
void cw_consumer_served(struct cw_runner *r);
/* Runs `attempt`, which needs memory for something of range s (NULL: the runner has no such range). Later
 * ranges give memory up for it, and if that is not enough and s is the first range, s starts over: 2, as
 * where there is no memory now; the caller tries again later. of_first: what needs the memory is the range's,
 * and gone when that starts over; else it is a batch that the consumer has. Mutex held, but released while
 * waiting. */
int cw_with_memory(struct cw_runner *r, int (*attempt)(struct cw_runner *r, void *arg, struct cw_error *err),
                   void *arg, const struct cw_range *s, bool of_first, uint64_t deadline_ns,
                   struct cw_error *err) _must_check_;
/* Frees rows that are there and were dropped, maybe before they came. Mutex held. */
void cw_range_forget_rows(struct cw_runner *r, struct cw_range *s);
/* cw_assembly_finish, as an attempt */
int cw_try_finish(struct cw_runner *r, void *batch, struct cw_error *err) _must_check_;

/* There may be something to do for the threads. Mutex held. */
static inline void cw_work(struct cw_runner *r)
{
    r->settled = false;
    pthread_cond_broadcast(&r->work);
}

/* There may be something for the consumer. Mutex held. */
static inline void cw_done(struct cw_runner *r)
{
    pthread_cond_signal(&r->done);
    if (r->options.notify)
        r->options.notify(r->options.notify_arg);
}

/* reclaim.c */
/* Takes all memory of the last range behind `s` that holds any; that range will be computed again. False: no
 * such range. Nothing must be running. */
bool cw_reclaim(struct cw_runner *r, const struct cw_range *s); /* mutex held */
void cw_give_up(struct cw_runner *r, struct cw_range *s);       /* the same with this one. Mutex held */
bool cw_holds_anything(const struct cw_runner *r, const struct cw_range *s); /* mutex held */
/* mutex held: it would take something */
bool cw_can_reclaim(const struct cw_runner *r, const struct cw_range *s);
/* Whether the consumer has, or can take, something that it will release. While it waits for a batch it
 * releases nothing. */
bool cw_may_be_released(const struct cw_runner *r); /* mutex held */

/* frugal.c; mutex held, and nothing runs */
/* All but what the consumer has is given up, to be computed again with less at a time. False: there is no
 * less. */
bool cw_frugal_begin(struct cw_runner *r);
/* The first range gives up all that it holds, and starts over. False: it holds nothing. */
bool cw_give_up_first(struct cw_runner *r);
void cw_frugal_passed(struct cw_runner *r); /* a piece is used up */
/* nothing more is begun before the consumer has taken, and released, what is there */
bool cw_frugal_waits(const struct cw_runner *r);

/* need.c */
struct cw_place {
    uint64_t seed, epoch, position;
}; /* of an element */

static inline struct cw_place cw_place_of(const struct cw_range *s, uint64_t position)
{
    return (struct cw_place){s->epoch->epoch.seed, s->epoch->epoch.epoch, position};
}

/* Memory with which an element there, its batch and all that is like them can be computed. least: what is
 * known to be needed. Mutex not held. */
size_t cw_memory_needed(struct cw_runner *r, const struct cw_place *at, size_t least);
/* CW_E_BUDGET: the budget is too small for something; expected is at least `needed`, the runner's. */
int cw_too_small(const struct cw_runner *r, size_t needed, const char *what, struct cw_error *err);
/* The same, where the last refusal was the reason. Mutex held, but released meanwhile. 1: what was the matter
 * is over, it is to be tried again. */
int cw_lack_of_memory(struct cw_runner *r, const struct cw_place *at, const char *what, struct cw_error *err);

/* reads.c: read threads; mutex held, but for the last */
/* The bytes of a block are not in memory: it is ready again when they are. */
void cw_reads_add(struct cw_runner *r, struct block *b);
/* Reads that wait for a thread; counting stops at READ_DEPTH. */
size_t cw_reads_waiting(const struct cw_runner *r);
/* Reads of blocks of a range are not begun any more. */
void cw_reads_drop(struct cw_runner *r, const struct cw_range *s);
void cw_reads_stop(struct cw_runner *r); /* after r->stop was set: waits for the threads */

/* read_in.c: mutex held, where nothing else is said */
/* The first read would have blocked: files may be worth reading in. */
void cw_read_in_begin(struct cw_runner *r);
void cw_read_in_stop(struct cw_runner *r); /* after r->stop was set: waits for the thread */
/* Chunks that should be in memory before the records of a piece are read; NULL: none. Mutex not held. */
struct read_in *cw_read_in_new(struct cw_runner *r, const struct piece *p);
/* Has them read; then the piece counts as planned. False: it does already. */
bool cw_read_in_piece(struct cw_runner *r, struct piece *p, struct read_in *in);
void cw_read_in_cancel(struct piece *p); /* no thread begins another read for this piece */

/* pool.c */
int cw_pool_start(struct cw_runner *r, struct cw_error *err);
void cw_pool_stop(struct cw_runner *r);
void cw_ready(struct cw_runner *r, struct block *b);  /* mutex held */
void cw_starve(struct cw_runner *r, struct block *b); /* mutex held: the budget refused it memory */
/* A thread leaves off running or reading, of which so many were (n_running, n_reading). Mutex held. */
void cw_leave(struct cw_runner *r, unsigned *count);
/* Storage is busy for the runner, for blocks or pieces, which `count` counts; and not so any more. Mutex
 * held. */
void cw_reading_begin(struct cw_runner *r, unsigned *count);
void cw_reading_end(struct cw_runner *r, unsigned *count);
void cw_wake_parked(struct cw_runner *r); /* mutex held: blocks whose turn it is try again */
/* Gives back what can be had again: free slabs, idle arenas. */
void cw_trim(struct cw_runner *r); /* mutex held */
/* Everything that can be computed again gives its memory back; nothing must be running. */
void cw_evict(struct cw_runner *r); /* mutex held */
