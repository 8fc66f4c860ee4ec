/*
 * The index of a data set with one file per record: name, size, times and key of each file, in one index file
 * for the whole list. When an index is renewed, files with unchanged size and times keep their keys; only new
 * and changed files are read (their first and last 64 KiB). Immutable.
 *
 * On disk (docs/index-files.md): struct cw_index_header, u64 n, u64 bytes of names; columns sizes u64[n],
 * mtimes i64[n], ctimes i64[n], keys u64[n], name_at u64[n] (where in the names a file's path starts),
 * prefixes u64[n]; the names, each ending with a NUL.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macro.h"
#include "storage/file.h"

struct cw_file_index {
    size_t n, n_reused;    /* files; files whose key was taken from the old index */
    const uint64_t *sizes; /* bytes */
    const int64_t *mtimes_ns, *ctimes_ns;
    const uint64_t *keys; /* docs/semantics.md section 1 */
    const uint64_t *name_at, *prefixes;
    /* path of file i: names + name_at[i]; its relative path starts prefixes[i] bytes later */
    const char *names;
    uint64_t total_bytes; /* sum of sizes */
    const uint8_t *base;  /* everything above points into these bytes, from malloc */
    size_t size;
};

static inline const char *cw_file_index_path(const struct cw_file_index *x, size_t i)
{
    return x->names + x->name_at[i];
}

static inline const char *cw_file_index_relative(const struct cw_file_index *x, size_t i)
{
    return x->names + x->name_at[i] + x->prefixes[i];
}

/* File i as it was when it was indexed. */
static inline struct cw_stat cw_file_index_stat(const struct cw_file_index *x, size_t i)
{
    return (struct cw_stat){.size = x->sizes[i], .mtime_ns = x->mtimes_ns[i], .ctime_ns = x->ctimes_ns[i]};
}

void cw_file_index_deinit(struct cw_file_index *x);

/* Bytes of either end of a file that go into its key (docs/semantics.md, section 1). */
#define CW_KEY_EDGE_BYTES ((size_t)64 << 10)

struct cw_file_index_options {
    const char *index_path;   /* the index file to read and to renew; NULL: none */
    const char *index_dir;    /* directory of index_path, made if absent; NULL if index_path is NULL */
    const char *sidecar;      /* index file that is read first, and never written; NULL: none */
    int threads;              /* >= 1 */
    int (*cancelled)(void *); /* true: stop; may be NULL; called by all threads */
    void *cancel_arg;
};

/* Reads or makes the index of n files. prefixes[i]: bytes of paths[i] before the relative path. The caller
 * deinits *ret. */
int cw_file_index_open(char *const *paths, const size_t *prefixes, size_t n,
                       const struct cw_file_index_options *options, struct cw_file_index *ret,
                       struct cw_error *err) _must_check_;

/* A cw_file_same: computes the key of file i again and compares it with the index, a struct cw_file_index. */
int cw_file_index_same(const void *index, size_t i, struct cw_file *file, bool *ret,
                       struct cw_error *err) _must_check_;

/* Reads `size` bytes of an index file (8-byte aligned, borrowed by *ret). Returns 0, or -1 if the bytes are
 * damaged or not such an index. */
int cw_file_index_attach(const uint8_t *base, size_t size, struct cw_file_index *ret) _must_check_;
