/* What workers computed of a stream, operator by operator: sums of what their heartbeats say. Loop thread
 * only. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/cachew.pb-c.h"

#define DP_OPERATORS 64     /* of a stream: a heartbeat names no more */
#define DP_OPERATOR_NAME 64 /* bytes of a name */

/* Of a stream; zeros: nothing so far. */
struct computed {
    struct computed_operator {
        char *name;
        double compute_s, elements;
    } *operators;

    size_t n;
    double compute_s, read_s, read_bytes; /* compute_s: of all operators */
    double positions, cached_positions;   /* of the sequence; of these, read from the cache */
};

/* What one worker said of it last, operators as they stand in the sum; zeros: nothing yet. At most as large
 * as a assignment. */
struct computed_seen {
    struct {
        uint64_t ns, elements;
    } operators[DP_OPERATORS];

    uint64_t read_ns, read_bytes, positions, cached_positions;
};

/* Adds what is more than the worker said last. counts false: that was added before, by who heard it then; it
 * is only noted. What can't be kept is left out. */
void cw_computed_add(struct computed *sum, struct computed_seen *seen, const Cachew__StreamWork *m,
                     bool counts);
void cw_computed_deinit(struct computed *sum);
/* {"operators": [{"name", "compute_s", "elements"}], "read_s", "read_bytes", "positions",
 * "cached_positions"}; NULL: no memory. */
json_t *cw_computed_json(const struct computed *sum);
