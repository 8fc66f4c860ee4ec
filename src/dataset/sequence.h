/*
 * The sequence of a pipeline: which record stands at which position (docs/semantics.md, sections 3 to 5).
 * Index operators become a tree of maps over opened sources. Immutable; what an epoch's permutations need is
 * kept in a struct cw_epoch.
 */
#pragma once
#include "pipeline/program.h"
#include "pipeline/source.h"

#define CW_ENDLESS (UINT64_C(1) << 62) /* the count of an endless sequence; finite ones are shorter */

/* on_error "replace": another record of as many positions takes the place of one that failed
 * (docs/semantics.md, section 7). */
#define CW_REPLACE_POSITIONS UINT64_C(4096)

/* A position's record: row of the source of a program, in which combined pass of the repeats (o1 + c1*(o2 +
 * c2*...), innermost first). */
struct cw_ref {
    uint64_t row;
    uint32_t leaf;
    uint32_t pass;
};

/* What an epoch looks like, whoever runs it: all that is to be known of the data to count batches. */
struct cw_plan {
    uint64_t n_positions, snapshot; /* as in struct cw_sequence */
};

struct cw_seq;

struct cw_sequence {
    struct cw_compiled *compiled; /* borrowed */
    struct cw_source **sources;   /* by leaf; owned */
    unsigned n_sources;
    struct cw_seq *root;
    uint64_t n_positions; /* CW_ENDLESS: without end */
    /* W: positions that a shuffle by chunk permutes among themselves; of a stream: those of its shuffle */
    uint64_t window;
    /* positions that are planned at a time: a multiple of W where a shuffle is by chunk, or of pack's window
     * (sequence.c says when) */
    uint64_t piece_size;
    uint64_t snapshot; /* hash of the sources' snapshots */
    bool needs_load;   /* a source can't be entered at a record */
    bool by_chunk;     /* a shuffle permutes chunks, and within windows */
    unsigned n_shuffles;
    struct cw_source *stream; /* the only source, where it is one; borrowed */
    /* of the shuffle of a stream, whose windows are permuted when they are there; NULL: none */
    char *stream_salt;
    bool stream_reshuffle; /* another order each epoch */
};

static inline struct cw_plan cw_sequence_plan(const struct cw_sequence *s)
{
    return (struct cw_plan){.n_positions = s->n_positions, .snapshot = s->snapshot};
}

/* Opens the sources and builds the tree. */
int cw_sequence_open(struct cw_compiled *c, const struct cw_source_env *env, struct cw_sequence **ret,
                     struct cw_error *err) _must_check_;
struct cw_sequence *cw_sequence_free(struct cw_sequence *s);

/* One epoch: (seed, epoch) and the permutations made so far. Calls with the same struct must not overlap. */
struct cw_epoch {
    const struct cw_sequence *sequence;
    uint64_t seed, epoch;
    uint64_t *keys; /* by operator position: Philox keys of draws; n_keys of the compiled pipeline */
    struct cw_orders *orders; /* permutations, made when first needed */
    struct cw_budget *budget; /* what they are charged to */
    /* called now and then by cw_epoch_refs, which ends with CW_E_INTERRUPTED when it returns non-zero; NULL:
     * never */
    int (*stopped)(void *arg);
    void *stop_arg;
};

int cw_epoch_init(struct cw_epoch *e, const struct cw_sequence *s, uint64_t seed, uint64_t epoch,
                  struct cw_budget *budget, struct cw_error *err) _must_check_;
void cw_epoch_deinit(struct cw_epoch *e);

/* The records at positions [begin, begin + n), which must lie within the sequence. */
int cw_epoch_refs(struct cw_epoch *e, uint64_t begin, uint64_t n, struct cw_ref *ret,
                  struct cw_error *err) _must_check_;
/* Gives back the memory of permutations that can be made again. */
void cw_epoch_trim(struct cw_epoch *e);
/* The memory of all of them: none is in use. */
void cw_epoch_forget(struct cw_epoch *e);
/* What permutations of an epoch take at a time, when memory is short. */
size_t cw_orders_bytes(const struct cw_sequence *s);

/* Permutes what was pulled of a window of a stream, n elements: order[i] is what comes i-th. */
void cw_epoch_stream_order(const struct cw_epoch *e, uint64_t window, uint32_t *order, size_t n);

/* Philox key of the draws with a salt. */
uint64_t cw_epoch_key(uint64_t seed, uint64_t epoch, const char *salt);
/* Element id of docs/randomness.md, from the record id that the source gave and the ref's pass. */
uint64_t cw_element_id(const struct cw_program *g, const struct cw_record_id *id);
/* "filekey:row.ordinal...", as the log prints it. */
void cw_record_print(const struct cw_program *g, const struct cw_record_id *id, char buf[128]);

/* Whether records are read one by one in random order: a shuffle permutes single records of a source that has
 * `locate`. */
bool cw_sequence_reads_randomly(const struct cw_sequence *s);
/* Whether a shuffle permutes chunks of neighbouring records of such a source, and the records within windows
 * of some chunks. */
bool cw_sequence_reads_by_chunk(const struct cw_sequence *s);
/* Bytes of the records that are read from files; and whether all of them fit in the page cache, beside `own`
 * bytes that the process is going to take. */
uint64_t cw_sequence_file_bytes(const struct cw_sequence *s);
bool cw_sequence_fits_in_memory(const struct cw_sequence *s, uint64_t own, uint64_t *ret_room);
