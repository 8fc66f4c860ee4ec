/*
 * A data set in memory: columns of elements in the program's own memory, each in one or more pieces.
 * Immutable once registered; then any thread may read it. References are counted. The process has a registry
 * of all data sets by their id; the registry itself holds no reference.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"
#include "data/type.h"

#define CW_ARRAYS_ID 33 /* 32 hexadecimal digits and a NUL */

struct ArrowArrayStream;

struct cw_array_view {
    const uint8_t *data;
    size_t size;
};

/* Piece k of a column: the stored elements first[k] .. first[k + 1] - 1. It has one of three forms:
 *
 *   - offsets and views are NULL: each element has column->item bytes; the elements follow one another from
 * data on;
 *   - offsets: element i of the piece has offsets[i + 1] - offsets[i] items of column->item bytes each, and
 * begins at data + (offsets[i] - base) * item;
 *   - views: views[i] says where element i of the piece lies (bytes only). */
struct cw_array_piece {
    const uint8_t *data;
    const void *offsets;
    uint64_t base;        /* the offset of the item at data; every offset is at least this */
    unsigned offset_size; /* bytes of an offset: 4 (int32) or 8 (uint64, int64) */
    const struct cw_array_view *views;
};

struct cw_array_column {
    char *name;
    struct cw_type type; /* the first dimension may vary */
    /* bytes of an element; if the first dimension varies, bytes of one step along it; 1 for bytes with
     * offsets */
    size_t item;
    struct cw_array_piece *pieces;
    /* hash of the number of elements and of the content of all columns up to this one, at registration; the
     * id is the hash of the last column */
    struct cw_hash128 hash;
};

struct cw_arrays {
    char id[CW_ARRAYS_ID];
    uint64_t n_elements, total_bytes;
    size_t n_columns, n_pieces;
    struct cw_array_column *columns;
    uint64_t *first; /* by piece: number of its first stored element; n_pieces + 1 entries */
    /* element i of the data set is the stored element rows[i]; NULL: every stored element, in order */
    const uint64_t *rows;
    void **owned; /* blocks of memory from malloc, freed with the data set */
    size_t n_owned, owned_room;
    void (*release)(void *arg); /* called when the data set is freed; may be NULL */
    void *arg;
    unsigned refs;          /* guarded by the registry's mutex */
    struct cw_arrays *next; /* guarded by the registry's mutex */
};

/* To make a data set: call cw_arrays_new, fill in columns and pieces, then call cw_arrays_register, which
 * checks the data set, computes its id and adds it to the registry. Before that, cw_arrays_free frees the
 * data set without calling release. */
struct cw_arrays *cw_arrays_new(size_t n_columns, size_t n_pieces);
void cw_arrays_free(struct cw_arrays *a);
/* Returns new memory that is freed with a; NULL: out of memory. */
void *cw_arrays_own(struct cw_arrays *a, size_t bytes);
/* Sets name (copied), type and item of column i. item follows from the type; for bytes elements of one size
 * the caller sets it afterwards. CW_E_OPTION: the name or the type is not valid. */
int cw_arrays_column(struct cw_arrays *a, size_t i, const char *name, const struct cw_type *type,
                     struct cw_error *err) _must_check_;
/* Chooses the elements of the data set among the stored ones: element i is the stored element rows[i]. rows
 * is copied. Called at most once, when the pieces are filled in. CW_E_OPTION: a row does not exist. */
int cw_arrays_choose(struct cw_arrays *a, const uint64_t *rows, uint64_t n,
                     struct cw_error *err) _must_check_;
/* Registers a, which from now on is immutable and has one reference, the caller's. After an error a is
 * unchanged. */
int cw_arrays_register(struct cw_arrays *a, struct cw_error *err) _must_check_;

/* Returns a new reference to the data set with this id; NULL: none is registered. */
struct cw_arrays *cw_arrays_find(const char *id);
struct cw_arrays *cw_arrays_ref(struct cw_arrays *a);
/* Gives back a reference. The last one frees the data set, in the calling thread. Accepts NULL. */
void cw_arrays_unref(struct cw_arrays *a);

/* Lets a thread that reads a whole data set, which may take long, be cancelled. Zero it before use. */
struct cw_arrays_look {
    int (*cancelled)(void *); /* true: stop; may be NULL */
    void *cancel_arg;
    uint64_t bytes; /* bytes that may be read before `cancelled` is called again */
};

/* To be called before each read of `bytes` bytes. Returns CW_E_INTERRUPTED if the reading is cancelled. Calls
 * look->cancelled at the first call, and then from time to time. */
int cw_arrays_look(struct cw_arrays_look *look, size_t bytes, struct cw_error *err) _must_check_;
/* Checks that the content is still the content at registration, because the program may have written to its
 * memory. Reads all data. CW_E_DATA names the first column that changed. */
int cw_arrays_check(const struct cw_arrays *a, struct cw_arrays_look *look,
                    struct cw_error *err) _must_check_;
/* Returns element i of a column, by reference. Its dims are those of the type, with the actual size of the
 * dimension that varies. */
struct cw_tensor cw_arrays_get(const struct cw_arrays *a, const struct cw_array_column *c, uint64_t i);

/* Makes a data set of the rows of an Arrow stream of struct arrays (arrow.h): of all rows, or, if rows is not
 * NULL, of the n_rows rows that it numbers, in this order. Data are used by reference where Arrow's layout
 * allows it, else copied. Releases the stream, also after an error. *ret is registered and has one reference.
 * CW_E_DATA names the column (and row) that is not supported. */
int cw_arrays_from_arrow(struct ArrowArrayStream *stream, const uint64_t *rows, uint64_t n_rows,
                         struct cw_arrays **ret, struct cw_error *err) _must_check_;
