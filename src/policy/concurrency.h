/*
 * How many calls run at a time, where functions wait rather than compute (for a network, a disk, a sleep):
 * more than there are CPUs. The number is doubled while calls wait, CPUs are free and doubling makes the run
 * faster; otherwise it goes back. A pure function of measurements.
 */
#pragma once
#include <stdbool.h>

/* What was measured since the last step. */
struct cw_calls_seen {
    double seconds;
    double elements;   /* that were computed */
    double calls;      /* that ended */
    double call_s;     /* time of all calls, summed */
    double call_cpu_s; /* the CPU time of the functions in them */
    double cpu_share;  /* part of the CPUs that was in use, 0 .. 1 */
    double idle_share; /* part of their time in which the places for calls had nothing to do, 0 .. 1 */
    bool short_of_memory;
};

struct cw_concurrency {
    unsigned n, least; /* calls at a time: now; at least */
    unsigned before;   /* the number before it was last doubled, as long as that may be undone; else 0 */
    double rate;       /* elements per second with that number */
    unsigned rest;     /* steps before the next attempt */
    const char *why;   /* the reason for n */
};

/* Starts with `least` calls at a time. why: the reason for this number. */
struct cw_concurrency cw_concurrency_begin(unsigned least, const char *why);
/* Returns whether the measurement is long enough for a step. */
bool cw_concurrency_is_measured(const struct cw_calls_seen *seen);
/* Sets c->n to the next number of calls at a time, `least` to `most`, and c->why. Returns whether c->n
 * changed. */
bool cw_concurrency_step(struct cw_concurrency *c, const struct cw_calls_seen *seen, unsigned most);
