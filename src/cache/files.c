/* Opening, reading and replacing files below a cache directory, and removing a set. Any thread. */
#include "cache/files.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/file.h"

bool cw_cache_is_set(const char *name)
{
    return strlen(name) == 32 && strspn(name, "0123456789abcdef") == 32;
}

enum cw_cache_name cw_cache_name(const char *name)
{
    static const struct {
        const char *pattern;
        enum cw_cache_name kind;
    } names[] = {
        {CW_CACHE_TEMPORARY "*", CW_CACHE_NAME_WRITTEN},
        {"?*" CW_CACHE_SUFFIX, CW_CACHE_NAME_SEGMENT},
        {CW_CACHE_META CW_CACHE_PUT "*", CW_CACHE_NAME_PUT},
        {CW_CACHE_PROFILE CW_CACHE_PUT "*", CW_CACHE_NAME_PUT},
        {CW_CACHE_META, CW_CACHE_NAME_OTHER},
        {CW_CACHE_PROFILE, CW_CACHE_NAME_OTHER},
        {CW_CACHE_USED, CW_CACHE_NAME_OTHER},
        {CW_CACHE_PIN, CW_CACHE_NAME_OTHER},
    };

    for (size_t i = 0; i < CW_COUNT_OF(names); i++)
        if (fnmatch(names[i].pattern, name, 0) == 0)
            return names[i].kind;
    return CW_CACHE_NAME_FOREIGN;
}

const char *cw_cache_why(int e)
{
    return e == CW_CACHE_NO_FILE  ? "it is not a regular file"
           : e == CW_CACHE_NO_DIR ? "it is not a directory"
                                  : strerror(e);
}

int cw_cache_open_dir(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 ? fd : errno == ELOOP || errno == ENOTDIR ? -CW_CACHE_NO_DIR : -errno;
}

DIR *cw_cache_open_names(int dir)
{
    _cleanup_close_ int fd = dir >= 0 ? cw_cache_open_dir(dir, ".") : -1;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d)
        fd = -1; /* the stream owns it now */
    return d;
}

int cw_cache_open_file(int at, const char *name, int flags)
{
    struct stat st;
    _cleanup_close_ int fd = openat(at, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    /* ELOOP: a link; EISDIR: a directory; ENXIO: a socket, or a pipe without a reader */
    if (fd < 0)
        return errno == ELOOP || errno == EISDIR || errno == ENXIO ? -CW_CACHE_NO_FILE : -errno;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? CW_STEAL_FD(fd) : -CW_CACHE_NO_FILE;
}

char *cw_cache_read_text(int at, const char *name, size_t most)
{
    _cleanup_close_ int fd = cw_cache_open_file(at, name, O_RDONLY);
    _cleanup_free_ char *text = fd >= 0 ? malloc(most + 1) : NULL;
    ssize_t n = text ? pread(fd, text, most, 0) : -1;
    if (n < 0)
        return NULL;
    text[n] = '\0';
    return CW_STEAL(text);
}

int cw_cache_put_text(int at, const char *name, const char *text)
{
    static atomic_uint counter; /* two threads of a process may replace the same file */
    char temporary[96];
    snprintf(temporary, sizeof(temporary), "%.40s" CW_CACHE_PUT "%ld-%u", name, (long)getpid(),
             atomic_fetch_add(&counter, 1));
    _cleanup_close_ int fd = cw_cache_open_file(at, temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0)
        return fd;
    int r = cw_cache_write_at(fd, 0, text, strlen(text));
    if (r == 0 && (fsync(fd) < 0 || renameat(at, temporary, at, name) < 0))
        r = -errno;
    if (r < 0)
        (void)unlinkat(at, temporary, 0);
    else
        (void)fsync(at); /* errors are ignored: the file is complete in any case */
    return r;
}

/* Opens the file for writing, because some network file systems can lock only such files. */
int cw_cache_try_lock(int at, const char *name, int *ret_fd)
{
    _cleanup_close_ int fd = cw_cache_open_file(at, name, O_RDWR);
    if (fd < 0)
        return fd;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? 1 : -errno;
    *ret_fd = CW_STEAL_FD(fd);
    return 0;
}

int cw_cache_locked(int at, const char *name)
{
    _cleanup_close_ int fd = -1;
    return cw_cache_try_lock(at, name, &fd);
}

int cw_cache_names(int at, struct cw_paths *ret, struct cw_error *err)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", at);
    return cw_list(path, ret, err);
}

/* Reads or writes all bytes. 1: the file ends before offset + size. */
static int file_transfer(int fd, uint64_t offset, void *data, size_t size, bool writes)
{
    for (size_t done = 0; done < size;) {
        uint8_t *at = (uint8_t *)data + done;
        ssize_t n = writes ? pwrite(fd, at, size - done, (off_t)(offset + done))
                           : pread(fd, at, size - done, (off_t)(offset + done));
        if (n == 0 && !writes)
            return 1;
        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int cw_cache_read_at(int fd, uint64_t offset, void *to, size_t size)
{
    return file_transfer(fd, offset, to, size, false);
}

int cw_cache_write_at(int fd, uint64_t offset, const void *data, size_t size)
{
    return file_transfer(fd, offset, (void *)(uintptr_t)data, size, true);
}

/* Removes the files of a set. A link is removed itself, not its target. If the directory holds a foreign
 * name, nothing is removed and an error is returned. */
static int set_empty(int set, const char *key, struct cw_error *err)
{
    _cleanup_(cw_paths_deinit) struct cw_paths names = {0};
    int r = cw_cache_names(set, &names, err);
    for (size_t i = 0; r == 0 && i < names.n; i++)
        if (cw_cache_name(names.paths[i]) == CW_CACHE_NAME_FOREIGN)
            r = cw_error_set(err, CW_E_IO,
                             "%s/%s: is not a file of a cache, so nothing was removed from this directory",
                             key, names.paths[i]);
    for (size_t i = 0; r == 0 && i < names.n; i++)
        if (unlinkat(set, names.paths[i], 0) < 0 && errno != ENOENT)
            r = cw_error_errno(err, CW_E_IO, errno, "%s/%s: can't be removed", key, names.paths[i]);
    return r;
}

int cw_cache_set_remove(int at, const char *key, struct cw_error *err)
{
    _cleanup_close_ int set = cw_cache_open_dir(at, key), fd = -1;
    if (set < 0)
        return set == -ENOENT
                   ? 0
                   : cw_error_set(err, CW_E_IO, "%s: can't be opened: %s", key, cw_cache_why(-set));
    int r = cw_cache_try_lock(set, CW_CACHE_USED, &fd);
    if (r <= 0) /* no process uses the set; r < 0: the file is missing, or is not a regular file */
        r = set_empty(set, key, err);
    if (r == 0 && unlinkat(at, key, AT_REMOVEDIR) < 0 && errno != ENOENT)
        r = cw_error_errno(err, CW_E_IO, errno, "%s: can't be removed", key);
    return r;
}
