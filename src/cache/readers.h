/*
 * Threads for reads that may take long, so that callers need not wait for storage that does not answer. A
 * reader reads into memory of its own. The caller copies from there, or leaves at its deadline; then no
 * memory of the caller is written any more. While a read that was left has not come back (`stuck`), no other
 * read is begun.
 */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct cw_cache_set;
struct cw_cache_segment;

struct cw_cache_readers {
    pthread_mutex_t mutex; /* the monitor's mutex may be taken inside */
    pthread_cond_t gone;   /* a reader has ended */
    /* guarded by mutex: */
    struct cw_cache_reader *idle;
    unsigned n;
    bool stop, noticed;
    atomic_uint stuck; /* reads that were left and have not come back */
};

#define CW_CACHE_READERS {.mutex = PTHREAD_MUTEX_INITIALIZER, .gone = PTHREAD_COND_INITIALIZER}
void cw_cache_readers_deinit(struct cw_cache_readers *l);
/* Ends all readers, and waits for those that are not stuck. */
void cw_cache_readers_stop(struct cw_cache_readers *l);
/* Reads bytes of a segment of s into v. 0; 2: they can't be read; 3: not by deadline_ns. The caller holds a
 * reference of s. */
int cw_cache_read_until(struct cw_cache_set *s, struct cw_cache_segment *g, uint64_t offset,
                        const struct iovec *v, size_t bytes, uint64_t deadline_ns);
/* Copies n bytes to byte `from` and those behind it of the memory that v describes. */
void cw_cache_scatter(const struct iovec *v, size_t from, const uint8_t *data, size_t n);
