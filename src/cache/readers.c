/*
 * Reads that may take long: threads do them, so that who wants the bytes need not wait for storage that does
 * not answer. A thread reads into memory of its own; who asked takes the bytes from there, or goes away, and
 * then nobody's memory is written to when they come after all. While such a read has not come back nobody
 * else is sent after it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "cache/internal.h"

/* Read at a time: large enough that handing it over does not count, and all that a thread holds. */
#define PIECE_BYTES ((size_t)1 << 20)
/* More than the threads that ask; for storage that does not answer, for all of them at once. */
#define READERS_MAX 64

struct cw_cache_reader {
    struct cw_cache_reader *next; /* of those that have nothing to do */
    struct cw_cache *cache;
    pthread_cond_t work, came;
    bool asked, here; /* guarded by the readers' mutex, like all from here on: to be read; it was */
    bool left;        /* who asked went away, and left a reference of the set: */
    struct cw_cache_set *set;
    struct cw_cache_segment *segment;
    uint64_t offset;
    size_t bytes;
    int result;
    uint8_t data[PIECE_BYTES];
};

/* Mutex held. */
static void rest(struct cw_cache *c, struct cw_cache_reader *t)
{
    t->here = false;
    t->next = c->readers.idle;
    c->readers.idle = t;
}

/* What was read that nobody waits for any more. Mutex held, and released meanwhile. */
static void come_late(struct cw_cache *c, struct cw_cache_reader *t)
{
    struct cw_cache_set *set = CW_STEAL(t->set);
    t->left = false;
    atomic_fetch_sub(&c->readers.stuck, 1);
    pthread_mutex_unlock(&c->readers.mutex);
    cw_cache_set_unref(set);
    pthread_mutex_lock(&c->readers.mutex);
    rest(c, t);
}

static void reader_free(struct cw_cache_reader *t)
{
    pthread_cond_destroy(&t->work);
    pthread_cond_destroy(&t->came);
    free(t);
}

static void *reader_main(void *arg)
{
    struct cw_cache_reader *t = arg;
    struct cw_cache *c = t->cache;
    pthread_mutex_lock(&c->readers.mutex);
    for (;;) {
        while (!t->asked && !c->readers.stop)
            pthread_cond_wait(&t->work, &c->readers.mutex);
        if (!t->asked)
            break;
        struct iovec v = {.iov_base = t->data, .iov_len = t->bytes};
        pthread_mutex_unlock(&c->readers.mutex);
        int r = cw_cache_segment_read(t->segment, t->offset, &v, 1, t->bytes, CW_CACHE_WAIT);
        pthread_mutex_lock(&c->readers.mutex);
        t->asked = false;
        if (t->left) {
            come_late(c, t);
        } else {
            t->result = r;
            t->here = true;
            pthread_cond_signal(&t->came);
        }
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
    /* the rest is had from the kernel once it is read into */
    memset(t, 0, offsetof(struct cw_cache_reader, data));
    t->cache = c;
    pthread_cond_init(&t->work, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&t->came, &monotonic);
    pthread_condattr_destroy(&monotonic);
    atomic_fetch_add(&c->holders, 1);
    if (cw_thread_start(&id, reader_main, t, NULL) < 0) {
        reader_free(t);
        atomic_fetch_sub(&c->holders, 1); /* who opened it holds it too */
        return NULL;
    }
    pthread_detach(id); /* at the end nobody waits for one that is stuck */
    return t;
}

/* Mutex held. NULL: there is none to be had. */
static struct cw_cache_reader *reader_get(struct cw_cache *c)
{
    struct cw_cache_reader *t = c->readers.idle;
    if (t) {
        c->readers.idle = t->next;
        return t;
    }
    if (c->readers.n == READERS_MAX || !(t = reader_new(c)))
        return NULL;
    c->readers.n++;
    return t;
}

/* Storage did not answer: said once. Mutex held. */
static void leave(struct cw_cache_set *s, struct cw_cache_reader *t, uint64_t waited_ns)
{
    struct cw_cache *c = s->cache;
    t->left = true;
    t->set = cw_cache_set_ref(s);
    atomic_fetch_add(&c->readers.stuck, 1);
    if (!c->readers.warned)
        fprintf(stderr,
                "cachew: cache %s: a read did not come back in %.1f s; computing instead until it does\n",
                c->dir, (double)waited_ns * 1e-9);
    c->readers.warned = true;
}

/* Bytes from..from+n of what v describes. */
static void put(const struct iovec *v, size_t from, const uint8_t *data, size_t n)
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

/* A piece, into t's memory. 0, 2 (can't be read), or 3: not in time. Mutex held. */
static int read_piece(struct cw_cache_set *s, struct cw_cache_reader *t, struct cw_cache_segment *g,
                      uint64_t offset, size_t bytes, uint64_t deadline_ns)
{
    struct cw_cache *c = s->cache;
    uint64_t start = cw_now_ns();
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                                   .tv_nsec = (long)(deadline_ns % 1000000000u)};
    t->segment = g;
    t->offset = offset;
    t->bytes = bytes;
    t->asked = true;
    pthread_cond_signal(&t->work);
    while (!t->here && pthread_cond_timedwait(&t->came, &c->readers.mutex, &until) != ETIMEDOUT)
        ;
    if (t->here)
        return t->result;
    leave(s, t, cw_now_ns() - start);
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
        if (!t) {
            r = 3;
            break;
        }
        r = read_piece(s, t, g, offset + done, n, deadline_ns);
        if (r == 3) /* its memory is not ours any more */
            break;
        pthread_mutex_unlock(&c->readers.mutex);
        if (r == 0)
            put(v, done, t->data, n);
        pthread_mutex_lock(&c->readers.mutex);
        rest(c, t);
    }
    pthread_mutex_unlock(&c->readers.mutex);
    return r;
}

void cw_cache_readers_stop(struct cw_cache *c)
{
    CW_GUARD(&c->readers.mutex);
    c->readers.stop = true;
    for (struct cw_cache_reader *t = c->readers.idle; t; t = t->next)
        pthread_cond_signal(&t->work);
    while (c->readers.n > atomic_load(&c->readers.stuck))
        pthread_cond_wait(&c->readers.gone, &c->readers.mutex);
}
