/* Reading ranges of files, and checking that a file did not change since it was indexed. Any thread may call.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"

struct cw_file;

/* Size and times of a file. Users can set mtime; the kernel sets ctime at any change of the content. Of an
 * object of a server, ctime_ns is its version (cw_object_stat), and mtime_ns is 0. */
struct cw_stat {
    uint64_t size;
    int64_t mtime_ns, ctime_ns;
    bool is_dir;
};

/* As cw_stat.ctime_ns: the change time is not compared. For files whose content has its own checksums. */
#define CW_ANY_TIME INT64_MIN

/* Makes a handle; the file is not opened yet. was: the status when the file was indexed. If the file differs
 * from `was` when it is opened or checked, that call returns CW_E_DATA, and the message says what changed. */
int cw_file_new(const char *path, const struct cw_stat *was, struct cw_file **ret,
                struct cw_error *err) _must_check_;
/* Reads a file and sets *ret to whether its content is the content that entry i of an index was made from. If
 * the file is damaged it may return CW_E_DATA instead, which also means that the content differs. */
typedef int cw_file_same(const void *index, size_t i, struct cw_file *f, bool *ret, struct cw_error *err);
/* Sets the function that compares a file with entry i of its index if only the change time differs. If the
 * content is the same, the file counts as unchanged, because chmod, linking, renaming and deleting also set
 * the change time. The index must outlive the file. Call this before other threads use the file. */
void cw_file_compare_by(struct cw_file *f, cw_file_same *same, const void *index, size_t i);
struct cw_file *cw_file_free(struct cw_file *f);
const char *cw_file_path(const struct cw_file *f);
uint64_t cw_file_size(const struct cw_file *f);
/* Checks that the file is unchanged; call it after reading and before using the data. Does nothing if the
 * file was checked at since_ns (by cw_now_ns) or later, so that many reads share one check. Returns 0; 1:
 * with nowait, the check would have to wait for opening or reading; CW_E_DATA: the file changed. */
int cw_file_check(struct cw_file *f, uint64_t since_ns, bool nowait, struct cw_error *err) _must_check_;
/* r: the status of reading and parsing the file. Returns r, unless the file has changed: then it returns
 * CW_E_DATA and err says what changed. */
int cw_file_verdict(struct cw_file *f, int r, struct cw_error *err) _must_check_;
/* Returns a hash of the file's times. It differs after a change in place, even if size and mtime were
 * restored. */
uint64_t cw_file_stamp(const struct cw_file *f);
/* Returns whether the file still has the size and times with which it was indexed or, not strictly, the
 * change time with which its content was last compared. Reads no content. turn: any number that the caller
 * increases when the result may be outdated; calls with the same turn check the file only once. */
bool cw_file_unchanged(struct cw_file *f, uint64_t turn, bool strictly);
/* Returns whether the file is an object of a server (objects/object.h). The system keeps no bytes of it in
 * memory, and each read checks that it is unchanged. */
bool cw_file_is_remote(const struct cw_file *f);
/* Returns whether reads with nowait work. False: the file system can't tell which bytes are in memory, so
 * every such read returns 1. The result is known only after the first read with nowait. */
bool cw_file_tells_residency(const struct cw_file *f);
/* Reads exactly length bytes at offset. Returns 0; 1: with nowait, the bytes are not in memory and nothing
 * was read; negative: an error. The file's descriptor stays open for later reads, for a bounded number of
 * files. */
int cw_file_read(struct cw_file *f, uint64_t offset, void *buffer, size_t length, bool nowait,
                 struct cw_error *err) _must_check_;
/* Like cw_file_read, but into the n_v pieces of memory of v; n_v is at most IOV_MAX. */
int cw_file_readv(struct cw_file *f, uint64_t offset, const struct iovec *v, int n_v, bool nowait,
                  struct cw_error *err) _must_check_;
/* Opens and checks the file if need be, and gives its descriptor to the caller until cw_file_release. Returns
 * 0; 1: with nowait, opening the file would wait. The caller passes *ret_fd and *ret_own to cw_file_release.
 */
int cw_file_acquire(struct cw_file *f, bool nowait, int *ret_fd, bool *ret_own,
                    struct cw_error *err) _must_check_;
void cw_file_release(struct cw_file *f, int fd, bool own);

static inline bool cw_stat_same(const struct cw_stat *a, const struct cw_stat *b)
{
    return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
           a->is_dir == b->is_dir;
}

