/* Names of files: status, patterns, directories, and writing a file atomically. Any thread. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <libgen.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "storage/file.h"

#include "base/array.h"
#include "base/clock.h"

/* Nanoseconds after which a further change gets another time. Linux stamps a change with the time of its last
 * timer tick. Ticks are at most 10 ms apart (CONFIG_HZ=100), and a tick may be late by as much. */
#define SETTLED_NS 20000000

int cw_stat(const char *path, struct cw_stat *ret, struct cw_error *err)
{
    struct stat s;
    if (stat(path, &s) < 0)
        return cw_error_at_file(err, CW_E_IO, path, errno, "%s", path);
    *ret = (struct cw_stat){
        .size = (uint64_t)s.st_size,
        .mtime_ns = cw_timespec_ns(&s.st_mtim),
        .ctime_ns = cw_timespec_ns(&s.st_ctim),
        .is_dir = S_ISDIR(s.st_mode),
    };
    return 0;
}

bool cw_settle(int64_t ctime_ns)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = cw_timespec_ns(&now) - ctime_ns;
    if (age < 0 || age >= SETTLED_NS) /* age < 0: another machine's clock is ahead; waiting would not help */
        return false;
    nanosleep(&(struct timespec){.tv_nsec = SETTLED_NS - age}, NULL);
    return true;
}

int cw_stat_settled(const char *path, struct cw_stat *ret, struct cw_error *err)
{
    int r = cw_stat(path, ret, err);
    return r == 0 && !ret->is_dir && cw_settle(ret->ctime_ns) ? cw_stat(path, ret, err) : r;
}

void cw_paths_deinit(struct cw_paths *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->paths[i]);
    free(p->paths);
    *p = (struct cw_paths){0};
}

static int path_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int paths_append(struct cw_paths *p, const char *path)
{
    if (CW_ARRAY_ROOM(p->paths, p->room, p->n + 1, "paths", NULL) < 0)
        return -1;
    char *copy = strdup(path);
    if (!copy)
        return -1;
    p->paths[p->n++] = copy;
    return 0;
}

static bool pattern_has_wildcard(const char *pattern, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (strchr("*?[", pattern[i]))
            return true;
        i += pattern[i] == '\\';
    }
    return false;
}

/* Returns the length of a pattern's leading directories without wildcards, with the last slash. */
static size_t pattern_prefix(const char *pattern)
{
    size_t prefix = 0;
    for (size_t n; pattern[prefix + (n = strcspn(pattern + prefix, "/"))] &&
                   !pattern_has_wildcard(pattern + prefix, n);)
        prefix += n + 1;
    return prefix;
}

/* Returns dir followed by n bytes of name. unquote: backslashes that quote a character are left out. The
 * caller frees the string; NULL: out of memory. */
static char *path_join(const char *dir, const char *name, size_t n, bool unquote)
{
    size_t at = strlen(dir);
    char *path = malloc(at + n + 1);
    if (!path)
        return NULL;
    memcpy(path, dir, at);
    for (size_t i = 0; i < n; i++) {
        if (unquote && name[i] == '\\' && i + 1 < n)
            i++;
        path[at++] = name[i];
    }
    path[at] = 0;
    return path;
}

/* Reads the status of a path. Returns 0; 1: the path does not exist. A link that leads nowhere is an error,
 * because otherwise its file would be missing from the data set without notice. */
static int path_stat(const char *path, struct stat *ret, struct cw_error *err)
{
    if (stat(path, ret) == 0)
        return 0;
    int e = errno;
    struct stat link;
    if ((e == ENOENT || e == ENOTDIR) && lstat(path, &link) < 0)
        return 1;
    return cw_error_at_file(err, CW_E_IO, path, e, "%s%s", path,
                            e == ENOENT ? ": the link leads nowhere" : "");
}

