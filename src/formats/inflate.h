/*
 * Reading gzip and zlib files as one decompressed stream, from the start or from a restart point. A restart
 * point is a place between two deflate blocks together with its *window*: the 32 KiB of output before that
 * place, which is all that later blocks may refer to. Several gzip members (or zlib streams) in a row are
 * read as one stream.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macro.h"

struct cw_file;
struct cw_inflate;

enum cw_codec { CW_CODEC_AUTO, CW_CODEC_PLAIN, CW_CODEC_GZIP, CW_CODEC_ZLIB };

/* "auto", "none", "gzip", "zlib"; -1 when the name is unknown. */
int cw_codec_parse(const char *name);
const char *cw_codec_name(enum cw_codec codec);
/* Returns the codec that the first bytes of a file indicate: gzip, zlib or (anything else) plain. */
enum cw_codec cw_codec_detect(const uint8_t *head, size_t size);
/* Returns the name of a compression that can't be read, if the first bytes of a file indicate one; else
 * NULL. */
const char *cw_codec_unreadable(const uint8_t *head, size_t size);

#define CW_INFLATE_WINDOW 32768
/* Bytes that one open stream may allocate at most (zlib's state, its window, the input buffer): for memory
 * budgets.
 */
#define CW_INFLATE_BYTES ((size_t)128 << 10)

struct cw_restart {
    uint64_t out;  /* position in the decompressed stream */
    uint64_t in;   /* offset in the file of the first byte of which the blocks before use no bit */
    uint32_t bits; /* 0-7: number of high bits of the byte before `in` with which the next block begins */
    uint32_t window_size; /* bytes of the window, up to CW_INFLATE_WINDOW */
    uint64_t window;      /* offset of the window; the owner of the restart points defines of what */
};

/* Opens a stream at its beginning (from is NULL), or at a restart point with its window. The file must
 * outlive the stream. */
int cw_inflate_open(struct cw_file *file, enum cw_codec codec, const struct cw_restart *from,
                    const uint8_t *window, struct cw_inflate **ret, struct cw_error *err) _must_check_;
struct cw_inflate *cw_inflate_free(struct cw_inflate *z);
/* Reads up to `size` (> 0) bytes of the stream; *ret_n is their number, which is 0 only at the end. With
 * at_blocks the call also returns at the end of each deflate block; then *ret_n may be 0 before the end of
 * the stream, and cw_inflate_ended tells whether it ended. CW_E_DATA names the file and the position. */
int cw_inflate_read(struct cw_inflate *z, void *buffer, size_t size, bool at_blocks, size_t *ret_n,
                    struct cw_error *err) _must_check_;
uint64_t cw_inflate_position(const struct cw_inflate *z);
bool cw_inflate_ended(const struct cw_inflate *z);
/* If the last read stopped between two blocks, stores a restart point in *ret and its window in `window`
 * (CW_INFLATE_WINDOW bytes), and returns true. */
bool cw_inflate_restart(struct cw_inflate *z, struct cw_restart *ret, uint8_t *window);
