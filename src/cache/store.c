/* The store as a whole: opening, closing, its sets, and what is put into it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "cache/internal.h"
#include "cache/sum.h"
#include "storage/file.h"

#define SEGMENT_BYTES ((size_t)16 << 20)
#define QUEUE_BYTES ((size_t)32 << 20)
/* Written at a time: a large page, which storage takes in one go. In small ones a write costs the kernel several times the CPU, and that is most of what keeping costs. */
#define CHUNK_BYTES ((size_t)2 << 20)
/* What is to be written at the end may take some seconds (writer.c), and the last of it as long again; where storage is known not to answer, hardly any. */
#define END_S 20
#define STUCK_S 1

static uint64_t default_quota(const char *dir, uint64_t used)
{
    struct statvfs v;
    return statvfs(dir, &v) < 0 ? UINT64_MAX : used + (uint64_t)v.f_bavail * v.f_frsize / 2;
}

int cw_cache_open(const struct cw_cache_options *o, struct cw_cache **ret, struct cw_error *err)
{
    struct cw_cache *c = calloc(1, sizeof(*c));
    _cleanup_free_ char *lock = NULL;
    if (!c)
        return cw_error_nomem(err, sizeof(*c), "a cache");
    pthread_mutex_init(&c->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->work, &monotonic);
    pthread_cond_init(&c->flushed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&c->readers.mutex, NULL);
    pthread_cond_init(&c->readers.gone, NULL);
    atomic_init(&c->holders, 1);
    cw_list_init(&c->sets);
    c->queue_tail = &c->queue;
    c->queue_bytes = o->queue_bytes ? o->queue_bytes : QUEUE_BYTES;
    c->lock_fd = -1;
    int r = cw_make_dirs(o->dir, err);
    if (r >= 0 && (asprintf(&lock, "%s/lock", o->dir) < 0 || !(c->dir = strdup(o->dir))))
        r = cw_error_nomem(err, 0, "a path");
    if (r >= 0 && (c->lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) < 0)
        r = cw_error_errno(err, CW_E_IO, errno, "%s: can't be written", lock);
    if (r >= 0) {
        uint64_t used = cw_cache_sweep(c);
        c->quota = o->quota ? o->quota : default_quota(c->dir, used);
        /* a small quota is not to be filled by one segment that nothing has been published of */
        c->segment_bytes = CW_MIN(o->segment_bytes ? o->segment_bytes : SEGMENT_BYTES, CW_MAX(c->quota / 8, (uint64_t)64 << 10));
        atomic_fetch_add(&c->holders, 1);
        r = cw_thread_start(&c->thread, cw_cache_main, c, err);
        c->started = r >= 0;
        if (r < 0)
            atomic_fetch_sub(&c->holders, 1);
    }
    if (r < 0) {
        cw_error_file(err, o->dir);
        cw_cache_close(c);
        return r;
    }
    *ret = c;
    return 0;
}

uint64_t cw_cache_quota(const struct cw_cache *c) { return c->quota; }

struct cw_cache *cw_cache_close(struct cw_cache *c)
{
    struct cw_cache_facts facts;
    return cw_cache_close_facts(c, &facts);
}

/* Waits for the store's thread, unless it is at storage that does not answer: then it goes on by itself. */
static void end_thread(struct cw_cache *c)
{
    struct timespec until;
    int r = 0;
    pthread_mutex_lock(&c->mutex);
    c->stop = true;
    pthread_cond_broadcast(&c->work);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += atomic_load(&c->readers.stuck) ? STUCK_S : END_S;
    while (!c->ended && r != ETIMEDOUT)
        r = pthread_cond_timedwait(&c->flushed, &c->mutex, &until);
    bool ended = c->ended;
    pthread_mutex_unlock(&c->mutex);
    if (!ended)
        fprintf(stderr, "cachew: cache %s: storage does not answer; what was not written yet is lost\n", c->dir);
    (void)(ended ? pthread_join(c->thread, NULL) : pthread_detach(c->thread));
}

