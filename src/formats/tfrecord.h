/*
 * TFRecord framing. A file is a sequence of records, each
 *     uint64 length, uint32 masked CRC-32C of the length, the data, uint32 masked CRC-32C of the data
 * (little-endian) and nothing else; an empty file holds no record. A compressed file is such a stream,
 * compressed. "Stream" below is the plain file or the decompressed content of a compressed file.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macro.h"
#include "formats/walk.h"

#define CW_TFRECORD_HEADER 12 /* bytes of length and CRC before the data */
#define CW_TFRECORD_FRAME 16  /* bytes of a record that are not data */

/* Finds the records of a stream; the records' data need not be fed to it. In its list, an offset is that of a
 * record's length field, and a length is that of the record's data. */
struct cw_tfrecord_walk {
    struct cw_walk base;
    uint64_t length;                   /* bytes of data of the record at base.start; valid while in_tail */
    bool in_tail;                      /* the header was read, and base.wanted lies in the data's CRC */
    unsigned have;                     /* bytes collected in stash */
    uint8_t stash[CW_TFRECORD_HEADER]; /* the beginning of a header or of a data CRC */
};

void cw_tfrecord_walk_init(struct cw_tfrecord_walk *w, const char *path, uint64_t stream_size);

/* Returns whether the bytes begin with a header whose CRC is right, and so are an uncompressed TFRecord file.
 */
bool cw_tfrecord_is_header(const uint8_t *data, size_t size);

/* Returns the masked CRC of a length, as it is stored in the file. */
uint32_t cw_tfrecord_length_crc(uint64_t length);

/* Makes a record of the `length` bytes of data that stand at record + CW_TFRECORD_HEADER: writes header and
 * CRC around them. Returns the bytes of the record. */
size_t cw_tfrecord_frame(uint8_t *record, size_t length);

/* Checks one whole record (header, data, CRC) of size bytes. Returns NULL if it is valid, else the reason,
 * which is written to buf. */
const char *cw_tfrecord_check(const uint8_t *record, size_t size, char buf[160]);
