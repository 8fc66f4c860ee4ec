/*
 * Names and files below a cache directory. Other users may write there, so nothing in it is trusted: files
 * are opened relative to the directory's descriptor, links are not followed, and opening never blocks.
 *
 * Functions that return int return a descriptor or 0 on success, else a negative errno. Two errnos have a
 * special meaning here: CW_CACHE_NO_FILE and CW_CACHE_NO_DIR. `at`: the descriptor of a directory.
 */
#pragma once
#include <dirent.h>
#include <errno.h>

#include "base/error.h"
#include "base/fd.h"

#define CW_CACHE_NO_FILE EMEDIUMTYPE /* a link, pipe, device or directory has the name of a file */
#define CW_CACHE_NO_DIR ENOTDIR      /* a file or a link has the name of a directory */

/* Names in the directory of a cache, and in the directory of a set. */
#define CW_CACHE_LOCK "lock" /* in the cache directory; all other names are in the directory of a set */
#define CW_CACHE_META "meta.json"
#define CW_CACHE_PROFILE "profile.json"
#define CW_CACHE_USED "used" /* locked shared by each process that uses the set */
#define CW_CACHE_PIN "pin"
#define CW_CACHE_SUFFIX ".cws"     /* ends the name of a published segment */
#define CW_CACHE_TEMPORARY "tmp-"  /* begins the name of a segment that is being written */
#define CW_CACHE_TEMPORARY_SIZE 24 /* bytes of such a name with its NUL */
#define CW_CACHE_PUT ".tmp-"       /* follows the name of a small file that is being written */

enum cw_cache_name {
    CW_CACHE_NAME_FOREIGN, /* not a name that the store uses */
    CW_CACHE_NAME_SEGMENT, /* a published segment */
    CW_CACHE_NAME_WRITTEN, /* a segment that is being written */
    CW_CACHE_NAME_PUT,     /* a small file that is being written */
    CW_CACHE_NAME_OTHER    /* any other name of the store */
};

/* Returns what kind of file of a set has this name. */
enum cw_cache_name cw_cache_name(const char *name);
/* Returns whether a name in the cache directory is that of a set: 32 hex digits. */
bool cw_cache_is_set(const char *name);
/* Returns the text of an errno, including CW_CACHE_NO_FILE and CW_CACHE_NO_DIR. */
const char *cw_cache_why(int e);

/* Opens a directory; it must not be a link. */
int cw_cache_open_dir(int at, const char *name);
/* Opens a regular file; flags as for open(2). */
int cw_cache_open_file(int at, const char *name, int flags);
/* Returns a stream over the names of a directory, from the first name on. NULL: it can't be read. */
DIR *cw_cache_open_names(int dir);
/* Returns the first `most` bytes of a file as a new string; NULL: the file can't be read. */
char *cw_cache_read_text(int at, const char *name, size_t most);
/* Replaces a small file. Readers see the old or the new text, even after the machine crashed. */
int cw_cache_put_text(int at, const char *name, const char *text);
/* Locks a file exclusively until *ret_fd is closed. Returns 0; 1: another process holds a lock on the file; a
 * negative errno: the file can't be opened or locked. */
int cw_cache_try_lock(int at, const char *name, int *ret_fd);
/* Returns 1 if another process holds a lock on the file, 0 if none does, or a negative errno if the file
 * can't be opened. */
int cw_cache_locked(int at, const char *name);
/* Lists the names in a directory, sorted by bytes. */
struct cw_paths;
int cw_cache_names(int at, struct cw_paths *ret, struct cw_error *err) _must_check_;
/* Removes a set's directory and its files. No process can begin to use the set meanwhile. Returns 1 if a
 * process uses the set. A directory that holds a foreign name stays as it is, and an error is returned. The
 * caller holds the cache directory's lock. */
int cw_cache_set_remove(int at, const char *key, struct cw_error *err) _must_check_;

/* Write or read all `size` bytes at an offset. The read returns 1 if the file ends before offset + size. */
int cw_cache_write_at(int fd, uint64_t offset, const void *data, size_t size);
int cw_cache_read_at(int fd, uint64_t offset, void *to, size_t size);
