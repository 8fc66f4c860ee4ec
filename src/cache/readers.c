/* The reader threads, and how a caller passes a read to a reader. */
#include "cache/readers.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/notice.h"
#include "base/thread.h"
#include "cache/internal.h"
#include "cache/segment.h"
#include "cache/set.h"

/* Bytes that a reader reads at a time, and the size of its memory: enough that passing them on costs little.
 */
#define PIECE_BYTES ((size_t)1 << 20)
/* More than the number of threads that read entries, so that a read of each of them can be stuck at the same
 * time. */
#define READERS_MAX 64

struct cw_cache_reader {
    struct cw_cache_reader *next; /* in the list of idle readers */
    struct cw_cache *cache;       /* a counted reference (cw_cache.holders) */
    pthread_cond_t requested, done;

    /* guarded by the mutex of cw_cache_readers, like all fields from here on; LEFT: the caller abandoned the
     * read */
    enum { READER_IDLE, READER_REQUESTED, READER_LEFT } state;
    struct cw_cache_set *set; /* READER_LEFT: a reference that the reader gives back after the read */
    struct cw_cache_segment *segment;
    uint64_t offset;
    size_t bytes;
    int result;
    /* used without the mutex: by the caller that took the reader while the state is IDLE, else by the reader
     */
    uint8_t data[PIECE_BYTES];
};

/* Puts a reader into the list of idle readers. The readers' mutex is held. */
static void reader_rest(struct cw_cache_readers *l, struct cw_cache_reader *t)
{
    t->next = l->idle;
    l->idle = t;
}

/* Ends a read that its caller abandoned. The readers' mutex is held, and released for a moment. */
static void reader_come_late(struct cw_cache *c, struct cw_cache_reader *t)
{
    struct cw_cache_set *set = CW_STEAL(t->set);
    atomic_fetch_sub(&c->readers.stuck, 1);
    pthread_mutex_unlock(&c->readers.mutex);
    cw_cache_set_unref(set);
    pthread_mutex_lock(&c->readers.mutex);
    reader_rest(&c->readers, t);
}

static void reader_free(struct cw_cache_reader *t)
{
    pthread_cond_destroy(&t->requested);
    pthread_cond_destroy(&t->done);
    free(t);
}

static void *reader_main(void *arg)
{
    struct cw_cache_reader *t = arg;
    struct cw_cache *c = t->cache;
    pthread_mutex_lock(&c->readers.mutex);
    for (;;) {
        /* A request that was abandoned before this thread began is read, too: when it returns, other reads
         * may begin again. */
        while (t->state == READER_IDLE && !c->readers.stop)
            pthread_cond_wait(&t->requested, &c->readers.mutex);
        if (t->state == READER_IDLE)
            break;
        struct iovec v = {.iov_base = t->data, .iov_len = t->bytes};
        pthread_mutex_unlock(&c->readers.mutex);
        t->result = cw_cache_segment_read(t->segment, t->offset, &v, 1, t->bytes, CW_CACHE_WAIT);
        pthread_mutex_lock(&c->readers.mutex);
        if (t->state == READER_LEFT)
            reader_come_late(c, t);
        t->state = READER_IDLE;
        pthread_cond_signal(&t->done);
    }
    c->readers.n--;
    pthread_cond_signal(&c->readers.gone);
    pthread_mutex_unlock(&c->readers.mutex);
    reader_free(t);
    cw_cache_release(c);
    return NULL;
}

static struct cw_cache_reader *reader_new(struct cw_cache *c)
{
    pthread_t id;
    struct cw_cache_reader *t = malloc(sizeof(*t));
    if (!t)
        return NULL;
    /* the kernel provides the pages of data when they are first read into */
    memset(t, 0, offsetof(struct cw_cache_reader, data));
    t->cache = c;
    pthread_cond_init(&t->requested, NULL);
    cw_cond_init(&t->done);
    atomic_fetch_add(&c->holders, 1);
    if (cw_thread_start(&id, reader_main, t, NULL) < 0) {
        reader_free(t);
        atomic_fetch_sub(&c->holders, 1); /* not the last holder: the caller's set keeps the cache open */
        return NULL;
    }
    c->readers.n++;
    pthread_detach(id); /* closing the cache does not wait for stuck readers */
    return t;
}

