/*
 * Reading whole chunks of files into the page cache, by threads of low priority that are started when they
 * are needed. Two uses: where a shuffle permutes chunks, the chunks of a piece are read before its records,
 * several at a time; where it permutes single records, one thread reads all files from front to back, if they
 * fit in memory and that takes less than half of the time that single reads would. Mutex held, where nothing
 * else is said.
 */
#pragma once
#include <pthread.h>

#include "pipeline/source.h"

struct cw_runner;
struct piece;

/* Threads: chunks are large, so that fewer at a time are enough than of single reads. */
#define READ_IN_THREADS 16

struct cw_read_in {
    pthread_cond_t wake; /* its threads wait for it */
    pthread_t threads[READ_IN_THREADS];
    unsigned n_threads, n_idle;
    bool files;            /* a thread is going to decide whether it reads all files in */
    bool useless;          /* the page cache does not keep what is read */
    struct read_in *first; /* of pieces, in order */
    unsigned n_pieces;     /* of them. They hold no memory, so reads.n_blocks does not count them */
};

struct read_in_cursor { /* over the chunks of all sources */
    unsigned leaf;
    uint64_t chunk, n;     /* next one of the source; n: of chunks before it, of all sources */
    const uint8_t *only;   /* by n: 1 for those that are wanted; NULL: all are */
    struct cw_extent rest; /* of neighbouring chunks; what was not given out */
};

struct read_in { /* of a piece */
    struct read_in *next;
    struct piece *piece; /* NULL: the piece was dropped, so no thread begins another read for it */
    unsigned n_threads;  /* at it */
    bool over;           /* nothing of it is left that was not begun */
    uint8_t *chunks;     /* a byte for each chunk of all sources, in order; 1: to be read */
    uint64_t n_chunks;
    pthread_mutex_t mutex; /* of the cursor alone: the index may have to be read for it */
    struct read_in_cursor cursor;
};

/* The first read would have blocked: files may be worth reading in. */
void cw_read_in_begin(struct cw_runner *r);
/* Waits for the threads to end; after sched.stop was set. Mutex not held. */
void cw_read_in_stop(struct cw_runner *r);
/* Chunks that should be in memory before the records of a piece are read; NULL: none. Mutex not held. */
struct read_in *cw_read_in_new(struct cw_runner *r, const struct piece *p);
/* Has them read; then the piece counts as planned. False: it does already. Takes over `in`. */
bool cw_read_in_piece(struct cw_runner *r, struct piece *p, struct read_in *in);
