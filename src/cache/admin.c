#include "cache/admin.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/internal.h"
#include "storage/file.h"

#define META_BYTES ((size_t)1 << 20) /* ours are a few KiB */

static bool is_key(const char *name) { return strlen(name) == 32 && strspn(name, "0123456789abcdef") == 32; }

static bool is_segment(const char *name)
{
    size_t n = strlen(name), suffix = strlen(CW_CACHE_SUFFIX);
    return n > suffix && strcmp(name + n - suffix, CW_CACHE_SUFFIX) == 0;
}

static bool parse_key(const char *name, struct cw_hash128 *ret)
{
    unsigned long long hi, lo;
    if (!is_key(name) || sscanf(name, "%16llx%16llx", &hi, &lo) != 2)
        return false;
    *ret = (struct cw_hash128){.hi = hi, .lo = lo};
    return true;
}

static char *join(const char *dir, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

static char *read_meta(const char *dir)
{
    _cleanup_free_ char *path = join(dir, "meta.json");
    FILE *f = path ? fopen(path, "re") : NULL;
    char *text = f ? malloc(META_BYTES) : NULL;
    if (text)
        text[fread(text, 1, META_BYTES - 1, f)] = '\0';
    if (f)
        fclose(f);
    return text;
}

static bool locked_by_others(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return locked;
}

/* Everything that segments say of themselves. */
static int look(struct cw_cache_listed *s, struct cw_error *err)
{
    struct cw_paths names = {0};
    struct cw_hash128 key;
    struct stat st;
    int r = cw_list(s->path, &names, err);
    for (size_t i = 0; r == 0 && i < names.n; i++) {
        _cleanup_free_ char *path = join(s->path, names.paths[i]);
        struct cw_cache_row *rows = NULL;
        struct cw_cache_trailer t;
        size_t n;
        if (!path || stat(path, &st) < 0)
            continue;
        s->bytes += (uint64_t)st.st_size;
        s->unfinished += strncmp(names.paths[i], CW_CACHE_TEMPORARY, strlen(CW_CACHE_TEMPORARY)) == 0;
        s->pinned |= strcmp(names.paths[i], "pin") == 0;
        if (strcmp(names.paths[i], "used") == 0) {
            s->used_at_s = (int64_t)st.st_mtime;
            s->used = locked_by_others(path);
        }
        if (!is_segment(names.paths[i]))
            continue;
        s->segments++;
        if (parse_key(s->key, &key) && cw_cache_table_read(path, key, &rows, &n, &t, NULL) == 0) {
            s->entries += n;
            s->cost_us += t.cost_us;
            free(rows);
        }
    }
    cw_paths_deinit(&names);
    return r;
}

int cw_cache_list(const char *dir, const char *key, struct cw_cache_list *ret, struct cw_error *err)
{
    struct cw_paths names = {0};
    *ret = (struct cw_cache_list){0};
    _cleanup_free_ char *lock = join(dir, "lock");
    if (!lock)
        return cw_error_nomem(err, 0, "a path");
    if (access(lock, F_OK) < 0) {
        cw_error_file(err, dir);
        return cw_error_set(err, CW_E_OPTION, "%s is no cache: expected a directory that --cache-dir named", dir);
    }
    int r = cw_list(dir, &names, err);
    if (r == 0 && !(ret->sets = calloc(names.n + 1, sizeof(*ret->sets))))
        r = cw_error_nomem(err, names.n * sizeof(*ret->sets), "a list");
    for (size_t i = 0; r == 0 && i < names.n; i++) {
        struct cw_cache_listed *s = &ret->sets[ret->n];
        if (!is_key(names.paths[i]) || (key && strncmp(names.paths[i], key, strlen(key)) != 0))
            continue;
        memcpy(s->key, names.paths[i], sizeof(s->key));
        ret->n++;
        if (!(s->path = join(dir, s->key)))
            r = cw_error_nomem(err, 0, "a path");
        else
            r = look(s, err);
        s->meta = s->path ? read_meta(s->path) : NULL;
    }
    cw_paths_deinit(&names);
    if (r < 0)
        cw_cache_list_deinit(ret);
    return r;
}

void cw_cache_list_deinit(struct cw_cache_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->sets[i].path);
        free(l->sets[i].meta);
    }
    free(l->sets);
    *l = (struct cw_cache_list){0};
}

/* ---- verify ---- */

