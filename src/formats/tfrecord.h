/*
 * TFRecord framing. A file is a sequence of records, each
 *     uint64 length, uint32 masked CRC-32C of the length, the data, uint32 masked CRC-32C of the data     (little-endian)
 * and nothing else; an empty file holds no record. A compressed file is such a stream inside gzip or zlib. "Stream" below is the plain
 * file or what is inside the compressed one.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macro.h"

struct cw_file;

#define CW_TFRECORD_HEADER 12
#define CW_TFRECORD_FRAME 16 /* bytes of a record that are not data */

/* Columns of the records found; owned by the walk until stolen. */
struct cw_tfrecord_list {
    size_t n, capacity;
    uint64_t *offsets; /* of the record's length field in the stream */
    uint64_t *lengths; /* of the data */
    uint32_t *crcs;    /* the data's CRC as it stands in the file; not checked here */
};
void cw_tfrecord_list_deinit(struct cw_tfrecord_list *l);

/* Finds the records of a stream from its pieces, in order; bytes of records' data may be left out. */
struct cw_tfrecord_walk {
    const char *path;     /* for messages; borrowed */
    uint64_t stream_size; /* where known (a plain file), else UINT64_MAX */
    uint64_t wanted;      /* stream offset of the next byte that must be fed */
    uint64_t start;       /* of the record wanted belongs to */
    uint64_t length;      /* of its data; valid while in_tail */
    bool in_tail;         /* the header was read: wanted is in the data's CRC */
    unsigned have;        /* bytes collected of header or CRC */
    uint8_t stash[CW_TFRECORD_HEADER];
    struct cw_tfrecord_list list;
};
void cw_tfrecord_walk_init(struct cw_tfrecord_walk *w, const char *path, uint64_t stream_size);
/* Takes the bytes [at, at + size) of the stream, at <= wanted. CW_E_DATA names file, record number and offset of what is damaged. */
int cw_tfrecord_feed(struct cw_tfrecord_walk *w, uint64_t at, const uint8_t *data, size_t size, struct cw_error *err) _must_check_;
/* The stream ended at size: an error if that is inside a record. */
int cw_tfrecord_end(const struct cw_tfrecord_walk *w, uint64_t size, struct cw_error *err) _must_check_;

/* Walks a plain file: reads only the frames where records are large, everything where they are small. cancelled may be NULL. */
int cw_tfrecord_scan(struct cw_tfrecord_walk *w, struct cw_file *file, int (*cancelled)(void *), void *cancel_arg,
                     struct cw_error *err) _must_check_;

/* True when these bytes start with a header whose CRC is right: certainly plain TFRecord. */
bool cw_tfrecord_is_header(const uint8_t *data, size_t size);

/* The masked CRC of a length, as it stands in the file. */
uint32_t cw_tfrecord_length_crc(uint64_t length);

/* Checks one whole record (header, data, CRC) of size bytes. NULL when good, else why writes into buf: the reason. */
const char *cw_tfrecord_check(const uint8_t *record, size_t size, char buf[160]);
