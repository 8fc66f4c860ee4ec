/* An opened source: its records, and where their bytes lie. Immutable after open; all threads share it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "pipeline/op.h"

struct cw_file; /* storage/file.h */
struct cw_epoch;
struct cw_source;

struct cw_source_env {
    const char *base_dir; /* relative paths are relative to it */
    /* cache directory for indexes; NULL: none is written, sidecar files are still read */
    const char *index_dir;
    /* files outside these directories are refused; none: all files are allowed */
    const char *const *data_roots;
    size_t n_data_roots;
    int threads;   /* threads that build an index, >= 1 */
    size_t memory; /* bytes that decompression by these threads may take; 0: no limit */
    int (*cancelled)(void *);
    void *cancel_arg;
};

struct cw_extent {
    struct cw_file *file;
    uint64_t offset;
    size_t length;
};

/* Reads the bytes of an extent to data. nowait: returns 1, nothing read, where the bytes are not in memory.
 * Any thread. */
int cw_extent_read(const struct cw_extent *e, void *data, bool nowait, struct cw_error *err) _must_check_;
/* Reads the bytes of an extent into the page cache only; of a remote file it reads nothing. scratch:
 * CW_EXTENT_SCRATCH bytes, overwritten. An extent has at most CW_EXTENT_MOST bytes. nowait and the result are
 * as in cw_extent_read. */
#define CW_EXTENT_SCRATCH ((size_t)64 << 10)
#define CW_EXTENT_MOST ((size_t)4 << 20)
int cw_extent_read_in(const struct cw_extent *e, void *scratch, bool nowait,
                      struct cw_error *err) _must_check_;

/* A request to a stream for the elements from .. from + n - 1. A request for elements before `keep` starts
 * the stream anew. */
struct cw_pull {
    uint64_t epoch, from;
    /* least: when the source is slow, fewer than n elements are returned, but at least this many */
    size_t n, least;
    uint64_t keep; /* elements from here on may be requested again */
    int (*cancelled)(void *arg);
    void *cancel_arg;
    const struct cw_pull_away *away; /* NULL: the stream runs here */
};

/* For a stream that runs in another process: requests there what `serve` gives there. */
struct cw_pull_away {
    int (*pull)(void *arg, const struct cw_pull *q, uint8_t **ret, size_t *ret_size, struct cw_error *err);
    void *arg;
};

/* A request to `load` for records of positions that are planned. */
struct cw_load {
    const struct cw_epoch *epoch; /* the epoch of the positions (dataset/sequence.h) */
    const uint64_t *rows;         /* n, in any order */
    const uint32_t *passes;       /* n: the combined pass number of the repeats after the source */
    size_t n;
    struct cw_arena *arena; /* memory for the loaded bytes */
};

struct cw_source_ops {
    void (*free)(struct cw_source *s);
    /* Called before any element is requested, if results may be cached under the source's identity at the
     * time when it was opened. From then on produce gives the elements of that time, or fails. May take long;
     * returns CW_E_INTERRUPTED soon after it is cancelled. NULL: file_key and the file identify the
     * elements. */
    int (*hold)(struct cw_source *s, const struct cw_op *op, int (*cancelled)(void *), void *cancel_arg,
                struct cw_error *err);
    /* Sets file_key and the row in the file for each row (rows count over all files). Leaves pass and flags
     * alone. */
    void (*ids)(const struct cw_source *s, const uint64_t *rows, size_t n, struct cw_record_id *out);
    /* Sets *ret to where a record's bytes lie. NULL: rows are computed (range) or come from `load`. */
    int (*locate)(const struct cw_source *s, uint64_t row, struct cw_extent *ret, struct cw_error *err);
    /* For records whose bytes are not an extent of a file (compressed; several records that make one):
     * fetches into raw[i] what `produce` needs of rows[i]. */
    int (*load)(const struct cw_source *s, const struct cw_load *l, struct cw_tensor *raw,
                struct cw_error *err);
    /* Frees what `load` has kept for a later call, and charged to this budget. The budget's owner calls it
     * when memory is short, and before it ends. NULL: `load` keeps nothing. */
    void (*trim)(struct cw_source *s, struct cw_budget *budget);
    /* Streams: gives *ret_n elements; 0: there are no more. May take long; stops soon when cancelled. */
    int (*pull)(struct cw_source *s, const struct cw_pull *q, struct cw_arena *arena, struct cw_tensor *raw,
                size_t *ret_n, struct cw_error *err);
    /* Streams: gives the bytes from which `pull` in another process makes these elements. The caller owns
     * *ret, which is aligned to 64 bytes. */
    int (*serve)(struct cw_source *s, const struct cw_pull *q, uint8_t **ret, size_t *ret_size,
                 struct cw_error *err);
    /* Makes the output columns that are live from block->raw or block->rows. */
    int (*produce)(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                   struct cw_error *err);
    /* Returns the file that holds a row. *ret_partial: the file key covers only a part of the file's content.
     * NULL: there are no files. */
    struct cw_file *(*file)(const struct cw_source *s, uint64_t row, bool *ret_partial);
    /* Returns the path of the file that holds a row, for messages; NULL: there is none. */
    const char *(*path)(const struct cw_source *s, uint64_t row);
};

struct cw_source {
    const struct cw_source_ops *ops;
    uint64_t n_records;
    uint64_t source_bytes; /* bytes of all records (docs/semantics.md, section 1) */
    size_t loaded_bytes;   /* bytes that `load` takes for each record, besides its source bytes */
    bool random_access;    /* every record can be read by itself */
    bool one_file_per_record;
    /* path of the first file whose records can't be read by themselves; NULL: there is none */
    const char *compressed;
    bool row_groups; /* because it is read by row groups; false: because it is compressed */
    /* bytes that are decompressed and discarded, at most, to reach the beginning of a chunk, and the path of
     * a file of which this is true; 0 and NULL: none */
    uint64_t discarded_bytes;
    const char *discarded_in;
    uint64_t n_chunks;
    uint64_t chunk_records;     /* records of each chunk (the last chunk may have fewer); 0: see chunk_ends */
    const uint64_t *chunk_ends; /* n_chunks, cumulative record counts; owned by the source */
    /* hash of what a record's components depend on in addition to its bytes, file key and row; 0: nothing */
    uint64_t context;
    uint64_t snapshot; /* hash of file keys and row counts, which state files compare */
};

/* Returns the number of the chunk that holds a row. */
uint64_t cw_source_chunk_of(const struct cw_source *s, uint64_t row);
/* Sets *ret to where chunk k lies, a run of neighbouring records of a file. The source must have `locate`.
 * CW_E_DATA: the records do not lie next to each other. */
int cw_source_chunk_extent(const struct cw_source *s, uint64_t k, struct cw_extent *ret);

/* Returns the number of rows before the end of chunk k. */
static inline uint64_t cw_source_chunk_end(const struct cw_source *s, uint64_t k)
{
    return s->chunk_records ? CW_MIN((k + 1) * s->chunk_records, s->n_records) : s->chunk_ends[k];
}

static inline void cw_source_free(struct cw_source *s)
{
    if (s)
        s->ops->free(s);
}
