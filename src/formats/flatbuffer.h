/*
 * Reads FlatBuffers (https://flatbuffers.dev/internals/), in which Arrow's metadata is written. Every access
 * checks that it stays within the buffer; after a reference that does not, `bad` is set, and values are
 * defaults. Pure functions over bytes in memory.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cw_flatbuffer {
    const uint8_t *data;
    size_t size;
    bool bad;
};

struct cw_flat_table { /* zeros: a table that is absent, whose fields all are */
    size_t at;         /* of the table in the buffer */
    size_t fields;     /* where its vtable's entries begin */
    size_t n_fields;
};

struct cw_flat_vector { /* zeros: an absent, empty vector */
    size_t at;          /* of its first element */
    size_t n;
};

struct cw_flat_table cw_flat_root(struct cw_flatbuffer *b);
/* The integer of `bytes` bytes (1, 2, 4, 8; signed) in field k of a table; absent: the default. */
int64_t cw_flat_int(struct cw_flatbuffer *b, struct cw_flat_table t, size_t k, size_t bytes, int64_t absent);
struct cw_flat_table cw_flat_child(struct cw_flatbuffer *b, struct cw_flat_table t, size_t k);
/* The vector of field k, whose elements have `bytes` bytes each. */
struct cw_flat_vector cw_flat_list(struct cw_flatbuffer *b, struct cw_flat_table t, size_t k, size_t bytes);
/* Element i of a vector of tables. */
struct cw_flat_table cw_flat_item(struct cw_flatbuffer *b, struct cw_flat_vector v, size_t i);
/* The integer of 8 bytes at `offset` in element i of a vector of structs of `bytes` bytes. */
int64_t cw_flat_long(const struct cw_flatbuffer *b, struct cw_flat_vector v, size_t i, size_t bytes,
                     size_t offset);
