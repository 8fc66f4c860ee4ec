/* Names of files: status, patterns, directories, and writing a file as a whole. Any thread. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
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

static bool has_wildcard(const char *pattern, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (strchr("*?[", pattern[i]))
            return true;
        i += pattern[i] == '\\';
    }
    return false;
}

/* Length of the leading directories of a pattern that hold no wildcard, the last slash included. */
static size_t literal_prefix(const char *pattern)
{
    size_t prefix = 0;
    for (size_t n; pattern[prefix + (n = strcspn(pattern + prefix, "/"))] && !has_wildcard(pattern + prefix, n);)
        prefix += n + 1;
    return prefix;
}

/* A copy of dir followed by n bytes of name, backslashes that quote taken out if unquote. */
static char *join(const char *dir, const char *name, size_t n, bool unquote)
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

static bool is_regular(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

static int expand(const char *dir, const char *pattern, struct cw_paths *found, struct cw_error *err);

/* One candidate for a pattern's component: a file at the end, else a directory to go on in. Takes path over. */
static int expand_one(char *path, const char *rest, struct cw_paths *found, struct cw_error *err)
{
    int r = 0;
    if (!path)
        return cw_error_nomem(err, strlen(rest), "the names of files");
    if (*rest)
        r = expand(path, rest, found, err);
    else if (is_regular(path) && paths_append(found, path) < 0)
        r = cw_error_nomem(err, strlen(path), "the names of files");
    free(path);
    return r;
}

/* Files below dir (ends with a slash, or empty) that match; rest of the pattern starts with slashes or a component. Own code, because
 * glob(3) frees twice when memory runs out. */
static int expand(const char *dir, const char *pattern, struct cw_paths *found, struct cw_error *err)
{
    size_t slashes = strspn(pattern, "/"), n = strcspn(pattern + slashes, "/");
    const char *component = pattern + slashes, *rest = component + n;
    _cleanup_free_ char *base = join(dir, pattern, slashes, false);
    if (!base)
        return cw_error_nomem(err, slashes, "the names of files");
    if (!has_wildcard(component, n))
        return expand_one(join(base, component, n, true), rest, found, err);
    _cleanup_free_ char *mask = join("", component, n, false);
    if (!mask)
        return cw_error_nomem(err, n, "a pattern");
    struct stat s;
    const char *listed = *base ? base : ".";
    if (stat(listed, &s) < 0 || !S_ISDIR(s.st_mode))
        return 0;
    struct cw_paths entries = {0};
    int r = cw_list(listed, &entries, err);
    for (size_t i = 0; r == 0 && i < entries.n; i++)
        if (fnmatch(mask, entries.paths[i], FNM_PERIOD) == 0)
            r = expand_one(join(base, entries.paths[i], strlen(entries.paths[i]), false), rest, found, err);
    cw_paths_deinit(&entries);
    return r;
}

int cw_glob(const char *base_dir, const char *pattern, struct cw_paths *ret, size_t *ret_prefix, struct cw_error *err)
{
    bool below = base_dir && *base_dir && pattern[0] != '/';
    _cleanup_free_ char *base = join(below ? base_dir : "", "/", below && base_dir[strlen(base_dir) - 1] != '/', false);
    size_t prefix = literal_prefix(pattern);
    _cleanup_free_ char *plain = join("", pattern, prefix, true);
    if (!base || !plain)
        return cw_error_nomem(err, strlen(pattern), "a pattern");
    struct cw_paths found = {0};
    int r = expand(base, pattern, &found, err);
    if (r == 0 && found.n == 0) {
        cw_error_file(err, pattern);
        r = cw_error_set(err, CW_E_PIPELINE, "no file matches %s%s", base, pattern);
    }
    if (r < 0) {
        cw_paths_deinit(&found);
        return r;
    }
    qsort(found.paths, found.n, sizeof(*found.paths), by_bytes);
    *ret = found;
    *ret_prefix = strlen(base) + strlen(plain);
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
    if (n == 0)
        scratch[n++] = slash ? '/' : '.';
    scratch[n] = '\0';
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

int cw_make_dirs(const char *path, struct cw_error *err)
{
    _cleanup_free_ char *copy = strdup(path);
    if (!copy)
        return cw_error_nomem(err, strlen(path), "a path");
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(copy, 0777) < 0 && errno != EEXIST)
            break; /* the last mkdir says why */
        *slash = '/';
    }
    struct stat st;
    if (mkdir(path, 0777) < 0 && (errno != EEXIST || stat(path, &st) < 0 || !S_ISDIR(st.st_mode)))
        return cw_error_errno(err, CW_E_IO, errno, "can't make directory %s", path);
    return 0;
}
