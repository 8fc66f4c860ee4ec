/* A set: which entries there are and where they lie. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache/internal.h"
#include "storage/file.h"

/* A directory's modification time is no finer than this on some file systems: what changed so shortly before a scan may have been missed. */
#define MTIME_GRAIN_NS ((int64_t)2000000000)

/* ---- segments ---- */

struct cw_cache_segment *cw_cache_segment_new(void)
{
    struct cw_cache_segment *g = calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    pthread_rwlock_init(&g->lock, NULL);
    g->fd = -1;
    return g;
}

void cw_cache_segment_free(struct cw_cache_segment *g)
{
    if (!g)
        return;
    if (g->fd >= 0)
        close(g->fd);
    cw_file_free(g->file);
    pthread_rwlock_destroy(&g->lock);
    free(g->name);
    free(g);
}

int cw_cache_set_add_segment(struct cw_cache_set *s, struct cw_cache_segment *g, uint32_t *ret, struct cw_error *err)
{
    pthread_rwlock_wrlock(&s->lock);
    if (s->n_segments == s->capacity) {
        uint32_t capacity = s->capacity ? 2 * s->capacity : 16;
        struct cw_cache_segment **grown = realloc(s->segments, capacity * sizeof(*grown));
        if (!grown) {
            pthread_rwlock_unlock(&s->lock);
            cw_cache_segment_free(g);
            return cw_error_nomem(err, capacity * sizeof(*grown), "segments");
        }
        s->segments = grown;
        s->capacity = capacity;
    }
    *ret = s->n_segments;
    s->segments[s->n_segments++] = g;
    pthread_rwlock_unlock(&s->lock);
    return 0;
}

/* ---- index ---- */

static bool alive(const struct cw_cache_set *s, const struct cw_cache_index_slot *i)
{
    return i->segment && !atomic_load_explicit(&s->segments[i->segment - 1]->dead, memory_order_relaxed) && i->offset;
}

/* The slot of a hash, or the free one where it would be. */
static struct cw_cache_index_slot *slot_of(struct cw_cache_index_slot *slots, size_t n_slots, uint64_t hash)
{
    size_t at = hash & (n_slots - 1);
    while (slots[at].segment && slots[at].hash != hash)
        at = (at + 1) & (n_slots - 1);
    return &slots[at];
}

static int grow(struct cw_cache_set *s, size_t n)
{
    size_t wanted = CW_MAX(s->n_slots, (size_t)1024);
    while ((s->n_used + n) * 3 > wanted * 2)
        wanted *= 2;
    if (wanted == s->n_slots)
        return 0;
    struct cw_cache_index_slot *slots = calloc(wanted, sizeof(*slots));
    if (!slots)
        return -1;
    s->n_used = 0;
    for (size_t i = 0; i < s->n_slots; i++)
        if (alive(s, &s->slots[i])) {
            *slot_of(slots, wanted, s->slots[i].hash) = s->slots[i];
            s->n_used++;
        }
    free(s->slots);
    s->slots = slots;
    s->n_slots = wanted;
    return 0;
}

int cw_cache_set_insert(struct cw_cache_set *s, uint32_t segment, const struct cw_cache_row *rows, size_t n, struct cw_error *err)
{
    pthread_rwlock_wrlock(&s->lock);
    if (grow(s, n) < 0) {
        pthread_rwlock_unlock(&s->lock);
        return cw_error_nomem(err, n * sizeof(*s->slots), "the index of a cache");
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t hash = cw_hash64(&rows[i].key, sizeof(rows[i].key));
        struct cw_cache_index_slot *slot = slot_of(s->slots, s->n_slots, hash);
        if (alive(s, slot))
            continue; /* somebody else computed it too */
        s->n_used += !slot->segment;
        *slot = (struct cw_cache_index_slot){.hash = hash, .segment = segment + 1, .length = rows[i].length, .offset = rows[i].offset,
                                             .dropped = rows[i].flags & CW_CACHE_DROPPED};
    }
    pthread_rwlock_unlock(&s->lock);
    return 0;
}