struct cw_cache *cw_cache_close_facts(struct cw_cache *c, struct cw_cache_facts *ret)
{
    if (!c)
        return NULL;
    cw_cache_readers_stop(c);
    if (c->started)
        end_thread(c);
    cw_cache_facts(c, ret);
    cw_cache_release(c);
    return NULL;
}

void cw_cache_release(struct cw_cache *c)
{
    if (atomic_fetch_sub(&c->holders, 1) > 1)
        return;
    if (c->lock_fd >= 0)
        close(c->lock_fd);
    while (c->spare) {
        struct cw_cache_chunk *k = c->spare;
        c->spare = k->next;
        cw_cache_chunk_free(k);
    }
    pthread_cond_destroy(&c->work);
    pthread_cond_destroy(&c->flushed);
    pthread_mutex_destroy(&c->mutex);
    pthread_cond_destroy(&c->readers.gone);
    pthread_mutex_destroy(&c->readers.mutex);
    free(c->dir);
    free(c);
}

int cw_cache_set_open(struct cw_cache *c, struct cw_hash128 key, const char *meta, struct cw_cache_set **ret, struct cw_error *err)
{
    pthread_mutex_lock(&c->mutex);
    struct cw_cache_set *s = NULL;
    CW_LIST_EACH(at, &c->sets)
    {
        struct cw_cache_set *have = CW_CONTAINER(at, struct cw_cache_set, link);
        if (have->key.lo == key.lo && have->key.hi == key.hi)
            s = have;
    }
    if (s)
        s->refs++;
    else if ((s = cw_cache_set_new(c, key, meta, err))) { /* with the mutex: others who want it wait for it */
        s->refs++; /* the store's thread has one for as long as there are others */
        cw_list_add(&c->sets, &s->link);
    }
    pthread_mutex_unlock(&c->mutex);
    if (!s)
        return err->status;
    *ret = s;
    return 0;
}

struct cw_cache_set *cw_cache_set_ref(struct cw_cache_set *s)
{
    pthread_mutex_lock(&s->cache->mutex);
    s->refs++;
    pthread_mutex_unlock(&s->cache->mutex);
    return s;
}

void cw_cache_set_unref(struct cw_cache_set *s)
{
    if (!s)
        return;
    struct cw_cache *c = s->cache;
    pthread_mutex_lock(&c->mutex);
    if (--s->refs == 1) /* the store's thread sees to the rest */
        pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->mutex);
}

/* ---- putting ---- */

/* A full chunk goes to the store's thread. Mutex held. */
static void seal(struct cw_cache_set *s)
{
    struct cw_cache *c = s->cache;
    struct cw_cache_chunk *k = CW_STEAL(s->current);
    if (!k)
        return;
    *c->queue_tail = k;
    c->queue_tail = &k->next;
    if (!k->pending)
        pthread_cond_signal(&c->work);
}

void cw_cache_chunk_free(struct cw_cache_chunk *k)
{
    if (!k)
        return;
    free(k->data);
    free(k);
}

static struct cw_cache_chunk *chunk_alloc(size_t capacity)
{
    struct cw_cache_chunk *k = calloc(1, sizeof(*k));
    bool large = capacity % CHUNK_BYTES == 0;
    if (k && !(k->data = aligned_alloc(large ? CHUNK_BYTES : CW_CACHE_BLOCK, capacity))) {
        cw_cache_chunk_free(k);
        return NULL;
    }
    if (k && large)
        (void)madvise(k->data, capacity, MADV_HUGEPAGE);
    return k;
}

