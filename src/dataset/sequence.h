/*
 * The sequence of a pipeline: which record belongs to which position of an epoch (docs/semantics.md, sections
 * 3 to 5). Index operators become a tree of maps over opened sources. A sequence is immutable; the
 * permutations of an epoch are kept in a struct cw_epoch.
 */
#pragma once
#include "pipeline/program.h"
#include "pipeline/source.h"

#define CW_ENDLESS (UINT64_C(1) << 62) /* the count of an endless sequence; finite ones are shorter */

/* on_error "replace": positions of the block from which a replacement for a failed element is taken
 * (docs/semantics.md, section 7). */
#define CW_REPLACE_POSITIONS UINT64_C(4096)

/* The record of a position. */
struct cw_ref {
    uint64_t row;  /* of the source */
    uint32_t leaf; /* number of the source, and of the program that computes its elements */
    uint32_t pass; /* combined pass number of the repeats, innermost first: o1 + c1*(o2 + c2*...) */
};

/* The facts about the data that are needed to count the batches of an epoch. Equal in all processes. */
struct cw_plan {
    uint64_t n_positions, snapshot; /* as in struct cw_sequence */
};

/* What the permutations of a shuffle follow from, besides the run's seed, the epoch and the number of
 * positions (docs/semantics.md, section 4). */
struct cw_shuffle_draw {
    char *salt;     /* owned; NULL: there is no shuffle */
    int64_t seed;   /* -1: the seed of the run */
    bool reshuffle; /* another order in each epoch; false: that of epoch 0 in all epochs */
};

struct cw_seq;

/* An `enumerate` whose numbers are positions: those of its node. */
struct cw_enumerate {
    const struct cw_seq *node;
    unsigned position; /* of the operator */
    int64_t start;
};

struct cw_sequence {
    struct cw_compiled *compiled; /* borrowed */
    struct cw_source **sources;   /* by leaf; owned */
    unsigned n_sources;
    struct cw_seq *root;
    uint64_t n_positions; /* of an epoch, or CW_ENDLESS */
    /* W: positions of a window of a shuffle by chunk; of a stream: the `window` of its shuffle */
    uint64_t window;
    /* positions that are planned at a time. A multiple of W if a shuffle is by chunk, or of the window of
     * `pack` (see sequence.c) */
    uint64_t piece_size;
    uint64_t snapshot; /* hash of the sources' snapshots */
    /* what operators remember of their inputs, in the index directory; NULL: there is none. Owned */
    struct cw_memo *memo;
    bool needs_load; /* a source can't be read from an arbitrary record on */
    bool by_chunk;   /* a shuffle is by chunk */
    unsigned n_shuffles;
    struct cw_enumerate *enumerates; /* owned */
    unsigned n_enumerates;
    struct cw_source *stream; /* the only source, if it is a stream, else NULL; borrowed */
    struct cw_shuffle_draw
        stream_draw; /* of a stream's shuffle: windows are permuted once they have arrived */
};

static inline struct cw_plan cw_sequence_plan(const struct cw_sequence *s)
{
    return (struct cw_plan){.n_positions = s->n_positions, .snapshot = s->snapshot};
}

/* Opens the sources and builds the tree. The caller frees *ret with cw_sequence_free; c must outlive it. */
int cw_sequence_open(struct cw_compiled *c, const struct cw_source_env *env, struct cw_sequence **ret,
                     struct cw_error *err) _must_check_;
struct cw_sequence *cw_sequence_free(struct cw_sequence *s);
/* Frees what sources have kept and charged to the budget (cw_source_ops.trim). Any thread. */
void cw_sequence_trim(const struct cw_sequence *s, struct cw_budget *budget);

/* One epoch: seed, epoch number, and the permutations made so far. Only one thread at a time may use it. */
struct cw_epoch {
    const struct cw_sequence *sequence;
    uint64_t seed, epoch;
    uint64_t *keys; /* by operator position: Philox keys of the draws; n_keys of the compiled pipeline */
    struct cw_orders *orders; /* permutations, made when first needed */
    struct cw_budget *budget; /* the permutations are charged to it */
    /* a node at which look-ups end, so that they give its positions, as the rows of refs; NULL: none */
    const struct cw_seq *end;
    /* may be NULL. cw_epoch_refs calls it from time to time, and ends with CW_E_INTERRUPTED if it returns
     * non-zero
     */
    int (*stopped)(void *arg);
    void *stop_arg;
};

int cw_epoch_init(struct cw_epoch *e, const struct cw_sequence *s, uint64_t seed, uint64_t epoch,
                  struct cw_budget *budget, struct cw_error *err) _must_check_;
void cw_epoch_deinit(struct cw_epoch *e);

/* Stores the records at positions [begin, begin + n), which must lie within the sequence, in ret. */
int cw_epoch_refs(struct cw_epoch *e, uint64_t begin, uint64_t n, struct cw_ref *ret,
                  struct cw_error *err) _must_check_;
/* Stores in ret, as rows, the positions of `node` that positions [begin, begin + n) of the sequence come
 * from. The refs of positions that do not come from `node` are unspecified. */
int cw_epoch_positions(struct cw_epoch *e, const struct cw_seq *node, uint64_t begin, uint64_t n,
                       struct cw_ref *ret, struct cw_error *err) _must_check_;
/* Frees all permutations that are not in use, except the latest order of the chunks of each shuffle. */
void cw_epoch_trim(struct cw_epoch *e);
/* Frees all permutations; none may be in use. */
void cw_epoch_forget(struct cw_epoch *e);
/* Returns the bytes that the permutations of an epoch need at a time at least, for when memory is short. */
size_t cw_orders_bytes(const struct cw_sequence *s);

/* Permutes the n elements of a window of a stream: order[i] is the number, within the window as it arrived,
 * of the element that is delivered i-th. */
void cw_epoch_stream_order(const struct cw_epoch *e, uint64_t window, uint32_t *order, size_t n);

/* Returns the Philox key of the draws with a salt. */
uint64_t cw_epoch_key(uint64_t seed, uint64_t epoch, const char *salt);
/* Returns the Philox key of the draws of the operator at position i; i = n_keys - 1 is that of `replace`.
 * Operators before a cache point with `freeze` use the cache point's seed and epoch. */
uint64_t cw_epoch_draw_key(const struct cw_compiled *c, uint64_t seed, uint64_t epoch, unsigned i);
/* Returns the element id (docs/randomness.md) that follows from a record id. */
uint64_t cw_element_id(const struct cw_program *g, const struct cw_record_id *id);
/* Prints a record id as "filekey:row.ordinal...", the form of the log. */
void cw_record_print(const struct cw_program *g, const struct cw_record_id *id, char buf[128]);

/* Returns whether records are read one by one in random order: a shuffle permutes single records of a source
 * that lies in files (has `locate`). */
bool cw_sequence_reads_randomly(const struct cw_sequence *s);
/* Returns whether a shuffle by chunk permutes the records of a source that lies in files. */
bool cw_sequence_reads_by_chunk(const struct cw_sequence *s);
/* Returns the bytes of all records that are read from files. */
uint64_t cw_sequence_file_bytes(const struct cw_sequence *s);
/* Returns whether these bytes fit in the page cache beside `own` bytes that the process is going to allocate.
 * Stores the room for them in *ret_room. */
bool cw_sequence_fits_in_memory(const struct cw_sequence *s, uint64_t own, uint64_t *ret_room);
