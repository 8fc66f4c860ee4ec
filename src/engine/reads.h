/*
 * Read threads: they read what is not in memory, for blocks that compute threads handed over, many reads at a
 * time. Mutex held, where nothing else is said.
 */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"

struct block;
struct cw_range;
struct cw_runner;

/* Reads of sources in flight at most: what a solid-state disk or a network file system needs to give its full
 * rate. Each has a thread, which is started when a read is to be done and no thread is idle. As many reads
 * may wait for a thread, so that storage never runs dry. */
#define READ_DEPTH 64
/* Threads that read the cache's storage: entries are large, and a cache is on a local disk. */
#define STORE_THREADS 4
/* Where more blocks wait for the cache's storage, it is behind: others are computed instead. */
#define STORE_DEPTH 16

struct cw_reads {
    pthread_cond_t wake; /* read threads wait for it */
    struct block *first, **tail;
    unsigned n_blocks;   /* being read, or in the list */
    unsigned n_fetching; /* of these: blocks that wait for the cache's storage */
    unsigned n_fetchers; /* threads that read the cache's storage */
    size_t bytes;        /* of sources, of blocks that are being read or in the list */
    bool cold;           /* a read would have blocked once */
    pthread_t threads[READ_DEPTH];
    unsigned n_threads, n_idle;
    uint64_t n_done;  /* reads */
    uint64_t busy_ns; /* at least one thread was at storage; counted up to counted_ns */
    uint64_t counted_ns;
    unsigned n_busy;   /* threads at storage */
    uint64_t since_ns; /* when blocks or pieces began to be read; where none are, not used */
};

/* The bytes of a block are not in memory: it is ready again when they are. */
void cw_reads_add(struct cw_runner *r, struct block *b);
/* Reads that wait for a thread; counting stops at READ_DEPTH. */
size_t cw_reads_waiting(const struct cw_runner *r);
/* Reads of blocks of a range are not begun any more. */
void cw_reads_drop(struct cw_runner *r, const struct cw_range *s);
/* Waits for the threads to end; after sched.stop was set. Mutex not held. */
void cw_reads_stop(struct cw_runner *r);
/* Storage is busy for blocks or pieces, which `count` counts; and not so any more. */
void cw_reads_begin_busy(struct cw_runner *r, unsigned *count);
void cw_reads_end_busy(struct cw_runner *r, unsigned *count);
