/* Listing, verifying, removing and pinning the sets of a directory. */
#include "cache/admin.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "cache/files.h"
#include "cache/segment.h"
#include "storage/file.h"

#define META_BYTES ((size_t)1 << 20) /* bytes read of a meta.json; normally it has a few KiB */

/* Returns the key of the set with this directory name. */
static struct cw_hash128 set_parse_key(const char *name)
{
    unsigned long long hi = 0, lo = 0;
    (void)sscanf(name, "%16llx%16llx", &hi, &lo);
    return (struct cw_hash128){.hi = hi, .lo = lo};
}

/* Opens a cache directory. Returns a descriptor or a negative status. */
static int root_open(const char *dir, struct cw_error *err)
{
    struct stat st;
    _cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int e = fd < 0 ? errno : 0;
    if (fd >= 0 && fstatat(fd, CW_CACHE_LOCK, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return CW_STEAL_FD(fd);
    return e && e != ENOENT && e != ENOTDIR
               ? cw_error_at_file(err, CW_E_IO, dir, e, "%s: can't be opened", dir)
               : cw_error_at_file(err, CW_E_OPTION, dir, 0,
                                  "%s is not a cache: expected a directory that was used as --cache-dir",
                                  dir);
}

/* Adds the counts in the table of a segment. */
static void listed_add_segment(struct cw_cache_listed *s, int set, const char *name)
{
    _cleanup_free_ struct cw_cache_row *rows = NULL;
    struct cw_cache_trailer t;
    size_t n = 0;
    _cleanup_close_ int fd = cw_cache_open_file(set, name, O_RDONLY);
    s->segments++;
    if (fd < 0 || cw_cache_table_read(fd, set_parse_key(s->key), &rows, &n, &t) != 0)
        return;
    s->entries += n;
    s->cost_us += t.cost_us;
    for (size_t i = 0; i < n; i++) {
        s->content += rows[i].length;
        s->stored += rows[i].stored;
    }
}

/* Fills in the facts that follow from the files of a set. */
static int listed_fill(struct cw_cache_listed *s, int set, struct cw_error *err)
{
    _cleanup_(cw_paths_deinit) struct cw_paths names = {0};
    struct stat st;
    int r = cw_cache_names(set, &names, err);
    for (size_t i = 0; r == 0 && i < names.n; i++) {
        const char *name = names.paths[i];
        if (fstatat(set, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        s->bytes += S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
        s->unfinished += cw_cache_name(name) == CW_CACHE_NAME_WRITTEN;
        s->pinned |= strcmp(name, CW_CACHE_PIN) == 0;
        if (strcmp(name, CW_CACHE_USED) == 0) {
            s->used_at_s = (int64_t)st.st_mtime;
            s->used = cw_cache_locked(set, name) == 1;
        }
        if (cw_cache_name(name) == CW_CACHE_NAME_SEGMENT)
            listed_add_segment(s, set, name);
    }
    s->meta = cw_cache_read_text(set, CW_CACHE_META, META_BYTES);
    return r;
}

static int list_add_set(const char *dir, int root, const char *key, struct cw_cache_list *ret,
                        struct cw_error *err)
{
    struct cw_cache_listed *s = &ret->sets[ret->n];
    _cleanup_close_ int set = cw_cache_open_dir(root, key);
    if (set < 0) /* a link or a file is not a set */
        return 0;
    ret->n++;
    memcpy(s->key, key, sizeof(s->key));
    int r = listed_fill(s, set, err);
    return asprintf(&s->path, "%s/%s", dir, key) >= 0 ? r : cw_error_nomem(err, 0, "a path");
}

int cw_cache_list(const char *dir, const char *key, struct cw_cache_list *ret, struct cw_error *err)
{
    _cleanup_(cw_paths_deinit) struct cw_paths names = {0};
    *ret = (struct cw_cache_list){0};
    _cleanup_close_ int root = root_open(dir, err);
    if (root < 0)
        return root;
    int r = cw_cache_names(root, &names, err);
    if (r == 0 && !(ret->sets = calloc(names.n + 1, sizeof(*ret->sets))))
        r = cw_error_nomem(err, names.n * sizeof(*ret->sets), "a list");
    for (size_t i = 0; r == 0 && i < names.n; i++)
        if (cw_cache_is_set(names.paths[i]) && (!key || strncmp(names.paths[i], key, strlen(key)) == 0))
            r = list_add_set(dir, root, names.paths[i], ret, err);
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

/* Returns how many entries of a segment are damaged; -1: out of memory. */
static int64_t segment_bad_entries(int fd, const struct cw_cache_row *rows, size_t n)
{
    int64_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        size_t bytes = sizeof(struct cw_cache_entry) + rows[i].stored;
        _cleanup_free_ uint8_t *data = malloc(bytes);
        struct cw_cache_entry e;
        if (!data)
            return -1;
        if (cw_cache_read_at(fd, rows[i].offset, data, bytes) != 0) {
            bad++;
            continue;
        }
        memcpy(&e, data, sizeof(e));
        struct iovec v = {.iov_base = data + sizeof(e), .iov_len = rows[i].stored};
        bad += e.length != rows[i].length || e.stored != rows[i].stored ||
               !cw_cache_entry_sound(&e, &rows[i].key, &v, 1);
    }
    return bad;
}

static int segment_verify(const struct cw_cache_listed *s, int set, const char *name, bool repair,
                          struct cw_cache_verified *ret, struct cw_error *err)
{
    _cleanup_free_ struct cw_cache_row *rows = NULL;
    struct cw_cache_trailer t;
    struct stat st = {0};
    size_t n = 0;
    _cleanup_close_ int fd = cw_cache_open_file(set, name, O_RDONLY);
    int r = fd == -CW_CACHE_NO_FILE ? 1
            : fd < 0                ? fd
                                    : cw_cache_table_read(fd, set_parse_key(s->key), &rows, &n, &t);
    if (r == -ENOENT) /* it was evicted meanwhile */
        return 0;
    int64_t bad = r == 0 ? segment_bad_entries(fd, rows, n) : 0;
    if (fd >= 0)
        (void)fstat(fd, &st);
    if (r < 0)
        return cw_error_errno(err, CW_E_IO, -r, "%s/%s: can't be read", s->path, name);
    if (bad < 0)
        return cw_error_nomem(err, 0, "an entry");
    if (r == 1 || bad) {
        ret->bad_segments++;
        ret->bad_entries += (uint64_t)bad;
        if (repair && unlinkat(set, name, 0) < 0 && errno != ENOENT)
            return cw_error_errno(err, CW_E_IO, errno, "%s/%s: can't be removed", s->path, name);
        return 0;
    }
    ret->segments++;
    ret->entries += n;
    ret->bytes += (uint64_t)st.st_size;
    return 0;
}

/* Opens the directory of a set that was listed. *ret is negative if the set was removed since. */
static int listed_open(const struct cw_cache_listed *s, int *ret, struct cw_error *err)
{
    *ret = cw_cache_open_dir(AT_FDCWD, s->path);
    return *ret >= 0 || *ret == -ENOENT
               ? 0
               : cw_error_set(err, CW_E_IO, "%s: can't be opened: %s", s->path, cw_cache_why(-*ret));
}

int cw_cache_verify(const struct cw_cache_listed *s, bool repair, struct cw_cache_verified *ret,
                    struct cw_error *err)
{
    _cleanup_(cw_paths_deinit) struct cw_paths names = {0};
    _cleanup_close_ int set = -1;
    int r = listed_open(s, &set, err);
    if (r < 0 || set < 0)
        return r;
    r = cw_cache_names(set, &names, err);
    for (size_t i = 0; r == 0 && i < names.n; i++)
        if (cw_cache_name(names.paths[i]) == CW_CACHE_NAME_SEGMENT)
            r = segment_verify(s, set, names.paths[i], repair, ret, err);
    return r;
}

/* ---- changing the directory ---- */

int cw_cache_remove(const char *dir, const struct cw_cache_listed *s, struct cw_error *err)
{
    _cleanup_close_ int root = root_open(dir, err);
    if (root < 0)
        return root;
    _cleanup_close_ int lock = cw_cache_open_file(root, CW_CACHE_LOCK, O_RDWR);
    int r = lock < 0 ? lock : flock(lock, LOCK_EX) < 0 ? -errno : 0;
    return r < 0 ? cw_error_set(err, CW_E_IO, "%s/" CW_CACHE_LOCK ": can't be locked: %s", dir,
                                cw_cache_why(-r))
                 : cw_cache_set_remove(root, s->key, err);
}

int cw_cache_pin(const struct cw_cache_listed *s, bool on, struct cw_error *err)
{
    _cleanup_close_ int set = -1;
    int r = listed_open(s, &set, err);
    if (r < 0 || set < 0)
        return r;
    _cleanup_close_ int fd = on ? cw_cache_open_file(set, CW_CACHE_PIN, O_WRONLY | O_CREAT) : -1;
    if (on ? fd < 0 : unlinkat(set, CW_CACHE_PIN, 0) < 0 && errno != ENOENT)
        r = cw_error_set(err, CW_E_IO, "%s/" CW_CACHE_PIN ": can't be %s: %s", s->path,
                         on ? "made" : "removed", cw_cache_why(on ? -fd : errno));
    return r;
}
