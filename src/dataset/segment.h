/*
 * Index segment of one file of records (TFRecord, text, tar, CSV): where each record lies, so that any record
 * can be read. Immutable.
 *
 * A segment has the same bytes in memory and on disk (docs/index-files.md): a header, then columns, each at a
 * multiple of 8 bytes, so that the file can be mapped: offsets u64[n], lengths u64[n], crcs u32[n] (TFRecord)
 * or content u64 (other formats), chunk_ends u64[chunks], struct cw_restart[restarts], their windows,
 * relative path. Numbers are in the machine's byte order; on a machine of the other order the magic number
 * differs. A segment is valid for a file of the size and times that it states. Its checksum covers
 * everything. Before a number is used, it is also checked against the other numbers and the file's size. So a
 * forged segment can give wrong records, but can't make the program read out of bounds.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macro.h"
#include "formats/decompress.h"
#include "formats/walk.h"
#include "storage/file.h"

#define CW_CHUNK_BYTES \
    ((uint64_t)4 << 20) /* limits of a chunk: docs/semantics.md, section 1; never change \
                         */
#define CW_CHUNK_RECORDS 1024

struct cw_segment {
    enum cw_record_format format;
    uint64_t file_key;
    struct cw_stat file;  /* the file's status when it was indexed */
    enum cw_codec codec;  /* never CW_CODEC_AUTO */
    uint64_t stream_size; /* plain: the file size */
    uint64_t memory;      /* bytes that decompression allocates at most; plain: 0 */
    uint64_t data_bytes;  /* sum of lengths */
    uint64_t n_records, n_chunks, n_restarts;
    const uint64_t *offsets;           /* in the stream; TFRecord: of the record's length field */
    const uint64_t *lengths;           /* bytes of the data; tar: of the whole sample */
    const uint32_t *crcs;              /* TFRecord: masked CRC-32C of the data, as stored; else NULL */
    uint64_t content;                  /* text, tar: hash of the content that file_key is made of */
    const uint64_t *chunk_ends;        /* by chunk: number of records of this file up to the chunk's end */
    const struct cw_restart *restarts; /* ascending; their `window` is an offset from base */
    const char *relative_path;         /* the relative path that file_key was made with */
    const uint8_t *base;               /* everything above points into these bytes */
    size_t size;
    bool mapped; /* base is a mapping, else from malloc */
    bool remote; /* the file is an object of a server */
};

void cw_segment_deinit(struct cw_segment *s);

/* A range of bytes of the stream (the decompressed file). */
struct cw_span {
    uint64_t offset, size;
};
/* Returns the bytes that must be read for record i: a TFRecord frame, a line with its end, or a sample of a
 * tar. */
struct cw_span cw_segment_span(const struct cw_segment *s, uint64_t i);

/* Sets *ret to the codec of an opened file: `wanted`, or for CW_CODEC_AUTO the one that the file's first
 * bytes indicate. CW_E_DATA: a compression that can't be read. */
int cw_segment_codec(enum cw_record_format format, struct cw_file *file, enum cw_codec wanted,
                     enum cw_codec *ret, struct cw_error *err) _must_check_;

/* Returns how many bytes of the stream are decompressed and discarded, at most, to reach the beginning of a
 * chunk. */
uint64_t cw_segment_discarded(const struct cw_segment *s);

/* Returns the number of the record after the chunk that starts with record `first`. n: number of records. */
uint64_t cw_chunk_end(const uint64_t *lengths, uint64_t first, uint64_t n);

/* Returns the file key (docs/semantics.md, section 1), computed from the segment's columns. */
uint64_t cw_segment_file_key(const struct cw_segment *s, const char *relative_path);

struct cw_segment_input {
    enum cw_record_format format;
    const char *path, *relative_path;
    struct cw_stat file;      /* expected status: if the file differs, that is an error */
    struct cw_file *opened;   /* a handle of the file; NULL: path is opened */
    enum cw_codec codec;      /* CW_CODEC_AUTO: found from the content */
    size_t memory;            /* bytes that decompression may allocate; 0: no limit */
    int (*cancelled)(void *); /* true: stop; may be NULL */
    void *cancel_arg;
};

/* Reads a file and makes its segment, which the caller deinits. CW_E_BUDGET: decompression takes more than
 * in->memory. */
int cw_segment_build(const struct cw_segment_input *in, struct cw_segment *ret,
                     struct cw_error *err) _must_check_;
/* A cw_file_same: makes the segment of a file again and compares it byte for byte with segment i. index: an
 * array of segments. */
int cw_segment_same(const void *index, size_t i, struct cw_file *file, bool *ret,
                    struct cw_error *err) _must_check_;

struct cw_segment_body { /* on disk, after struct cw_index_header */
    uint64_t file_size;
    int64_t mtime_ns, ctime_ns;
    uint64_t file_key, codec, stream_size, memory, n_records, n_chunks, n_restarts;
    uint64_t windows_size, path_size; /* path_size counts the NUL */
};

/* Reads `size` bytes (8-byte aligned) as a segment. Returns 0, or -1 if they are damaged or not a segment.
 * *ret borrows base. To let cw_segment_deinit free base, the caller sets ret->mapped to say how. */
int cw_segment_attach(const uint8_t *base, size_t size, struct cw_segment *ret) _must_check_;

/* Returns the bytes that cw_segment_read allocates at most during a call. */
size_t cw_segment_read_bytes(const struct cw_segment *s);
/* Reads n records of a file, whose numbers ascend: the span (cw_segment_span) of records[i] into into[i]. *z:
 * a stream of this file from an earlier call, or NULL. After the call, which may replace it, *z is the stream
 * behind the last record, which the caller frees (cw_decompress_free); NULL after a failure, or if the file
 * is plain. */
int cw_segment_read(const struct cw_segment *s, struct cw_file *file, const uint64_t *records, size_t n,
                    uint8_t *const *into, struct cw_decompress **z, struct cw_error *err) _must_check_;

/* Every index file starts with this. */
struct cw_index_header {
    uint64_t magic;
    uint64_t checksum; /* XXH3_64 of everything after this field */
    uint32_t version;
    uint32_t kind; /* enum cw_index_kind */
    uint64_t size; /* of the whole file */
};

enum cw_index_kind {
    CW_INDEX_TFRECORD = 1,
    CW_INDEX_FILES = 2,
    CW_INDEX_LINES = 3,
    CW_INDEX_TAR = 4,
    CW_INDEX_CSV = 5,
    CW_INDEX_CSV_TAB = 6,
    CW_INDEX_CSV_SEMICOLON = 7,
    CW_INDEX_CSV_PIPE = 8
};
enum cw_index_kind cw_index_kind_of(enum cw_record_format format);
/* Fills the header of a finished index file. */
void cw_index_seal(uint8_t *base, size_t size, enum cw_index_kind kind);
/* Returns whether header, kind, size and checksum of an index file are right. */
bool cw_index_sound(const uint8_t *base, size_t size, enum cw_index_kind kind);
