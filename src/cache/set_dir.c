/* The directory of a set: marking it as used, and finding the segments of all processes in it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "cache/files.h"
#include "cache/internal.h"
#include "cache/set.h"
#include "storage/throttle.h"

/* On some file systems the modification times of directories have only this resolution. So a scan may have
 * missed a change if the directory was modified this shortly before the scan. */
#define MTIME_GRAIN_NS ((int64_t)2000000000)

/* ---- segments ---- */

void cw_cache_set_name_segment(struct cw_cache_set *s, struct cw_cache_segment *g)
{
    /* If memory is short, a later scan loads the segment a second time, but finds its entries in the index.
     */
    (void)cw_map_add(&s->names, &g->node, cw_hash64(g->name, strlen(g->name)));
}

static struct cw_cache_segment *set_find_segment(const struct cw_cache_set *s, const char *name)
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

/* Loads a file that has the name of a segment. If the file is damaged it becomes a dead segment, so that
 * later scans do not read it again. */
static void set_load_segment(struct cw_cache_set *s, const char *name)
{
    _cleanup_free_ struct cw_cache_row *rows = NULL;
    _cleanup_free_ char *path = NULL;
    struct cw_cache_trailer trailer;
    struct stat st;
    size_t n = 0;
    _cleanup_close_ int fd = cw_cache_open_file(s->dir_fd, name, O_RDONLY);
    if (fd < 0 && fd != -CW_CACHE_NO_FILE) /* the file was removed meanwhile */
        return;
    int r = fd < 0 ? 1 : fstat(fd, &st) < 0 ? -1 : cw_cache_table_read(fd, s->key, &rows, &n, &trailer);
    if (fd < 0)
        cw_cache_monitor_trouble(&s->cache->monitor, NULL, name, CW_CACHE_NO_FILE);
    struct cw_cache_segment *g = cw_cache_segment_new();
    bool ok = r >= 0 && g && (g->name = strdup(name)) &&
              (r != 0 || (asprintf(&path, "%s/%s/%s", s->cache->dir, s->name, name) >= 0 &&
                          cw_cache_segment_file(path, &st, &g->file, NULL) == 0));
    if (!ok || cw_cache_index_add_segment(&s->index, g) < 0) {
        cw_cache_segment_free(g);
        return;
    }
    g->seen = true;
    cw_cache_set_name_segment(s, g);
    if (r == 1) {
        atomic_fetch_add(&s->cache->counters.bad, 1);
        atomic_store(&g->dead, true);
    }
    /* if memory for the index is short, the entries are computed again */
    (void)!cw_cache_index_insert(&s->index, g, rows, n);
}

/* Loads new segments, and marks segments as dead whose names are no longer in the directory. */
static void set_list(struct cw_cache_set *s)
{
    _cleanup_(cw_closedirp) DIR *d = cw_cache_open_names(s->dir_fd);
    if (!d)
        return;
    for (struct dirent *e; errno = 0, (e = readdir(d));) {
        if (cw_cache_name(e->d_name) != CW_CACHE_NAME_SEGMENT)
            continue;
        struct cw_cache_segment *g = set_find_segment(s, e->d_name);
        if (g)
            g->seen = true;
        else
            set_load_segment(s, e->d_name);
    }
    bool all = errno == 0;
    for (size_t i = 0; i < s->index.n_segments; i++) {
        struct cw_cache_segment *g = s->index.segments[i];
        if (all && !g->seen && g->fd < 0)
            atomic_store(&g->dead, true);
        g->seen = false;
    }
}

void cw_cache_set_scan(struct cw_cache_set *s)
{
    struct stat st;
    if (fstat(s->dir_fd, &st) < 0)
        return;
    int64_t mtime = cw_timespec_ns(&st.st_mtim);
    if (mtime != s->scanned_mtime_ns || (int64_t)cw_clock_ns(CLOCK_REALTIME) - mtime <= MTIME_GRAIN_NS) {
        set_list(s);
        s->scanned_mtime_ns = mtime;
    }
    for (size_t i = 0; i < s->index.n_segments; i++)
        cw_cache_segment_let_go(s->index.segments[i]);
}

/* ---- entering ---- */

/*
 * Locks the file that marks the set as used. Returns 0; 1: another process removed the set meanwhile, so the
 * caller must make directory and file again; a negative errno. If the file can't be made, the set is used
 * without the mark; then other processes may remove the set, and its entries are computed again.
 */
static int set_mark_used(struct cw_cache_set *s)
{
    char path[64];
    struct stat ours, there;
    _cleanup_close_ int fd = cw_cache_open_file(s->dir_fd, CW_CACHE_USED, O_RDWR | O_CREAT);
    if (fd == -CW_CACHE_NO_FILE || fd == -ENOENT)
        return fd == -ENOENT ? 1 : fd;
    if (fd < 0)
        fd = cw_cache_open_file(s->dir_fd, CW_CACHE_USED, O_RDONLY);
    if (fd < 0 || flock(fd, LOCK_SH) < 0 || fstat(fd, &ours) < 0)
        return 0;
    snprintf(path, sizeof(path), "%s/" CW_CACHE_USED, s->name);
    if (fstatat(s->cache->room.dir_fd, path, &there, AT_SYMLINK_NOFOLLOW) < 0 || ours.st_ino != there.st_ino)
        return 1;
    (void)futimens(fd, NULL);
    s->used_fd = CW_STEAL_FD(fd);
    return 0;
}

/* Makes the set's directory if need be, opens it, and marks the set as used. */
static int set_open_dir(struct cw_cache_set *s)
{
    int r;
    do {
        cw_closep(&s->dir_fd);
        int e = mkdirat(s->cache->room.dir_fd, s->name, 0777) < 0 ? errno : 0;
        s->dir_fd = cw_cache_open_dir(s->cache->room.dir_fd, s->name);
        if (s->dir_fd < 0)
            return s->dir_fd == -ENOENT && e ? -e : s->dir_fd;
        r = set_mark_used(s);
    } while (r == 1);
    return r;
}

int cw_cache_set_enter(struct cw_cache_set *s)
{
    struct cw_cache *c = s->cache;
    struct stat st;
    cw_throttle_read(CW_THROTTLE_STORE_DIR, 0);
    int r = set_open_dir(s);
    if (r < 0) {
        cw_closep(&s->dir_fd);
        return r;
    }
    if (fstatat(s->dir_fd, CW_CACHE_META, &st, AT_SYMLINK_NOFOLLOW) < 0)
        (void)!cw_cache_put_text(s->dir_fd, CW_CACHE_META,
                                 s->meta); /* only people read it: no error if it can't be written */
    char *profile = cw_cache_read_text(s->dir_fd, CW_CACHE_PROFILE, CW_CACHE_PROFILE_BYTES);
    CW_WITH (&c->monitor.mutex) {
        if (s->profile_changed) /* the run has put a newer profile already */
            free(profile);
        else
            s->profile = profile;
    }
    s->scanned_mtime_ns = INT64_MIN;
    cw_cache_set_scan(s);
    return 0;
}

void cw_cache_set_write_profile(struct cw_cache_set *s)
{
    _cleanup_free_ char *text = NULL;
    CW_WITH (&s->cache->monitor.mutex) {
        text = s->profile_changed ? strdup(s->profile) : NULL;
        s->profile_changed = false;
    }
    if (text)
        /* if the disk is full, later runs measure again */
        (void)!cw_cache_put_text(s->dir_fd, CW_CACHE_PROFILE, text);
}
