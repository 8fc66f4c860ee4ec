/*
 * The index of a data set of files with several records (TFRecord, text, tar): one segment per file. A
 * segment is read from `<file>.cwx` beside the file, else from the index directory. If neither exists, the
 * file is read to make the segment, which is then saved in the index directory. Several threads share this
 * work. An index file is treated as absent if it is damaged, foreign, or states another size or time (mtime,
 * ctime) of its file.
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

/* Threads that share the work on n files, and the failure of the lowest-numbered file. After a failure, files
 * before the failed one are still processed, so the reported failure does not depend on the threads. */
struct cw_file_threads {
    size_t n;             /* set by the caller, before cw_file_threads_run */
    atomic_size_t failed; /* lowest number of a file that failed; n: none */
    pthread_mutex_t mutex;
    struct cw_error error; /* why file `failed` failed; guarded by mutex */
    int status;            /* its status; guarded by mutex */
};

/* Calls work(arg) in up to n_threads threads, including the calling thread, and waits until all calls ended.
 */
void cw_file_threads_run(struct cw_file_threads *t, size_t n_threads, void *(*work)(void *arg), void *arg);
/* Records that file i failed. Called by the threads. */
void cw_file_threads_fail(struct cw_file_threads *t, size_t i, int status, const struct cw_error *error);

struct cw_index_options {
    enum cw_record_format format; /* of all files */
    enum cw_codec codec;          /* CW_CODEC_AUTO: an existing index of any codec is accepted */
    const char *index_dir;        /* NULL: none */
    /* save new segments beside the files instead of in index_dir; then a failure to write is an error */
    bool write_sidecar;
    bool rebuild;             /* ignore existing index files */
    int threads;              /* >= 1 */
    size_t memory;            /* bytes that decompression may take, by all threads; 0: no limit */
    int (*cancelled)(void *); /* true: stop; may be NULL; called by all threads */
    void *cancel_arg;
};

struct cw_index_report {
    size_t n_files, n_reused; /* files; files whose segment existed */
    uint64_t n_records, data_bytes, file_bytes;
    double seconds; /* that opening took */
};

struct cw_index {
    struct cw_segment *segments; /* in the order of the paths */
    size_t n;
    struct cw_index_report report;
};

/* Reads or makes the segments of n files. prefixes[i]: bytes of paths[i] before the relative path (from
 * cw_glob). If several files fail, the error is that of the first. The caller deinits *ret. */
int cw_index_open(char *const *paths, const size_t *prefixes, size_t n,
                  const struct cw_index_options *options, struct cw_index *ret,
                  struct cw_error *err) _must_check_;
void cw_index_deinit(struct cw_index *x);

/* Returns the path of an index file in the index directory; its name is a hash of kind, path and variant. The
 * caller frees the string; NULL: out of memory. */
char *cw_index_path(const char *index_dir, const char *kind, const char *path, const char *variant);
/* Maps a file read-only into *ret; the caller calls munmap. False: the file does not exist or can't be
 * mapped. */
bool cw_index_map(const char *path, const uint8_t **ret, size_t *ret_size);
/* Saves an index file in the index directory, which is made if its parent exists. A failure is not reported:
 * the next run then makes the index again. */
void cw_index_save(const char *index_dir, const char *path, const uint8_t *data, size_t size);
