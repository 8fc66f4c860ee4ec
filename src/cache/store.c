/* The store as a whole: opening, closing, its sets, and what is put into it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cost_clock.h"
#include "base/thread.h"
#include "cache/internal.h"
#include "cache/sum.h"
#include "storage/file.h"

#define SEGMENT_BYTES ((size_t)16 << 20)
#define QUEUE_BYTES ((size_t)32 << 20)
/* Written at a time: a large page, which storage takes in one go. In small ones a write costs the kernel
 * several times the CPU, and that is most of what keeping costs. */
#define CHUNK_BYTES ((size_t)2 << 20)
/* What is to be written at the end may take some seconds (writer.c), and the last of it as long again; where
 * storage is known not to answer, hardly any. */
#define END_NS UINT64_C(20000000000)
#define STUCK_NS UINT64_C(1000000000)
/* A step of what is to be flushed: 2 MiB on a store of 100 KB/s. */
#define FLUSH_NS UINT64_C(20000000000)
/* Directories are opened within milliseconds, large ones on the other side of a network within a second. What
 * takes longer is not waited for: it can be computed meanwhile. */
#define OPEN_NS UINT64_C(2000000000)
/* After trouble storage is left alone for so long, doubled each time. */
#define BACKOFF_NS UINT64_C(1000000000)
#define BACKOFF_MOST_NS UINT64_C(60000000000)

/* ---- the store's thread, from outside ---- */

void cw_cache_doing(struct cw_cache *c, const char *what)
{
    CW_GUARD(&c->mutex);
    c->doing = (struct cw_cache_doing){.what = what, .since_ns = cw_now_ns()};
}

/* Waits for word of the store's thread. False: it is later than deadline_ns. Mutex held. */
static bool wait_until(struct cw_cache *c, uint64_t deadline_ns)
{
    const struct timespec at = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                                .tv_nsec = (long)(deadline_ns % 1000000000u)};
    return pthread_cond_timedwait(&c->told, &c->mutex, &at) != ETIMEDOUT;
}

/* What it is at has taken so long already. Mutex held. */
static bool stuck(const struct cw_cache *c)
{
    return c->doing.what && cw_now_ns() - c->doing.since_ns > cw_cost_patience_ns(OPEN_NS);
}

/* Mutex held. */
static const char *at_what(const struct cw_cache *c)
{
    return c->doing.what ? c->doing.what : atomic_load(&c->readers.stuck) ? "a read" : "waiting for a CPU";
}

/* Waits until something was opened, or could not be; not where the thread does not get there. Mutex held. */
static void wait_opened(struct cw_cache *c, const bool *tried)
{
    uint64_t deadline_ns = cw_now_ns() + cw_cost_patience_ns(OPEN_NS);
    while (!*tried && !stuck(c) && wait_until(c, deadline_ns))
        ;
    if (!*tried && !c->said_slow) {
        fprintf(stderr, "cachew: cache %s: %s takes longer than %.0f s; going on without it until then\n",
                c->dir, at_what(c), (double)OPEN_NS * 1e-9);
        c->said_slow = true;
    }
}

void cw_cache_trouble(struct cw_cache *c, struct cw_cache_backoff *b, const char *what, int e)
{
    if (b) {
        b->ns = b->ns ? CW_MIN(2 * b->ns, BACKOFF_MOST_NS) : BACKOFF_NS;
        b->until_ns = cw_now_ns() + b->ns;
    }
    CW_GUARD(&c->mutex);
    bool *said = what ? &c->said_file : &c->said_disk;
    if (e && !*said)
        fprintf(stderr, "cachew: cache %s%s%s: %s; going on without %s\n", c->dir, what ? "/" : "",
                what ? what : "", cw_cache_why(e), what ? "it" : "writing to it for a while");
    *said |= e != 0;
}

/* ---- opening and closing ---- */

static int cache_new(const struct cw_cache_options *o, struct cw_cache **ret, struct cw_error *err)
{
    struct cw_cache *c = calloc(1, sizeof(*c));
    if (!c || !(c->dir = cw_absolute(o->dir))) { /* segments are opened by name, whenever they are needed */
        free(c);
        return cw_error_nomem(err, sizeof(*c), "a cache");
    }
    pthread_condattr_t monotonic;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->work, &monotonic);
    pthread_cond_init(&c->told, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&c->readers.mutex, NULL);
    pthread_cond_init(&c->readers.gone, NULL);
    atomic_init(&c->holders, 1);
    cw_list_init(&c->sets);
    c->queue_tail = &c->queue;
    c->queue_bytes = o->queue_bytes ? o->queue_bytes : QUEUE_BYTES;
    c->waits = o->waits;
    c->plain = o->plain;
    c->wanted_quota = o->quota;
    atomic_init(&c->quota, o->quota);
    c->wanted_segment = o->segment_bytes ? o->segment_bytes : SEGMENT_BYTES;
    atomic_init(&c->segment_bytes, c->wanted_segment);
    c->dir_fd = c->lock_fd = -1;
    *ret = c;
    return 0;
}

