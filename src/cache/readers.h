/*
 * Reader threads, for reads that may take long, so that callers need not wait for storage that does not
 * answer. A reader reads into its own memory, and the caller copies from there. At its deadline the caller
 * abandons the read; from then on the reader writes to no memory of the caller. While an abandoned read has
 * not returned (`stuck`), cw_cache_read begins no other read, except with CW_CACHE_FOREVER.
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
    pthread_mutex_t mutex; /* the monitor's mutex may be taken while this mutex is held */
    pthread_cond_t gone;   /* a reader has ended */
    /* guarded by mutex: */
    struct cw_cache_reader *idle; /* list of readers without a read */
    unsigned n;                   /* number of readers */
    bool stop;                    /* idle readers must end */
    bool noticed;                 /* the user was told of an abandoned read */
    atomic_uint stuck;            /* number of abandoned reads that have not returned */
};

#define CW_CACHE_READERS {.mutex = PTHREAD_MUTEX_INITIALIZER, .gone = PTHREAD_COND_INITIALIZER}
void cw_cache_readers_deinit(struct cw_cache_readers *l);
/* Ends all readers, and waits for those that are not stuck. */
void cw_cache_readers_stop(struct cw_cache_readers *l);
/* Reads `bytes` bytes at an offset of segment g of set s into v. Returns 0; 2: the bytes can't be read; 3:
 * the read did not end by deadline_ns (by cw_now_ns). The caller holds a reference of s. */
int cw_cache_read_until(struct cw_cache_set *s, struct cw_cache_segment *g, uint64_t offset,
                        const struct iovec *v, size_t bytes, uint64_t deadline_ns);
/* Copies n bytes of data into the memory that v describes, beginning at its byte number `from`. */
void cw_cache_scatter(const struct iovec *v, size_t from, const uint8_t *data, size_t n);