static const char *mode_name(mode_t mode)
{
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

static int pattern_expand(const char *dir, const char *pattern, bool wild, struct cw_paths *found,
                          struct cw_error *err);

/* Adds a path that matches a whole pattern (wild: the pattern has wildcards). A directory that a wildcard
 * matches is left out. A path that is not a regular file otherwise is an error. */
static int pattern_add_file(const char *path, bool wild, struct cw_paths *found, struct cw_error *err)
{
    struct stat s;
    int r = path_stat(path, &s, err);
    if (r != 0)
        return r < 0 ? r : 0;
    if (!S_ISREG(s.st_mode) && wild && S_ISDIR(s.st_mode))
        return 0;
    if (!S_ISREG(s.st_mode))
        return cw_error_at_file(err, CW_E_PIPELINE, path, 0, "%s is %s: expected a file", path,
                                mode_name(s.st_mode));
    return paths_append(found, path) < 0 ? cw_error_nomem(err, strlen(path), "the names of files") : 0;
}

/* For each entry of the directory base that matches mask (one component of the pattern), adds the files that
 * match the rest of the pattern. base ends with a slash, or is empty. */
static int pattern_expand_matches(const char *base, const char *mask, const char *rest,
                                  struct cw_paths *found, struct cw_error *err)
{
    struct stat s;
    const char *listed = *base ? base : ".";
    int r = path_stat(listed, &s, err);
    if (r != 0 || !S_ISDIR(s.st_mode))
        return r < 0 ? r : 0;
    struct cw_paths entries = {0};
    r = cw_list(listed, &entries, err);
    for (size_t i = 0; r == 0 && i < entries.n; i++) {
        if (fnmatch(mask, entries.paths[i], FNM_PERIOD) != 0)
            continue;
        _cleanup_free_ char *path = path_join(base, entries.paths[i], strlen(entries.paths[i]), false);
        if (!path)
            r = cw_error_nomem(err, strlen(rest), "the names of files");
        else if (!*rest)
            r = pattern_add_file(path, true, found, err);
        else if ((r = path_stat(path, &s, err)) == 0)
            r = pattern_expand(path, rest, true, found, err);
        r = r < 0 ? r : 0;
    }
    cw_paths_deinit(&entries);
    return r;
}

/* Adds the files below dir that match a pattern. dir ends with a slash, or is empty. glob(3) is not used
 * because it frees memory twice when memory runs out. */
static int pattern_expand(const char *dir, const char *pattern, bool wild, struct cw_paths *found,
                          struct cw_error *err)
{
    size_t slashes = strspn(pattern, "/"), n = strcspn(pattern + slashes, "/");
    const char *component = pattern + slashes, *rest = component + n;
    _cleanup_free_ char *base = path_join(dir, pattern, slashes, false);
    if (!base)
        return cw_error_nomem(err, slashes, "the names of files");
    bool mask = pattern_has_wildcard(component, n);
    _cleanup_free_ char *next = mask ? path_join("", component, n, false)
                                     : path_join(base, component, n, true);
    if (!next)
        return cw_error_nomem(err, n, "the names of files");
    if (mask)
        return pattern_expand_matches(base, next, rest, found, err);
    return *rest ? pattern_expand(next, rest, wild, found, err) : pattern_add_file(next, wild, found, err);
}

/* Returns the directory that a pattern is relative to: base_dir with a slash at its end, or "". The caller
 * frees it; NULL: out of memory. */
static char *pattern_base(const char *base_dir, const char *pattern)
{
    bool below = base_dir && *base_dir && pattern[0] != '/';
    return path_join(below ? base_dir : "", "/", below && base_dir[strlen(base_dir) - 1] != '/', false);
}

int cw_glob(const char *base_dir, const char *pattern, struct cw_paths *ret, size_t *ret_prefix,
            struct cw_error *err)
{
    _cleanup_free_ char *base = pattern_base(base_dir, pattern);
    size_t prefix = pattern_prefix(pattern);
    _cleanup_free_ char *plain = path_join("", pattern, prefix, true);
    if (!base || !plain)
        return cw_error_nomem(err, strlen(pattern), "a pattern");
    struct cw_paths found = {0};
    int r = pattern_expand(base, pattern, pattern_has_wildcard(pattern, strlen(pattern)), &found, err);
    if (r == 0 && found.n == 0) {
        r = cw_error_at_file(err, CW_E_PIPELINE, pattern, 0, "no file matches %s%s", base, pattern);
    }
    if (r < 0) {
        cw_paths_deinit(&found);
        return r;
    }
    qsort(found.paths, found.n, sizeof(*found.paths), path_order);
    *ret = found;
    *ret_prefix = strlen(base) + strlen(plain);
    return 0;
}

char *cw_glob_dir(const char *base_dir, const char *pattern)
{
    _cleanup_free_ char *base = pattern_base(base_dir, pattern);
    _cleanup_free_ char *dir = base ? path_join(base, pattern, pattern_prefix(pattern), true) : NULL;
    return dir && !*dir ? strdup(".") : CW_STEAL(dir);
}

int cw_list(const char *dir, struct cw_paths *ret, struct cw_error *err)
{
    DIR *d = opendir(dir);
    if (!d)
        return cw_error_at_file(err, CW_E_IO, dir, errno, "%s", dir);
    struct cw_paths found = {0};
    int r = 0;
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e) {
            if (errno)
                r = cw_error_errno(err, CW_E_IO, errno, "%s: reading the directory", dir);
            break;
        }
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (paths_append(&found, e->d_name) < 0) {
            r = cw_error_nomem(err, 0, "the names of files");
            break;
        }
    }
    closedir(d);
    if (r < 0) {
        cw_error_file(err, dir);
        cw_paths_deinit(&found);
        return r;
    }
    if (found.n)
        qsort(found.paths, found.n, sizeof(*found.paths), path_order);
    *ret = found;
    return 0;
}