int cw_cache_open(const struct cw_cache_options *o, struct cw_cache **ret, struct cw_error *err)
{
    struct cw_cache *c = NULL;
    int r = cache_new(o, &c, err);
    if (r < 0)
        return r;
    atomic_fetch_add(&c->holders, 1);
    r = cw_thread_start(&c->thread, cw_cache_main, c, err);
    c->started = r >= 0;
    if (r < 0)
        atomic_fetch_sub(&c->holders, 1);
    if (r >= 0) {
        CW_WITH (&c->mutex) {
            wait_opened(c, &c->tried);
            r = c->failed.status;
            if (r < 0 && err)
                *err = c->failed;
        }
    }
    if (r < 0) {
        cw_error_file(err, o->dir);
        cw_cache_close(c);
        return r;
    }
    *ret = c;
    return 0;
}

uint64_t cw_cache_quota(const struct cw_cache *c)
{
    return atomic_load(&c->quota);
}

struct cw_cache *cw_cache_close(struct cw_cache *c)
{
    struct cw_cache_facts facts;
    return cw_cache_close_facts(c, &facts);
}

/* Waits for the store's thread, unless it is at storage that does not answer: then it goes on by itself. */
static void end_thread(struct cw_cache *c)
{
    pthread_mutex_lock(&c->mutex);
    c->stop = true;
    pthread_cond_broadcast(&c->work);
    uint64_t patience_ns = atomic_load(&c->readers.stuck) || stuck(c) ? STUCK_NS : END_NS;
    uint64_t deadline_ns = cw_now_ns() + cw_cost_patience_ns(patience_ns);
    while (!c->ended && wait_until(c, deadline_ns))
        ;
    bool ended = c->ended;
    if (!ended)
        fprintf(stderr, "cachew: cache %s: %s does not end; what was not written yet is lost\n", c->dir,
                at_what(c));
    pthread_mutex_unlock(&c->mutex);
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
    if (c->dir_fd >= 0)
        close(c->dir_fd);
    cw_cache_packer_free(c->packer);
    cw_cache_unpacker_free(c->unpackers);
    while (c->spare) {
        struct cw_cache_chunk *k = c->spare;
        c->spare = k->next;
        cw_cache_chunk_free(k);
    }
    pthread_cond_destroy(&c->work);
    pthread_cond_destroy(&c->told);
    pthread_mutex_destroy(&c->mutex);
    pthread_cond_destroy(&c->readers.gone);
    pthread_mutex_destroy(&c->readers.mutex);
    free(c->dir);
    free(c);
}

int cw_cache_set_open(struct cw_cache *c, struct cw_hash128 key, const char *meta, struct cw_cache_set **ret,
                      struct cw_error *err)
{
    pthread_mutex_lock(&c->mutex);
    struct cw_cache_set *s = NULL;
    CW_LIST_EACH (at, &c->sets) {
        struct cw_cache_set *have = CW_CONTAINER(at, struct cw_cache_set, link);
        if (have->key.lo == key.lo && have->key.hi == key.hi)
            s = have;
    }
    if (s) {
        s->refs++;
    } else if ((s = cw_cache_set_new(c, key, meta, err))) {
        s->refs++; /* the store's thread has one for as long as there are others */
        cw_list_add(&c->sets, &s->link);
        pthread_cond_signal(&c->work);
    }
    if (s)
        wait_opened(c, &s->tried);
    pthread_mutex_unlock(&c->mutex);
    if (!s)
        return err->status;
    *ret = s;
    return 0;
}

struct cw_cache_set *cw_cache_set_ref(struct cw_cache_set *s)
{
    CW_GUARD(&s->cache->mutex);
    s->refs++;
    return s;
}

void cw_cache_set_unref(struct cw_cache_set *s)
{
    if (!s)
        return;
    struct cw_cache *c = s->cache;
    CW_GUARD(&c->mutex);
    if (--s->refs == 1) /* the store's thread sees to the rest */
        pthread_cond_signal(&c->work);
}

char *cw_cache_set_profile(struct cw_cache_set *s)
{
    CW_GUARD(&s->cache->mutex);
    return s->profile ? strdup(s->profile) : NULL;
}

void cw_cache_set_put_profile(struct cw_cache_set *s, const char *text)
{
    char *copy = strdup(text);
    if (!copy) /* those that come later measure themselves */
        return;
    CW_GUARD(&s->cache->mutex);
    free(s->profile);
    s->profile = copy;
    s->profiled = true;
}

/* ---- putting ---- */

/* A full chunk goes to the store's thread. Whether that is to be woken: once the mutex, which is held here,
 * is not. */
