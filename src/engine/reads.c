/* Read threads: they read what is not in memory, for blocks that compute threads handed over, many reads
 * at a time. The work item of a thread is a single read: all threads read for the first block of the list,
 * then for the next. */
#include "engine/internal.h"

#include "base/cost_clock.h"
#include "base/thread.h"

static void *read_main(void *arg);

static size_t block_waiting(const struct block *b)
{
    size_t next = atomic_load(&b->exec.reads.next);
    return !b->exec.reads.list ? 1 : b->exec.reads.n - CW_MIN(next, b->exec.reads.n);
}

size_t cw_reads_waiting(const struct cw_runner *r)
{
    size_t n = 0;
    for (const struct block *b = r->reading; b && n < READ_DEPTH; b = b->next)
        n += block_waiting(b);
    return n;
}

/* There is a read for one more thread. Each thread that begins calls it again, so that there are soon as
 * many as there are reads. */
static void wake_reader(struct cw_runner *r)
{
    struct cw_error err = {0};
    if (r->n_readers_idle > 0)
        pthread_cond_signal(&r->reads);
    else if (r->n_readers < READ_DEPTH && cw_thread_start(&r->readers[r->n_readers], read_main, r, &err) >= 0)
        r->n_readers++;
    else if (r->n_readers == 0 && !r->fatal.status)
        r->fatal = err;
}

static void enqueue(struct cw_runner *r, struct block *b, bool first)
{
    struct block **at = first ? &r->reading : r->reading_tail;
    b->next = *at;
    *at = b;
    if (!b->next)
        r->reading_tail = &b->next;
    b->queued = true;
    b->n_readers = 0;
    b->read_failed = false;
    atomic_store(&b->reads_low, b->exec.reads.n < READ_DEPTH);
    r->n_fetching += !b->exec.reads.list;
    r->reading_bytes += b->exec.reads.bytes;
    wake_reader(r);
}

static void dequeue(struct cw_runner *r, struct block *b)
{
    struct block **at = &r->reading;
    if (!b->queued)
        return;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    if (!*at)
        r->reading_tail = at;
    b->queued = false;
    if (cw_reads_waiting(r) < READ_DEPTH)
        cw_work(r); /* there is room for the reads of another block */
}

void cw_reading_begin(struct cw_runner *r, unsigned *count)
{
    if (r->n_reading + r->n_reading_in == 0)
        r->reading_since_ns = cw_now_ns();
    ++*count;
}

void cw_reading_end(struct cw_runner *r, unsigned *count)
{
    cw_leave(r, count);
    if (r->n_reading + r->n_reading_in == 0)
        r->profile.cold_wall_ns += cw_now_ns() - r->reading_since_ns;
}

void cw_reads_add(struct cw_runner *r, struct block *b)
{
    cw_reading_begin(r, &r->n_reading);
    enqueue(r, b, false);
    if (r->fatal.status)
        cw_done(r);
}

/* A thread is done with a read, or several: what it counted. */
static void count(struct cw_runner *r, struct cw_counts *own)
{
    r->profile.read_ns += own->read_ns;
    r->profile.read_bytes += own->read_bytes;
    r->profile.cold_ns += own->read_ns;
    r->profile.cold_bytes += own->read_bytes;
    r->n_cold_reads += own->n_reads;
    own->read_ns = own->read_bytes = own->n_reads = 0;
    if (r->read_in_files)
        pthread_cond_signal(&r->read_in_work);
}

/* No thread is at the block any more, and nothing of it is left to be read. */
static void done(struct cw_runner *r, struct block *b, int status, const struct cw_error *err)
{
    r->reading_bytes -= b->exec.reads.bytes;
    cw_reading_end(r, &r->n_reading);
    if (status == CW_E_BUDGET) {
        cw_starve(r, b);
        cw_work(r);
    } else {
        if (status < 0 && !r->fatal.status) {
            r->fatal = *err;
            cw_done(r);
        }
        cw_ready(r, b);
    }
    if (b->range->closed) /* the consumer waits for its blocks to end */
        cw_done(r);
}

