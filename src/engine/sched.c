/* The scheduler's state: which blocks are ready, starved or parked, what runs, and what waits. It owns the
 * runner's mutex and its two conditions. compute.c uses the state to decide what runs next; other files of
 * the engine move blocks and wake threads. */
#include "engine/sched.h"

#include <errno.h>

#include "base/clock.h"
#include "base/cost_clock.h"
#include "base/thread.h"
#include "engine/internal.h"

void cw_sched_wake(struct cw_runner *r)
{
    r->sched.settled = false;
    pthread_cond_broadcast(&r->sched.work);
}

void cw_sched_notify(struct cw_runner *r)
{
    pthread_cond_signal(&r->sched.done);
    if (r->options.notify)
        r->options.notify(r->options.notify_arg);
}

void cw_sched_changed(struct cw_runner *r)
{
    cw_sched_wake(r);
    cw_sched_notify(r);
}

void cw_sched_fail(struct cw_runner *r, const struct cw_error *err)
{
    if (!r->sched.fatal.status)
        r->sched.fatal = *err;
    cw_sched_notify(r);
}

void cw_sched_out_of_memory(struct cw_runner *r, const char *what)
{
    struct cw_error err = {0};
    (void)cw_error_nomem(&err, 0, what);
    cw_sched_fail(r, &err);
}

bool cw_sched_is_idle(const struct cw_runner *r)
{
    return cw_sched_is_calm(r) && r->read_in.n_pieces == 0;
}

bool cw_sched_is_calm(const struct cw_runner *r)
{
    return r->sched.n_running == 0 && r->reads.n_blocks == 0;
}

/* ---- lists of blocks ---- */

static bool block_is_before(const struct block *a, const struct block *b)
{
    return a->range != b->range ? cw_range_before(a->range, b->range) : a->seq < b->seq;
}

static void blocks_insert(struct block **list, struct block *b)
{
    while (*list && block_is_before(*list, b))
        list = &(*list)->next;
    b->next = *list;
    *list = b;
}

void cw_sched_ready(struct cw_runner *r, struct block *b)
{
    blocks_insert(&r->sched.ready, b);
    r->sched.settled = false;
    pthread_cond_signal(&r->sched.work);
}

void cw_sched_leave(struct cw_runner *r, unsigned *count)
{
    --*count;
    if (r->memory.consumer_short && cw_sched_is_calm(r)) /* the consumer can take memory from others now */
        cw_sched_notify(r);
}

void cw_sched_park(struct block *b)
{
    b->spent_ns += cw_cost_now_ns() - b->exec.started_ns;
    b->waited = true;
    blocks_insert(&b->range->parked, b);
}

void cw_sched_starve(struct cw_runner *r, struct block *b)
{
    cw_block_reset(r, b);
    blocks_insert(&r->sched.starved, b);
}

void cw_sched_wake_parked(struct cw_runner *r)
{
    for (struct cw_range *s = r->ranges; s; s = s->next)
        for (struct block **at = &s->parked; *at;) {
            const struct block *b = *at;
            if (b->n_passed > b->point || s->passed[b->point] == b->seq)
                cw_sched_ready(r, CW_POP(*at));
            else
                at = &(*at)->next;
        }
}

void cw_sched_wake_next(struct cw_runner *r, struct cw_range *s, unsigned point)
{
    for (struct block **at = &s->parked; *at; at = &(*at)->next)
        if ((*at)->point == point && (*at)->seq == s->passed[point]) {
            cw_sched_ready(r, CW_POP(*at));
            return;
        }
}

/* ---- waiting ---- */

int cw_sched_stopped(void *arg)
{
    struct cw_runner *r = arg;
    return atomic_load_explicit(&r->sched.cancelled, memory_order_relaxed);
}

int cw_range_stopped(void *arg)
{
    struct cw_range *s = arg;
    return atomic_load_explicit(&s->cancelled, memory_order_relaxed) ||
           atomic_load_explicit(&s->runner->sched.cancelled, memory_order_relaxed);
}

int cw_sched_wait(struct cw_runner *r, uint64_t deadline_ns, const char *what, struct cw_error *err)
{
    if (r->sched.interrupted)
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    uint64_t start = cw_now_ns();
    int e = cw_cond_wait(&r->sched.done, &r->sched.mutex, deadline_ns);
    r->profile.wait_ns += cw_now_ns() - start;
    if (r->sched.interrupted)
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    if (e == ETIMEDOUT)
        return cw_error_set(err, CW_E_DEADLINE,
                            "%s did not come before the deadline: %u blocks of elements are being computed, "
                            "and %u wait for data from storage",
                            what, r->sched.n_running, r->reads.n_blocks);
    return 0;
}
