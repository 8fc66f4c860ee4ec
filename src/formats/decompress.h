/*
 * Reading compressed files (gzip, zlib, zstd, bzip2, xz) as one decompressed stream, from the start or from a
 * restart point. A restart point is a place at which decompression can begin: between two deflate blocks of
 * gzip and zlib, between two blocks of xz, at the start of a frame of zstd, and at the start of a stream of
 * bzip2 and xz. The *window* of a restart point is what the decoder must know of the bytes before it: for
 * gzip and zlib the 32 KiB of output before it, for xz the header of its stream, else nothing. A file is a
 * sequence of *members* (gzip members, zstd frames, streams of the others), which are read as one stream.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macro.h"

struct cw_file;
struct cw_decompress;

/* Index files store these numbers. */
enum cw_codec {
    CW_CODEC_AUTO,
    CW_CODEC_PLAIN,
    CW_CODEC_GZIP,
    CW_CODEC_ZLIB,
    CW_CODEC_ZSTD,
    CW_CODEC_BZIP2,
    CW_CODEC_XZ,
    CW_CODECS
};

/* The names of the codecs, by number: "auto", "none", "gzip", ...; then NULL. */
extern const char *const cw_codec_names[];
/* Returns the codec of a name; -1: the name is unknown. */
int cw_codec_parse(const char *name);
const char *cw_codec_name(enum cw_codec codec);
/* Returns the codec that the first bytes of a file indicate; any other bytes indicate plain. */
enum cw_codec cw_codec_detect(const uint8_t *head, size_t size);
/* Bytes that cw_codec_detect and cw_codec_unreadable look at. */
#define CW_CODEC_HEAD 12
/* Returns the name of a compression that can't be read, if the first bytes of a file indicate one; else
 * NULL. */
const char *cw_codec_unreadable(const uint8_t *head, size_t size);

#define CW_RESTART_WINDOW 32768 /* bytes of a window, at most */

struct cw_restart {
    uint64_t out;  /* position in the decompressed stream */
    uint64_t in;   /* offset in the file of the first byte of which the data before use no bit */
    uint32_t bits; /* 0-7: number of high bits of the byte before `in` with which the next block begins */
    uint32_t window_size; /* bytes of the window, up to CW_RESTART_WINDOW */
    uint64_t window;      /* offset of the window; the owner of the restart points defines of what */
};

/* Opens a stream at its beginning (from is NULL), or at a restart point with its window. The file must
 * outlive the stream. most: bytes that the stream may allocate; 0: no limit. */
int cw_decompress_open(struct cw_file *file, enum cw_codec codec, size_t most, const struct cw_restart *from,
                       const uint8_t *window, struct cw_decompress **ret, struct cw_error *err) _must_check_;
struct cw_decompress *cw_decompress_free(struct cw_decompress *z);
/* Reads up to `size` (> 0) bytes of the stream; *ret_n is their number, which is 0 only at the end. With
 * at_restarts the call also returns at each place that may become a restart point; then *ret_n may be 0
 * before the end of the stream, and cw_decompress_ended tells whether it ended. CW_E_DATA names the file and
 * the position. CW_E_BUDGET: the data take more memory than `most`. */
int cw_decompress_read(struct cw_decompress *z, void *buffer, size_t size, bool at_restarts, size_t *ret_n,
                       struct cw_error *err) _must_check_;
uint64_t cw_decompress_position(const struct cw_decompress *z);
bool cw_decompress_ended(const struct cw_decompress *z);
/* Returns the bytes that the stream has allocated at most until now. */
size_t cw_decompress_memory(const struct cw_decompress *z);
/* If the last read stopped at a place where decompression can begin, stores a restart point in *ret and its
 * window in `window` (CW_RESTART_WINDOW bytes), and returns true. */
bool cw_decompress_restart(struct cw_decompress *z, struct cw_restart *ret, uint8_t *window);
