/* Writing what was put, and publishing segments. The store's thread. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cost_clock.h"
#include "base/crash.h"
#include "cache/internal.h"
#include "storage/file.h"
#include "storage/throttle.h"

static bool keep(struct cw_cache_set *s, size_t n)
{
    return CW_ARRAY_ROOM(s->w.rows, s->w.capacity, s->w.n + n, "rows", NULL) == 0;
}

static void close_direct(struct writing *w)
{
    if (w->direct_fd >= 0)
        close(w->direct_fd);
    w->direct_fd = -1;
}

/* Drops the segment that is being written: its entries, which were counted as kept, are lost. */
static void give_up(struct cw_cache_set *s)
{
    struct writing *w = &s->w;
    if (!w->segment)
        return;
    atomic_fetch_sub(&s->cache->kept, w->n);
    atomic_fetch_add(&s->cache->refused, w->n);
    close_direct(w);
    atomic_store(&w->segment->dead, true);
    pthread_rwlock_wrlock(&w->segment->lock);
    close(w->segment->fd);
    w->segment->fd = -1;
    pthread_rwlock_unlock(&w->segment->lock);
    (void)unlinkat(s->dir_fd, w->temporary, 0);
    free(CW_STEAL(w->temporary));
    w->segment = NULL;
}

/* A segment to write to. 0, 1: there is no room; a negative errno. */
static int begin(struct cw_cache_set *s, uint64_t bytes, uint64_t value)
{
    struct writing *w = &s->w;
    const struct cw_cache_header h = {.magic = CW_CACHE_MAGIC, .version = CW_CACHE_VERSION, .set = s->key};
    struct cw_error err = {0};
    uint64_t reserve = CW_MAX((uint64_t)atomic_load(&s->cache->segment_bytes), CW_CACHE_BLOCK + bytes);
    int fd = -1, r = cw_cache_room(s, reserve, value, &w->temporary, &fd);
    if (r != 0)
        return r;
    struct cw_cache_segment *g = cw_cache_segment_new();
    r = g ? cw_cache_write_at(fd, 0, &h, sizeof(h)) : -ENOMEM;
    if (r == 0) {
        g->fd = fd;
        fd = -1;
        if (cw_cache_set_add_segment(s, CW_STEAL(g), &w->number, &err) < 0)
            r = -ENOMEM;
    }
    if (r < 0) {
        if (fd >= 0)
            close(fd);
        cw_cache_segment_free(g);
        (void)unlinkat(s->dir_fd, w->temporary, 0);
        free(CW_STEAL(w->temporary));
        return r;
    }
    w->segment = s->segments[w->number];
    w->direct_fd = cw_cache_open_file(s->dir_fd, w->temporary, O_WRONLY | O_DIRECT);
    w->size = CW_CACHE_BLOCK;
    w->reserved = reserve;
    w->n = 0;
    w->cost_us = w->filled = 0;
    w->since_ns = cw_now_ns();
    return 0;
}

/* 0 or a negative errno. */
static int name_it(const struct cw_cache_set *s, const char *name)
{
    int r = cw_cache_lock(s->cache);
    if (r < 0)
        return r;
    r = renameat(s->dir_fd, s->w.temporary, s->dir_fd, name) < 0 ? -errno : 0;
    cw_cache_unlock(s->cache);
    return r;
}

void cw_cache_publish(struct cw_cache_set *s)
{
    struct writing *w = &s->w;
    struct cw_cache *c = s->cache;
    struct cw_error err = {0};
    struct stat st;
    uint64_t id = 0;
    _cleanup_free_ char *name = NULL, *path = NULL;
    struct cw_file *file = NULL;
    if (!w->segment)
        return;
    cw_crash_point("cache-publish");
    close_direct(w);
    int64_t end = w->n ? cw_cache_table_write(w->segment->fd, w->size, w->rows, w->n, w->cost_us) : -ENODATA;
    (void)!getrandom(&id, sizeof(id), 0);
    /* the name says what it is worth: microseconds per MiB */
    if (asprintf(&name, "%016" PRIx64 "-%" PRIu64 CW_CACHE_SUFFIX, id,
                 w->cost_us * ((uint64_t)1 << 20) / CW_MAX(w->filled, 1)) < 0)
        name = NULL;
    if (name && asprintf(&path, "%s/%s", s->dir, name) < 0)
        path = NULL;
    bool ok = end >= 0 && path && fstat(w->segment->fd, &st) == 0 &&
              cw_cache_file_new(path, &st, &file, &err) == 0;
    cw_crash_point("cache-rename");
    if (ok && (end = name_it(s, name)) < 0)
        ok = false;
    if (!ok) {
        cw_file_free(file);
        if (end < 0 && end != -ENODATA)
            cw_cache_trouble(c, &s->backoff, NULL, (int)-end);
        give_up(s);
        return;
    }
    cw_crash_point("cache-published");
    pthread_rwlock_wrlock(&w->segment->lock);
    w->segment->name = CW_STEAL(name);
    w->segment->file = file;
    close(w->segment->fd);
    w->segment->fd = -1;
    pthread_rwlock_unlock(&w->segment->lock);
    cw_cache_segment_named(s, w->segment);
    atomic_fetch_add(&c->published, 1);
    free(CW_STEAL(w->temporary));
    cw_cache_probe(s, CW_STEAL(w->segment)->name);
}

