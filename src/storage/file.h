/* Files that are read in ranges. A file is named when a source is opened, and must not change while it is
 * used. Any thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"

struct cw_file;

/* Size and times of a file. Users can set mtime; the kernel sets ctime at any change of the content. */
struct cw_stat {
    uint64_t size;
    int64_t mtime_ns, ctime_ns;
    bool is_dir;
};

#define CW_ANY_TIME \
    INT64_MIN /* as ctime_ns: never compared, for files whose content is checked by itself \
               */

/* Makes a handle; nothing is opened yet. was: the status when the file was indexed. A file that differs when
 * it is opened or checked is CW_E_DATA, which says in what. */
int cw_file_new(const char *path, const struct cw_stat *was, struct cw_file **ret,
                struct cw_error *err) _must_check_;
/* Reads a file and sets *ret if its content is what entry i of an index was made of. CW_E_DATA, for a damaged
 * file, means that it is not, too. */
typedef int cw_file_same(const void *index, size_t i, struct cw_file *f, bool *ret, struct cw_error *err);
/* Lets a file of which only the change time differs be compared with its index, which must outlive it. The
 * same content counts as unchanged, because chmod, linking, renaming and deleting move that time too. Call it
 * before other threads use the file. */
void cw_file_compare_by(struct cw_file *f, cw_file_same *same, const void *index, size_t i);
struct cw_file *cw_file_free(struct cw_file *f);
const char *cw_file_path(const struct cw_file *f);
uint64_t cw_file_size(const struct cw_file *f);
/* Checks that the file is unchanged; call it after reading and before using what was read. A check at
 * since_ns (cw_now_ns) or later is not repeated, so that many reads share one. 1: with nowait, it would wait
 * to open or read. */
int cw_file_check(struct cw_file *f, uint64_t since_ns, bool nowait, struct cw_error *err) _must_check_;
/* Returns r, the status of reading and parsing, unless the file changed meanwhile: then that is the error. */
int cw_file_verdict(struct cw_file *f, int r, struct cw_error *err) _must_check_;
/* Returns a hash of the times. It differs after a change in place, even if size and mtime were restored. */
uint64_t cw_file_stamp(const struct cw_file *f);
/* Returns whether the file of this name is as it was indexed or, not strictly, as it was last compared. Reads
 * nothing; checks once per turn. */
bool cw_file_unchanged(struct cw_file *f, uint64_t turn, bool strictly);
/* Returns whether reads with nowait work. False: the file system can't say what is in memory, so each
 * returns 1. Known after the first such read. */
bool cw_file_tells_residency(const struct cw_file *f);
/* Reads exactly length bytes at offset. 1: with nowait, the bytes are not in memory and nothing was read.
 * Descriptors stay open for a bounded number of files. */
int cw_file_read(struct cw_file *f, uint64_t offset, void *buffer, size_t length, bool nowait,
                 struct cw_error *err) _must_check_;
/* The same into n_v pieces, at most IOV_MAX. */
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
/* The same for a file that is read next. If it has just been changed, waits (20 ms at most) until another
 * change would get another time. */
int cw_stat_settled(const char *path, struct cw_stat *ret, struct cw_error *err) _must_check_;
/* Waits likewise. False: there was no need. */
bool cw_settle(int64_t ctime_ns);

/* Finds the files that match a pattern (glob(7)), sorted by bytes. Relative patterns are below base_dir.
 * Directories that a wildcard matches are left out. CW_E_PIPELINE: no match, or another non-file. CW_E_IO: a
 * link that leads nowhere, or a name without access. ret_prefix: length of the directories without wildcards;
 * cutting it from a path gives the relative path. */
struct cw_paths {
    char **paths;
    size_t n, room;
};

int cw_glob(const char *base_dir, const char *pattern, struct cw_paths *ret, size_t *ret_prefix,
            struct cw_error *err) _must_check_;
/* Lists a directory without . and .., sorted by bytes. */
int cw_list(const char *dir, struct cw_paths *ret, struct cw_error *err) _must_check_;
void cw_paths_deinit(struct cw_paths *p);
/* CW_E_PIPELINE, naming path and roots: the path, with links followed, lies below none of the roots. Without
 * roots everything may be read. For a path that does not exist, its existing part is checked. */
int cw_path_check(const char *path, const char *const *roots, size_t n_roots,
                  struct cw_error *err) _must_check_;
/* Returns the leading directories of a pattern without wildcards, as cw_glob takes it. New; NULL: out of
 * memory. */
char *cw_glob_dir(const char *base_dir, const char *pattern);
/* Writes a file so that readers see the old or the new one, never a part (temporary file, fsync, rename). */
int cw_put(const char *path, const void *data, size_t size, struct cw_error *err) _must_check_;
/* CW_E_OPTION where cw_put could not write there, as far as that is known without writing. */
int cw_put_check(const char *path, struct cw_error *err) _must_check_;
/* Returns an absolute path of what this one names in the current directory; an empty path stays empty. New;
 * NULL: out of memory. */
char *cw_absolute(const char *path);
/* Makes a directory and its parents. CW_E_IO, with errno set, where it can't be made or something else is
 * there. */
int cw_make_dirs(const char *path, struct cw_error *err) _must_check_;
