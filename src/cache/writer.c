/* The segment that a set is writing: beginning it, adding entries, publishing it or giving it up. */
#include "cache/writer.h"

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
#include "cache/files.h"
#include "cache/internal.h"
#include "cache/set.h"
#include "storage/file.h"
#include "storage/throttle.h"

/* Drops the segment that is being written. Its entries, which were counted as kept, are lost and counted as
 * refused. */
static void writing_give_up(struct cw_cache_set *s)
{
    struct cw_cache_writing *w = &s->writing;
    atomic_fetch_sub(&s->cache->counters.kept, w->n);
    atomic_fetch_add(&s->cache->counters.refused, w->n);
    cw_closep(&w->direct_fd);
    atomic_store(&w->segment->dead, true);
    cw_cache_segment_written(w->segment, NULL, NULL);
    (void)unlinkat(s->dir_fd, w->temporary, 0);
    w->segment = NULL;
}

/* Begins a segment with room for at least `bytes` bytes of entries, table and trailer. Returns 0; 1: the
 * quota has no room; a negative errno. */
static int writing_begin(struct cw_cache_set *s, uint64_t bytes, uint64_t value)
{
    struct cw_cache_writing *w = &s->writing;
    const struct cw_cache_header h = {.magic = CW_CACHE_MAGIC, .version = CW_CACHE_VERSION, .set = s->key};
    uint64_t reserve = CW_MAX((uint64_t)atomic_load(&s->cache->room.segment_bytes), CW_CACHE_BLOCK + bytes);
    char temporary[CW_CACHE_TEMPORARY_SIZE];
    int fd, r = cw_cache_room_reserve(&s->cache->room, s->dir_fd, reserve, value, temporary, &fd);
    if (r != 0)
        return r;
    struct cw_cache_segment *g = cw_cache_segment_new();
    r = g ? cw_cache_write_at(fd, 0, &h, sizeof(h)) : -ENOMEM;
    if (r == 0 && cw_cache_index_add_segment(&s->index, g) < 0)
        r = -ENOMEM;
    if (r < 0) {
        close(fd);
        cw_cache_segment_free(g);
        (void)unlinkat(s->dir_fd, temporary, 0);
        return r;
    }
    g->fd = fd;
    *w = (struct cw_cache_writing){
        .segment = g,
        .direct_fd = cw_cache_open_file(s->dir_fd, temporary, O_WRONLY | O_DIRECT),
        .size = CW_CACHE_BLOCK,
        .reserved = reserve,
        .rows = w->rows,
        .capacity = w->capacity,
        .since_ns = cw_now_ns(),
    };
    memcpy(w->temporary, temporary, sizeof(temporary));
    return 0;
}

/* Gives the segment its final name. 0, or a negative errno. */
static int writing_rename(const struct cw_cache_set *s, const char *name)
{
    int r = cw_cache_room_lock(&s->cache->room);
    if (r < 0)
        return r;
    r = renameat(s->dir_fd, s->writing.temporary, s->dir_fd, name) < 0 ? -errno : 0;
    cw_cache_room_unlock(&s->cache->room);
    return r;
}

void cw_cache_publish(struct cw_cache_set *s)
{
    struct cw_cache_writing *w = &s->writing;
    struct cw_cache *c = s->cache;
    struct stat st;
    uint64_t id = 0;
    _cleanup_free_ char *name = NULL, *path = NULL;
    struct cw_file *file = NULL;
    if (!w->segment)
        return;
    cw_crash_point("cache-publish");
    cw_closep(&w->direct_fd);
    int64_t end = w->n ? cw_cache_table_write(w->segment->fd, w->size, w->rows, w->n, w->cost_us) : -ENODATA;
    (void)!getrandom(&id, sizeof(id), 0);
    /* the name holds the value of the segment: microseconds of computing per MiB */
    bool ok = end >= 0 &&
              asprintf(&name, "%016" PRIx64 "-%" PRIu64 CW_CACHE_SUFFIX, id,
                       w->cost_us * ((uint64_t)1 << 20) / CW_MAX(w->filled, 1)) >= 0 &&
              asprintf(&path, "%s/%s/%s", c->dir, s->name, name) >= 0 && fstat(w->segment->fd, &st) == 0 &&
              cw_cache_segment_file(path, &st, &file, NULL) == 0;
    cw_crash_point("cache-rename");
    if (ok && (end = writing_rename(s, name)) < 0)
        ok = false;
    if (!ok) {
        cw_file_free(file);
        if (end < 0 && end != -ENODATA)
            cw_cache_monitor_trouble(&c->monitor, &s->backoff, NULL, (int)-end);
        writing_give_up(s);
        return;
    }
    cw_crash_point("cache-published");
    cw_cache_segment_written(w->segment, CW_STEAL(name), file);
    cw_cache_set_name_segment(s, w->segment);
    atomic_fetch_add(&c->counters.published, 1);
    cw_cache_probe(s, CW_STEAL(w->segment)->name);
}

