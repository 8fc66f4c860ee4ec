/* Names of files: status, patterns, directories, and writing a file as a whole. Any thread. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/file.h"

int cw_stat(const char *path, struct cw_stat *ret, struct cw_error *err)
{
    struct stat s;
    if (stat(path, &s) < 0) {
        int e = errno;
        cw_error_file(err, path);
        return cw_error_errno(err, CW_E_IO, e, "%s", path);
    }
    *ret = (struct cw_stat){
        .size = (uint64_t)s.st_size,
        .mtime_ns = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec,
        .is_dir = S_ISDIR(s.st_mode),
    };
    return 0;
}

void cw_paths_deinit(struct cw_paths *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->paths[i]);
    free(p->paths);
    *p = (struct cw_paths){0};
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int paths_append(struct cw_paths *p, const char *path)
{
    if ((p->n & (p->n - 1)) == 0) { /* capacity is the next power of two */
        char **grown = realloc(p->paths, (p->n ? p->n * 2 : 1) * sizeof(*grown));
        if (!grown)
            return -1;
        p->paths = grown;
    }
    char *copy = strdup(path);
    if (!copy)
        return -1;
    p->paths[p->n++] = copy;
    return 0;
}

/* Length of the leading directories of a pattern that hold no wildcard, the last slash included. */
static size_t literal_prefix(const char *pattern, bool wild)
{
    size_t prefix = 0;
    for (size_t i = 0; pattern[i] && !(wild && strchr("*?[", pattern[i])); i++) {
        if (wild && pattern[i] == '\\' && pattern[i + 1])
            i++;
        else if (pattern[i] == '/')
            prefix = i + 1;
    }
    return prefix;
}

static bool has_wildcard(const char *pattern)
{
    for (const char *c = pattern; *c; c++) {
        if (strchr("*?[", *c))
            return true;
        if (*c == '\\' && c[1])
            c++;
    }
    return false;
}

/* Appends text; escape: so that glob takes every byte as it is. */
static char *put_text(char *at, const char *text, size_t length, bool escape)
{
    for (size_t i = 0; i < length; i++) {
        if (escape && strchr("*?[\\", text[i]))
            *at++ = '\\';
        *at++ = text[i];
    }
    return at;
}

static int no_match(const char *pattern, struct cw_error *err)
{
    cw_error_file(err, pattern);
    return cw_error_set(err, CW_E_PIPELINE, "no file matches %s", pattern);
}

static bool is_regular(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

int cw_glob(const char *base_dir, const char *pattern, struct cw_paths *ret, size_t *ret_prefix, struct cw_error *err)
{
    bool wild = has_wildcard(pattern), below = base_dir && *base_dir && pattern[0] != '/';
    size_t base = below ? strlen(base_dir) : 0;
    _cleanup_free_ char *full = malloc(2 * base + strlen(pattern) + 2);
    if (!full)
        return cw_error_nomem(err, 2 * base + strlen(pattern) + 2, "a pattern");
    char *at = put_text(full, base_dir, base, wild);
    if (below && base_dir[base - 1] != '/') {
        *at++ = '/';
        base++;
    }
    strcpy(at, pattern);

    size_t prefix = literal_prefix(pattern, wild), escapes = 0;
    for (size_t i = 0; wild && i < prefix; i++)
        if (pattern[i] == '\\') {
            escapes++;
            i++;
        }
    struct cw_paths found = {0};
    int r = 0;
    if (!wild) {
        r = is_regular(full) ? paths_append(&found, full) : 0;
    } else {
        glob_t g = {0};
        int code = glob(full, GLOB_NOSORT, NULL, &g);
        if (code == GLOB_NOSPACE)
            r = -1;
        for (size_t i = 0; r == 0 && code == 0 && i < g.gl_pathc; i++)
            if (is_regular(g.gl_pathv[i]))
                r = paths_append(&found, g.gl_pathv[i]);
        globfree(&g);
    }
    if (r < 0) {
        cw_paths_deinit(&found);
        return cw_error_nomem(err, 0, "the names of files");
    }
    if (found.n == 0)
        return no_match(full, err);
    qsort(found.paths, found.n, sizeof(*found.paths), by_bytes);
    *ret = found;
    *ret_prefix = base + prefix - escapes;
    return 0;
}

int cw_list(const char *dir, struct cw_paths *ret, struct cw_error *err)
{
    DIR *d = opendir(dir);
    if (!d) {
        int e = errno;
        cw_error_file(err, dir);
        return cw_error_errno(err, CW_E_IO, e, "%s", dir);
    }
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
        qsort(found.paths, found.n, sizeof(*found.paths), by_bytes);
    *ret = found;
    return 0;
}

static int write_all(int fd, const uint8_t *data, size_t size)
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

/* The rename is on disk when the directory is. Errors don't matter: the file is whole either way. */
static void sync_directory(const char *path, char *scratch)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    memcpy(scratch, path, n);
    strcpy(scratch + n, slash ? (n ? "" : "/") : ".");
    int fd = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

int cw_put(const char *path, const void *data, size_t size, struct cw_error *err)
{
    static atomic_uint counter; /* two threads of a process may write the same file */
    size_t room = strlen(path) + 48;
    _cleanup_free_ char *temporary = malloc(room);
    if (!temporary)
        return cw_error_nomem(err, room, "a file name");
    snprintf(temporary, room, "%s.tmp-%ld-%u", path, (long)getpid(), atomic_fetch_add(&counter, 1));
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        int e = errno;
        cw_error_file(err, path);
        return cw_error_errno(err, CW_E_IO, e, "%s: can't be written", path);
    }
    int e = write_all(fd, data, size) < 0 || fsync(fd) < 0 ? errno : 0;
    if (close(fd) < 0 && !e)
        e = errno;
    if (!e && rename(temporary, path) < 0)
        e = errno;
    if (e) {
        (void)unlink(temporary);
        cw_error_file(err, path);
        return cw_error_errno(err, CW_E_IO, e, "%s: can't be written", path);
    }
    sync_directory(path, temporary);
    return 0;
}
