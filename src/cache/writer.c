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
              cw_file_new(path, (uint64_t)st.st_size, (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec, &file, &err) == 0;
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
    uint64_t start = cw_now_ns();
    int r = write_now(w, data, bytes);
    if (r == 0)
        cw_cache_speed_add(&c->written, bytes, cw_now_ns() - start);
    return r;
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
    r = write_blocks(s->cache, w, k->data, bytes);
    if (r < 0)
        return r;
    size_t first = w->n;
    for (size_t at = 0; at < k->used;) {
        struct cw_cache_entry e;
        memcpy(&e, k->data + at, sizeof(e));
        w->rows[w->n++] = (struct cw_cache_row){.key = e.key, .offset = w->size + at, .length = e.length, .stored = e.stored, .flags = e.flags};
        at += cw_cache_entry_bytes(e.stored);
    }
    w->size += bytes;
    w->filled += k->used;
    w->cost_us += cost_us;
    (void)cw_cache_set_insert(s, w->number, w->rows + first, n, &err); /* no memory for the index: found by the next who opens the set */
    return 0;
}

/* How many entries a chunk has, and what they took. */
static size_t entries_of(const struct cw_cache_chunk *k, uint64_t *ret_cost_us)
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

/* Opens a set that is not open yet, at the first time or when trouble was long enough ago. */
static bool ready(struct cw_cache_set *s, uint64_t now)
{
    struct cw_cache *c = s->cache;
    char name[33];
    if (s->dir || now < s->backoff.until_ns || c->dir_fd < 0)
        return s->dir;
    cw_cache_doing(c, "opening a set");
    int r = cw_cache_set_enter(s);
    cw_cache_doing(c, NULL);
    cw_hash128_print(s->key, name);
    if (r < 0)
        cw_cache_trouble(c, &s->backoff, name, -r);
    else
        s->backoff.ns = 0;
    return r == 0;
}

static void take_chunk(struct cw_cache *c, struct cw_cache_chunk *k)
{
    struct cw_cache_set *s = k->set;
    uint64_t start = cw_now_ns(), cost_us = 0;
    size_t n = entries_of(k, &cost_us);
    bool paused = !ready(s, start) || start < s->backoff.until_ns;
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
        atomic_fetch_add(&c->write_ns, cw_now_ns() - start);
        return;
    }
    atomic_fetch_add(&c->refused, n);
    if (paused)
        return;
    if (r < 0)
        publish(s); /* what got there is good */
    cw_cache_trouble(c, &s->backoff, NULL, r < 0 ? -r : 0);
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

static void put_profile(struct cw_cache_set *s)
{
    pthread_mutex_lock(&s->cache->mutex);
    char *text = s->profiled ? CW_STEAL(s->profile) : NULL;
    s->profiled = false;
    pthread_mutex_unlock(&s->cache->mutex);
    if (text)
        (void)!cw_cache_put_text(s->dir_fd, CW_CACHE_PROFILE, text); /* a full disk: those that come later measure themselves */
    free(text);
}

/* What is to be done for a set now and then. Mutex not held. */
static void look_after(struct cw_cache_set *s, uint64_t now, bool flush, bool last)
{
    struct cw_cache *c = s->cache;
    if (!s->dir)
        return;
    cw_cache_doing(c, "publishing a segment");
    if (s->w.segment && (flush || last || now - s->w.since_ns > CW_MAX(PUBLISH_NS, (s->w.since_ns - s->opened_ns) / PUBLISH_SHARE)))
        publish(s);
    if (s->used_fd >= 0 && (last || now - s->touched_ns > TOUCH_NS)) {
        (void)futimens(s->used_fd, NULL);
        s->touched_ns = now;
    }
    cw_cache_doing(c, "listing a set");
    if (last)
        put_profile(s);
    else
        cw_cache_set_scan(s, false);
    cw_cache_doing(c, NULL);
}

/* Trouble that may pass. Anything else is wrong with the directory's name. */
static bool passes(int e)
{
    static const int list[] = {ENOSPC, EDQUOT, EIO, ESTALE, ETIMEDOUT, EHOSTDOWN, EMFILE, ENFILE, ENOMEM};
    for (size_t i = 0; i < CW_COUNT_OF(list); i++)
        if (e == list[i])
            return true;
    return false;
}

/* Opens the directory. Mutex not held. */
static void open_dir(struct cw_cache *c)
{
    struct cw_error err = {0};
    if (c->dir_fd >= 0 || c->failed.status || cw_now_ns() < c->backoff.until_ns)
        return;
    cw_cache_doing(c, "opening the directory");
    int r = cw_cache_dir_open(c, &err);
    cw_cache_doing(c, NULL);
    if (r < 0 && passes(-r))
        cw_cache_trouble(c, &c->backoff, NULL, -r);
    pthread_mutex_lock(&c->mutex);
    if (r < 0 && !passes(-r) && !c->tried)
        c->failed = err;
    c->tried = true;
    pthread_cond_broadcast(&c->told);
    pthread_mutex_unlock(&c->mutex);
}

/* Opens what is to be opened; who waits for it is told. Called and left with the mutex held. */
static void open_all(struct cw_cache *c, uint64_t now)
{
    if (c->stop)
        return;
    pthread_mutex_unlock(&c->mutex);
    open_dir(c);
    pthread_mutex_lock(&c->mutex);
    for (struct cw_link *at = c->sets.next; at != &c->sets; at = at->next) { /* only this thread takes any out */
        struct cw_cache_set *s = CW_CONTAINER(at, struct cw_cache_set, link);
        pthread_mutex_unlock(&c->mutex);
        (void)ready(s, now);
        pthread_mutex_lock(&c->mutex);
        if (!s->tried) {
            s->tried = true;
            pthread_cond_broadcast(&c->told);
        }
    }
}

/* One came while the mutex was not held. */
static bool any_new(const struct cw_cache *c)
{
    CW_LIST_EACH(at, &c->sets)
        if (!CW_CONTAINER(at, struct cw_cache_set, link)->tried)
            return true;
    return false;
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
        open_all(c, now);
        bool flush = c->flush; /* what is asked for from here on waits for another round */
        CW_LIST_EACH(at, &c->sets)
            seal_old(c, CW_CONTAINER(at, struct cw_cache_set, link), now);
        struct cw_cache_chunk *k = next_chunk(c);
        if (k) {
            bool late = closing && now - closing > CLOSE_NS;
            uint64_t cost_us;
            pthread_mutex_unlock(&c->mutex);
            if (late)
                atomic_fetch_add(&c->skipped, entries_of(k, &cost_us));
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
            pthread_cond_broadcast(&c->told);
        }
        if (c->stop && !c->queue && cw_list_empty(&c->sets))
            break;
        if (k || (!c->stop && any_new(c)))
            continue;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)(WRITE_NS / 2);
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&c->work, &c->mutex, &until);
    }
    c->ended = true;
    pthread_cond_broadcast(&c->told);
    pthread_mutex_unlock(&c->mutex);
    cw_cache_release(c);
    return NULL;
}
