/*
 * A data set in memory: columns of elements, by reference, in one piece or more. Immutable once registered;
 * any thread reads. References are counted; the process has a list of all there are, by id, which holds none
 * itself.
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

/* Elements first[k] .. first[k + 1] - 1 of a column. Exactly one of the forms:
 *   offsets and views NULL: each element is column->item bytes, one after the other from data on;
 *   offsets: element i is offsets[i + 1] - offsets[i] items of column->item bytes, from data + (offsets[i] -
 * base) * item on; views: element i is where views[i] says (bytes only). */
struct cw_array_piece {
    const uint8_t *data;
    const void *offsets;
    uint64_t base;        /* the offset that data stands for; no offset is below it */
    unsigned offset_size; /* 4 (int32) or 8 (uint64, int64): bytes of an offset */
    const struct cw_array_view *views;
};

struct cw_array_column {
    char *name;
    struct cw_type type; /* the first dimension may vary */
    /* bytes: of an element; of one step along the dimension that varies; 1 for bytes with offsets */
    size_t item;
    struct cw_array_piece *pieces;
    /* of the number of elements, and of what all columns up to this one were when they were registered: the
     * last one's is the id */
    struct cw_hash128 hash;
};

struct cw_arrays {
    char id[CW_ARRAYS_ID];
    uint64_t n_elements, total_bytes;
    size_t n_columns, n_pieces;
    struct cw_array_column *columns;
    uint64_t *first; /* n_pieces + 1 */
    void **owned;    /* memory from malloc that pieces lie in */
    size_t n_owned, owned_room;
    void (*release)(void *arg); /* called when it is freed; may be NULL */
    void *arg;
    unsigned refs;          /* guarded by the registry's mutex */
    struct cw_arrays *next; /* guarded by the registry's mutex */
};

/* Making one: new, add columns and pieces, then cw_arrays_register, which checks it, computes the id and
 * makes it findable. Until then it is freed with cw_arrays_free, which does not call release. */
struct cw_arrays *cw_arrays_new(size_t n_columns, size_t n_pieces);
void cw_arrays_free(struct cw_arrays *a);
/* Memory that lives as long as a; NULL: none. */
void *cw_arrays_own(struct cw_arrays *a, size_t bytes);
/* The name is copied. item follows from the type, but for bytes of one size. CW_E_OPTION where name or type
 * won't do. */
int cw_arrays_column(struct cw_arrays *a, size_t i, const char *name, const struct cw_type *type,
                     struct cw_error *err) _must_check_;
/* From now on it has one reference and is read only. In case of error it is as it was. */
int cw_arrays_register(struct cw_arrays *a, struct cw_error *err) _must_check_;

/* A new reference to those with this id; NULL: there are none. */
struct cw_arrays *cw_arrays_find(const char *id);
struct cw_arrays *cw_arrays_ref(struct cw_arrays *a);
/* The last one frees, on the calling thread. NULL is fine. */
void cw_arrays_unref(struct cw_arrays *a);

/* Lets a reader of a whole data set, which may take long, be cancelled. Zero it before use; cancelled is
 * optional. */
struct cw_arrays_look {
    int (*cancelled)(void *); /* may be NULL */
    void *cancel_arg;
    uint64_t bytes; /* that may be read before the next look */
};

/* Called before `bytes` more are read. CW_E_INTERRUPTED if it is cancelled. Looks at the first call, and then
 * once in a while. */
int cw_arrays_look(struct cw_arrays_look *look, size_t bytes, struct cw_error *err) _must_check_;
/* Whether the content is still that of the id: the memory belongs to the program, which may write to it.
 * Reads all of it. CW_E_DATA names the first column that is another. */
int cw_arrays_check(const struct cw_arrays *a, struct cw_arrays_look *look,
                    struct cw_error *err) _must_check_;
/* Element i of a column. dims as in the type, with the one that varies filled in. */
struct cw_tensor cw_arrays_get(const struct cw_arrays *a, const struct cw_array_column *c, uint64_t i);

/* Everything of a stream of struct arrays (arrow.h), by reference where Arrow's layout allows it. Releases
 * the stream, in case of error too. *ret is registered and has one reference. CW_E_DATA names the column (and
 * row) that can't be taken. */
int cw_arrays_from_arrow(struct ArrowArrayStream *stream, struct cw_arrays **ret,
                         struct cw_error *err) _must_check_;
