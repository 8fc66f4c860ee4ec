/*
 * Sources whose files have columns in groups of rows (row groups of Parquet, record batches of Arrow). This
 * file and its two .c files are what such sources share: names and types of the first file, opening of files,
 * columns that are kept between calls, and outputs. A struct row_group_format is what a format adds.
 */
#pragma once
#include <pthread.h>

#include "formats/columns.h"
#include "ops/source/table.h"
#include "pipeline/source.h"

struct row_groups;

/* A column of a group of a file. */
struct row_group_at {
    struct cw_file *file;
    void *meta;                          /* of the file */
    size_t number;                       /* of the group in the file */
    size_t column;                       /* of the file */
    const struct cw_table_column *table; /* the column of the table */
};

/* A row to load, and its index in the caller's list. */
struct row_group_wanted {
    uint64_t row; /* in the group */
    size_t place;
};

/* Values of the rows that one call of `load` gets. */
struct row_group_column {
    uint8_t *numbers;        /* of a type without varying dimensions: the elements, one after the other */
    struct cw_slice *slices; /* of others: by row */
    uint8_t *valid;          /* 0: null, without a default; 2: an element is null; NULL: no row is null */
};

struct row_group_format {
    const char *file; /* its name in messages */
    /* Reads what a file says about its columns and groups. Pass *ret to close. */
    int (*open)(struct cw_file *file, void **ret, struct cw_error *err);
    void (*close)(void *meta);
    /* A hash by which a file is compared with what it was when it was opened; also part of its key. */
    uint64_t (*content)(const void *meta);
    size_t (*n_columns)(const void *meta);
    struct cw_column_facts (*column)(const void *meta, size_t column);
    size_t (*n_groups)(const void *meta);
    uint64_t (*n_rows)(const void *meta, size_t group);
    uint64_t (*source_bytes)(const void *meta, size_t group, size_t column);
    /* Returns whether each row of the group can be read by itself. NULL: no. */
    bool (*random_access)(const void *meta, size_t group);
    /* Returns whether decode is not called for a column, and gather gets no values. NULL: no. */
    bool (*in_place)(const void *meta, size_t group, size_t column);
    /* Bytes that decode takes at most. */
    size_t (*decode_bytes)(const void *meta, size_t group, size_t column);
    /* Reads and decodes a column of a group. *ret: pass it to free_values; *ret_bytes: what it takes. */
    int (*decode)(const struct row_group_at *at, struct cw_arena *arena, void **ret, size_t *ret_bytes,
                  struct cw_error *err);
    void (*free_values)(void *values);
    /* Copies the values of the rows w[0..n), in ascending order, to their places in a column of n_rows rows.
     * The defaults of attribute `nulls` stand in place of nulls. */
    int (*gather)(const struct row_group_at *at, const void *values, const struct row_group_wanted *w,
                  size_t n, struct row_group_column *out, size_t n_rows, struct cw_arena *arena,
                  struct cw_error *err);
};

struct row_group_file {
    struct cw_file *file;
    void *meta; /* of the format */
    uint64_t key;
    size_t *column; /* by column of the table: the column of the file */
    const struct row_group_format *format;
};

struct row_group {
    size_t file, number; /* number: in the file */
    uint64_t first;      /* row of the source */
};

/* A decoded column of a group, shared by the threads that read from it. */
struct row_group_entry {
    struct row_group_entry *next; /* the most recently used entry comes first */
    size_t group;
    unsigned column; /* of the table */
    bool ready;      /* false: a thread decodes it */
    bool kept;       /* its bytes are charged to the budget */
    unsigned refs;
    struct cw_budget *budget;
    void *values; /* of the format */
    size_t bytes; /* of values */
};

struct row_groups { /* the source */
    struct cw_source base;
    const struct row_group_format *format;
    const struct cw_table *table;
    const struct cw_op *op; /* ports that are live tell which columns are read */
    struct row_group_file *files;
    size_t n_files;
    uint64_t *first; /* by file: its first row; then the number of rows */
    struct row_group *groups;
    size_t n_groups;
    uint64_t *chunk_ends; /* by group */
    size_t keep_bytes;    /* of entries that no thread uses, at most */
    pthread_mutex_t mutex;
    pthread_cond_t decoded;          /* an entry became ready, or was given up */
    struct row_group_entry *entries; /* guarded by mutex */
};

/* The rows of one call of `load`: for each row of the block, raw->data is this struct and raw->size the index
 * of the row in it. */
struct row_group_rows {
    /* by column of the table; zeros for a column that is not read */
    struct row_group_column columns[CW_OP_MAX_PORTS];
};

/* For cw_op_desc.bind and .open of an operator with the attributes files, columns and nulls; its op->state is
 * a struct cw_table. */
int row_groups_bind(struct cw_bind *b, struct cw_op *op, const struct row_group_format *format,
                    struct cw_error *err) _must_check_;
int row_groups_open(const struct cw_op *op, const struct row_group_format *format,
                    const struct cw_source_env *env, struct cw_source **ret,
                    struct cw_error *err) _must_check_;
/* Sets out->valid, which is all 1 until a row of it is set. NULL: err says why there is no memory. */
uint8_t *row_groups_valid(struct row_group_column *out, size_t n_rows, struct cw_arena *arena,
                          struct cw_error *err);

/* cw_source_ops.load and .trim */
int row_groups_load(const struct cw_source *s, const struct cw_load *l, struct cw_tensor *raw,
                    struct cw_error *err);
void row_groups_trim(struct cw_source *s, struct cw_budget *budget);