static struct cw_cache_chunk *chunk_new(struct cw_cache_set *s, size_t bytes)
{
    struct cw_cache *c = s->cache;
    size_t capacity = CW_ALIGN_UP(CW_MAX(bytes, CW_MIN(CHUNK_BYTES, CW_MIN(c->segment_bytes / 2, c->queue_bytes))), CW_CACHE_BLOCK);
    struct cw_cache_chunk *k = NULL;
    while (c->spare && !k) {
        k = c->spare;
        c->spare = k->next;
        if (k->capacity >= capacity)
            break;
        c->chunk_bytes -= k->capacity; /* an entry of unusual size: it takes the place of others */
        cw_cache_chunk_free(CW_STEAL(k));
    }
    if (!k) {
        if (c->chunk_bytes + capacity > c->queue_bytes || !(k = chunk_alloc(capacity)))
            return NULL;
        k->capacity = capacity;
        c->chunk_bytes += capacity;
    }
    k->next = NULL;
    k->set = s;
    k->used = 0;
    k->pending = 0;
    k->since_ns = cw_now_ns();
    s->refs++;
    return k;
}

void *cw_cache_reserve(struct cw_cache_set *s, const struct cw_cache_key *key, size_t length, bool dropped, uint64_t cost_ns, struct cw_cache_slot *ret)
{
    struct cw_cache *c = s->cache;
    size_t bytes = cw_cache_entry_bytes(length);
    if (length > UINT32_MAX / 2 || bytes > c->queue_bytes)
        return NULL;
    pthread_mutex_lock(&c->mutex);
    if (s->current && s->current->used + bytes > s->current->capacity)
        seal(s);
    if (!s->current)
        s->current = chunk_new(s, bytes);
    struct cw_cache_chunk *k = s->current;
    uint8_t *at = k ? k->data + k->used : NULL;
    if (k) {
        k->used += bytes;
        k->pending++;
    }
    pthread_mutex_unlock(&c->mutex);
    if (!k) {
        atomic_fetch_add_explicit(&c->skipped, 1, memory_order_relaxed);
        return NULL;
    }
    const struct cw_cache_entry e = {.magic = CW_CACHE_ENTRY_MAGIC, .flags = dropped ? CW_CACHE_DROPPED : 0, .key = *key, .length = (uint32_t)length,
                                     .cost_us = (uint32_t)CW_MIN(cost_ns / 1000, (uint64_t)UINT32_MAX)};
    memcpy(at, &e, sizeof(e));
    memset(at + sizeof(e) + length, 0, bytes - sizeof(e) - length);
    *ret = (struct cw_cache_slot){.set = s, .chunk = k, .entry = at};
    return at + sizeof(e);
}

void cw_cache_commit(const struct cw_cache_slot *slot)
{
    struct cw_cache *c = slot->set->cache;
    struct cw_cache_entry e;
    memcpy(&e, slot->entry, sizeof(e));
    e.hash = cw_sum(slot->entry + sizeof(e.hash), sizeof(e) - sizeof(e.hash) + e.length);
    memcpy(slot->entry, &e, sizeof(e));
    pthread_mutex_lock(&c->mutex);
    if (--slot->chunk->pending == 0 && slot->set->current != slot->chunk)
        pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->mutex);
}

void cw_cache_missed(struct cw_cache_set *s, size_t n) { atomic_fetch_add_explicit(&s->cache->misses, n, memory_order_relaxed); }

void cw_cache_flush(struct cw_cache *c)
{
    pthread_mutex_lock(&c->mutex);
    c->flush = true;
    pthread_cond_signal(&c->work);
    while (c->flush)
        pthread_cond_wait(&c->flushed, &c->mutex);
    pthread_mutex_unlock(&c->mutex);
}

void cw_cache_facts(const struct cw_cache *c, struct cw_cache_facts *ret)
{
#define FACT(name) .name = atomic_load_explicit(&c->name, memory_order_relaxed)
    *ret = (struct cw_cache_facts){FACT(hits), FACT(misses), FACT(bad), FACT(gone), FACT(late), FACT(kept), FACT(skipped), FACT(refused), FACT(bytes_read), FACT(read_ns),
                                   FACT(bytes_written), FACT(write_ns), FACT(published), FACT(evicted), FACT(probe_bytes),
                                   FACT(probe_ns), FACT(used)};
#undef FACT
}
