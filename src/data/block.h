/*
 * A block: a run of consecutive elements on their way through the operators of a pipeline. Each row is an
 * element; each column is a value, that is an input or output component of an operator. A block is the unit
 * of scheduling: one thread at a time uses a block. Its memory (from cw_block_alloc) lies in the block's
 * arena, is charged to the memory budget, and is freed with the block.
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
    CW_ROW_DROPPED = 1,  /* a filter dropped the element */
    CW_ROW_FAILED = 2,   /* an operator failed: block->faults says why */
    CW_ROW_REPLACED = 3, /* failed, and the engine holds a replacement: the row's columns are not read */
};

enum cw_record_flag {
    CW_RECORD_REPLACEMENT = 1, /* replaces a record that failed (on_error "replace") */
    CW_RECORD_PADDING = 2,     /* belongs to a repeated batch that fills up the last round of ranks */
};

struct cw_column {
    bool dense;    /* all rows have the type's fixed size and lie `stride` bytes apart; false: "ragged" */
    uint8_t *data; /* dense: the first row */
    size_t stride; /* dense: bytes */
    const struct cw_type *type; /* dense: a fixed type */
    struct cw_tensor *rows;     /* ragged: the value of each row */
};

struct cw_record_id {
    uint64_t file_key, row;
    uint32_t pass;  /* combined pass number of the repeats */
    uint16_t leaf;  /* number of the source in the pipeline */
    uint16_t flags; /* enum cw_record_flag */
    /* number, from 1, among the elements that flat_map made of the record; 0: the pipeline has no flat_map so
     * far */
    uint32_t element;
};

struct cw_fault { /* why a row failed */
    struct cw_fault *next;
    size_t row;
    const char *op; /* the operator's name, static */
    bool note;      /* the row did not fail: the message is a warning for the log */
    char message[400];
    const char *detail; /* as cw_error.detail; NULL: none */
};

struct cw_expansion { /* the rows by which an operator replaces the rows of a block: flat_map, pack, window */
    size_t n;         /* number of new rows */
    /* true: each new row joins several old rows, which were made of one position; origin has the last of
     * them. The new rows are the rows of the positions. */
    bool joins;
    /* by new row: number of the old row that it comes from, ascending. An old row that gave no element has
     * one new row, with the status dropped, if a fault may name it. */
    const uint32_t *origin;
    uint8_t *status;           /* by new row */
    struct cw_column *columns; /* by value number */
};

struct cw_memo; /* storage/memo.h */

struct cw_block {
    size_t n;                  /* number of rows */
    uint8_t *status;           /* by row: enum cw_row_status */
    bool all_ok;               /* every status is CW_ROW_OK, so loops may skip the check */
    bool noted, failed;        /* faults has notes on rows that are OK; faults has rows that failed */
    struct cw_column *columns; /* by value number; immutable once written */
    size_t n_values;           /* number of columns */
    /* by value number: memory in a batch into which the rows of this value are to be written, one after the
     * other; NULL: not known */
    uint8_t *const *slots;
    const uint64_t *eids; /* by row: element id (docs/randomness.md) */
    const uint64_t *rows; /* by row: row of the source, counted over all its files */
    /* by row: number of the row of the original block that it comes from; NULL: the rows are the original
     * ones */
    const uint32_t *origin;
    const struct cw_tensor *raw; /* of sources that lie in files: by row, the record's bytes as read */
    const uint64_t *keys;        /* by operator index: Philox key of (seed, epoch, salt) */
    struct cw_arena *arena;
    struct cw_fault *faults;        /* a list */
    struct cw_expansion *expansion; /* set by an operator; the engine applies it and sets it to NULL */
    struct cw_memo *memo;           /* what operators remember of their inputs; NULL: nothing */
    int (*cancelled)(void *);       /* non-zero: stop soon; for operators that wait */
    void *cancel_arg;
};

/* A loop over the rows i of a block whose status is CW_ROW_OK; it ends early when `go` is false. */
#define CW_ROWS_OK(i, block, go) \
    for (size_t i = 0; (go) && i < (block)->n; i++) \
        if ((block)->status[i] != CW_ROW_OK) { \
        } else

/* Returns memory in the block's arena, aligned to 64 bytes, not zeroed. NULL: err says why (CW_E_MEMORY or
 * CW_E_BUDGET). */
void *cw_block_alloc(struct cw_block *b, size_t bytes, struct cw_error *err);

/* Sets b->expansion and *ret to an expansion that has given[i] rows for each row i of the block, or one row
 * if given[i] is 0: with the status of row i, or CW_ROW_DROPPED if that is CW_ROW_OK. The caller makes its
 * columns. */
int cw_block_expand(struct cw_block *b, const uint32_t *given, struct cw_expansion **ret,
                    struct cw_error *err) _must_check_;

/* Marks a row as failed, with the reason; op is the operator's name. The row's columns need not be written
 * any more. Returns false, for callers that return whether a row is good. */
bool cw_block_fail(struct cw_block *b, size_t row, const char *op, const char *fmt, ...) _printf_(4, 5);

/* Adds a detail (as cw_error.detail) to the fault that was added last. json is copied; NULL: none. */
void cw_block_detail(struct cw_block *b, const char *json);

/* Adds a note about a row that did not fail. Notes are listed together with the records that failed. */
void cw_block_note(struct cw_block *b, size_t row, const char *op, const char *fmt, ...) _printf_(4, 5);

/* Stores words 4*n .. 4*n+3 of the random draw of a row for an operator in out. op_index: in the program. */
void cw_block_draw(const struct cw_block *b, unsigned op_index, size_t row, uint32_t n, uint32_t out[4]);

/* Makes value v a dense column of a fixed type, which must outlive the block. The column lies in the batch if
 * b->slots[v] is known, else in the arena. */
int cw_block_dense(struct cw_block *b, unsigned v, const struct cw_type *type,
                   struct cw_error *err) _must_check_;
/* Makes value v a ragged column. All its rows are zeroed; the operator fills them in. */
int cw_block_ragged(struct cw_block *b, unsigned v, struct cw_error *err) _must_check_;
/* Makes value v a dense column if the type is fixed, else a ragged column. */
int cw_block_column(struct cw_block *b, unsigned v, const struct cw_type *type,
                    struct cw_error *err) _must_check_;
/* Returns row r of value v; zeros if the row was never written because it failed or was dropped before. */
struct cw_tensor cw_block_row(const struct cw_block *b, unsigned v, size_t r);
/* Returns the memory for row r of value v, of the given ndim dims: the row of a dense column, which
 * cw_block_dense made before, or new memory that is recorded in a ragged column. NULL: err says why. */
void *cw_block_row_out(struct cw_block *b, unsigned v, const struct cw_type *type, size_t r,
                       const int64_t *dims, int ndim, struct cw_error *err);
