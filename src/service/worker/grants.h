/*
 * Grants: the loop thread's copy of a stream's leases (lease.h has the copy of the stream's thread). A grant
 * is a range that the dispatcher leased and has not revoked. New leases are checked against the grants, and
 * after a reconnect the dispatcher is sent all of them. A stream (streams.c) owns its grants. The loop's
 * thread only.
 */
#pragma once
#include "service/worker/mailbox.h"

struct cw_grant {
    struct cw_grant *next;
    uint64_t epoch, begin, end;
    uint64_t number; /* number of the lease, as in Range.lease */
    /* the acknowledged COMPLETED report. It is sent again after a reconnect: a restarted dispatcher may have
     * no journal. Owned; NULL: the range is not finished, or its report is not acknowledged yet */
    struct cw_answer *report;
};

/* All zeros: no grants. */
struct cw_grants {
    struct cw_grant *list; /* sorted by (epoch, begin) */
    size_t n;
};

/* Returns the grant that begins at this position; NULL: there is none. */
struct cw_grant *cw_grants_find(struct cw_grants *g, uint64_t epoch, uint64_t begin);
/* Adds a grant. n_positions: positions of an epoch; whole: an epoch is one range. 1: the same range is
 * granted already. CW_E_SERVICE: it is not a range of this stream, a part of it is granted already, or there
 * are too many grants. */
int cw_grants_add(struct cw_grants *g, const Cachew__Range *m, uint64_t n_positions, bool whole,
                  struct cw_error *err) _must_check_;
/* Frees all grants that lie within the range m. */
void cw_grants_revoke(struct cw_grants *g, const Cachew__Range *m);
/* Frees all grants. */
void cw_grants_clear(struct cw_grants *g);
