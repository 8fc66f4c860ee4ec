/* The read threads of a runner, which read the bytes of blocks from storage. A block that a cache may have is
 * first read from the cache by one thread; if that fails, many threads read it from the source. Owns
 * r->reads, which r->sched.mutex guards; functions hold that mutex unless they say otherwise. The compute
 * threads and the runner call them. */
#include "engine/reads.h"

#include "base/cost_clock.h"
#include "base/thread.h"
#include "engine/internal.h"

static void *read_main(void *arg);

/* ---- storage ---- */

/* A read thread begins to read. Returns the time, by cw_cost_now_ns. */
static uint64_t storage_enter(struct cw_runner *r)
{
    uint64_t now = cw_cost_now_ns();
    if (r->reads.n_busy++ == 0)
        r->reads.counted_ns = now;
    return now;
}

/* A read thread that began at began_ns stops reading. Returns the part of the time that counts as its own:
 * the time since another thread stopped reading, or since began_ns if no other thread did. The parts of all
 * threads together are at most the time that has passed. */
static uint64_t storage_leave(struct cw_runner *r, uint64_t began_ns)
{
    /* with modelled costs each thread has its own clock */
    uint64_t now = cw_cost_now_ns(), ns = now - (cw_cost_modelled() ? began_ns : r->reads.counted_ns);
    r->reads.counted_ns = now;
    r->reads.n_busy--;
    r->reads.busy_ns += ns;
    return ns;
}

/* ---- the list of blocks ---- */

/* Returns the number of reads of a block that were not begun. A block whose list of reads is not known yet
 * counts as one. */
static size_t reads_waiting(const struct block *b)
{
    size_t next = atomic_load(&b->exec.reads.next);
    return !b->exec.reads.list ? 1 : b->exec.reads.n - CW_MIN(next, b->exec.reads.n);
}

size_t cw_reads_waiting(const struct cw_runner *r)
{
    size_t n = 0;
    for (const struct block *b = r->reads.first; b && n < READ_DEPTH; b = b->next)
        n += reads_waiting(b);
    return n;
}

/* Wakes or starts one read thread, because a read waits that no thread has begun. Each thread that begins a
 * read calls this again while more reads wait. So there are soon as many threads as reads, at most
 * READ_DEPTH. */
static void reads_wake(struct cw_runner *r)
{
    struct cw_error err = {0};
    if (r->reads.n_idle > 0)
        pthread_cond_signal(&r->reads.wake);
    else if (r->reads.n_threads < READ_DEPTH &&
             cw_thread_start(&r->reads.threads[r->reads.n_threads], read_main, r, &err) >= 0)
        r->reads.n_threads++;
    else if (r->reads.n_threads == 0)
        cw_sched_fail(r, &err);
}

static void reads_enqueue(struct cw_runner *r, struct block *b, bool first)
{
    struct block **at = first ? &r->reads.first : r->reads.tail;
    b->next = *at;
    *at = b;
    if (!b->next)
        r->reads.tail = &b->next;
    b->queued = true;
    b->n_readers = 0;
    b->read_failed = false;
    atomic_store(&b->reads_low, b->exec.reads.n < READ_DEPTH);
    r->reads.n_fetching += !b->exec.reads.list;
    r->reads.bytes += b->exec.reads.bytes;
    reads_wake(r);
}

static void reads_dequeue(struct cw_runner *r, struct block *b)
{
    struct block **at = &r->reads.first;
    if (!b->queued)
        return;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    if (!*at)
        r->reads.tail = at;
    b->queued = false;
    if (cw_reads_waiting(r) < READ_DEPTH)
        cw_sched_wake(r); /* there is room for the reads of another block */
}

void cw_reads_begin_busy(struct cw_runner *r, unsigned *count)
{
    if (r->reads.n_blocks + r->read_in.n_pieces == 0)
        r->reads.since_ns = cw_now_ns();
    ++*count;
}

void cw_reads_end_busy(struct cw_runner *r, unsigned *count)
{
    cw_sched_leave(r, count);
    if (r->reads.n_blocks + r->read_in.n_pieces == 0)
        r->profile.cold_wall_ns += cw_now_ns() - r->reads.since_ns;
}

void cw_reads_add(struct cw_runner *r, struct block *b)
{
    cw_reads_begin_busy(r, &r->reads.n_blocks);
    reads_enqueue(r, b, false);
    if (r->sched.fatal.status)
        cw_sched_notify(r);
}

/* Adds what a thread counted for one or several reads. */
static void reads_count(struct cw_runner *r, struct cw_counts *own)
{
    r->profile.read_ns += own->read_ns;
    r->profile.read_bytes += own->read_bytes;
    r->profile.cold_ns += own->read_ns;
    r->profile.cold_bytes += own->read_bytes;
    r->reads.n_done += own->n_reads;
    own->read_ns = own->read_bytes = own->n_reads = 0;
    if (r->read_in.files)
        pthread_cond_signal(&r->read_in.wake);
}