/* Takes an idle reader out of the list, or makes a new one. NULL: out of memory, or there are READERS_MAX
 * readers. The readers' mutex is held. */
static struct cw_cache_reader *reader_get(struct cw_cache *c)
{
    struct cw_cache_readers *l = &c->readers;
    if (l->idle)
        return CW_POP(l->idle);
    return l->n < READERS_MAX ? reader_new(c) : NULL;
}

void cw_cache_scatter(const struct iovec *v, size_t from, const uint8_t *data, size_t n)
{
    for (; n > 0; v++) {
        if (from >= v->iov_len) {
            from -= v->iov_len;
            continue;
        }
        size_t part = CW_MIN(n, v->iov_len - from);
        memcpy((uint8_t *)v->iov_base + from, data, part);
        data += part;
        n -= part;
        from = 0;
    }
}

/* Lets reader t read up to PIECE_BYTES. Returns 0; 2: the bytes can't be read; 3: the read did not end in
 * time, and the caller must not use t any more. The readers' mutex is held, and released during the wait. */
static int reader_read(struct cw_cache_set *s, struct cw_cache_reader *t, struct cw_cache_segment *g,
                       uint64_t offset, size_t bytes, uint64_t deadline_ns)
{
    struct cw_cache *c = s->cache;
    uint64_t start = cw_now_ns();
    t->segment = g;
    t->offset = offset;
    t->bytes = bytes;
    t->state = READER_REQUESTED;
    pthread_cond_signal(&t->requested);
    while (t->state != READER_IDLE && cw_cond_wait(&t->done, &c->readers.mutex, deadline_ns) != ETIMEDOUT)
        ;
    if (t->state == READER_IDLE)
        return t->result;
    t->state = READER_LEFT;
    t->set = cw_cache_set_ref(s);
    atomic_fetch_add(&c->readers.stuck, 1);
    if (!c->readers.noticed)
        cw_notice("cachew: cache %s: a read did not return within %.1f s; until it does, elements are "
                  "computed instead",
                  c->dir, (double)(cw_now_ns() - start) * 1e-9);
    c->readers.noticed = true;
    return 3;
}

int cw_cache_read_until(struct cw_cache_set *s, struct cw_cache_segment *g, uint64_t offset,
                        const struct iovec *v, size_t bytes, uint64_t deadline_ns)
{
    struct cw_cache *c = s->cache;
    int r = 0;
    pthread_mutex_lock(&c->readers.mutex);
    for (size_t done = 0; done < bytes && r == 0; done += PIECE_BYTES) {
        size_t n = CW_MIN(bytes - done, PIECE_BYTES);
        struct cw_cache_reader *t = reader_get(c);
        r = t ? reader_read(s, t, g, offset + done, n, deadline_ns) : 3;
        if (r == 3)
            break;
        pthread_mutex_unlock(&c->readers.mutex);
        if (r == 0)
            cw_cache_scatter(v, done, t->data, n);
        pthread_mutex_lock(&c->readers.mutex);
        reader_rest(&c->readers, t);
    }
    pthread_mutex_unlock(&c->readers.mutex);
    return r;
}

void cw_cache_readers_deinit(struct cw_cache_readers *l)
{
    pthread_cond_destroy(&l->gone);
    pthread_mutex_destroy(&l->mutex);
}

void cw_cache_readers_stop(struct cw_cache_readers *l)
{
    CW_GUARD(&l->mutex);
    l->stop = true;
    for (struct cw_cache_reader *t = l->idle; t; t = t->next)
        pthread_cond_signal(&t->requested);
    while (l->n > atomic_load(&l->stuck))
        pthread_cond_wait(&l->gone, &l->mutex);
}
