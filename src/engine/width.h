/* The width: how many compute threads run. It is the option `threads`, but rises where functions wait rather
 * than compute (policy/concurrency.h). The runner's mutex is held in all functions. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "policy/concurrency.h"

struct cw_runner;
struct compute_thread;

struct cw_width {
    struct cw_concurrency chosen; /* chosen.n is the width */
    unsigned n_new;               /* threads up to the width that have not run a block since it changed */
    bool warm;                    /* since then, as many threads were idle as have not run a block */
    unsigned n_idle;              /* threads that have nothing to do */
    /* the idle time of all threads, summed until idle_at_ns */
    uint64_t idle_ns, idle_at_ns;
    /* what was counted when the present measurement began: */
    uint64_t began_ns, began_idle_ns, began_positions;

    struct {
        uint64_t n, wall_ns;  /* blocks that called functions; the time of their calls */
        uint64_t cpu_ns;      /* CPU time of the functions, and of the threads */
        uint64_t call_cpu_ns; /* of these, of the functions */
    } seen;                   /* since then */
};

void cw_width_init(struct cw_runner *r);
/* Returns the part of a thread's time that counts as work of one of options.threads: where more threads run,
 * each counts less, so that sums of times can be compared with options.threads. */
uint64_t cw_width_share(const struct cw_runner *r, uint64_t ns);
/* A thread waits for work (on), or goes on. */
void cw_width_idle(struct cw_runner *r, bool on);
/* A thread has run a block: adds its calls of functions, and may choose another width. Threads beyond the
 * width end by themselves. */
void cw_width_note(struct cw_runner *r, struct compute_thread *t);