size_t cw_cache_find(struct cw_cache_set *s, const struct cw_cache_key *keys, size_t n, struct cw_cache_place *ret)
{
    size_t found = 0;
    pthread_rwlock_rdlock(&s->lock);
    for (size_t i = 0; i < n; i++) {
        ret[i].segment = NULL;
        if (!s->n_slots)
            continue;
        const struct cw_cache_index_slot *slot = slot_of(s->slots, s->n_slots, cw_hash64(&keys[i], sizeof(keys[i])));
        if (!alive(s, slot))
            continue;
        ret[i] = (struct cw_cache_place){.segment = s->segments[slot->segment - 1], .offset = slot->offset, .length = slot->length, .dropped = slot->dropped};
        found++;
    }
    pthread_rwlock_unlock(&s->lock);
    return found;
}

void cw_cache_set_forget(struct cw_cache_set *s, const struct cw_cache_get *get)
{
    pthread_rwlock_wrlock(&s->lock);
    struct cw_cache_index_slot *slot = slot_of(s->slots, s->n_slots, cw_hash64(&get->key, sizeof(get->key)));
    if (slot->segment && s->segments[slot->segment - 1] == get->place.segment && slot->offset == get->place.offset)
        slot->offset = 0; /* the slot stays, for others are found through it */
    pthread_rwlock_unlock(&s->lock);
}

/* ---- the directory ---- */

static void kill_segment(struct cw_cache_segment *g) { atomic_store(&g->dead, true); }

void cw_cache_segment_named(struct cw_cache_set *s, struct cw_cache_segment *g)
{
    (void)cw_map_add(&s->names, &g->node, cw_hash64(g->name, strlen(g->name))); /* without memory: it is taken for another's, whose entries are known */
}

static struct cw_cache_segment *segment_named(const struct cw_cache_set *s, const char *name)
{
    uint64_t hash = cw_hash64(name, strlen(name));
    for (struct cw_map_node *at = cw_map_find(&s->names, hash, NULL); at; at = cw_map_find(&s->names, hash, at)) {
        struct cw_cache_segment *g = CW_CONTAINER(at, struct cw_cache_segment, node);
        if (strcmp(g->name, name) == 0)
            return g;
    }
    return NULL;
}

static void load_segment(struct cw_cache_set *s, const char *name, const char *path, const struct stat *st)
{
    struct cw_cache_row *rows = NULL;
    struct cw_cache_trailer trailer;
    struct cw_error err = {0};
    size_t n = 0;
    uint32_t number;
    struct cw_cache_segment *g = cw_cache_segment_new();
    if (!g)
        return;
    int r = cw_cache_table_read(path, s->key, &rows, &n, &trailer, &err);
    if (r == 1)
        atomic_fetch_add(&s->cache->bad, 1);
    g->seen = true;
    g->name = strdup(name);
    if (!g->name || cw_cache_file_new(path, st, &g->file, &err) < 0) {
        free(rows);
        cw_cache_segment_free(g);
        return;
    }
    if (r != 0)
        kill_segment(g); /* known, so that it is not looked at again */
    if (cw_cache_set_add_segment(s, g, &number, &err) < 0) {
        free(rows);
        return;
    }
    cw_cache_segment_named(s, g);
    if (r == 0)
        (void)cw_cache_set_insert(s, number, rows, n, &err); /* no memory for the index: they are computed */
    free(rows);
}

