/* The store's thread: writes what was put, publishes segments, looks for those of others. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crash.h"
#include "cache/internal.h"
#include "storage/file.h"
#include "storage/throttle.h"

#define MS UINT64_C(1000000)
/* Between two looks at what others published. */
#define SCAN_NS (500 * MS)
/* What was put is written after so long, even if it is little. */
#define WRITE_NS (200 * MS)
/* A segment is published after a second, and as the set gets older less often: so that little waits for long, and long runs leave no thousands of files. */
#define PUBLISH_NS (1000 * MS)
#define PUBLISH_SHARE 16
/* After trouble with the disk it is left alone for so long, doubled each time. */
#define BACKOFF_NS (1000 * MS)
#define BACKOFF_MOST_NS (60000 * MS)
/* What is still to be written when the run ends may take so long. */
#define CLOSE_NS (5000 * MS)
#define TOUCH_NS (60000 * MS)

static bool keep(struct cw_cache_set *s, size_t n)
{
    struct writing *w = &s->w;
    if (w->n + n <= w->capacity)
        return true;
    size_t capacity = CW_MAX(2 * w->capacity, w->n + n);
    struct cw_cache_row *grown = realloc(w->rows, capacity * sizeof(*grown));
    if (!grown)
        return false;
    w->rows = grown;
    w->capacity = capacity;
    return true;
}

static void close_direct(struct writing *w)
{
    if (w->direct_fd >= 0)
        close(w->direct_fd);
    w->direct_fd = -1;
}

/* What was written is lost: its place is not complete, and won't be. */
static void give_up(struct cw_cache_set *s)
{
    struct writing *w = &s->w;
    if (!w->segment)
        return;
    close_direct(w);
    atomic_store(&w->segment->dead, true);
    pthread_rwlock_wrlock(&w->segment->lock);
    close(w->segment->fd);
    w->segment->fd = -1;
    pthread_rwlock_unlock(&w->segment->lock);
    (void)unlink(w->temporary);
    free(CW_STEAL(w->temporary));
    w->segment = NULL;
}

static void trouble(struct cw_cache_set *s, int e)
{
    struct cw_cache *c = s->cache;
    s->backoff_ns = s->backoff_ns ? CW_MIN(2 * s->backoff_ns, BACKOFF_MOST_NS) : BACKOFF_NS;
    s->paused_until_ns = cw_now_ns() + s->backoff_ns;
    if (e && !c->warned)
        fprintf(stderr, "cachew: cache %s: %s; going on without writing to it for a while\n", c->dir, strerror(e));
    c->warned |= e != 0;
}

/* A segment to write to. 0, 1: there is no room; a negative errno. */
static int begin(struct cw_cache_set *s, uint64_t bytes, uint64_t value)
{
    struct writing *w = &s->w;
    const struct cw_cache_header h = {.magic = CW_CACHE_MAGIC, .version = 1, .set = s->key};
    struct cw_error err = {0};
    uint64_t reserve = CW_MAX(s->cache->segment_bytes, CW_CACHE_BLOCK + bytes);
    int fd = -1, r = cw_cache_room(s->cache, s->dir, reserve, value, &w->temporary, &fd);
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
        (void)unlink(w->temporary);
        free(CW_STEAL(w->temporary));
        return r;
    }
    w->segment = s->segments[w->number];
    w->direct_fd = open(w->temporary, O_WRONLY | O_DIRECT | O_CLOEXEC);
    w->size = CW_CACHE_BLOCK;
    w->reserved = reserve;
    w->n = 0;
    w->cost_us = w->filled = 0;
    w->since_ns = cw_now_ns();
    return 0;
}

/* 0 or a negative errno. */
static int name_it(const struct cw_cache *c, const char *temporary, const char *path)
{
    int r = cw_cache_lock(c);
    if (r < 0)
        return r;
    r = rename(temporary, path) < 0 ? -errno : 0;
    cw_cache_unlock(c);
    return r;
}