/* How many entries of a segment are not what their checksums say. -1: it can't be read. */
static int64_t bad_entries(int fd, const struct cw_cache_row *rows, size_t n)
{
    int64_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        size_t bytes = sizeof(struct cw_cache_entry) + rows[i].length;
        _cleanup_free_ uint8_t *data = malloc(bytes);
        struct cw_cache_entry e;
        if (!data)
            return -1;
        if (cw_cache_read_at(fd, rows[i].offset, data, bytes) != 0) {
            bad++;
            continue;
        }
        memcpy(&e, data, sizeof(e));
        struct iovec v = {.iov_base = data + sizeof(e), .iov_len = rows[i].length};
        bad += e.length != rows[i].length || !cw_cache_entry_sound(&e, &rows[i].key, &v, 1);
    }
    return bad;
}

static int verify_segment(const char *path, struct cw_hash128 key, bool repair, struct cw_cache_verified *ret, struct cw_error *err)
{
    struct cw_cache_row *rows = NULL;
    struct cw_cache_trailer t;
    struct stat st = {0};
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC), r = fd < 0 ? -1 : cw_cache_table_read(path, key, &rows, &n, &t, err);
    if (fd < 0)
        return errno == ENOENT ? 0 : cw_error_errno(err, CW_E_IO, errno, "%s: can't be opened", path);
    int64_t bad = r == 0 ? bad_entries(fd, rows, n) : 0;
    (void)fstat(fd, &st);
    close(fd);
    free(rows);
    if (r < 0)
        return r;
    if (bad < 0)
        return cw_error_nomem(err, 0, "an entry");
    if (r == 1 || bad) {
        ret->bad_segments++;
        ret->bad_entries += (uint64_t)bad;
        if (repair && unlink(path) < 0 && errno != ENOENT)
            return cw_error_errno(err, CW_E_IO, errno, "%s: can't be removed", path);
        return 0;
    }
    ret->segments++;
    ret->entries += n;
    ret->bytes += (uint64_t)st.st_size;
    return 0;
}

int cw_cache_verify(const struct cw_cache_listed *s, bool repair, struct cw_cache_verified *ret, struct cw_error *err)
{
    struct cw_paths names = {0};
    struct cw_hash128 key = {0};
    int r = cw_list(s->path, &names, err);
    (void)parse_key(s->key, &key);
    for (size_t i = 0; r == 0 && i < names.n; i++) {
        _cleanup_free_ char *path = join(s->path, names.paths[i]);
        if (is_segment(names.paths[i]))
            r = path ? verify_segment(path, key, repair, ret, err) : cw_error_nomem(err, 0, "a path");
    }
    cw_paths_deinit(&names);
    return r;
}

/* ---- what changes the directory ---- */

/* Files first, then what says that they are a set. */
static int empty(const char *dir, struct cw_error *err)
{
    struct cw_paths names = {0};
    int r = cw_list(dir, &names, err);
    for (size_t i = 0; r == 0 && i < names.n; i++) {
        _cleanup_free_ char *path = join(dir, names.paths[i]);
        if (!path || (unlink(path) < 0 && errno != ENOENT))
            r = cw_error_errno(err, CW_E_IO, errno, "%s/%s: can't be removed", dir, names.paths[i]);
    }
    cw_paths_deinit(&names);
    return r == 0 && rmdir(dir) < 0 && errno != ENOENT ? cw_error_errno(err, CW_E_IO, errno, "%s: can't be removed", dir) : r;
}

int cw_cache_set_remove(const char *dir, struct cw_error *err)
{
    _cleanup_free_ char *used = join(dir, "used");
    if (!used)
        return cw_error_nomem(err, 0, "a path");
    int fd = open(used, O_RDWR | O_CLOEXEC);
    int r = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 ? 1 : empty(dir, err);
    if (fd >= 0)
        close(fd);
    return r;
}

int cw_cache_remove(const char *dir, const struct cw_cache_listed *s, struct cw_error *err)
{
    _cleanup_free_ char *lock = join(dir, "lock");
    if (!lock)
        return cw_error_nomem(err, 0, "a path");
    int lock_fd = open(lock, O_RDWR | O_CLOEXEC), r = 0;
    if (lock_fd < 0 || flock(lock_fd, LOCK_EX) < 0)
        r = cw_error_errno(err, CW_E_IO, errno, "%s: can't be locked", lock);
    if (r == 0)
        r = cw_cache_set_remove(s->path, err);
    if (lock_fd >= 0)
        close(lock_fd);
    return r;
}

int cw_cache_pin(const struct cw_cache_listed *s, bool on, struct cw_error *err)
{
    _cleanup_free_ char *path = join(s->path, "pin");
    if (!path)
        return cw_error_nomem(err, 0, "a path");
    int fd = on ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (on ? fd < 0 : unlink(path) < 0 && errno != ENOENT)
        return cw_error_errno(err, CW_E_IO, errno, "%s: can't be %s", path, on ? "made" : "removed");
    if (fd >= 0)
        close(fd);
    return 0;
}
