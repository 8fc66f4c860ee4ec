/* The quota: what may be written, and what gives way. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/crash.h"
#include "cache/internal.h"

/* A set that nobody uses is worth half of one in use, and half of that after each day. */
#define UNUSED_SHARE 0.5
#define HALF_LIFE_S 86400.0
/* What gives way is worth clearly less than what comes: else two sets would push each other out in turn. */
#define CLEARLY 0.9
/* Nobody takes so long to write one of the small files beside segments. */
#define META_S 60.0
/* A set that has no segments any more, but says of itself what it took: for so long. */
#define EMPTY_S (30 * 86400.0)

struct found { /* a file of a set */
    char *path;
    uint64_t bytes;
    double value; /* microseconds of computing saved per MiB, by how likely it is */
    bool temporary;
};
struct look {
    struct found *files;
    size_t n, capacity;
    uint64_t used;
};

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Nobody holds its lock: who wrote it is dead. */
static bool orphaned(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool free_ = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return free_;
}

/* Removes a file that only a run which uses the set would need: those that want to use it wait meanwhile. False: somebody does. */
static bool unlink_unused(const char *dir, const char *path)
{
    _cleanup_free_ char *used = NULL;
    if (asprintf(&used, "%s/used", dir) < 0) {
        used = NULL;
        return false;
    }
    int fd = open(used, O_RDWR | O_CLOEXEC);
    bool ours = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (ours)
        (void)unlink(path);
    if (fd >= 0)
        close(fd);
    return ours;
}

/* How likely a set is to be read again, beside one in use. Negative: it is pinned. */
static double likely(const char *dir)
{
    _cleanup_free_ char *used = NULL, *pin = NULL;
    struct stat st;
    if (asprintf(&used, "%s/used", dir) < 0 || asprintf(&pin, "%s/pin", dir) < 0)
        return -1;
    if (access(pin, F_OK) == 0)
        return -1;
    if (stat(used, &st) < 0)
        return 0;
    if (!orphaned(used))
        return 1;
    double age_s = difftime(time(NULL), st.st_mtime);
    return UNUSED_SHARE * exp2(-CW_MAX(age_s, 0.0) / HALF_LIFE_S);
}

static void add(struct look *l, char *path, uint64_t bytes, double value, bool temporary)
{
    l->used += bytes;
    if (l->n == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 256;
        struct found *grown = realloc(l->files, capacity * sizeof(*grown));
        if (!grown) { /* it counts, but can't give way */
            free(path);
            return;
        }
        l->files = grown;
        l->capacity = capacity;
    }
    l->files[l->n++] = (struct found){.path = path, .bytes = bytes, .value = value, .temporary = temporary};
}

static void look_at_set(struct look *l, const char *dir)
{
    DIR *d = opendir(dir);
    double share = d ? likely(dir) : 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char *path;
        struct stat st;
        if (e->d_name[0] == '.' || asprintf(&path, "%s/%s", dir, e->d_name) < 0)
            continue;
        bool temporary = strncmp(e->d_name, CW_CACHE_TEMPORARY, strlen(CW_CACHE_TEMPORARY)) == 0;
        const char *worth = strchr(e->d_name, '-');
        bool meta = strstr(e->d_name, ".json.tmp-") != NULL;
        if (stat(path, &st) < 0) {
            free(path);
        } else if ((temporary && orphaned(path)) || (meta && difftime(time(NULL), st.st_mtime) > META_S)) {
            (void)unlink(path);
            free(path);
        } else if (meta && unlink_unused(dir, path)) {
            free(path);
        } else {
            bool segment = ends_with(path, CW_CACHE_SUFFIX) && worth;
            add(l, path, (uint64_t)st.st_size, !segment || share < 0 ? INFINITY : (double)strtoull(worth + 1, NULL, 10) * share, temporary);
        }
    }
    if (d)
        closedir(d);
}

