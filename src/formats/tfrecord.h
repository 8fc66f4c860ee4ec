/*
 * TFRecord framing. A file is a sequence of records, each
 *     uint64 length, uint32 masked CRC-32C of the length, the data, uint32 masked CRC-32C of the data
 * (little-endian) and nothing else; an empty file holds no record. A compressed file is such a stream inside
 * gzip or zlib. "Stream" below is the plain file or what is inside the compressed one.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macro.h"
#include "formats/walk.h"

#define CW_TFRECORD_HEADER 12
#define CW_TFRECORD_FRAME 16 /* bytes of a record that are not data */

/* Finds the records of a stream; bytes of records' data may be left out of what is fed. offsets: of the
 * record's length field; lengths: of its data. */
struct cw_tfrecord_walk {
    struct cw_walk base;
    uint64_t length; /* of the data of the record at base.start; valid while in_tail */
    bool in_tail;    /* the header was read: what is wanted is in the data's CRC */
    unsigned have;   /* bytes collected of header or CRC */
    uint8_t stash[CW_TFRECORD_HEADER];
};

void cw_tfrecord_walk_init(struct cw_tfrecord_walk *w, const char *path, uint64_t stream_size);

/* True when these bytes start with a header whose CRC is right: certainly plain TFRecord. */
bool cw_tfrecord_is_header(const uint8_t *data, size_t size);

/* The masked CRC of a length, as it stands in the file. */
uint32_t cw_tfrecord_length_crc(uint64_t length);

/* Checks one whole record (header, data, CRC) of size bytes. NULL when good, else why writes into buf: the
 * reason. */
const char *cw_tfrecord_check(const uint8_t *record, size_t size, char buf[160]);
