/* The row groups of the files of a parquet source, and the decoded columns that it keeps. */
#pragma once
#include <pthread.h>

#include "formats/parquet.h"
#include "ops/source/table.h"
#include "pipeline/source.h"

struct parquet_file {
    struct cw_file *file;
    struct cw_parquet_file meta;
    uint64_t key;
    size_t *column; /* by column of the table: the column of the file */
};

struct parquet_group {
    size_t file, number; /* number: in the file */
    uint64_t first;      /* row of the source */
};

/* A decoded column of a row group, shared by the threads that read from it. */
struct parquet_entry {
    struct parquet_entry *next; /* the most recently used entry comes first */
    size_t group;
    unsigned column; /* of the table */
    bool ready;      /* false: a thread decodes it */
    bool kept;       /* its bytes are charged to the budget */
    unsigned refs;
    struct cw_budget *budget;
    struct cw_parquet_values values;
};

struct parquet_source {
    struct cw_source base;
    const struct cw_table *table;
    const struct cw_op *op; /* ports that are live tell which columns are read */
    struct parquet_file *files;
    size_t n_files;
    uint64_t *first; /* by file: its first row; then the number of rows */
    struct parquet_group *groups;
    size_t n_groups;
    uint64_t *chunk_ends; /* by group */
    size_t keep_bytes;    /* of entries that no thread uses, at most */
    pthread_mutex_t mutex;
    pthread_cond_t decoded;        /* an entry became ready, or was given up */
    struct parquet_entry *entries; /* guarded by mutex */
};

/* The rows of one call of `load`: for each row of the block, raw->data is this struct and raw->size the index
 * of the row in it. */
struct parquet_rows {
    struct parquet_rows_column {
        uint8_t *numbers;                /* of scalars */
        struct cw_parquet_slice *slices; /* of bytes and lists */
        uint8_t *valid;         /* 0: null, without a default; 2: an element is null; NULL: no row is */
    } columns[CW_OP_MAX_PORTS]; /* by column of the table; zeros for a column that is not read */
};

/* cw_source_ops.load and .trim */
int parquet_load(const struct cw_source *s, const struct cw_load *l, struct cw_tensor *raw,
                 struct cw_error *err);
void parquet_trim(struct cw_source *s, struct cw_budget *budget);
