/*
 * Reading a file from front to back. Of an object of a server, the next blocks are requested before they are
 * needed, so that the time of a request is not spent for each of them; a local file is read as it is, because
 * the kernel reads ahead. One thread at a time.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "storage/file.h"

struct cw_object_read;

/* The blocks of one reader. 2 MiB in flight are 100 MB/s if a request takes 20 ms. */
#define CW_AHEAD_BLOCK ((size_t)256 << 10)
#define CW_AHEAD_BLOCKS 8
/* Bytes that reading an object ahead takes. */
#define CW_AHEAD_BYTES (CW_AHEAD_BLOCK * CW_AHEAD_BLOCKS)

struct cw_ahead {
    struct cw_file *file;

    struct cw_ahead_block {
        uint64_t offset;
        size_t size;
        uint8_t *data;
        struct cw_object_read *read; /* in progress; NULL: the data are there */
    } blocks[CW_AHEAD_BLOCKS];       /* a ring of neighbouring blocks */

    unsigned first, n;
    unsigned depth; /* blocks to keep requested; it grows while the file is read in order */
};

/* Initialises a reader of a file, which must outlive it. */
void cw_ahead_init(struct cw_ahead *a, struct cw_file *file);
/* Frees the blocks. Accepts a zeroed reader. */
void cw_ahead_deinit(struct cw_ahead *a);
/* Reads exactly n bytes at offset. */
int cw_ahead_read(struct cw_ahead *a, uint64_t offset, void *to, size_t n, struct cw_error *err) _must_check_;