static void publish(struct cw_cache_set *s)
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
    if (asprintf(&name, "%016" PRIx64 "-%" PRIu64 CW_CACHE_SUFFIX, id, w->cost_us * ((uint64_t)1 << 20) / CW_MAX(w->filled, 1)) < 0)
        name = NULL;
    if (name && asprintf(&path, "%s/%s", s->dir, name) < 0)
        path = NULL;
    bool ok = end >= 0 && path && fstat(w->segment->fd, &st) == 0 &&
              cw_cache_file_new(path, &st, &file, &err) == 0;
    cw_crash_point("cache-rename");
    if (ok && (end = name_it(c, w->temporary, path)) < 0)
        ok = false;
    if (!ok) {
        cw_file_free(file);
        if (end < 0 && end != -ENODATA)
            trouble(s, (int)-end);
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
    w->segment = NULL;
    cw_cache_probe(c, path);
}

/* What some file systems only say when it is tried: that they can't write past the page cache. */
static int write_blocks(struct writing *w, const uint8_t *data, size_t bytes)
{
    cw_throttle_write(CW_THROTTLE_STORE, bytes);
    int r = w->direct_fd >= 0 ? cw_cache_write_at(w->direct_fd, w->size, data, bytes) : -EINVAL;
    if (r != -EINVAL)
        return r;
    close_direct(w);
    return cw_cache_write_at(w->segment->fd, w->size, data, bytes);
}

/* Adds the entries of a chunk to what is being written. */
static int write_chunk(struct cw_cache_set *s, struct cw_cache_chunk *k, size_t n, uint64_t cost_us)
{
    struct writing *w = &s->w;
    struct cw_error err = {0};
    uint64_t value = cost_us * ((uint64_t)1 << 20) / k->used, table = (w->n + n) * sizeof(*w->rows) + sizeof(struct cw_cache_trailer);
    size_t bytes = CW_ALIGN_UP(k->used, CW_CACHE_BLOCK);
    int r = 0;
    if (w->segment && w->size + bytes + table > w->reserved)
        publish(s);
    if (!w->segment)
        r = begin(s, bytes + n * sizeof(*w->rows) + sizeof(struct cw_cache_trailer), value);
    if (r != 0)
        return r;
    if (!keep(s, n))
        return -ENOMEM;
    cw_crash_point("cache-write");
    memset(k->data + k->used, 0, bytes - k->used);
    r = write_blocks(w, k->data, bytes);
    if (r < 0)
        return r;
    size_t first = w->n;
    for (size_t at = 0; at < k->used;) {
        struct cw_cache_entry e;
        memcpy(&e, k->data + at, sizeof(e));
        w->rows[w->n++] = (struct cw_cache_row){.key = e.key, .offset = w->size + at, .length = e.length, .flags = e.flags};
        at += cw_cache_entry_bytes(e.length);
    }
    w->size += bytes;
    w->filled += k->used;
    w->cost_us += cost_us;
    (void)cw_cache_set_insert(s, w->number, w->rows + first, n, &err); /* no memory for the index: found by the next who opens the set */
    return 0;
}

static size_t entries_of(const struct cw_cache_chunk *k)
{
    size_t n = 0;
    for (size_t at = 0; at < k->used; n++) {
        struct cw_cache_entry e;
        memcpy(&e, k->data + at, sizeof(e));
        at += cw_cache_entry_bytes(e.length);
    }
    return n;
}

static void take_chunk(struct cw_cache *c, struct cw_cache_chunk *k)
{
    struct cw_cache_set *s = k->set;
    uint64_t start = cw_now_ns(), cost_us = 0;
    size_t n = 0;
    for (size_t at = 0; at < k->used; n++) {
        struct cw_cache_entry e;
        memcpy(&e, k->data + at, sizeof(e));
        cost_us += e.cost_us;
        at += cw_cache_entry_bytes(e.length);
    }
    int r = start < s->paused_until_ns ? 1 : write_chunk(s, k, n, cost_us);
    if (r == 0) {
        s->backoff_ns = 0;
        atomic_fetch_add(&c->kept, n);
        atomic_fetch_add(&c->bytes_written, k->used);
        atomic_fetch_add(&c->write_ns, cw_now_ns() - start);
        return;
    }
    atomic_fetch_add(&c->refused, n);
    if (start < s->paused_until_ns)
        return;
    if (r < 0)
        publish(s); /* what got there is good */
    trouble(s, r < 0 ? -r : 0);
}