/* Ends the reading of a block, when no thread reads it any more and it has no reads left. */
static void reads_end_block(struct cw_runner *r, struct block *b, int status, const struct cw_error *err)
{
    r->reads.bytes -= b->exec.reads.bytes;
    cw_reads_end_busy(r, &r->reads.n_blocks);
    if (status == CW_E_BUDGET) {
        cw_sched_starve(r, b);
        cw_sched_wake(r);
    } else {
        if (status < 0)
            cw_sched_fail(r, err);
        cw_sched_ready(r, b);
    }
    if (b->range->closed) /* the consumer waits until the range's blocks end */
        cw_sched_notify(r);
}

void cw_reads_drop(struct cw_runner *r, const struct cw_range *s)
{
    for (struct block *b = r->reads.first, *next; b; b = next) {
        next = b->next;
        if (b->range != s)
            continue;
        atomic_store(&b->exec.reads.next, b->exec.reads.n);
        if (b->n_readers == 0) { /* no thread reads it, so there is nothing to wait for */
            reads_dequeue(r, b);
            r->reads.n_fetching -= !b->exec.reads.list;
            reads_end_block(r, b, 0, NULL);
        }
    }
}

/* Reads a block's rows from the cache, waiting for storage. If they must be read from the source instead
 * (status 1), the block goes back to the head of the list, now with a list of reads for all read threads. */
static void reads_fetch(struct cw_runner *r, struct cw_counts *own, struct block *b)
{
    struct cw_error err = {0};
    reads_dequeue(r, b);
    r->reads.n_fetchers++;
    b->exec.cache.patience_ns = cw_cache_stats_patience(r, b);
    uint64_t began_ns = storage_enter(r);
    pthread_mutex_unlock(&r->sched.mutex);
    int status = cw_exec_read(&b->exec, own, true, &err);
    pthread_mutex_lock(&r->sched.mutex);
    b->cold_ns += storage_leave(r, began_ns);
    reads_count(r, own);
    r->reads.n_fetchers--;
    r->reads.n_fetching--;
    if (status == 1 && !b->range->closed) {
        reads_enqueue(r, b, true);
    } else {
        /* reads_end_block subtracts these bytes. They were 0 when reads_enqueue added them, because
         * cw_exec_read has planned the reads only now. */
        r->reads.bytes += b->exec.reads.bytes;
        reads_end_block(r, b, status, &err);
    }
}

/* Does reads of the block until all were begun. */
static void reads_some(struct cw_runner *r, struct cw_counts *own, struct block *b)
{
    struct cw_error err = {0};
    int status = 0;
    b->n_readers++;
    uint64_t began_ns = storage_enter(r);
    pthread_mutex_unlock(&r->sched.mutex);
    uint64_t start_ns = cw_cost_now_ns();
    while (status == 0) {
        status = cw_exec_read_next(&b->exec, own, false, &err);
        if (reads_waiting(b) < READ_DEPTH && !atomic_exchange(&b->reads_low, true)) {
            CW_WITH (&r->sched.mutex)
                cw_sched_wake(r); /* there is room for the reads of another block */
        }
    }
    own->read_ns += cw_cost_now_ns() - start_ns;
    pthread_mutex_lock(&r->sched.mutex);
    if (status < 0) {
        atomic_store(&b->exec.reads.next, b->exec.reads.n);
        b->read_failed = true;
        cw_error_op(&err, b->exec.program->ops[0]->desc->name);
        cw_sched_fail(r, &err);
    }
    reads_dequeue(r, b);
    /* the last thread: all bytes are read, and cw_exec_read makes the rows of them */
    if (b->n_readers == 1 && !b->read_failed && !b->range->closed) {
        pthread_mutex_unlock(&r->sched.mutex);
        status = cw_exec_read(&b->exec, own, false, &err);
        pthread_mutex_lock(&r->sched.mutex);
    }
    b->cold_ns += storage_leave(r, began_ns);
    reads_count(r, own);
    if (--b->n_readers == 0)
        reads_end_block(r, b, b->read_failed ? 0 : status, &err);
}

/* Returns the first block that another thread may read: one with a list of reads, or one to be read from the
 * cache, if fewer than STORE_THREADS threads read from the cache. */
static struct block *reads_next_block(struct cw_runner *r)
{
    struct block *b = r->reads.first;
    while (b && !b->exec.reads.list && r->reads.n_fetchers == STORE_THREADS)
        b = b->next;
    return b;
}

static void *read_main(void *arg)
{
    struct cw_runner *r = arg;
    struct cw_counts own = {.compiled = r->compiled};
    CW_GUARD(&r->sched.mutex);
    while (!r->sched.stop) {
        struct block *b = reads_next_block(r);
        if (!b) {
            r->reads.n_idle++;
            pthread_cond_wait(&r->reads.wake, &r->sched.mutex);
            r->reads.n_idle--;
            continue;
        }
        if (b->next || reads_waiting(b) > 1)
            reads_wake(r);
        if (b->exec.reads.list)
            reads_some(r, &own, b);
        else
            reads_fetch(r, &own, b);
    }
    return NULL;
}

void cw_reads_stop(struct cw_runner *r)
{
    CW_WITH (&r->sched.mutex) {
        for (struct block *b = r->reads.first; b; b = b->next)
            atomic_store(&b->exec.reads.next, b->exec.reads.n);
        pthread_cond_broadcast(&r->reads.wake);
    }
    for (unsigned i = 0; i < r->reads.n_threads; i++)
        pthread_join(r->reads.threads[i], NULL);
    r->reads.n_threads = 0;
}