/* Writes bytes to the end of the segment, past the page cache unless the file system refuses that. Some file
 * systems refuse only at the first write. */
static int writing_write(struct cw_cache *c, struct cw_cache_writing *w, const uint8_t *data, size_t bytes)
{
    uint64_t start = cw_cost_now_ns(), delay_ns = cw_cost_delay_ns();
    cw_throttle_write(CW_THROTTLE_STORE, bytes);
    int r = w->direct_fd >= 0 ? cw_cache_write_at(w->direct_fd, w->size, data, bytes) : -EINVAL;
    if (r == -EINVAL) {
        cw_closep(&w->direct_fd);
        r = cw_cache_write_at(w->segment->fd, w->size, data, bytes);
    }
    uint64_t passed_ns = cw_cost_now_ns() - start;
    delay_ns = cw_cost_delay_ns() - delay_ns; /* waiting for a CPU is not counted as time of the storage */
    if (r == 0)
        cw_cache_speed_add(&c->written, bytes, passed_ns - CW_MIN(delay_ns, passed_ns));
    return r;
}

/* Writes the n entries of a chunk to the segment. Returns 0; 1: the quota has no room; a negative errno. */
static int writing_add(struct cw_cache_set *s, struct cw_cache_chunk *k, size_t n, uint64_t cost_us)
{
    struct cw_cache_writing *w = &s->writing;
    uint64_t value = cost_us * ((uint64_t)1 << 20) / k->used,
             table = (w->n + n) * sizeof(*w->rows) + sizeof(struct cw_cache_trailer);
    size_t bytes = CW_ALIGN_UP(k->used, CW_CACHE_BLOCK);
    int r = 0;
    if (w->segment && w->size + bytes + table > w->reserved)
        cw_cache_publish(s);
    if (!w->segment)
        r = writing_begin(s, bytes + n * sizeof(*w->rows) + sizeof(struct cw_cache_trailer), value);
    if (r != 0)
        return r;
    if (CW_ARRAY_ROOM(w->rows, w->capacity, w->n + n, "rows", NULL) < 0)
        return -ENOMEM;
    cw_crash_point("cache-write");
    memset(k->data + k->used, 0, bytes - k->used);
    r = writing_write(s->cache, w, k->data, bytes);
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
    /* if memory for the index is short, this process computes the entries again; other processes find them */
    (void)!cw_cache_index_insert(&s->index, w->segment, w->rows + first, n);
    return 0;
}

void cw_cache_write(struct cw_cache_chunk *k)
{
    struct cw_cache_set *s = k->set;
    struct cw_cache *c = s->cache;
    uint64_t now = cw_now_ns(), start = cw_cost_now_ns();
    bool paused = s->dir_fd < 0 || now < s->backoff.until_ns;
    int r = 1;
    if (!paused) {
        cw_cache_monitor_step(&c->monitor, "writing entries");
        struct cw_cache_chunk *packed = cw_cache_pack(s, k);
        r = writing_add(s, packed, k->n, k->cost_us);
        cw_cache_monitor_step(&c->monitor, NULL);
        if (r == 0)
            atomic_fetch_add(&c->counters.bytes_stored, packed->used);
    }
    if (r == 0) {
        s->backoff.ns = 0;
        atomic_fetch_add(&c->counters.kept, k->n);
        atomic_fetch_add(&c->counters.bytes_written, k->used);
        atomic_fetch_add(&c->counters.write_ns, cw_cost_now_ns() - start);
        return;
    }
    atomic_fetch_add(&c->counters.refused, k->n);
    if (paused)
        return;
    if (r < 0)
        cw_cache_publish(s); /* the entries that were written before the failure are good */
    cw_cache_monitor_trouble(&c->monitor, &s->backoff, NULL, r < 0 ? -r : 0);
}