/* Stores the status of a file or directory in *ret. Of an object of a server, it is the status that the last
 * listing or request found. CW_E_IO: it can't be read. */
int cw_stat(const char *path, struct cw_stat *ret, struct cw_error *err) _must_check_;
/* Like cw_stat, for a file whose content the caller reads next. If the file has just been changed, waits (at
 * most 20 ms) until a further change would get another time. */
int cw_stat_settled(const char *path, struct cw_stat *ret, struct cw_error *err) _must_check_;
/* Waits like cw_stat_settled if ctime_ns, the change time of a file, is that recent. Returns whether it
 * waited. */
bool cw_settle(int64_t ctime_ns);

struct cw_paths {
    char **paths; /* owned */
    size_t n, room;
};

/* Replaces one pattern by those that it stands for, in their order: a leading ~ or ~user by a home directory,
 * {a,b} and {000..127} by each of the names. If a file has exactly the pattern's name, *ret is a pattern that
 * means only this file. *ret_prefix: length of the leading directories of the files' paths without wildcards
 * and braces; SIZE_MAX: the pattern has no braces, and the result of cw_glob applies. CW_E_PIPELINE: the
 * braces stand for too many names. */
int cw_patterns(const char *base_dir, const char *pattern, struct cw_paths *ret, size_t *ret_prefix,
                struct cw_error *err) _must_check_;
/* Sets *ret to a path with a leading ~ or ~user replaced by the home directory, or to a copy of the path: if
 * the user is unknown, or if the path exists as it is. quote: the path is a pattern. The caller frees *ret.
 */
int cw_path_home(const char *base_dir, const char *path, bool quote, char **ret,
                 struct cw_error *err) _must_check_;
/* Finds the files that match a pattern (glob(7), and "**" for directories at any depth), sorted by bytes.
 * Relative patterns are below base_dir.
 * Directories that a wildcard matches are left out. CW_E_PIPELINE: no file matches, or a match is a device,
 * pipe or socket, or the pattern names a directory. CW_E_IO: a link leads nowhere, or access is denied.
 * *ret_prefix: length of the leading directories without wildcards; a path without this prefix is the
 * relative path. */
int cw_glob(const char *base_dir, const char *pattern, struct cw_paths *ret, size_t *ret_prefix,
            struct cw_error *err) _must_check_;
/* Lists a directory without . and .., sorted by bytes. */
int cw_list(const char *dir, struct cw_paths *ret, struct cw_error *err) _must_check_;
void cw_paths_deinit(struct cw_paths *p);
/* Checks that a path, with links followed, lies below one of the roots. If not, returns CW_E_PIPELINE; the
 * message names the path and the roots. Without roots (n_roots 0) every path is accepted. If the path does
 * not exist, the part of it that exists is checked. */
int cw_path_check(const char *path, const char *const *roots, size_t n_roots,
                  struct cw_error *err) _must_check_;
/* Returns the leading directories of a pattern up to its first wildcard, as cw_glob interprets the pattern.
 * The caller frees the string; NULL: out of memory. */
char *cw_glob_dir(const char *base_dir, const char *pattern);
/* Reads a whole file of at most `limit` bytes, and appends a zero byte. The caller frees *ret. */
int cw_read_file(const char *path, size_t limit, char **ret, size_t *ret_size,
                 struct cw_error *err) _must_check_;
/* Writes all bytes. Returns 0, or -1 with errno set; then a part may be written. */
int cw_write_all(int fd, const void *bytes, size_t size) _must_check_;
/* Makes renames in a directory durable. Errors are ignored, because the files themselves are complete in any
 * case. */
void cw_sync_directory(const char *dir);
/* Writes a file atomically: readers see the old or the new file, never a part (temporary file, fsync,
 * rename). The temporary file is PATH CW_PUT_TEMPORARY ..., and stays if the process is killed. */
#define CW_PUT_TEMPORARY ".tmp-"
int cw_put(const char *path, const void *data, size_t size, struct cw_error *err) _must_check_;
/* Checks, without writing, whether cw_put could write the file. CW_E_OPTION: it could not. */
int cw_put_check(const char *path, struct cw_error *err) _must_check_;
/* Returns the absolute path of a path relative to the current directory; an empty path stays empty. The
 * caller frees the string; NULL: out of memory. */
char *cw_absolute(const char *path);
/* Makes a directory and its parents; does nothing if it exists. CW_E_IO, with errno set: the directory can't
 * be made, or the path names something else. */
int cw_make_dirs(const char *path, struct cw_error *err) _must_check_;
