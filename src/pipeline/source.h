/* An opened source: what is where. Immutable after open, shared by all threads. */
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
    const char *const *data_roots; /* files elsewhere are refused; none: no file is */
    size_t n_data_roots;
    int threads; /* for building an index, >= 1 */
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
/* The same without keeping the bytes: the page cache has them afterwards. scratch: CW_EXTENT_SCRATCH bytes,
 * overwritten. An extent has at most CW_EXTENT_MOST bytes. */
#define CW_EXTENT_SCRATCH ((size_t)64 << 10)
#define CW_EXTENT_MOST ((size_t)4 << 20)
int cw_extent_read_in(const struct cw_extent *e, void *scratch, bool nowait,
                      struct cw_error *err) _must_check_;

/* A request to a stream for the elements from .. from + n - 1. Going back behind `keep` starts it anew. */
struct cw_pull {
    uint64_t epoch, from;
    size_t n, least; /* least: fewer than n are returned, but not fewer than this, when the source is slow */
    uint64_t keep;   /* elements from here on may be requested again */
    int (*cancelled)(void *arg);
    void *cancel_arg;
    const struct cw_pull_away *away; /* NULL: the stream runs here */
};

/* Where a stream runs in another process: gives what `serve` gives there. */
struct cw_pull_away {
    int (*pull)(void *arg, const struct cw_pull *q, uint8_t **ret, size_t *ret_size, struct cw_error *err);
    void *arg;
};

/* A request to `load` for records of positions that are planned. */
struct cw_load {
    const struct cw_epoch *epoch; /* dataset/sequence.h: the one that the positions are of */
    const uint64_t *rows;         /* n, in any order */
    const uint32_t *passes;       /* n: combined passes of the repeats behind the source */
    size_t n;
    struct cw_arena *arena; /* what is loaded goes here */
};

struct cw_source_ops {
    void (*free)(struct cw_source *s);
    /* What comes of its elements may be kept in a cache, under what the source was when it was opened: called
     * before any is requested. From here on produce gives what they were then, or fails. May take long;
     * CW_E_INTERRUPTED soon after it is cancelled. NULL: file_key and the file say what they are. */
    int (*hold)(struct cw_source *s, const struct cw_op *op, int (*cancelled)(void *), void *cancel_arg,
                struct cw_error *err);
    /* file_key and row in the file of each row (over all files); pass and flags are left alone. */
    void (*ids)(const struct cw_source *s, const uint64_t *rows, size_t n, struct cw_record_id *out);
    /* Where a record's bytes lie. NULL: rows are computed (range) or come from load. */
    int (*locate)(const struct cw_source *s, uint64_t row, struct cw_extent *ret, struct cw_error *err);
    /* Records whose bytes are no extent of a file (gzip; several records that make one): fetches what
     * `produce` needs of each. raw[i] for rows[i]. */
    int (*load)(const struct cw_source *s, const struct cw_load *l, struct cw_tensor *raw,
                struct cw_error *err);
    /* Streams: *ret_n elements; none: there are no more. May take long; stops soon when cancelled. */
    int (*pull)(struct cw_source *s, const struct cw_pull *q, struct cw_arena *arena, struct cw_tensor *raw,
                size_t *ret_n, struct cw_error *err);
    /* The bytes that a pull elsewhere makes these elements of: the caller's, at a multiple of 64. */
    int (*serve)(struct cw_source *s, const struct cw_pull *q, uint8_t **ret, size_t *ret_size,
                 struct cw_error *err);
    /* Makes the output columns that are live from block->raw or block->rows. */
    int (*produce)(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                   struct cw_error *err);
    /* The file that holds a row. *ret_partial: the file key covers a part of its content only. NULL: there
     * are no files. */
    struct cw_file *(*file)(const struct cw_source *s, uint64_t row, bool *ret_partial);
    /* Path of the file that holds a row, for messages; NULL where there is none. */
    const char *(*path)(const struct cw_source *s, uint64_t row);
};

struct cw_source {
    const struct cw_source_ops *ops;
    uint64_t n_records;
    uint64_t source_bytes; /* of all records, docs/semantics.md section 1 */
    bool random_access;    /* every record can be read by itself */
    bool one_file_per_record;
    /* path of the first file whose records can't be read by themselves; NULL: there is none */
    const char *compressed;
    uint64_t n_chunks;
    uint64_t chunk_records;     /* all chunks have this many (the last may have fewer); 0: see chunk_ends */
    const uint64_t *chunk_ends; /* n_chunks, cumulative record counts; owned by the source */
    /* hash of what a record's components depend on beside its bytes, file key and row; 0: nothing */
    uint64_t context;
    uint64_t snapshot; /* hash of file keys and row counts: what state files compare */
};

/* The chunk that a row lies in. */
uint64_t cw_source_chunk_of(const struct cw_source *s, uint64_t row);
/* Where a chunk lies, a run of neighbouring records of a file; of a source that has `locate`. CW_E_DATA: its
 * records are no such run. */
int cw_source_chunk_extent(const struct cw_source *s, uint64_t k, struct cw_extent *ret);

/* Rows before the end of chunk k. */
static inline uint64_t cw_source_chunk_end(const struct cw_source *s, uint64_t k)
{
    return s->chunk_records ? CW_MIN((k + 1) * s->chunk_records, s->n_records) : s->chunk_ends[k];
}

static inline void cw_source_free(struct cw_source *s)
{
    if (s)
        s->ops->free(s);
}
