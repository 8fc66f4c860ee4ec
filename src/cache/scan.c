/* A set's directory: which segments there are, those of others too. The store's thread. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "cache/internal.h"
#include "storage/file.h"

/* A directory's modification time is no finer than this on some file systems: what changed so shortly before
 * a scan may have been missed. */
#define MTIME_GRAIN_NS ((int64_t)2000000000)

static int64_t ns_of(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

void cw_cache_segment_named(struct cw_cache_set *s, struct cw_cache_segment *g)
{
    /* without memory: it is taken for another's, whose entries are known */
    (void)cw_map_add(&s->names, &g->node, cw_hash64(g->name, strlen(g->name)));
}

static struct cw_cache_segment *segment_named(const struct cw_cache_set *s, const char *name)
{
    uint64_t hash = cw_hash64(name, strlen(name));
    for (struct cw_map_node *at = cw_map_find(&s->names, hash, NULL); at;
         at = cw_map_find(&s->names, hash, at)) {
        struct cw_cache_segment *g = CW_CONTAINER(at, struct cw_cache_segment, node);
        if (strcmp(g->name, name) == 0)
            return g;
    }
    return NULL;
}

/* A file that has the name of a segment. What is none is known too, so that it is not looked at again. */
static void load_segment(struct cw_cache_set *s, const char *name)
{
    _cleanup_free_ struct cw_cache_row *rows = NULL;
    struct cw_cache_trailer trailer;
    struct cw_error err = {0};
    struct stat st;
    size_t n = 0;
    uint32_t number;
    _cleanup_free_ char *path = NULL;
    _cleanup_close_ int fd = cw_cache_open_file(s->dir_fd, name, O_RDONLY);
    if (fd < 0 && fd != -CW_CACHE_NO_FILE) /* it went meanwhile */
        return;
    int r = fd < 0 ? 1 : fstat(fd, &st) < 0 ? -1 : cw_cache_table_read(fd, s->key, &rows, &n, &trailer);
    if (fd < 0)
        cw_cache_trouble(s->cache, NULL, name, CW_CACHE_NO_FILE);
    struct cw_cache_segment *g = cw_cache_segment_new();
    bool ok = g && (g->name = strdup(name)) &&
              (r != 0 || (asprintf(&path, "%s/%s", s->dir, name) >= 0 &&
                          cw_cache_file_new(path, &st, &g->file, &err) == 0));
    if (!ok || r < 0) {
        cw_cache_segment_free(g);
        return;
    }
    g->seen = true;
    if (r == 1) {
        atomic_fetch_add(&s->cache->bad, 1);
        atomic_store(&g->dead, true);
    }
    if (cw_cache_set_add_segment(s, g, &number, &err) == 0) {
        cw_cache_segment_named(s, g);
        if (r == 0)
            /* no memory for the index: they are computed */
            (void)cw_cache_set_insert(s, number, rows, n, &err);
    }
}

/* What is gone must not keep its space because we have it open. Who reads it right now holds its lock: then
 * it is let go of the next time. */
static void let_go(struct cw_cache_segment *g)
{
    if (!atomic_load(&g->dead) || !g->file || pthread_rwlock_trywrlock(&g->lock) != 0)
        return;
    g->file = cw_file_free(g->file);
    pthread_rwlock_unlock(&g->lock);
}

/* False: not all of them could be read. */
static bool read_names(struct cw_cache_set *s, DIR *d)
{
    for (struct dirent *e; errno = 0, (e = readdir(d));) {
        if (cw_cache_name(e->d_name) != CW_CACHE_NAME_SEGMENT)
            continue;
        struct cw_cache_segment *g = segment_named(s, e->d_name);
        if (g)
            g->seen = true;
        else
            load_segment(s, e->d_name);
    }
    return errno == 0;
}

static void look(struct cw_cache_set *s)
{
    _cleanup_(cw_closedirp) DIR *d = cw_cache_open_names(s->dir_fd);
    if (!d)
        return;
    for (uint32_t i = 0; i < s->n_segments; i++)
        s->segments[i]->seen = s->segments[i]->fd >= 0;
    bool all = read_names(s, d);
    for (uint32_t i = 0; i < s->n_segments && all; i++)
        if (!s->segments[i]->seen)
            atomic_store(&s->segments[i]->dead, true);
}

void cw_cache_set_scan(struct cw_cache_set *s, bool always)
{
    struct stat st;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    if (fstat(s->dir_fd, &st) < 0)
        return;
    int64_t mtime = ns_of(&st.st_mtim);
    if (always || mtime != s->scanned_mtime_ns || ns_of(&wall) - mtime <= MTIME_GRAIN_NS) {
        look(s);
        s->scanned_mtime_ns = mtime;
    }
    for (uint32_t i = 0; i < s->n_segments; i++)
        let_go(s->segments[i]);
}
