/* What the workers computed of a stream, by operator: sums of the numbers in their heartbeats. Loop thread
 * only. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/cachew.pb-c.h"

#define DP_OPERATORS 64     /* of a stream; further operators are left out */
#define DP_OPERATOR_NAME 64 /* bytes of a name */

/* Sums of a stream. All zeros: nothing was computed yet. */
struct compute_stats {
    struct operator_stats {
        char *name;
        double compute_s, elements;
    } *operators;

    size_t n;                             /* operators */
    double compute_s, read_s, read_bytes; /* compute_s: of all operators */
    double positions, cached_positions;   /* positions computed; of these, read from the cache */
};

/* The numbers of one worker's last heartbeat; operators in the order of the sums. All zeros: no heartbeat
 * came yet. */
struct compute_report {
    struct {
        uint64_t ns, elements;
    } operators[DP_OPERATORS];

    uint64_t read_ns, read_bytes, positions, cached_positions;
};

/* Adds what the worker computed since *last to the sums, and stores the new numbers in *last. counts false:
 * only stores them, because the numbers were added over an earlier connection, or by an earlier process of
 * the dispatcher. Returns the number of added positions. */
double cw_compute_stats_add(struct compute_stats *sum, struct compute_report *last,
                            const Cachew__StreamWork *m, bool counts);
void cw_compute_stats_deinit(struct compute_stats *sum);
/* {"operators": [{"name", "compute_s", "elements"}], "read_s", "read_bytes", "positions",
 * "cached_positions"}; NULL: no memory. */
json_t *cw_compute_stats_json(const struct compute_stats *sum);
