/* Leases: which assignment (worker of a stream) holds which range. The functions also update what depends on
 * the holders of ranges: the counts of assignments and workers, the outboxes, the heap, and the placements
 * that clients are sent. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "service/dispatcher/ranges.h"
#include "service/dispatcher/types.h"

/* Counters of leases, and the number of the last lease. */
struct lease_stats {
    /* starts at the time in ns, so that numbers differ from those of an earlier process, which workers may
     * still name */
    uint64_t last_number;
    uint64_t n_leased, n_completed, n_late, n_moved, n_lost; /* ranges */
};

/* Leases a range to the assignment. If the range has a holder, that one stays as the second holder. -1: no
 * memory. */
int cw_dp_lease_grant(struct cw_dispatcher *d, struct assignment *t, struct range *x) _must_check_;
/* Handles a range that the worker's Holdings names: makes the assignment its holder, or revokes it if it does
 * not fit the table. */
void cw_dp_lease_hold(struct cw_dispatcher *d, struct assignment *t, struct span span, uint64_t lease);
/* Holder i ended the range early, at `end`: the positions after it are free. The other holder, which would
 * compute all of the range, loses its lease. */
void cw_dp_lease_shorten(struct cw_dispatcher *d, struct range *x, int i, uint64_t end);
/* At-most-once: call when the lease is durable. Sends it. */
void cw_dp_lease_written(struct cw_dispatcher *d, struct stream *s, struct range *x);

/* DROP_REVOKED: the worker is sent Revoke. DROP_SILENTLY: not, because it knows, or is gone. */
enum drop { DROP_REVOKED, DROP_SILENTLY };

/* Ends the assignment's lease of the range. Does nothing if it has none. */
void cw_dp_lease_drop(struct cw_dispatcher *d, struct assignment *t, struct range *x, enum drop how);
/* Drops all leases of the assignment whose ranges end after position `from`. */
void cw_dp_lease_drop_from(struct cw_dispatcher *d, struct assignment *t, uint64_t from, enum drop how);
/* Drops all leases of the assignment whose ranges the worker can't have begun yet. */
void cw_dp_lease_drop_unbegun(struct cw_dispatcher *d, struct assignment *t);
/* Drops all leases of the assignment silently, and frees the assignment. */
void cw_dp_lease_discard(struct cw_dispatcher *d, struct assignment *t);
/* Like cw_dp_lease_discard; also sends Forget if the worker has, or is preparing, the stream. */
void cw_dp_lease_forget(struct cw_dispatcher *d, struct assignment *t);

/* Sets the base of the table, and removes and revokes ranges that end before it. */
void cw_dp_lease_rebase(struct cw_dispatcher *d, struct stream *s, uint64_t base);
/* Moves the base back to a position that a worker named, if the low-water mark is not known yet. */
void cw_dp_lease_include(struct cw_dispatcher *d, struct stream *s, uint64_t pos);
/* Removes and revokes all ranges. */
void cw_dp_lease_clear(struct cw_dispatcher *d, struct stream *s);
/* Call when a rank begins at position pos. In a placed plan, a range that contains pos is cut in two there,
 * and both halves are computed again. */
void cw_dp_lease_split(struct cw_dispatcher *d, struct stream *s, uint64_t pos);

/* Returns where a range that begins at span.begin must end: at span.end, or earlier at the position of a rank
 * that has just begun, because that rank needs a range that begins there. */
uint64_t cw_dp_lease_bound(const struct stream *s, struct span span);
/* Returns the range with exactly these positions, and adds it if they are free. NULL: another range has some
 * of them, a rank begins inside, or there is no memory. */
struct range *cw_dp_lease_exact(struct stream *s, struct span span);
/* Whether the assignment is the first holder of the range, and has not computed it yet. */
bool cw_dp_lease_unfinished(const struct range *x, const struct assignment *t);
