/*
 * What lies below a cache's directory, which others may write to: it is opened from the directory's
 * descriptor and by a name of ours, links are not followed, and nothing is waited for at what is no regular
 * file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "cache/internal.h"

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

bool cw_cache_is_set(const char *name)
{
    return strlen(name) == 32 && strspn(name, "0123456789abcdef") == 32;
}

enum cw_cache_name cw_cache_name(const char *name)
{
    static const char *const others[] = {CW_CACHE_META, CW_CACHE_PROFILE, CW_CACHE_USED, CW_CACHE_PIN};
    if (begins_with(name, CW_CACHE_TEMPORARY))
        return CW_CACHE_NAME_WRITTEN;
    if (ends_with(name, CW_CACHE_SUFFIX))
        return CW_CACHE_NAME_SEGMENT;
    if (begins_with(name, CW_CACHE_META CW_CACHE_PUT) || begins_with(name, CW_CACHE_PROFILE CW_CACHE_PUT))
        return CW_CACHE_NAME_PUT;
    for (size_t i = 0; i < CW_COUNT_OF(others); i++)
        if (strcmp(name, others[i]) == 0)
            return CW_CACHE_NAME_OTHER;
    return CW_CACHE_NAME_FOREIGN;
}

const char *cw_cache_why(int e)
{
    return e == CW_CACHE_NO_FILE  ? "it is no regular file"
           : e == CW_CACHE_NO_DIR ? "it is no directory"
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
        fd = -1; /* the stream's now */
    return d;
}

int cw_cache_open_file(int at, const char *name, int flags)
{
    struct stat st;
    _cleanup_close_ int fd = openat(at, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd < 0) /* a link; a directory; a socket, or a pipe that nobody reads */
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
    static atomic_uint counter; /* two threads of a process may write the same file */
    char temporary[96];
    snprintf(temporary, sizeof(temporary), "%.40s" CW_CACHE_PUT "%ld-%u", name, (long)getpid(),
             atomic_fetch_add(&counter, 1));
    int fd = cw_cache_open_file(at, temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0)
        return fd;
    int r = cw_cache_write_at(fd, 0, text, strlen(text));
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    close(fd);
    if (r == 0 && renameat(at, temporary, at, name) < 0)
        r = -errno;
    if (r < 0)
        (void)unlinkat(at, temporary, 0);
    else
        (void)fsync(at); /* whether it is durable or not, it is whole */
    return r;
}

/* Opened to write, for that is what some network file systems want of who locks. */
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

bool cw_cache_locked(int at, const char *name)
{
    _cleanup_close_ int fd = -1;
    return cw_cache_try_lock(at, name, &fd) == 1;
}
