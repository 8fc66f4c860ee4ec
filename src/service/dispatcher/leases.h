/* Leases: which assignment holds which range. Keeps the counts of assignments and workers, the outboxes, the
 * heap and the news for clients in step with the holders of ranges. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "service/dispatcher/ranges.h"
#include "service/dispatcher/types.h"

/* What the dispatcher counts of leases, and the last lease's number. */
struct lease_stats {
    /* begins with the time, so that it differs from those of an earlier dispatcher, which workers may still
     * name */
    uint64_t last_number;
    uint64_t n_leased, n_completed, n_late, n_moved, n_lost; /* ranges */
};

/* Leases a range to the assignment, beside its holder, if it has one. -1: no memory. */
int cw_dp_lease_grant(struct cw_dispatcher *d, struct assignment *t, struct range *x) _must_check_;
/* Takes note that the assignment holds these positions, as Holdings says, or revokes them. */
void cw_dp_lease_hold(struct cw_dispatcher *d, struct assignment *t, struct span span, uint64_t lease);
/* Holder i ended the range early, at `end`: the rest is free. Another holder, which would compute all of it,
 * loses it. */
void cw_dp_lease_shorten(struct cw_dispatcher *d, struct range *x, int i, uint64_t end);
/* At-most-once: the lease is durable, and is sent. */
void cw_dp_lease_written(struct cw_dispatcher *d, struct stream *s, struct range *x);

/* Whether the worker is sent Revoke. DROP_SILENTLY: it knows, or is gone. */
enum drop { DROP_REVOKED, DROP_SILENTLY };

/* The assignment does not hold the range any more; nothing if it did not. */
void cw_dp_lease_drop(struct cw_dispatcher *d, struct assignment *t, struct range *x, enum drop how);
/* Drops all of its ranges that end behind `from`. */
void cw_dp_lease_drop_from(struct cw_dispatcher *d, struct assignment *t, uint64_t from, enum drop how);
/* Drops all of its ranges that the worker can't be computing yet. */
void cw_dp_lease_drop_unbegun(struct cw_dispatcher *d, struct assignment *t);
/* Drops all of its ranges silently, and frees the assignment. */
void cw_dp_lease_discard(struct cw_dispatcher *d, struct assignment *t);
/* The same, and sends Forget to a worker that has something of the stream. */
void cw_dp_lease_forget(struct cw_dispatcher *d, struct assignment *t);

/* Sets the base of the table, and removes and revokes ranges that end before it. */
void cw_dp_lease_rebase(struct cw_dispatcher *d, struct stream *s, uint64_t base);
/* The same for a position that a worker names, unless it is behind the base, or the low-water mark is known.
 */
void cw_dp_lease_include(struct cw_dispatcher *d, struct stream *s, uint64_t pos);
/* Removes and revokes all ranges. */
void cw_dp_lease_clear(struct cw_dispatcher *d, struct stream *s);
/* Call when a rank begins at pos: in a placed plan, a range that has pos inside is cut in two, and both are
 * run anew. */
void cw_dp_lease_split(struct cw_dispatcher *d, struct stream *s, uint64_t pos);

/* Returns where a range must end that begins at span.begin: at span.end, or at the position of a rank that
 * has just begun, which needs a range that begins there. */
uint64_t cw_dp_lease_bound(const struct stream *s, struct span span);
/* Returns the range of exactly these positions, added if they are free. NULL: another range has some of them,
 * a rank begins inside, or there is no memory. */
struct range *cw_dp_lease_exact(struct stream *s, struct span span);
/* Whether the assignment is the first holder, and has not computed the range. */
bool cw_dp_lease_unfinished(const struct range *x, const struct assignment *t);
