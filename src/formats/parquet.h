/*
 * Parquet files (https://parquet.apache.org/docs/file-format/): the metadata in a file's footer, and the
 * values of a column chunk, that is of one column of one row group. Pure functions over bytes in memory; any
 * thread.
 */
#pragma once
#include "base/error.h"
#include "formats/columns.h"

struct cw_file;

enum cw_parquet_physical {
    CW_PARQUET_BOOLEAN,
    CW_PARQUET_INT32,
    CW_PARQUET_INT64,
    CW_PARQUET_INT96,
    CW_PARQUET_FLOAT,
    CW_PARQUET_DOUBLE,
    CW_PARQUET_BYTE_ARRAY,
    CW_PARQUET_FIXED
};

struct cw_parquet_column {
    char *name; /* the names on the path to it, joined by dots, without the levels within a list */
    const char *unreadable; /* what it is, if it has no form as a component (static text); else NULL */
    struct cw_type type;    /* a scalar, or a list of numbers: one dimension that varies */
    enum cw_parquet_physical physical;
    uint32_t width; /* bytes of a value of CW_PARQUET_FIXED */
    /* definition and repetition levels of a value; list_def: of an element of a list that may be null */
    uint8_t max_def, max_rep, list_def;
};

struct cw_parquet_chunk {
    uint64_t offset, size; /* in the file */
    uint64_t unpacked;     /* bytes of its pages when they are decompressed */
    uint64_t n_values;     /* with nulls */
    int codec;
};

struct cw_parquet_group { /* a row group */
    uint64_t n_rows;
    struct cw_parquet_chunk *chunks; /* n_columns */
};

struct cw_parquet_file {
    struct cw_parquet_column *columns;
    size_t n_columns;
    struct cw_parquet_group *groups;
    size_t n_groups;
    uint64_t n_rows;
    uint64_t content; /* XXH3_64 of the footer */
};

/* Reads the footer of a file. CW_E_DATA: it is not a Parquet file, or its footer is damaged. */
int cw_parquet_open(struct cw_file *file, struct cw_parquet_file *ret, struct cw_error *err) _must_check_;
void cw_parquet_close(struct cw_parquet_file *f);

struct cw_parquet_blob;

/* The values of a column chunk. */
struct cw_parquet_values {
    uint64_t n_rows, n_elements;
    size_t item;                   /* bytes of a number */
    uint8_t *numbers;              /* of each row; of a list: the elements of all rows. bytes: NULL */
    struct cw_slice *slices;       /* bytes and lists: the value of each row */
    uint8_t *valid;                /* by row: 0 where it is null; NULL: no row is null */
    uint8_t *element_valid;        /* by element of a list: 0 where it is null; NULL: no element is null */
    struct cw_parquet_blob *blobs; /* memory that slices point into */
    size_t bytes;                  /* memory of all this */
};

/* Bytes behind the data of a chunk that cw_parquet_decode may read. */
#define CW_PARQUET_SLACK 16
/* Returns the bytes that cw_parquet_decode takes at most, beside the chunk's data. */
size_t cw_parquet_decode_bytes(const struct cw_parquet_column *c, const struct cw_parquet_chunk *k,
                               uint64_t n_rows);
#define CW_PARQUET_WHY 200
/* Decodes the chunk's data, whose bytes are read from k->offset on. Returns 0; CW_E_MEMORY; or CW_E_DATA,
 * with the reason in `why`. *data is malloced, with CW_PARQUET_SLACK bytes after it; values may take it over
 * and set it to NULL. */
int cw_parquet_decode(const struct cw_parquet_column *c, const struct cw_parquet_chunk *k, uint64_t n_rows,
                      uint8_t **data, struct cw_parquet_values *ret, char why[CW_PARQUET_WHY]) _must_check_;
void cw_parquet_values_deinit(struct cw_parquet_values *v);