/* What some file systems only say when it is tried: that they can't write past the page cache. */
static int write_now(struct writing *w, const uint8_t *data, size_t bytes)
{
    cw_throttle_write(CW_THROTTLE_STORE, bytes);
    int r = w->direct_fd >= 0 ? cw_cache_write_at(w->direct_fd, w->size, data, bytes) : -EINVAL;
    if (r != -EINVAL)
        return r;
    close_direct(w);
    return cw_cache_write_at(w->segment->fd, w->size, data, bytes);
}

static int write_blocks(struct cw_cache *c, struct writing *w, const uint8_t *data, size_t bytes)
{
    uint64_t start = cw_cost_now_ns(), delay_ns = cw_cost_delay_ns();
    int r = write_now(w, data, bytes);
    uint64_t passed_ns = cw_cost_now_ns() - start;
    delay_ns = cw_cost_delay_ns() - delay_ns; /* waiting for a CPU is not the store's doing */
    if (r == 0)
        cw_cache_speed_add(&c->written, bytes, passed_ns - CW_MIN(delay_ns, passed_ns));
    return r;
}

/* Adds the entries of a chunk to what is being written. */
static int write_chunk(struct cw_cache_set *s, struct cw_cache_chunk *k, size_t n, uint64_t cost_us)
{
    struct writing *w = &s->w;
    struct cw_error err = {0};
    uint64_t value = cost_us * ((uint64_t)1 << 20) / k->used,
             table = (w->n + n) * sizeof(*w->rows) + sizeof(struct cw_cache_trailer);
    size_t bytes = CW_ALIGN_UP(k->used, CW_CACHE_BLOCK);
    int r = 0;
    if (w->segment && w->size + bytes + table > w->reserved)
        cw_cache_publish(s);
    if (!w->segment)
        r = begin(s, bytes + n * sizeof(*w->rows) + sizeof(struct cw_cache_trailer), value);
    if (r != 0)
        return r;
    if (!keep(s, n))
        return -ENOMEM;
    cw_crash_point("cache-write");
    memset(k->data + k->used, 0, bytes - k->used);
    r = write_blocks(s->cache, w, k->data, bytes);
    if (r < 0)
        return r;
    size_t first = w->n;
    for (size_t at = 0; at < k->used;) {
        struct cw_cache_entry e;
        memcpy(&e, k->data + at, sizeof(e));
        w->rows[w->n++] = (struct cw_cache_row){
            .key = e.key, .offset = w->size + at, .length = e.length, .stored = e.stored, .flags = e.flags};
        at += cw_cache_entry_bytes(e.stored);
    }
    w->size += bytes;
    w->filled += k->used;
    w->cost_us += cost_us;
    /* no memory for the index: found by the next who opens the set */
    (void)cw_cache_set_insert(s, w->number, w->rows + first, n, &err);
    return 0;
}

size_t cw_cache_entries(const struct cw_cache_chunk *k, uint64_t *ret_cost_us)
{
    size_t n = 0;
    *ret_cost_us = 0;
    for (size_t at = 0; at < k->used; n++) {
        struct cw_cache_entry e;
        memcpy(&e, k->data + at, sizeof(e));
        *ret_cost_us += e.cost_us;
        at += cw_cache_entry_bytes(e.stored);
    }
    return n;
}

void cw_cache_write(struct cw_cache *c, struct cw_cache_chunk *k)
{
    struct cw_cache_set *s = k->set;
    uint64_t now = cw_now_ns(), start = cw_cost_now_ns(), cost_us = 0;
    size_t n = cw_cache_entries(k, &cost_us);
    bool paused = !s->dir || now < s->backoff.until_ns;
    int r = 1;
    if (!paused) {
        cw_cache_doing(c, "writing entries");
        struct cw_cache_chunk *packed = cw_cache_pack(s, k);
        r = write_chunk(s, packed, n, cost_us);
        cw_cache_doing(c, NULL);
        if (r == 0)
            atomic_fetch_add(&c->bytes_stored, packed->used);
    }
    if (r == 0) {
        s->backoff.ns = 0;
        atomic_fetch_add(&c->kept, n);
        atomic_fetch_add(&c->bytes_written, k->used);
        atomic_fetch_add(&c->write_ns, cw_cost_now_ns() - start);
        return;
    }
    atomic_fetch_add(&c->refused, n);
    if (paused)
        return;
    if (r < 0)
        cw_cache_publish(s); /* what got there is good */
    cw_cache_trouble(c, &s->backoff, NULL, r < 0 ? -r : 0);
}
