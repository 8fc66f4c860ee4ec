/* Files that are read in ranges. A file is named when a source is opened and must not change while it is
 * used. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"

struct cw_file;

/* Size and times of a file. Users can set mtime as they like; ctime is the kernel's, and later after any
 * change of the content. */
struct cw_stat {
    uint64_t size;
    int64_t mtime_ns, ctime_ns;
    bool is_dir;
};

#define CW_ANY_TIME \
    INT64_MIN /* as ctime_ns: never compared, for files whose content is checked by itself \
               */

/* was: as it was when indexed. A file that differs when it is opened, or checked, is an error (CW_E_DATA)
 * that says in what. Opens nothing yet. */
int cw_file_new(const char *path, const struct cw_stat *was, struct cw_file **ret,
                struct cw_error *err) _must_check_;
/* Whether the content of a file is what file i of an index was made of, as far as the index tells; by reading
 * it. *ret is left false where it is not; CW_E_DATA, of a file that is damaged now, says so too. */
typedef int cw_file_same(const void *index, size_t i, struct cw_file *f, bool *ret, struct cw_error *err);
/* From now on a file whose change time alone is another is compared with its index, which must outlive it.
 * What is the same is as it was: chmod, new links, renaming and deleting move that time too. Before it is
 * used by several threads. */
void cw_file_compare_by(struct cw_file *f, cw_file_same *same, const void *index, size_t i);
struct cw_file *cw_file_free(struct cw_file *f);
const char *cw_file_path(const struct cw_file *f);
uint64_t cw_file_size(const struct cw_file *f);
/* To be called when something was read, before it counts: it may be of a content that is being written. Looks
 * at an open file if that was not done at since_ns (cw_now_ns) or later, so that many reads need one look.
 * nowait: returns 1 where it would wait to open the file, or has to read it. */
int cw_file_check(struct cw_file *f, uint64_t since_ns, bool nowait, struct cw_error *err) _must_check_;
/* The status of reading and taking apart what was read, r: where the file was changed meanwhile that is the
 * error, whatever came of it. */
int cw_file_verdict(struct cw_file *f, int r, struct cw_error *err) _must_check_;
/* A hash of the times: of a file whose content was changed in place it is another, though size and mtime were
 * restored. */
uint64_t cw_file_stamp(const struct cw_file *f);
/* Whether what has the file's name now is as it was, or (not strictly) as it was when it was last compared;
 * without reading. Looked at once for each turn. */
bool cw_file_unchanged(struct cw_file *f, uint64_t turn, bool strictly);
/* Whether a read with nowait finds out what is in memory; false: the file system can't tell, and each such
 * read returns 1. Known after the first one. */
bool cw_file_tells_residency(const struct cw_file *f);
/* Reads exactly length bytes at offset. Thread-safe. nowait: returns 1, nothing read, when the bytes are not
 * in memory already. Descriptors are kept open for a bounded number of files. */
int cw_file_read(struct cw_file *f, uint64_t offset, void *buffer, size_t length, bool nowait,
                 struct cw_error *err) _must_check_;
/* The same into several places, one after the other; at most IOV_MAX of them. */
int cw_file_readv(struct cw_file *f, uint64_t offset, const struct iovec *v, int n_v, bool nowait,
                  struct cw_error *err) _must_check_;
/* Lends the file's descriptor, which is opened and checked if need be, until cw_file_release. 1: with nowait,
 * opening the file would wait. *ret_own: to be handed to cw_file_release. */
int cw_file_acquire(struct cw_file *f, bool nowait, int *ret_fd, bool *ret_own,
                    struct cw_error *err) _must_check_;
void cw_file_release(struct cw_file *f, int fd, bool own);

static inline bool cw_stat_same(const struct cw_stat *a, const struct cw_stat *b)
{
    return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
           a->is_dir == b->is_dir;
}

int cw_stat(const char *path, struct cw_stat *ret, struct cw_error *err) _must_check_;
/* The same of a file that is read next. Of one that has just been changed it waits (20 ms at most) until
 * another change would have another time. */
int cw_stat_settled(const char *path, struct cw_stat *ret, struct cw_error *err) _must_check_;
/* Waits likewise. False: there was nothing to wait for. */
bool cw_settle(int64_t ctime_ns);

/* Files that match a pattern (glob(7)), sorted by bytes, relative patterns below base_dir. No match:
 * CW_E_PIPELINE naming the pattern. Directories that a wildcard matches are left out; CW_E_PIPELINE for what
 * else is no file, CW_E_IO for links that lead nowhere and what can't be looked at. ret_prefix: length of the
 * directory prefix free of wildcards, to be cut from each path to get the relative path. */
struct cw_paths {
    char **paths;
    size_t n, room;
};

int cw_glob(const char *base_dir, const char *pattern, struct cw_paths *ret, size_t *ret_prefix,
            struct cw_error *err) _must_check_;
/* Entries of a directory without . and .., sorted by bytes. */
int cw_list(const char *dir, struct cw_paths *ret, struct cw_error *err) _must_check_;
void cw_paths_deinit(struct cw_paths *p);
/* CW_E_PIPELINE, naming path and roots: where the path leads, links followed, lies below none of the roots.
 * Without roots everything may be read. Of a path that leads nowhere the part that is there is looked at. */
int cw_path_check(const char *path, const char *const *roots, size_t n_roots,
                  struct cw_error *err) _must_check_;
/* The leading directories of a pattern that hold no wildcard, as cw_glob sees it. New; NULL: out of memory.
 */
char *cw_glob_dir(const char *base_dir, const char *pattern);
/* Writes a file so that readers see the old or the new one, never a part (temporary file, fsync, rename). */
int cw_put(const char *path, const void *data, size_t size, struct cw_error *err) _must_check_;
/* Whether cw_put could write there, as far as that can be told without writing. If not, it is CW_E_OPTION: so
 * far it is but an argument. */
int cw_put_check(const char *path, struct cw_error *err) _must_check_;
/* A name that leads, wherever the program goes, to where this one leads now. No name stays none. New; NULL:
 * out of memory. */
char *cw_absolute(const char *path);
/* Makes a directory and those above it. CW_E_IO, with errno set, where something else is there or it can't be
 * made. */
int cw_make_dirs(const char *path, struct cw_error *err) _must_check_;