void cw_reads_drop(struct cw_runner *r, const struct cw_range *s)
{
    for (struct block *b = r->reading, *next; b; b = next) {
        next = b->next;
        if (b->range != s)
            continue;
        atomic_store(&b->exec.reads.next, b->exec.reads.n);
        if (b->n_readers == 0) { /* no thread is at it: it need not wait for one */
            dequeue(r, b);
            r->n_fetching -= !b->exec.reads.list;
            done(r, b, 0, NULL);
        }
    }
}

/* Looks into the cache, and waits for it. What is to be had of the source instead is read by all threads. */
static void fetch(struct cw_runner *r, struct cw_counts *own, struct block *b)
{
    struct cw_error err = {0};
    dequeue(r, b);
    r->n_fetchers++;
    b->exec.cache.patience_ns = cw_block_patience(r, b);
    uint64_t began_ns = cw_store_enter(r);
    pthread_mutex_unlock(&r->mutex);
    int status = cw_exec_read(&b->exec, own, true, &err);
    pthread_mutex_lock(&r->mutex);
    b->cold_ns += cw_store_leave(r, began_ns);
    count(r, own);
    r->n_fetchers--;
    r->n_fetching--;
    if (status == 1 && !b->range->closed) {
        enqueue(r, b, true);
    } else {
        /* which done() takes off: the reads were planned here, and need no thread */
        r->reading_bytes += b->exec.reads.bytes;
        done(r, b, status, &err);
    }
}

/* Reads of the block until all were begun. */
static void read_some(struct cw_runner *r, struct cw_counts *own, struct block *b)
{
    struct cw_error err = {0};
    int status = 0;
    b->n_readers++;
    uint64_t began_ns = cw_store_enter(r);
    pthread_mutex_unlock(&r->mutex);
    uint64_t start_ns = cw_cost_now_ns();
    while (status == 0) {
        status = cw_exec_read_next(&b->exec, own, false, &err);
        if (block_waiting(b) < READ_DEPTH && !atomic_exchange(&b->reads_low, true)) {
            CW_WITH (&r->mutex)
                cw_work(r); /* there is room for the reads of another block */
        }
    }
    own->read_ns += cw_cost_now_ns() - start_ns;
    pthread_mutex_lock(&r->mutex);
    if (status < 0) {
        atomic_store(&b->exec.reads.next, b->exec.reads.n);
        b->read_failed = true;
        cw_error_op(&err, b->exec.program->ops[0]->desc->name);
    }
    if (status < 0 && !r->fatal.status) {
        r->fatal = err;
        cw_done(r);
    }
    dequeue(r, b);
    if (b->n_readers == 1 && !b->read_failed && !b->range->closed) { /* the last one: everything is there */
        pthread_mutex_unlock(&r->mutex);
        status = cw_exec_read(&b->exec, own, false, &err);
        pthread_mutex_lock(&r->mutex);
    }
    b->cold_ns += cw_store_leave(r, began_ns);
    count(r, own);
    if (--b->n_readers == 0)
        done(r, b, b->read_failed ? 0 : status, &err);
}

/* The first block with a read for another thread. */
static struct block *next_block(struct cw_runner *r)
{
    struct block *b = r->reading;
    while (b && !b->exec.reads.list && r->n_fetchers == STORE_THREADS)
        b = b->next;
    return b;
}

static void *read_main(void *arg)
{
    struct cw_runner *r = arg;
    struct cw_counts own = {.compiled = r->compiled};
    CW_GUARD(&r->mutex);
    while (!r->stop) {
        struct block *b = next_block(r);
        if (!b) {
            r->n_readers_idle++;
            pthread_cond_wait(&r->reads, &r->mutex);
            r->n_readers_idle--;
            continue;
        }
        if (b->next || block_waiting(b) > 1)
            wake_reader(r);
        if (b->exec.reads.list)
            read_some(r, &own, b);
        else
            fetch(r, &own, b);
    }
    return NULL;
}

void cw_reads_stop(struct cw_runner *r)
{
    CW_WITH (&r->mutex) {
        for (struct block *b = r->reading; b; b = b->next)
            atomic_store(&b->exec.reads.next, b->exec.reads.n);
        pthread_cond_broadcast(&r->reads);
    }
    for (unsigned i = 0; i < r->n_readers; i++)
        pthread_join(r->readers[i], NULL);
    r->n_readers = 0;
}