void cw_cache_set_scan(struct cw_cache_set *s, bool always)
{
    struct stat st;
    int64_t now = (int64_t)cw_now_ns();
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    if (stat(s->dir, &st) < 0)
        return;
    int64_t mtime = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec, wall_ns = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec;
    if (!always && mtime == s->scanned_mtime_ns && wall_ns - mtime > MTIME_GRAIN_NS)
        return;
    DIR *d = opendir(s->dir);
    if (!d)
        return;
    for (uint32_t i = 0; i < s->n_segments; i++)
        s->segments[i]->seen = s->segments[i]->fd >= 0;
    for (struct dirent *e; (e = readdir(d));) {
        size_t n = strlen(e->d_name), suffix = strlen(CW_CACHE_SUFFIX);
        _cleanup_free_ char *path = NULL;
        if (n <= suffix || strcmp(e->d_name + n - suffix, CW_CACHE_SUFFIX) != 0)
            continue;
        struct cw_cache_segment *g = segment_named(s, e->d_name);
        if (g)
            g->seen = true;
        else if (asprintf(&path, "%s/%s", s->dir, e->d_name) >= 0 && stat(path, &st) == 0)
            load_segment(s, e->d_name, path, &st);
    }
    closedir(d);
    for (uint32_t i = 0; i < s->n_segments; i++)
        if (!s->segments[i]->seen)
            kill_segment(s->segments[i]);
    s->scanned_mtime_ns = mtime;
    s->scanned_at_ns = now;
}

/* Locks the file that says the set is in use. Who removes a set holds it alone meanwhile: then both are made anew. */
static int use(struct cw_cache_set *s, struct cw_error *err)
{
    _cleanup_free_ char *path = NULL;
    if (asprintf(&path, "%s/used", s->dir) < 0) {
        path = NULL;
        return cw_error_nomem(err, 0, "a path");
    }
    for (;;) {
        struct stat ours, there;
        int r = cw_make_dirs(s->dir, err);
        if (r < 0)
            return r;
        s->used_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (s->used_fd < 0 && errno == ENOENT)
            continue;
        if (s->used_fd < 0)
            return cw_error_errno(err, CW_E_IO, errno, "%s: can't be written", path);
        if (flock(s->used_fd, LOCK_SH) == 0 && fstat(s->used_fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino) {
            (void)futimens(s->used_fd, NULL);
            return 0;
        }
        close(s->used_fd);
        s->used_fd = -1;
    }
}

static int put_meta(const struct cw_cache_set *s, const char *meta, struct cw_error *err)
{
    _cleanup_free_ char *path = NULL;
    if (asprintf(&path, "%s/meta.json", s->dir) < 0) {
        path = NULL;
        return cw_error_nomem(err, 0, "a path");
    }
    return access(path, F_OK) == 0 ? 0 : cw_put(path, meta, strlen(meta), err);
}

void cw_cache_set_free(struct cw_cache_set *s)
{
    for (uint32_t i = 0; i < s->n_segments; i++)
        cw_cache_segment_free(s->segments[i]);
    if (s->used_fd >= 0)
        close(s->used_fd);
    pthread_rwlock_destroy(&s->lock);
    free(s->segments);
    free(s->slots);
    cw_map_deinit(&s->names);
    free(s->w.rows);
    free(s->w.temporary);
    free(s->dir);
    free(s);
}

struct cw_cache_set *cw_cache_set_new(struct cw_cache *c, struct cw_hash128 key, const char *meta, struct cw_error *err)
{
    struct cw_cache_set *s = calloc(1, sizeof(*s));
    char name[33];
    if (!s) {
        cw_error_nomem(err, sizeof(*s), "a cache");
        return NULL;
    }
    cw_hash128_print(key, name);
    s->cache = c;
    s->key = key;
    s->refs = 1;
    s->used_fd = s->w.direct_fd = -1;
    s->opened_ns = s->touched_ns = cw_now_ns();
    pthread_rwlock_init(&s->lock, NULL);
    int r = asprintf(&s->dir, "%s/%s", c->dir, name) < 0 ? cw_error_nomem(err, 0, "a path") : 0;
    if (r < 0)
        s->dir = NULL;
    if (r == 0)
        r = use(s, err);
    if (r == 0)
        r = put_meta(s, meta, err);
    if (r < 0) {
        cw_cache_set_free(s);
        return NULL;
    }
    cw_cache_set_scan(s, true);
    return s;
}
