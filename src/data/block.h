/*
 * A block: a run of consecutive elements on their way through the operators of a pipeline, one column per
 * value. It is the unit of scheduling: one thread at a time touches a block. Its memory (everything allocated
 * with cw_block_alloc) lives in the block's arena, is charged to the memory budget, and is gone when the
 * block is.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/arena.h"
#include "data/type.h"

enum cw_row_status {
    CW_ROW_OK = 0,
    CW_ROW_DROPPED = 1,  /* a filter said no */
    CW_ROW_FAILED = 2,   /* see block->faults */
    CW_ROW_REPLACED = 3, /* failed, and the engine holds another element for it: its columns are not read */
};

enum cw_record_flag {
    CW_RECORD_REPLACEMENT = 1, /* stands in for a record that failed (on_error replace) */
    CW_RECORD_PADDING = 2,     /* of a batch that fills up the last round of ranks */
};

struct cw_column {
    bool dense;    /* rows lie one after another, stride bytes apart, each of the type's fixed size */
    uint8_t *data; /* dense */
    size_t stride; /* dense; in bytes */
    const struct cw_type *type; /* dense: fixed */
    struct cw_tensor *rows;     /* not dense: one per row */
};

struct cw_record_id {
    uint64_t file_key, row;
    uint32_t pass;  /* combined ordinal of the repeats passed */
    uint16_t leaf;  /* source of the pipeline that it comes from */
    uint16_t flags; /* enum cw_record_flag */
    /* which of those that flat_map made of the record, counted from 1; 0: no flat_map was passed */
    uint32_t element;
};

struct cw_fault { /* why a row failed */
    struct cw_fault *next;
    size_t row;
    const char *op; /* operator's name, static */
    bool note;      /* the row did not fail: a warning for the log */
    char message[400];
};

struct cw_expansion { /* what flat_map makes of a block: its rows from then on */
    size_t n;
    /* Rows of the block, ascending. One that gave no element has a row here, dropped, if a fault may name it.
     */
    const uint32_t *origin;
    uint8_t *status;
    struct cw_column *columns; /* by value number */
};

struct cw_block {
    size_t n;                  /* rows */
    uint8_t *status;           /* n of enum cw_row_status */
    bool all_ok;               /* every status is CW_ROW_OK: lets loops skip the check */
    bool noted, failed;        /* earlier faults name rows that are OK; rows that are not */
    struct cw_column *columns; /* by value number; immutable once written */
    size_t n_values;           /* columns */
    /* by value number: where the rows of this value go in the batch, row after row; NULL: nowhere known */
    uint8_t *const *slots;
    const uint64_t *eids;   /* element ids of docs/randomness.md, n */
    const uint64_t *rows;   /* row of the source (over all its files), n */
    const uint32_t *origin; /* by row: which of the rows that the block began with it is of; NULL: the same */
    const struct cw_tensor *raw; /* sources that lie in files: the record's bytes as read, n */
    const uint64_t *keys;        /* by operator index: Philox key of (seed, epoch, salt) */
    struct cw_arena *arena;
    struct cw_fault *faults;
    struct cw_expansion *expansion; /* set by flat_map; taken by the engine */
    int (*cancelled)(void *);       /* non-zero: stop soon; for operators that wait */
    void *cancel_arg;
};

/* For each row i of a block that is CW_ROW_OK, while go. */
#define CW_ROWS_OK(i, block, go) \
    for (size_t i = 0; (go) && i < (block)->n; i++) \
        if ((block)->status[i] != CW_ROW_OK) { \
        } else

/* Memory in the block's arena, 64-byte aligned, not zeroed. NULL with err filled (CW_E_MEMORY or
 * CW_E_BUDGET). */
void *cw_block_alloc(struct cw_block *b, size_t bytes, struct cw_error *err);

/* Marks a row as failed, with the reason. The row's columns need no longer be written. Returns false, for
 * callers that return whether a row is good. */
bool cw_block_fail(struct cw_block *b, size_t row, const char *op, const char *fmt, ...) _printf_(4, 5);

/* Something about a row that did not fail: it is listed with the records that did. */
void cw_block_note(struct cw_block *b, size_t row, const char *op, const char *fmt, ...) _printf_(4, 5);

/* Words 4*n .. 4*n+3 of the draw of a row for an operator (its index in the program). */
void cw_block_draw(const struct cw_block *b, unsigned op_index, size_t row, uint32_t n, uint32_t out[4]);

/* Value v as a dense column of a fixed type (kept by reference): in the batch slab where its slots are known,
 * else in the arena. */
int cw_block_dense(struct cw_block *b, unsigned v, const struct cw_type *type,
                   struct cw_error *err) _must_check_;
/* Value v as a ragged column: rows zeroed, to be filled in by the operator. */
int cw_block_ragged(struct cw_block *b, unsigned v, struct cw_error *err) _must_check_;
/* Dense where the type is fixed, else ragged. */
int cw_block_column(struct cw_block *b, unsigned v, const struct cw_type *type,
                    struct cw_error *err) _must_check_;
/* Row r of value v. Zeroed where the row was never written (it failed or was dropped before). */
struct cw_tensor cw_block_row(const struct cw_block *b, unsigned v, size_t r);
/* Memory for row r of value v with these dims (ndim of them): the slot of a dense column (made by
 * cw_block_dense before), or fresh memory recorded in a ragged one. NULL with err filled. */
void *cw_block_row_out(struct cw_block *b, unsigned v, const struct cw_type *type, size_t r,
                       const int64_t *dims, int ndim, struct cw_error *err);
