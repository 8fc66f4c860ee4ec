/*
 * The leases of a stream as the loop's thread keeps them: what the dispatcher granted and did not revoke. It
 * checks new ones, and reports all of them to the next dispatcher. A stream (streams.c) owns its grants.
 */
#pragma once
#include "service/worker/mailbox.h"

struct cw_grant {
    struct cw_grant *next;
    uint64_t epoch, begin, end;
    uint64_t number; /* as Range.lease */
    /* COMPLETED, acknowledged, to be sent again to the next dispatcher, which may have no journal. Owned;
     * NULL: not acknowledged yet, or the range is not finished */
    struct cw_answer *report;
};

/* Zeros: none. */
struct cw_grants {
    struct cw_grant *list; /* in the order of (epoch, begin) */
    size_t n;
};

/* Returns the grant that begins there; NULL: none does. */
struct cw_grant *cw_grants_find(struct cw_grants *g, uint64_t epoch, uint64_t begin);
/* Adds a range of an epoch of n_positions; whole: the epoch is one range. Returns 1 if it was granted before
 * and is sent again. CW_E_SERVICE: it is no range of this stream, a part of it is granted already, or there
 * are too many. */
int cw_grants_add(struct cw_grants *g, const Cachew__Range *m, uint64_t n_positions, bool whole,
                  struct cw_error *err) _must_check_;
/* Frees all that lie within a range. */
void cw_grants_revoke(struct cw_grants *g, const Cachew__Range *m);
void cw_grants_clear(struct cw_grants *g);