/* Nobody has used a set for long, and nothing is kept in it. */
static bool is_forsaken(const char *dir)
{
    _cleanup_free_ char *used = NULL;
    struct stat st;
    bool any = false;
    if (asprintf(&used, "%s/used", dir) < 0) {
        used = NULL;
        return false;
    }
    if (stat(used, &st) < 0 || difftime(time(NULL), st.st_mtime) < EMPTY_S)
        return false;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && !any && (e = readdir(d));)
        any = ends_with(e->d_name, CW_CACHE_SUFFIX) || strcmp(e->d_name, "pin") == 0;
    if (d)
        closedir(d);
    return d && !any;
}

/* sweep: what is forsaken goes. */
static void look(const char *dir, struct look *l, bool sweep)
{
    DIR *d = opendir(dir);
    *l = (struct look){0};
    for (struct dirent *e; d && (e = readdir(d));) {
        _cleanup_free_ char *set = NULL;
        struct cw_error ignored = {0}; /* then it stays, and counts */
        if (strlen(e->d_name) != 32 || strspn(e->d_name, "0123456789abcdef") != 32)
            continue;
        if (asprintf(&set, "%s/%s", dir, e->d_name) < 0)
            set = NULL;
        else if (!sweep || !is_forsaken(set) || cw_cache_set_remove(set, &ignored) != 0)
            look_at_set(l, set);
    }
    if (d)
        closedir(d);
}

static void look_deinit(struct look *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->files[i].path);
    free(l->files);
}

int cw_cache_lock(const struct cw_cache *c)
{
    while (flock(c->lock_fd, LOCK_EX) < 0)
        if (errno != EINTR)
            return -errno;
    return 0;
}

void cw_cache_unlock(const struct cw_cache *c) { (void)flock(c->lock_fd, LOCK_UN); }

uint64_t cw_cache_sweep(struct cw_cache *c)
{
    struct look l;
    if (cw_cache_lock(c) < 0)
        return 0;
    look(c->dir, &l, true);
    cw_cache_unlock(c);
    look_deinit(&l);
    atomic_store(&c->used, l.used);
    return l.used;
}

static int by_value(const void *a, const void *b)
{
    double x = ((const struct found *)a)->value, y = ((const struct found *)b)->value;
    return x < y ? -1 : x > y;
}

/* Makes room for `bytes` more. 0; 1: there is none, and nothing was done. Directory locked. */
static int make_room(struct cw_cache *c, uint64_t bytes, uint64_t value)
{
    struct look l;
    uint64_t left, n = 0;
    if (bytes > c->quota)
        return 1;
    look(c->dir, &l, false);
    qsort(l.files, l.n, sizeof(*l.files), by_value);
    for (left = l.used; left + bytes > c->quota && n < l.n && l.files[n].value < CLEARLY * (double)value; n++)
        left -= l.files[n].bytes;
    int r = left + bytes > c->quota;
    for (uint64_t i = 0; i < n && r == 0; i++) {
        cw_crash_point("cache-evict");
        if (unlink(l.files[i].path) == 0)
            atomic_fetch_add(&c->evicted, 1);
    }
    atomic_store(&c->used, r == 0 ? left + bytes : l.used);
    look_deinit(&l);
    return r;
}

static int create(const char *dir, uint64_t size, char **ret_path, int *ret_fd)
{
    uint64_t id = 0;
    struct stat st;
    char *path;
    (void)!getrandom(&id, sizeof(id), 0);
    if (asprintf(&path, "%s/" CW_CACHE_TEMPORARY "%016" PRIx64, dir, id) < 0)
        return -ENOMEM;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666), e = fd < 0 ? errno : 0;
    /* The lock says that somebody writes; the directory's lock is held, so nobody takes it for an orphan before. Its size is what it may grow to. */
    if (fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) < 0 || ftruncate(fd, (off_t)size) < 0 || fstat(fd, &st) < 0))
        e = errno;
    if (e) {
        if (fd >= 0) {
            (void)unlink(path);
            close(fd);
        }
        free(path);
        return -e;
    }
    *ret_path = path;
    *ret_fd = fd;
    return 0;
}

int cw_cache_room(struct cw_cache *c, const char *dir, uint64_t size, uint64_t value, char **ret_path, int *ret_fd)
{
    int r = cw_cache_lock(c);
    if (r < 0)
        return r;
    r = make_room(c, size, value);
    if (r == 0)
        r = create(dir, size, ret_path, ret_fd);
    cw_cache_unlock(c);
    return r;
}