static bool seal(struct cw_cache_set *s)
{
    struct cw_cache *c = s->cache;
    struct cw_cache_chunk *k = CW_STEAL(s->current);
    *c->queue_tail = k;
    c->queue_tail = &k->next;
    return !k->pending;
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

/* NULL: the queue is full, or there is no memory. Mutex held. */
static struct cw_cache_chunk *chunk_new(struct cw_cache_set *s, size_t bytes, bool *ret_full)
{
    struct cw_cache *c = s->cache;
    *ret_full = false;
    size_t capacity = CW_ALIGN_UP(
        CW_MAX(bytes, CW_MIN(CHUNK_BYTES, CW_MIN(atomic_load(&c->segment_bytes) / 2, c->queue_bytes))),
        CW_CACHE_BLOCK);
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
        *ret_full = c->chunk_bytes + capacity > c->queue_bytes;
        if (*ret_full || !(k = chunk_alloc(capacity)))
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

/* When the wait for the store's thread is too long: its step, or the wait if `began` is later, takes
 * FLUSH_NS. Mutex held. */
static uint64_t deadline_of(const struct cw_cache *c, uint64_t began)
{
    uint64_t since = c->doing.what ? CW_MAX(c->doing.since_ns, began) : cw_now_ns();
    return since + cw_cost_patience_ns(FLUSH_NS);
}

/* Returns the set's chunk with room for so many bytes; NULL: the queue is full, or there is no memory. A
 * cache that waits gives up only on storage that does not answer: once the store's thread has been at one
 * step for FLUSH_NS, no call waits until that step ends. Mutex held, but while it waits. */
static struct cw_cache_chunk *chunk_with_room(struct cw_cache_set *s, size_t bytes)
{
    struct cw_cache *c = s->cache;
    for (;;) {
        bool full = false;
        if (s->current && s->current->used + bytes > s->current->capacity && seal(s))
            pthread_cond_signal(&c->work);
        if (!s->current)
            s->current = chunk_new(s, bytes, &full);
        uint64_t deadline_ns = deadline_of(c, 0);
        if (!full || !c->waits || cw_now_ns() >= deadline_ns)
            return s->current;
        (void)wait_until(c, deadline_ns);
    }
}

void *cw_cache_reserve(struct cw_cache_set *s, const struct cw_cache_key *key, size_t length, bool dropped,
                       uint64_t cost_ns, struct cw_cache_slot *ret)
{
    struct cw_cache *c = s->cache;
    size_t bytes = cw_cache_entry_bytes(length);
    if (length > UINT32_MAX / 2 || bytes > c->queue_bytes) {
        atomic_fetch_add_explicit(&c->skipped, 1, memory_order_relaxed);
        return NULL;
    }
    pthread_mutex_lock(&c->mutex);
    struct cw_cache_chunk *k = chunk_with_room(s, bytes);
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
    const struct cw_cache_entry e = {.magic = CW_CACHE_ENTRY_MAGIC,
                                     .flags = dropped ? CW_CACHE_DROPPED : 0,
                                     .key = *key,
                                     .length = (uint32_t)length,
                                     .stored = (uint32_t)length,
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
    bool wake = CW_LOCKED(&c->mutex, --slot->chunk->pending == 0 && slot->set->current != slot->chunk);
    if (wake)
        pthread_cond_signal(&c->work);
}

void cw_cache_missed(struct cw_cache_set *s, size_t n)
{
    atomic_fetch_add_explicit(&s->cache->misses, n, memory_order_relaxed);
}

int cw_cache_flush(struct cw_cache *c, struct cw_error *err)
{
    int r = 0;
    CW_GUARD(&c->mutex);
    c->flush = true;
    pthread_cond_signal(&c->work);
    for (uint64_t began = cw_now_ns(); c->flush && r == 0;) {
        uint64_t deadline_ns = deadline_of(c, began);
        if (cw_now_ns() >= deadline_ns)
            r = cw_error_set(err, CW_E_DEADLINE, "cache %s: %s takes longer than %.0f s", c->dir, at_what(c),
                             (double)FLUSH_NS * 1e-9);
        else
            (void)wait_until(c, deadline_ns);
    }
    return r;
}

void cw_cache_facts(const struct cw_cache *c, struct cw_cache_facts *ret)
{
#define FACT(name) .name = atomic_load_explicit(&c->name, memory_order_relaxed)
    *ret = (struct cw_cache_facts){FACT(hits),       FACT(misses),    FACT(bad),           FACT(gone),
                                   FACT(late),       FACT(kept),      FACT(skipped),       FACT(refused),
                                   FACT(bytes_read), FACT(read_ns),   FACT(bytes_written), FACT(bytes_stored),
                                   FACT(write_ns),   FACT(published), FACT(evicted),       FACT(probe_bytes),
                                   FACT(probe_ns),   FACT(used)};
#undef FACT
}
