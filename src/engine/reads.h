/*
 * Read threads: they read bytes that are not in memory, for blocks that compute threads handed over, with
 * many reads at a time. The runner's mutex is held, unless a comment says otherwise.
 */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"

struct block;
struct cw_range;
struct cw_runner;

/* Reads of sources in flight at most: this many give a solid-state disk or a network file system its full
 * rate. Each read in flight has a thread, which is started when a read is to be done and no thread is idle.
 * The same number of reads may wait for a thread, so that storage always has work. */
#define READ_DEPTH 64
/* Threads that read the cache's storage at most: entries are large, and a cache is on a local disk. */
#define STORE_THREADS 4
/* If more blocks wait for the cache's storage, it is too slow, and further blocks are computed instead. */
#define STORE_DEPTH 16

struct cw_reads {
    pthread_cond_t wake; /* read threads wait for it */
    struct block *first, **tail;
    unsigned n_blocks;   /* blocks that are being read or in the list */
    unsigned n_fetching; /* blocks of the list that wait for the cache's storage */
    unsigned n_fetchers; /* threads that are reading the cache's storage */
    size_t bytes;        /* bytes of sources that these blocks read */
    bool cold;           /* a read would have blocked at least once */
    pthread_t threads[READ_DEPTH];
    unsigned n_threads, n_idle;
    uint64_t n_done;  /* reads */
    uint64_t busy_ns; /* time in which at least one thread was reading, up to counted_ns */
    uint64_t counted_ns;
    unsigned n_busy;   /* threads that are reading */
    uint64_t since_ns; /* when blocks or pieces began to be read; not used while there are none */
};

/* Adds a block whose bytes are not in memory to the list. The block becomes ready when its bytes are read. */
void cw_reads_add(struct cw_runner *r, struct block *b);
/* Returns the number of reads that wait for a thread; it stops counting at READ_DEPTH. */
size_t cw_reads_waiting(const struct cw_runner *r);
/* Cancels the reads of a range's blocks that have not begun. */
void cw_reads_drop(struct cw_runner *r, const struct cw_range *s);
/* Waits for the threads to end; sched.stop must be set before. Mutex not held. */
void cw_reads_stop(struct cw_runner *r);
/* Storage begins, or stops, to be busy for one more block or piece, which *count counts. The time between is
 * busy time. */
void cw_reads_begin_busy(struct cw_runner *r, unsigned *count);
void cw_reads_end_busy(struct cw_runner *r, unsigned *count);