static int put_write(int fd, const uint8_t *data, size_t size)
{
    while (size) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EIO;
        if (n <= 0)
            return -1;
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

/* Makes a rename in the directory of path durable. Errors are ignored, because the file is complete in any
 * case. scratch: room for a copy of path. */
static void put_sync_directory(const char *path, char *scratch)
{
    memcpy(scratch, path, strlen(path) + 1);
    int fd = open(dirname(scratch), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

/* Makes a temporary file beside path. Returns a descriptor for writing, or a negative status. The caller
 * frees *ret, its name. */
static int put_open_temporary(const char *path, char **ret, struct cw_error *err)
{
    static atomic_uint counter; /* two threads of a process may write the same file */
    size_t room = strlen(path) + 48;
    char *temporary = malloc(room);
    if (!temporary)
        return cw_error_nomem(err, room, "a file name");
    snprintf(temporary, room, "%s.tmp-%ld-%u", path, (long)getpid(), atomic_fetch_add(&counter, 1));
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        int e = errno;
        free(temporary);
        return cw_error_at_file(err, CW_E_IO, path, e, "%s: can't be written", path);
    }
    *ret = temporary;
    return fd;
}

int cw_put_check(const char *path, struct cw_error *err)
{
    struct stat st;
    _cleanup_free_ char *temporary = NULL;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return cw_error_at_file(err, CW_E_OPTION, path, 0, "%s is %s: expected a file", path,
                                mode_name(st.st_mode));
    int fd = put_open_temporary(path, &temporary, err);
    if (fd == CW_E_IO)
        return err->status = CW_E_OPTION;
    if (fd < 0)
        return fd;
    close(fd);
    (void)unlink(temporary);
    return 0;
}

int cw_put(const char *path, const void *data, size_t size, struct cw_error *err)
{
    _cleanup_free_ char *temporary = NULL;
    int fd = put_open_temporary(path, &temporary, err);
    if (fd < 0)
        return fd;
    int e = put_write(fd, data, size) < 0 || fsync(fd) < 0 ? errno : 0;
    if (close(fd) < 0 && !e)
        e = errno;
    if (!e && rename(temporary, path) < 0)
        e = errno;
    if (e) {
        (void)unlink(temporary);
        return cw_error_at_file(err, CW_E_IO, path, e, "%s: can't be written", path);
    }
    put_sync_directory(path, temporary);
    return 0;
}

char *cw_absolute(const char *path)
{
    _cleanup_free_ char *here = *path == '/' || !*path ? NULL : getcwd(NULL, 0);
    char *ret = NULL;
    if (!here) /* out of memory, or the current directory was removed: then no relative name leads anywhere */
        return strdup(path);
    return asprintf(&ret, "%s/%s", here, path) < 0 ? NULL : ret;
}

int cw_make_dirs(const char *path, struct cw_error *err)
{
    _cleanup_free_ char *copy = strdup(path);
    if (!copy)
        return cw_error_nomem(err, strlen(path), "a path");
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(copy, 0777) < 0 && errno != EEXIST)
            break; /* the last mkdir below reports why */
        *slash = '/';
    }
    struct stat st;
    int e = mkdir(path, 0777) < 0 ? errno : 0;
    if (e == EEXIST)
        e = stat(path, &st) < 0 ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
    if (e == 0)
        return 0;
    int r = e == ENOTDIR
                ? cw_error_set(err, CW_E_IO, "%s: expected a directory that exists or can be made", path)
                : cw_error_errno(err, CW_E_IO, e, "can't make directory %s", path);
    errno = e;
    return r;
}
