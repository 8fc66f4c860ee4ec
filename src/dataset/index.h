/*
 * The index of a data set of files of records (TFRecord, text, tar): a segment per file. Each is taken from
 * `<file>.cwx` beside the file, else from the index directory, else made by reading the file, by several
 * threads; what was made is kept in the index directory. An index file that is damaged, foreign, or made of
 * the file when its size or times (mtime, ctime) were others is treated as absent.
 */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macro.h"
#include "dataset/segment.h"

/* Threads that share the work on n files, and the first failure among these: files before it are still looked
 * at, so the report is always the same. */
struct cw_file_threads {
    size_t n;             /* set by the caller, before cw_file_threads_run */
    atomic_size_t failed; /* lowest file that failed, n: none */
    pthread_mutex_t mutex;
    struct cw_error error; /* of `failed`; guarded by mutex */
    int status;            /* guarded by mutex */
};

/* Calls work(arg) in up to n_threads threads, this one among them, and waits for all. */
void cw_file_threads_run(struct cw_file_threads *t, size_t n_threads, void *(*work)(void *arg), void *arg);
/* Notes, from a thread at work, that file i failed. */
void cw_file_threads_fail(struct cw_file_threads *t, size_t i, int status, const struct cw_error *error);

struct cw_index_options {
    enum cw_record_format format; /* of all files */
    enum cw_codec codec;          /* CW_CODEC_AUTO: an index of any codec is taken */
    const char *index_dir;        /* NULL: none */
    /* keep what was made beside the file; then failing to write is an error, else it is not */
    bool write_sidecar;
    bool rebuild;             /* look at no index file */
    int threads;              /* >= 1 */
    int (*cancelled)(void *); /* may be NULL; called by all threads */
    void *cancel_arg;
};

struct cw_index_report {
    size_t n_files, n_reused;
    uint64_t n_records, data_bytes, file_bytes;
    double seconds;
};

struct cw_index {
    struct cw_segment *segments; /* in the order of the paths */
    size_t n;
    struct cw_index_report report;
};

/* prefixes[i]: bytes of paths[i] to be left out for the relative path (cw_glob gives it). Of several damaged
 * files the first is reported. */
int cw_index_open(char *const *paths, const size_t *prefixes, size_t n,
                  const struct cw_index_options *options, struct cw_index *ret,
                  struct cw_error *err) _must_check_;
void cw_index_deinit(struct cw_index *x);

/* Where index files are: name of a data set's file in the index directory from what identifies it. Caller
 * frees; NULL: out of memory. */
char *cw_index_path(const char *index_dir, const char *kind, const char *path, const char *variant);
/* Bytes of a file, mapped read-only. False when there is none. munmap'ed by the caller. */
bool cw_index_map(const char *path, const uint8_t **ret, size_t *ret_size);
/* Saves to the index directory, which is made if its parent is there. Failing is fine: the index is made anew
 * next time. */
void cw_index_save(const char *index_dir, const char *path, const uint8_t *data, size_t size);
