/*
 * Reads whole chunks of files into the page cache, with threads of low priority that are started when they
 * are needed. There are two uses. Where a shuffle permutes chunks, the chunks of a piece are read before its
 * records, several at a time. Where a shuffle permutes single records, one thread reads all files from front
 * to back, if they fit in memory and that takes less than half of the time that single reads would take. The
 * runner's mutex is held, unless a comment says otherwise.
 */
#pragma once
#include <pthread.h>

#include "pipeline/source.h"

struct cw_runner;
struct piece;

/* Threads at most. Chunks are large, so fewer threads than for single reads are enough. */
#define READ_IN_THREADS 16

struct cw_read_in {
    pthread_cond_t wake; /* read-in threads wait for it */
    pthread_t threads[READ_IN_THREADS];
    unsigned n_threads, n_idle;
    /* one thread is reserved for deciding whether to read all files, and for doing so */
    bool files;
    bool useless;          /* the page cache does not keep what is read */
    struct read_in *first; /* the chunks of pieces, in the order of the pieces */
    /* number of pieces in `first`. They hold no memory, so reads.n_blocks does not count them */
    unsigned n_pieces;
};

struct read_in_cursor { /* a place in the chunks of all sources */
    unsigned leaf;
    /* the next chunk of source `leaf`; n: the number of chunks before it in all sources */
    uint64_t chunk, n;
    const uint8_t *only;   /* by n: 1 for chunks that are to be read; NULL: all are */
    struct cw_extent rest; /* what is left of an extent of neighbouring chunks */
};

struct read_in { /* the chunks of one piece */
    struct read_in *next;
    struct piece *piece; /* NULL: the piece was dropped, so no thread begins another read for it */
    unsigned n_threads;  /* threads that read its chunks */
    bool over;           /* all its reads have begun */
    uint8_t *chunks;     /* a byte for each chunk of all sources, in order; 1: it is to be read */
    uint64_t n_chunks;
    pthread_mutex_t mutex; /* guards the cursor alone, because moving the cursor may read the index */
    struct read_in_cursor cursor;
};

/* Called when the first read would have blocked: begins to consider reading whole files. */
void cw_read_in_begin(struct cw_runner *r);
/* Waits for the threads to end; sched.stop must be set before. Mutex not held. */
void cw_read_in_stop(struct cw_runner *r);
/* Returns the chunks that should be in memory before the records of a piece are read; NULL: none. Mutex not
 * held. */
struct read_in *cw_read_in_new(struct cw_runner *r, const struct piece *p);
/* Lets threads read the chunks; the piece counts as planned when that is done. False: the piece counts as
 * planned now. Takes over `in`. */
bool cw_read_in_piece(struct cw_runner *r, struct piece *p, struct read_in *in);
