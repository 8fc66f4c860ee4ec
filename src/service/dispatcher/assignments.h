/* The table of assignments. An assignment is the relation of one worker to one stream. An assignment that may
 * get leases is in its stream's heap. The heap's root has room for one more range, if any assignment has, and
 * among these the fewest ranges to compute. After a change of a field that this depends on,
 * cw_dp_assignment_usable must be called. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "service/dispatcher/ranges.h"
#include "service/dispatcher/types.h"

enum assignment_state {
    ASSIGNMENT_IDLE,
    ASSIGNMENT_ASKED, /* Prepare was sent */
    ASSIGNMENT_READY,
    ASSIGNMENT_UNFIT /* the worker can't serve the stream */
};

/* What a worker has computed of a stream so far: sums from its last heartbeat, which came at at_ns. */
struct work {
    double compute_s, positions, batches, read_bytes;
    uint64_t at_ns;
};

#define OUTBOX_SPANS 64

/* Leases and revocations that the next turn sends to the worker (lease_outbox.h). */
struct lease_outbox {
    struct cw_link dirty;
    uint64_t *leases; /* begins of the ranges to lease; room for capacity + 2 */
    size_t n_leases, room;
    struct span revoke[OUTBOX_SPANS];
    size_t n_revoke;
    bool new_origin; /* the stream's origin is to be sent */
};

struct assignment {
    struct cw_link by_worker, by_stream;
    struct worker *worker;
    struct stream *stream;
    enum assignment_state state;
    uint64_t request;                      /* id of the last Prepare */
    char *why;                             /* unfit: the reason, owned */
    uint32_t capacity, n_held, n_complete; /* ranges */
    uint64_t most_positions; /* of a range that fits the worker's memory; UINT64_MAX: any number */
    uint64_t to_compute;     /* positions of its ranges that are not complete */
    uint64_t completed_ns;   /* when its last completion came */
    size_t heap_at;          /* 0: not in the heap; else index + 1 */
    uint64_t shunned_until;  /* in ns: no leases before; 0: not shunned */
    bool failed;             /* unfit: the worker was ready, and then failed at the stream */
    bool granted;   /* it is in the stream's worker set, and may get leases; without a policy: true */
    bool named;     /* Holdings named the stream since the worker reconnected */
    bool beside;    /* Prepare was sent while the worker had other streams */
    bool announced; /* the clients of the stream know the worker's address */
    uint64_t order; /* a hash of worker and stream: decides between assignments with equal room */
    struct work work, last_work;     /* last_work: at the policy's last decision */
    struct compute_report *computed; /* NULL: no heartbeat yet */
    /* from the last heartbeat; NULL: the pipeline has no cache points to choose from */
    struct cw_cache_stats *caching;
    struct lease_outbox outbox;
};

struct assignment_table {
    struct cw_link dirty; /* outboxes that are not empty */
    size_t n;
};

struct assignment *cw_dp_assignment_find(struct worker *w, const struct stream *s); /* NULL: none */
struct assignment *cw_dp_assignment_new(struct cw_dispatcher *d, struct worker *w,
                                        struct stream *s); /* NULL: no memory or room */
/* Frees an assignment that holds no range. */
void cw_dp_assignment_free(struct cw_dispatcher *d, struct assignment *t);
void cw_dp_assignment_set_state(struct cw_dispatcher *d, struct assignment *t, enum assignment_state state);
/* Updates the assignment's place in the heap after any change (inserts, moves or removes it), and marks the
 * stream as dirty. */
void cw_dp_assignment_usable(struct cw_dispatcher *d, struct assignment *t);
/* Whether the assignment is in the stream's worker set, and its worker can serve the stream. */
bool cw_dp_assignment_serves(const struct assignment *t);
/* Returns how many members of the stream's worker set are ready. */
int cw_dp_worker_set_running(const struct stream *s);
/* The same for each pool index: ret has DP_POOL_INDEXES counts. */
void cw_dp_worker_set_running_of(const struct stream *s, int *ret);
/* Whether a member of the stream's worker set is not ready yet. */
bool cw_dp_worker_set_comes(const struct cw_dispatcher *d, const struct stream *s);
