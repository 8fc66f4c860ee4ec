/* A source whose files hold many records each, for tfrecord, text, jsonl, csv and tar. Index segments (one
 * per file) say where each record lies. */
#pragma once
#include <pthread.h>

#include "ops/source/source_files.h"
#include "dataset/index.h"
#include "pipeline/source.h"

struct cw_record_streams_options {
    enum cw_record_format format;
    /* cw_source_ops.produce */
    int (*produce)(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                   struct cw_error *err);
    bool partial_keys;   /* the file key covers only a part of the file's content */
    uint64_t n_headers;  /* records at the beginning of each file that are not rows: 0 or 1 (CSV) */
    uint64_t max_length; /* in bytes; longer records are not read: their raw bytes are empty. 0: no limit */
};

/* The stream of a compressed file, kept from one `load` to the next. In a file without restart points, the
 * next records would else be read from the beginning of the file. */
struct cw_record_streams_kept {
    pthread_mutex_t mutex;    /* guards the rest */
    struct cw_decompress *z;  /* NULL: none is kept */
    size_t file;              /* whose stream it is */
    struct cw_budget *budget; /* to which the stream's memory is charged */
};

struct cw_record_streams {
    struct cw_source base;
    struct cw_source_ops ops; /* base.ops */
    struct cw_index index;
    struct cw_file **files; /* index.n files */
    uint64_t *first;        /* index.n + 1 values: the first row of each file, then the number of records */
    uint64_t *chunk_ends;   /* for each chunk, the row after its last one */
    bool *keeps;            /* for each file: its stream is kept */
    struct cw_record_streams_options options;
    struct cw_record_streams_kept kept;
    void *state; /* of the operator that opened the source, with free_state; NULL: none */
    void (*free_state)(void *);
};

/* The attributes that cw_record_streams_open reads; they come first in the operator's table. */
#define CW_RECORD_STREAM_ATTRS \
    {.name = "files", \
     .kind = CW_ATTR_STRINGS, \
     .len_min = 1, \
     .scalar_too = true, \
     .path = true, \
     .doc = CW_SOURCE_FILES_DOC}, \
        {.name = "compression", \
         .kind = CW_ATTR_STRING, \
         .def = "\"auto\"", \
         .choices = cw_codec_names, \
         .doc = "compression of the files; auto: detected from the content"}

/* Opens the files and their indexes as a source. */
int cw_record_streams_open(const struct cw_op *op, const struct cw_source_env *env,
                           const struct cw_record_streams_options *options, struct cw_source **ret,
                           struct cw_error *err) _must_check_;
/* As cw_record_streams_open, of the given files, without reading attributes. */
int cw_record_streams_open_files(const struct cw_op *op, const struct cw_source_env *env,
                                 const struct cw_record_streams_options *options,
                                 const struct cw_source_files *files, enum cw_codec codec,
                                 struct cw_source **ret, struct cw_error *err) _must_check_;
/* Fails those rows of a block whose raw bytes, records of TFRecord files, don't match their CRCs. CW_E_DATA:
 * a record is another one than was indexed, in a file whose size and time stayed the same. */
int cw_record_streams_check_crcs(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                                 struct cw_error *err) _must_check_;
/* Reads record number `record` of a file, counted with its headers, for an operator that opens the source.
 * The caller frees *ret. CW_E_DATA: it has more than max_length bytes. */
int cw_record_streams_read(const struct cw_record_streams *f, size_t file, uint64_t record, uint8_t **ret,
                           size_t *ret_size, struct cw_error *err) _must_check_;
/* Returns the number of the file that holds a row; *ret_number: the row's number in that file, from 0. */
size_t cw_record_streams_file(const struct cw_record_streams *f, uint64_t row, uint64_t *ret_number);
/* Returns the length in bytes of a row's record, from the index; *ret_number: its number in its file, from 0.
 */
uint64_t cw_record_streams_length(const struct cw_record_streams *f, uint64_t row, uint64_t *ret_number);
