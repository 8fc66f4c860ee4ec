/*
 * Joined batches made ahead. What splits leave over is joined by the consumer's thread, in order; where operators on batches follow, which may take long, the
 * runner's threads make the same batches before the consumer comes to them. These are copies: the consumer joins as ever, and then takes what is there in place
 * of doing the rest itself. So they may be dropped at any time, and are when memory is short.
 */
#pragma once
#include "engine/runner.h"

/* Which of the joined batches: the one that the elements of split `split` up to `end` of its remnant `key` complete. */
struct cw_joined_name {
    uint64_t epoch, split, end;
    unsigned key;
};

struct cw_joined_part { /* elements from .. from + n - 1 of a remnant, or of what waits to be joined */
    const struct cw_assembly *waiting; /* NULL: of the split */
    struct cw_split *split;
    uint64_t from, n;
};

/* What a split leaves over, by bucket. False: it is not computed yet (any more). */
bool cw_runner_remnants(struct cw_runner *r, struct cw_split *s, uint64_t *ret_sizes);
/* Begins to make the batch of these parts, all of it, where that was not begun. Batches are begun in order. False: there is no room now, or not all parts are
 * there: nor is there a use in asking for those behind it. */
bool cw_runner_join_ahead(struct cw_runner *r, const struct cw_joined_name *name, const struct cw_joined_part *parts, unsigned n_parts, uint64_t seed);
/* The consumer joined `a` itself: cw_runner_finish takes what was begun of it. */
void cw_runner_join_claim(struct cw_runner *r, const struct cw_joined_name *name, struct cw_assembly *a);
