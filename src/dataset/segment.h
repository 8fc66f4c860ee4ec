/*
 * Index segment of one file of records (TFRecord, text, tar): what there is to know to read any record of it.
 * Immutable.
 *
 * In memory and on disk it is the same bytes (native byte order; a file of the other order has another magic
 * number and is foreign): a header, then columns, each at a multiple of 8 bytes, so that the file can be
 * mapped: offsets u64[n], lengths u64[n], crcs u32[n] (TFRecord) or content u64 (others), chunk_ends
 * u64[chunks], struct cw_restart[restarts], their windows, relative path. A segment is good for a file of the
 * same size and times. Its checksum covers everything; beyond that every number is checked against the others
 * and the file's size before it is used, so that a forged one can mislead but not harm.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macro.h"
#include "formats/inflate.h"
#include "formats/walk.h"
#include "storage/file.h"

#define CW_CHUNK_BYTES ((uint64_t)4 << 20) /* docs/semantics.md section 1; never to be changed */
#define CW_CHUNK_RECORDS 1024

struct cw_segment {
    enum cw_record_format format;
    uint64_t file_key;
    struct cw_stat file;  /* as it was when it was indexed */
    enum cw_codec codec;  /* never CW_CODEC_AUTO */
    uint64_t stream_size; /* plain: the file size */
    uint64_t data_bytes;  /* sum of lengths */
    uint64_t n_records, n_chunks, n_restarts;
    const uint64_t *offsets;           /* in the stream; TFRecord: of the record's length field */
    const uint64_t *lengths;           /* of the data; tar: of the whole sample */
    const uint32_t *crcs;              /* TFRecord: of the data, as stored; else NULL */
    uint64_t content;                  /* others: hash of the content */
    const uint64_t *chunk_ends;        /* cumulative record counts of this file */
    const struct cw_restart *restarts; /* ascending; window counts from base */
    const char *relative_path;         /* which file_key was made with */
    const uint8_t *base;               /* everything above points into these bytes */
    size_t size;
    bool mapped; /* base is a mapping, else from malloc */
};

void cw_segment_deinit(struct cw_segment *s);

/* The bytes of record i that are read for it: a frame, a line with its end, a sample. The only place that
 * knows what surrounds the data. */
struct cw_span {
    uint64_t offset, size;
};
struct cw_span cw_segment_span(const struct cw_segment *s, uint64_t i);

/* First record of the chunk after the one that starts with record `first` of n. */
uint64_t cw_chunk_end(const uint64_t *lengths, uint64_t first, uint64_t n);

/* File key of docs/semantics.md section 1, from the segment's columns. */
uint64_t cw_segment_file_key(const struct cw_segment *s, const char *relative_path);

/* Reads a file and makes its segment. codec CW_CODEC_AUTO: by content. */
struct cw_segment_input {
    enum cw_record_format format;
    const char *path, *relative_path;
    struct cw_stat file;    /* a file that is otherwise is an error */
    struct cw_file *opened; /* the file, open; NULL: path is opened */
    enum cw_codec codec;
    int (*cancelled)(void *); /* may be NULL */
    void *cancel_arg;
};

int cw_segment_build(const struct cw_segment_input *in, struct cw_segment *ret,
                     struct cw_error *err) _must_check_;
/* Makes the segment again and compares it, byte for byte (cw_file_same): index is an array of segments. */
int cw_segment_same(const void *index, size_t i, struct cw_file *file, bool *ret,
                    struct cw_error *err) _must_check_;

struct cw_segment_body { /* on disk, after struct cw_index_header */
    uint64_t file_size;
    int64_t mtime_ns, ctime_ns;
    uint64_t file_key, codec, stream_size, n_records, n_chunks, n_restarts;
    uint64_t windows_size, path_size; /* path_size counts the NUL */
};

/* Looks at size bytes (8-byte aligned) as a segment: 0, or -1 when they are none or damaged. ret borrows
 * base, which the caller hands over by setting ret->mapped and leaving base to cw_segment_deinit, or keeps.
 */
int cw_segment_attach(const uint8_t *base, size_t size, struct cw_segment *ret) _must_check_;

/* Reads records of a file, n of them in ascending order, the span of records[i] into into[i]. Allocates up to
 * CW_SEGMENT_READ_BYTES meanwhile. */
#define CW_SEGMENT_READ_BYTES (CW_INFLATE_BYTES + ((size_t)32 << 10))
int cw_segment_read(const struct cw_segment *s, struct cw_file *file, const uint64_t *records, size_t n,
                    uint8_t *const *into, struct cw_error *err) _must_check_;

/* Every index file starts with this. */
struct cw_index_header {
    uint64_t magic;
    uint64_t checksum; /* XXH3_64 of everything after this field */
    uint32_t version;
    uint32_t kind; /* enum cw_index_kind */
    uint64_t size; /* of the whole file */
};

enum cw_index_kind { CW_INDEX_TFRECORD = 1, CW_INDEX_FILES = 2, CW_INDEX_LINES = 3, CW_INDEX_TAR = 4 };
enum cw_index_kind cw_index_kind_of(enum cw_record_format format);
/* Fills the header of a finished index file. */
void cw_index_seal(uint8_t *base, size_t size, enum cw_index_kind kind);
/* True when header and checksum fit. */
bool cw_index_sound(const uint8_t *base, size_t size, enum cw_index_kind kind);