/* The first full chunk that is filled in. Mutex held. */
static struct cw_cache_chunk *next_chunk(struct cw_cache *c)
{
    for (struct cw_cache_chunk **at = &c->queue; *at; at = &(*at)->next)
        if (!(*at)->pending) {
            struct cw_cache_chunk *k = *at;
            *at = k->next;
            if (!*at)
                c->queue_tail = at;
            return k;
        }
    return NULL;
}

/* Mutex held. */
static void chunk_done(struct cw_cache *c, struct cw_cache_chunk *k)
{
    k->set->refs--;
    k->next = c->spare;
    c->spare = k;
}

static void seal_old(struct cw_cache *c, struct cw_cache_set *s, uint64_t now)
{
    struct cw_cache_chunk *k = s->current;
    if (!k || (!c->flush && !c->stop && s->refs > 2 && now - k->since_ns < WRITE_NS)) /* ours and the chunk's: nobody puts any more */
        return;
    s->current = NULL;
    *c->queue_tail = k;
    c->queue_tail = &k->next;
}

/* What is to be done for a set now and then. Mutex not held. */
static void look_after(struct cw_cache_set *s, uint64_t now, bool flush, bool last)
{
    if (s->w.segment && (flush || last || now - s->w.since_ns > CW_MAX(PUBLISH_NS, (s->w.since_ns - s->opened_ns) / PUBLISH_SHARE)))
        publish(s);
    if (last || now - s->touched_ns > TOUCH_NS) {
        (void)futimens(s->used_fd, NULL);
        s->touched_ns = now;
    }
    if (!last)
        cw_cache_set_scan(s, false);
}

/* Sets one after the other; those that nobody has any more are closed. Called and left with the mutex held. */
static void tend(struct cw_cache *c, uint64_t now, bool all, bool flush)
{
    struct cw_link *at = c->sets.next;
    while (at != &c->sets) {
        struct cw_cache_set *s = CW_CONTAINER(at, struct cw_cache_set, link);
        bool last = s->refs == 1 && !s->current;
        if (last)
            cw_link_out(&s->link); /* who opens it again makes another */
        if (last || all) {
            pthread_mutex_unlock(&c->mutex);
            look_after(s, now, flush, last);
            pthread_mutex_lock(&c->mutex);
        }
        at = last ? c->sets.next : s->link.next;
        if (last)
            cw_cache_set_free(s);
    }
}

void *cw_cache_main(void *arg)
{
    struct cw_cache *c = arg;
    uint64_t tended = cw_now_ns(), closing = 0;
    pthread_mutex_lock(&c->mutex);
    for (;;) {
        uint64_t now = cw_now_ns();
        if (c->stop && !closing)
            closing = now;
        bool flush = c->flush; /* what is asked for from here on waits for another round */
        CW_LIST_EACH(at, &c->sets)
            seal_old(c, CW_CONTAINER(at, struct cw_cache_set, link), now);
        struct cw_cache_chunk *k = next_chunk(c);
        if (k) {
            bool late = closing && now - closing > CLOSE_NS;
            pthread_mutex_unlock(&c->mutex);
            if (late)
                atomic_fetch_add(&c->skipped, entries_of(k));
            else
                take_chunk(c, k);
            pthread_mutex_lock(&c->mutex);
            chunk_done(c, k);
            if (cw_now_ns() - tended < SCAN_NS)
                continue;
        }
        bool all = flush || cw_now_ns() - tended >= SCAN_NS, written = !c->queue;
        tend(c, cw_now_ns(), all, flush);
        if (all)
            tended = cw_now_ns();
        if (flush && written && !c->queue) {
            c->flush = false;
            pthread_cond_broadcast(&c->flushed);
        }
        if (c->stop && !c->queue && cw_list_empty(&c->sets))
            break;
        if (k)
            continue;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)(WRITE_NS / 2);
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&c->work, &c->mutex, &until);
    }
    c->ended = true;
    pthread_cond_broadcast(&c->flushed);
    pthread_mutex_unlock(&c->mutex);
    cw_cache_release(c);
    return NULL;
}
