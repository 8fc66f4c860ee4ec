/* What workers computed of a stream, operator by operator: sums of what their heartbeats say. Loop thread
 * only. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/cachew.pb-c.h"

#define DP_OPERATORS 64     /* of a stream: further operators are left out */
#define DP_OPERATOR_NAME 64 /* bytes of a name */

/* Sums of a stream. Zeros: nothing so far. */
struct compute_stats {
    struct operator_stats {
        char *name;
        double compute_s, elements;
    } *operators;

    size_t n;                             /* operators */
    double compute_s, read_s, read_bytes; /* compute_s: of all operators */
    double positions, cached_positions;   /* of the sequence; of these, read from the cache */
};

/* The last heartbeat of one worker, operators in the order of the sums. Zeros: none yet. */
struct compute_report {
    struct {
        uint64_t ns, elements;
    } operators[DP_OPERATORS];

    uint64_t read_ns, read_bytes, positions, cached_positions;
};

/* Adds what the worker computed since its last report, and stores the new report in *last. counts false: an
 * earlier connection or dispatcher added these numbers, so that they are only stored. */
void cw_compute_stats_add(struct compute_stats *sum, struct compute_report *last, const Cachew__StreamWork *m,
                          bool counts);
void cw_compute_stats_deinit(struct compute_stats *sum);
/* {"operators": [{"name", "compute_s", "elements"}], "read_s", "read_bytes", "positions",
 * "cached_positions"}; NULL: no memory. */
json_t *cw_compute_stats_json(const struct compute_stats *sum);
